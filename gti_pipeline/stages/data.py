"""Raw files to clean tables and sequences."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from gti_pipeline.artifacts import Artifact
from gti_pipeline.config import Config
from gti_pipeline.data.source import Source, source_digests
from gti_pipeline.data.stage import prepare, write
from gti_pipeline.data.summary import facts_text, summary_text
from gti_pipeline.stages.base import Workspace, run_stage

log = logging.getLogger(__name__)

# where the files were found does not change what is in them
WHEREABOUTS = {"dir", "require_real", "kaggle", "standin"}


def run(config: Config, workspace: Workspace, source: Source) -> Artifact:
    """Tables: items, interactions, rejected, sequences."""

    def make(folder: Path, key: str) -> dict[str, Any]:
        del key
        prepared = prepare(config.data, source)
        log.info("%s: what became of every row\n%s", source.name, summary_text(prepared.summary))
        log.info("%s: %s", source.name, facts_text(prepared.summary))
        return write(prepared, folder)

    settings = config.data.model_dump(mode="json", exclude=WHEREABOUTS) | {"source": source.name}
    return run_stage(workspace, "data", module=__name__, settings=settings, inputs=source_digests(source), write=make)
