"""Vectors to unique semantic IDs."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from gti_pipeline import columns as c
from gti_pipeline import schemas
from gti_pipeline.artifacts import MANIFEST, Artifact
from gti_pipeline.config import Config
from gti_pipeline.errors import GtiError
from gti_pipeline.progress import Progress
from gti_pipeline.semantic_ids.stage import build, extend, write
from gti_pipeline.stages.base import Workspace, run_stage
from gti_pipeline.stages.embed import items_digest

STAGE = "semantic_ids"
LATEST = "latest"

log = logging.getLogger(__name__)


def run(config: Config, workspace: Workspace, data: Artifact, embeddings: Artifact) -> Artifact:
    """Tables: semantic_ids, retired_ids, codebooks, steps; weights of the RQ-VAE.

    With `semantic_ids.base` the items of an earlier artifact keep their IDs.
    """
    settings = config.semantic_ids.model_dump(mode="json")
    base = _base(settings, workspace)
    if base and base.summary["embeddings"] == embeddings.key:  # made from these very items: there is no new one
        log.info("%s: no new item since artifact %s, which is used as it is", STAGE, base.key)
        return base
    settings["base"] = base.key if base else None

    def make(folder: Path, key: str) -> dict[str, Any]:
        del key
        vectors = schemas.ITEM_EMBEDDINGS.read(embeddings.path)
        items = schemas.ITEMS.read(data.path)
        grouped = items[items[c.GROUP_ID].notna()]
        categories = dict(zip(grouped[c.ITEM_ID], grouped[c.GROUP_ID], strict=True))
        if base:
            result = extend(vectors, base.path, config.semantic_ids, categories)
        else:
            unit = "levels" if config.semantic_ids.method == "rqkmeans" else "epochs at most"
            result = build(vectors, config.semantic_ids, Progress(STAGE, unit), categories)
        return write(result, folder) | {"embeddings": embeddings.key}

    inputs = {"embed": embeddings.key, "items": items_digest(data)}
    return run_stage(workspace, STAGE, module=__name__, settings=settings, inputs=inputs, write=make)


def _base(settings: dict[str, Any], workspace: Workspace) -> Artifact | None:
    """The artifact that is extended: the named one, or the newest that was made with the same settings.

    Raises:
        GtiError: the named artifact is not there, broken, or was made with other settings.
    """
    wanted = settings["base"]
    if wanted is None:
        return None
    root = workspace.store.root / STAGE
    manifests = sorted(root.glob(f"*/{MANIFEST}"), key=lambda path: path.stat().st_mtime, reverse=True)
    for manifest in manifests:
        key = manifest.parent.name
        if wanted not in (LATEST, key):
            continue
        artifact = workspace.store.find(STAGE, key)
        made_with = json.loads(manifest.read_text(encoding="utf-8"))["settings"] if artifact else {}
        if artifact and _alike(made_with, settings):
            return artifact
        if wanted == key:
            other = sorted(name for name in settings if made_with.get(name) != settings[name] and name != "base")
            raise GtiError(f"semantic_ids.base={wanted}: it was made with other semantic_ids settings: {other}")
    if wanted != LATEST:
        raise GtiError(f"semantic_ids.base={wanted}: no such artifact in {root}; `latest` takes the newest")
    return None


def _alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Equal settings, what they extend aside."""
    return {**one, "base": None} == {**other, "base": None}
