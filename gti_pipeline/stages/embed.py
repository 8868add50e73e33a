"""Item text to vectors."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from gti_pipeline import models, schemas
from gti_pipeline.artifacts import Artifact, file_digest
from gti_pipeline.config import Config
from gti_pipeline.embed import NO_TEXT, TFIDF, embed
from gti_pipeline.errors import GtiError
from gti_pipeline.progress import Progress
from gti_pipeline.stages.base import Workspace, run_stage


def run(config: Config, workspace: Workspace, data: Artifact) -> Artifact:
    """Table: item_embeddings. It depends on the items alone: new interactions embed nothing anew."""
    without = config.embed.model in (TFIDF, NO_TEXT)
    model = None if without else models.resolve(config.embed.model, workspace.home)

    def make(folder: Path, key: str) -> dict[str, Any]:
        scratch = workspace.scratch("embed", key)
        items = schemas.ITEMS.read(data.path)
        path = model.path if model else None
        made = embed(items, config.embed, path, Progress("embed", "texts"), scratch)
        schemas.ITEM_EMBEDDINGS.write(made.table, folder)
        shutil.rmtree(scratch, ignore_errors=True)
        return {
            "items": len(made.table),
            "dim": len(made.table["embedding"].iloc[0]),
            "model": config.embed.model,
            "lacking": made.lacking,
        }

    settings = config.embed.model_dump(mode="json")
    inputs = {"items": items_digest(data), "model": model.identity if model else config.embed.model}
    inputs |= {f"vectors {i}": _digest(brought.file) for i, brought in enumerate(config.embed.vectors)}
    return run_stage(workspace, "embed", module=__name__, settings=settings, inputs=inputs, write=make)


def items_digest(data: Artifact) -> str:
    """sha256 of the table of items: equal tables of two data artifacts have the same."""
    return file_digest(data.path / f"{schemas.ITEMS.name}.parquet")


def _digest(file: str) -> str:
    path = Path(file).expanduser()
    if not path.is_file():
        raise GtiError(f"embed.vectors: {file}: no such file; it should be Parquet with item_id and embedding")
    return file_digest(path)
