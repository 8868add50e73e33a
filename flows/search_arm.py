"""One arm of a search task: all stages of one method and seed, tracked as one MLflow run. Imports no Prefect."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from flows.arm import Arm, log_stage, tracked
from gti_pipeline import schemas
from gti_pipeline.artifacts import Artifact, code_digest, digest
from gti_pipeline.config import Config
from gti_pipeline.data.source import Source, source_digests
from gti_pipeline.stages.base import NotFinishedError, Workspace
from gti_pipeline.stages.evaluate import ARM
from gti_pipeline.tracking import Tracker

STAGES = ("data", "embed", "semantic_ids", "vocab", "ground", "sft", "recommend", "evaluate", "diagnostics")
OWN = ("data", "sft", "recommend", "evaluate")  # those that differ from the recommender's
LEFT_OUT = {"interactions", "dir"}  # of the data's settings, what changes no result

Stages = Callable[[str], Callable[..., Artifact]]


def module(stage: str) -> str:
    """The module of a stage."""
    return f"gti_pipeline.stages.{'search_' if stage in OWN else ''}{stage}"


def finished_arms(configs: Sequence[Config], source: Source) -> list[Arm] | None:
    """The arms, where all of them are there and logged already; found without Prefect."""
    workspace = Workspace(Path(configs[0].home), source.name, only_finished=True)
    tracker = Tracker(workspace.home, source.name)
    arms = []
    for config in configs:
        known = tracker.find(run_key(config, source))
        if known is None:
            return None
        try:
            done = _stages(config, workspace, source, lambda stage: import_module(module(stage)).run, _no_log)
        except NotFinishedError:
            return None
        arms.append(Arm(config, workspace, done, known, logged_before=True))
    return arms


def run_arm(config: Config, source: Source, stage: Stages) -> Arm:
    """Runs the stages, each by what `stage` gives for its name; those whose artifacts exist do no work.

    An identical finished run is not logged twice.
    """
    workspace = Workspace(Path(config.home), source.name)
    tracker = Tracker(workspace.home, source.name)
    tracker.sweep()
    key = run_key(config, source)
    known = tracker.find(key)
    if known:
        return Arm(config, workspace, _stages(config, workspace, source, stage, _no_log), known, logged_before=True)
    shown = config.model_dump(mode="json", exclude={"baselines"})
    with tracked(tracker, config, source, key, config.method, shown) as run_id:
        done = _stages(config, workspace, source, stage, partial(log_stage, tracker, run_id))
        tracker.log_metrics(run_id, schemas.METRICS.read(done["evaluate"].path), ARM)
    return Arm(config, workspace, done, run_id, logged_before=False)


def run_key(config: Config, source: Source) -> str:
    """Identifies a run by what determines its result: settings, files, code."""
    code = {name: code_digest(module(name)) for name in STAGES}
    shown = config.model_dump(mode="json", exclude={"home": True, "data": LEFT_OUT, "baselines": True})
    return digest({"config": shown, "source": source.name, "files": source_digests(source), "code": code})[:16]


def _stages(
    config: Config, workspace: Workspace, source: Source, stage: Stages, told: Callable[[Artifact], None]
) -> dict[str, Artifact]:
    """Runs the arm's stages in order; each is told as soon as it is done. The names are the recommender's."""
    done: dict[str, Artifact] = {}

    def run(name: str, *inputs: Any) -> Artifact:
        artifact = done[name] = stage(name)(config, workspace, *inputs)
        told(artifact)
        return artifact

    data = run("data", source)
    ids = run("semantic_ids", data, run("embed", data))
    vocab = run("vocab", data, ids)
    ground = run("ground", data, ids, vocab) if config.ground.enabled else None
    tuned = run("sft", data, ids, vocab, ground or vocab)
    run("evaluate", data, run("recommend", data, ids, vocab, tuned))
    run("diagnostics", ids, vocab, ground, tuned)
    return done


def _no_log(artifact: Artifact) -> None:
    """A run that was logged before says nothing again."""
    del artifact
