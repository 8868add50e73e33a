"""Item text to vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gti_pipeline import models, schemas
from gti_pipeline.artifacts import Artifact
from gti_pipeline.config import Config
from gti_pipeline.embed import TFIDF, embed
from gti_pipeline.progress import Progress
from gti_pipeline.stages.base import Workspace, run_stage


def run(config: Config, workspace: Workspace, data: Artifact) -> Artifact:
    """Table: item_embeddings."""
    model = None if config.embed.model == TFIDF else models.resolve(config.embed.model, workspace.home)

    def make(folder: Path, key: str) -> dict[str, Any]:
        del key
        items = schemas.ITEMS.read(data.path)
        path = model.path if model else None
        vectors = embed(items, config.embed, path, Progress("embed", "texts"))
        schemas.ITEM_EMBEDDINGS.write(vectors, folder)
        return {"items": len(vectors), "dim": len(vectors["embedding"].iloc[0]), "model": config.embed.model}

    settings = config.embed.model_dump(mode="json")
    inputs = {"data": data.key, "model": model.identity if model else TFIDF}
    return run_stage(workspace, "embed", module=__name__, settings=settings, inputs=inputs, write=make)
