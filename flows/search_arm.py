"""One arm of a search task: all stages of one method and seed, tracked as one MLflow run. Imports no Prefect."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

from flows.arm import Arm, LogTo, find_arm, key_of, log_stage, track_arm
from gti_pipeline import schemas
from gti_pipeline.artifacts import Artifact
from gti_pipeline.config import Config
from gti_pipeline.data.source import Source
from gti_pipeline.stages.base import Workspace
from gti_pipeline.stages.evaluate import ARM

STAGES = ("data", "embed", "semantic_ids", "vocab", "ground", "sft", "recommend", "evaluate", "diagnostics")
OWN = ("data", "sft", "recommend", "evaluate")  # those that differ from the recommender's
LEFT_OUT = {"interactions", "dir"}  # of the data's settings, what changes no result

Stage = Callable[[str], Callable[..., Artifact]]


def module(stage: str) -> str:
    """The module of a stage."""
    return f"gti_pipeline.stages.{'search_' if stage in OWN else ''}{stage}"


def finished_arms(configs: Sequence[Config], source: Source) -> list[Arm] | None:
    """The arms, where all of them are there and logged already; found without Prefect."""
    arms: list[Arm] = []
    for config in configs:
        stages = partial(_stages, config, source, lambda stage: import_module(module(stage)).run)
        arm = find_arm(config, source, run_key(config, source), stages)
        if arm is None:
            return None
        arms.append(arm)
    return arms


def run_arm(config: Config, source: Source, stage: Stage) -> Arm:
    """Runs the stages, each by what `stage` gives for its name; those whose artifacts exist do no work.

    An identical finished run is not logged twice.
    """
    return track_arm(config, source, run_key(config, source), partial(_stages, config, source, stage))


def run_key(config: Config, source: Source) -> str:
    """Identifies a run by what determines its result: settings, files, code."""
    return key_of(config, source, {name: module(name) for name in STAGES}, LEFT_OUT)


def _stages(config: Config, source: Source, stage: Stage, workspace: Workspace, log_to: LogTo) -> dict[str, Artifact]:
    """Runs the arm's stages in order; logs each as soon as it is done. The names are the recommender's."""
    done: dict[str, Artifact] = {}

    def run(name: str, *inputs: Any) -> Artifact:
        artifact = done[name] = stage(name)(config, workspace, *inputs)
        if log_to:
            log_stage(*log_to, artifact)
        return artifact

    data = run("data", source)
    ids = run("semantic_ids", data, run("embed", data))
    vocab = run("vocab", data, ids)
    ground = run("ground", data, ids, vocab) if config.ground.enabled else None
    tuned = run("sft", data, ids, vocab, ground or vocab)
    evaluation = run("evaluate", data, run("recommend", data, ids, vocab, tuned))
    if log_to:
        tracker, run_id = log_to
        tracker.log_metrics(run_id, schemas.METRICS.read(evaluation.path), ARM)
    run("diagnostics", ids, vocab, ground, tuned)
    return done
