"""What every stage shares: where artifacts lie, and doing no work that is already done."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gti_pipeline.artifacts import Artifact, Store, artifact_key
from gti_pipeline.progress import clock

VERSIONS = ("torch", "transformers", "numpy", "pandas", "scikit-learn")

log = logging.getLogger(__name__)


class NotFinishedError(Exception):
    """A stage whose artifact is not there, in a workspace that only looks."""


@dataclass(frozen=True)
class Workspace:
    """Where a run's files lie: below `home`, artifacts by the data set's name."""

    home: Path
    dataset: str
    only_finished: bool = False  # look, do no work: a stage that is not done raises `NotFinishedError`

    @property
    def store(self) -> Store:
        """The artifacts of this data set."""
        return Store(self.home / "artifacts" / self.dataset)

    def scratch(self, stage: str, key: str) -> Path:
        """A folder for checkpoints of an unfinished stage, which a rerun resumes from."""
        return self.home.absolute() / "work" / f"{stage}-{key}"


def run_stage(
    workspace: Workspace,
    stage: str,
    *,
    module: str,
    settings: Any,
    inputs: Mapping[str, str],
    write: Callable[[Path, str], dict[str, Any]],
) -> Artifact:
    """The stage's artifact: found by its content key, or made by `write(folder, key)`."""
    key = artifact_key(stage, settings, inputs, module)
    found = workspace.store.find(stage, key)
    if workspace.only_finished:
        if found is None:
            raise NotFinishedError(stage)
        return found
    if found:
        log.info("%s: already done, nothing to do (artifact %s)", stage, key)
        return found
    log.info("%s: starts", stage)
    about = {"settings": settings, "inputs": dict(inputs), "versions": _versions()}
    made = workspace.store.create(stage, key, lambda folder: write(folder, key), about)
    log.info("%s: done in %s (artifact %s)", stage, clock(made.summary["seconds"]), key)
    return made


def _versions() -> dict[str, str]:
    python = ".".join(map(str, sys.version_info[:3]))
    return {"python": python} | {name: version(name) for name in VERSIONS}
