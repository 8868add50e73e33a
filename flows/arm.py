"""One arm: all stages of one method and seed, tracked as one MLflow run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
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

log = logging.getLogger("gti_pipeline.arm")  # below `gti_pipeline`, whose lines Prefect's UI shows too


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
    workspace = Workspace(Path(config.home), source.name, only_finished=True)
    known = Tracker(workspace.home, source.name).find(run_key(config, source))
    if known is None:
        return None
    try:
        done = _stages(config, workspace, source, lambda stage: import_module(f"gti_pipeline.stages.{stage}").run)
    except NotFinishedError:
        return None
    return Arm(config, workspace, done, known, logged_before=True)


def run_arm(config: Config, source: Source) -> Arm:
    """Runs the stages; those whose artifacts exist do no work. An identical finished run is not logged twice."""
    from flows import tasks  # imports Prefect

    def task(stage: str) -> Callable[..., Artifact]:
        found: Callable[..., Artifact] = getattr(tasks, stage)
        return found

    workspace = Workspace(Path(config.home), source.name)
    tracker = Tracker(workspace.home, source.name)
    tracker.sweep()
    key = run_key(config, source)
    known = tracker.find(key)
    if known:
        return Arm(config, workspace, _stages(config, workspace, source, task), known, logged_before=True)
    shown = config.model_dump(mode="json", exclude={"baselines"})
    with tracked(tracker, config, source, key, config.method, shown) as run_id:
        done = _stages(config, workspace, source, task, (tracker, run_id))
    return Arm(config, workspace, done, run_id, logged_before=False)


def run_key(config: Config, source: Source) -> str:
    """Identifies a run by what determines its result: settings, files, code."""
    code = {stage: code_digest(f"gti_pipeline.stages.{stage}") for stage in STAGES}
    shown = config.model_dump(mode="json", exclude={"home": True, "data": {"dir"}, "baselines": True})
    return digest({"config": shown, "source": source.name, "files": source_digests(source), "code": code})[:16]


def _stages(
    config: Config,
    workspace: Workspace,
    source: Source,
    stage: Callable[[str], Callable[..., Artifact]],
    log_to: tuple[Tracker, str] | None = None,
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
    """An MLflow run of a method or baseline that ends as what it was: finished, failed, or killed."""
    tags: dict[str, Any] = {
        "source": "stand-in" if source.is_standin else "real",
        "dataset": source.name,
        "method": method,
        "profile": config.profile,
        "seed": config.seed,
    }
    run_id = tracker.start(f"{method} seed {config.seed}", key, params, tags)
    try:
        tracker.log_text(run_id, to_yaml(config), "config.yaml")
        files = source_digests(source)
        tracker.log_dataset(run_id, source.name, digest(files), source.note, {"files": files})
        yield run_id
    except Exception:
        tracker.finish(run_id, "FAILED")
        raise
    except BaseException:
        tracker.finish(run_id, "KILLED")
        raise
    tracker.finish(run_id)
