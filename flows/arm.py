"""One arm: all stages of one method and seed, tracked as one MLflow run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from gti_pipeline import schemas
from gti_pipeline.artifacts import Artifact, code_digest, digest
from gti_pipeline.banner import banner_text
from gti_pipeline.config import Config
from gti_pipeline.data.source import Source, source_digests
from gti_pipeline.settings import to_yaml
from gti_pipeline.stages.base import NotFinishedError, Workspace
from gti_pipeline.tracking import Tracker

STAGES = ("data", "embed", "semantic_ids", "vocab", "ground", "sft", "recommend", "evaluate", "diagnostics", "report")
GEOMETRY = tuple(f"{table.name}.parquet" for table in (schemas.DIAGNOSTICS, schemas.SPECTRUM, schemas.NEAREST_WORDS))

LogTo = tuple[Tracker, str] | None  # the tracker and a run's id; None where the run was logged before
Stages = Callable[[Workspace, LogTo], dict[str, Artifact]]  # runs an arm's stages in order


@dataclass(frozen=True)
class Arm:
    """A finished arm: its artifacts by stage, in order, and its MLflow run."""

    config: Config
    workspace: Workspace
    done: dict[str, Artifact]
    run_id: str
    logged_before: bool


def finished_arm(config: Config, source: Source) -> Arm | None:
    """The arm, where all of it is there and logged already; found without Prefect, whose start takes half a minute."""
    stages = partial(_stages, config, source, lambda stage: import_module(f"gti_pipeline.stages.{stage}").run)
    return find_arm(config, source, run_key(config, source), stages)


def run_arm(config: Config, source: Source) -> Arm:
    """Runs the stages; those whose artifacts exist do no work. An identical finished run is not logged twice."""
    from flows import tasks  # imports Prefect

    def task(stage: str) -> Callable[..., Artifact]:
        found: Callable[..., Artifact] = getattr(tasks, stage)
        return found

    return track_arm(config, source, run_key(config, source), partial(_stages, config, source, task))


def run_key(config: Config, source: Source) -> str:
    """Identifies a run by what determines its result: settings, files, code."""
    return key_of(config, source, {stage: f"gti_pipeline.stages.{stage}" for stage in STAGES}, {"dir"})


def key_of(config: Config, source: Source, modules: Mapping[str, str], left_out: set[str]) -> str:
    """The key of a run whose stages are these modules; `left_out`: of the data's settings, what changes no result."""
    code = {stage: code_digest(module) for stage, module in modules.items()}
    shown = config.model_dump(mode="json", exclude={"home": True, "data": left_out, "baselines": True})
    return digest({"config": shown, "source": source.name, "files": source_digests(source), "code": code})[:16]


def find_arm(config: Config, source: Source, key: str, stages: Stages) -> Arm | None:
    """The arm, where `stages` finds all of it and a finished run of this key was logged; else None."""
    workspace = Workspace(Path(config.home), source.name, only_finished=True)
    known = Tracker(workspace.home, source.name).find(key)
    if known is None:
        return None
    try:
        return Arm(config, workspace, stages(workspace, None), known, logged_before=True)
    except NotFinishedError:
        return None


def track_arm(config: Config, source: Source, key: str, stages: Stages) -> Arm:
    """Runs the stages as one MLflow run; without another one, where a finished run of this key was logged."""
    workspace = Workspace(Path(config.home), source.name)
    tracker = Tracker(workspace.home, source.name)
    tracker.sweep()
    known = tracker.find(key)
    if known:
        return Arm(config, workspace, stages(workspace, None), known, logged_before=True)
    shown = config.model_dump(mode="json", exclude={"baselines"})
    with tracked(tracker, config, source, key, config.method, shown) as run_id:
        done = stages(workspace, (tracker, run_id))
    return Arm(config, workspace, done, run_id, logged_before=False)


def _stages(
    config: Config,
    source: Source,
    stage: Callable[[str], Callable[..., Artifact]],
    workspace: Workspace,
    log_to: LogTo,
) -> dict[str, Artifact]:
    """Runs the arm's stages in order, each by what `stage` gives for its name; logs each as soon as it is done."""
    done: dict[str, Artifact] = {}

    def run(name: str, *inputs: Any) -> Artifact:
        artifact = done[name] = stage(name)(config, workspace, *inputs)
        if log_to:
            log_stage(*log_to, artifact)
        return artifact

    data = run("data", source)
    embeddings = run("embed", data)
    ids = run("semantic_ids", data, embeddings)
    vocab = run("vocab", data, ids)
    ground = run("ground", data, ids, vocab) if config.ground.enabled else None
    tuned = run("sft", data, ids, vocab, ground or vocab)
    found = run("recommend", data, ids, vocab, tuned)
    evaluation = run("evaluate", data, found, ids)
    if log_to:
        tracker, run_id = log_to
        tracker.log_metrics(run_id, schemas.METRICS.read(evaluation.path), "model")
    geometry = run("diagnostics", ids, vocab, ground, tuned)
    page = run("report", dict(done), banner_text(source))
    if log_to:
        tracker, run_id = log_to
        tracker.log_files(run_id, [geometry.path / name for name in GEOMETRY], "diagnostics")
        tracker.log_files(run_id, [page.path / "report.html", page.path / "metrics.md"])
        tracker.log_files(run_id, sorted((page.path / "figures").glob("*.png")), "figures")
    return done


def log_stage(tracker: Tracker, run_id: str, artifact: Artifact) -> None:
    """Logs a stage's numbers and curves."""
    tracker.log_summary(run_id, artifact.stage, artifact.summary)
    if (artifact.path / f"{schemas.STEPS.name}.parquet").is_file():
        tracker.log_steps(run_id, artifact.stage, schemas.STEPS.read(artifact.path))


@contextmanager
def tracked(
    tracker: Tracker, config: Config, source: Source, key: str, method: str, params: Mapping[str, Any]
) -> Iterator[str]:
    """An MLflow run of a method or baseline, with its settings and its data set."""
    tags = tags_of(config, source, method) | {"seed": config.seed}
    run_id = tracker.start(f"{method} seed {config.seed}", key, params, tags)
    with ending(tracker, run_id):
        tracker.log_text(run_id, to_yaml(config), "config.yaml")
        files = source_digests(source)
        tracker.log_dataset(run_id, source.name, digest(files), source.note, {"files": files})
        yield run_id


def tags_of(config: Config, source: Source, method: str) -> dict[str, Any]:
    """What every MLflow run of ours is found by."""
    return {
        "source": "stand-in" if source.is_standin else "real",
        "dataset": source.name,
        "method": method,
        "profile": config.profile,
    }


@contextmanager
def ending(tracker: Tracker, run_id: str) -> Iterator[None]:
    """Ends an MLflow run as what it was: finished, failed, or killed."""
    try:
        yield
    except Exception:
        tracker.finish(run_id, "FAILED")
        raise
    except BaseException:
        tracker.finish(run_id, "KILLED")
        raise
    tracker.finish(run_id)
