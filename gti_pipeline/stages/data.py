"""Raw files to clean tables and sequences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gti_pipeline.artifacts import Artifact
from gti_pipeline.config import Config
from gti_pipeline.data.source import Source, source_digests
from gti_pipeline.data.stage import prepare, write
from gti_pipeline.stages.base import Workspace, run_stage

# where the files were found does not change what is in them
WHEREABOUTS = {"dir", "require_real", "kaggle", "standin"}


def run(config: Config, workspace: Workspace, source: Source) -> Artifact:
    """Tables: items, interactions, rejected, sequences."""

    def make(folder: Path, key: str) -> dict[str, Any]:
        del key
        return write(prepare(config.data, source), folder)

    settings = config.data.model_dump(mode="json", exclude=WHEREABOUTS) | {"source": source.name}
    return run_stage(workspace, "data", module=__name__, settings=settings, inputs=source_digests(source), write=make)
