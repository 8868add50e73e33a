"""Vectors to unique semantic IDs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gti_pipeline import schemas
from gti_pipeline.artifacts import Artifact
from gti_pipeline.config import Config
from gti_pipeline.progress import Progress
from gti_pipeline.semantic_ids.stage import build, write
from gti_pipeline.stages.base import Workspace, run_stage


def run(config: Config, workspace: Workspace, embeddings: Artifact) -> Artifact:
    """Tables: semantic_ids, codebooks, steps; weights of the RQ-VAE."""

    def make(folder: Path, key: str) -> dict[str, Any]:
        del key
        vectors = schemas.ITEM_EMBEDDINGS.read(embeddings.path)
        return write(build(vectors, config.semantic_ids, Progress("semantic_ids", "epochs at most")), folder)

    settings = config.semantic_ids.model_dump(mode="json")
    inputs = {"embed": embeddings.key}
    return run_stage(workspace, "semantic_ids", module=__name__, settings=settings, inputs=inputs, write=make)
