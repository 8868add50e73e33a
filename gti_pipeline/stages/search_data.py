"""Raw files to clean items, queries and graded judgments."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from gti_pipeline.artifacts import Artifact
from gti_pipeline.config import Config
from gti_pipeline.data.source import Source, source_digests
from gti_pipeline.data.summary import summary_text
from gti_pipeline.search.data import facts_text, prepare, write
from gti_pipeline.stages.base import Workspace, run_stage
from gti_pipeline.stages.data import WHEREABOUTS

log = logging.getLogger(__name__)


def run(config: Config, workspace: Workspace, source: Source) -> Artifact:
    """Tables: items, queries, judgments, rejected."""

    def make(folder: Path, key: str) -> dict[str, Any]:
        del key
        prepared = prepare(config.data, source)
        log.info("%s: what became of every row\n%s", source.name, summary_text(prepared.summary))
        log.info("%s: %s", source.name, facts_text(prepared.summary))
        return write(prepared, folder)

    settings = config.data.model_dump(mode="json", exclude=WHEREABOUTS | {"interactions"}) | {"source": source.name}
    inputs = source_digests(source)
    return run_stage(workspace, "search_data", module=__name__, settings=settings, inputs=inputs, write=make)
