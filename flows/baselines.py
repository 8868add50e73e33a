"""All baselines, and on request an arm, over the same test users in one table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
from prefect import flow
from rich.table import Table

from flows import tasks
from flows.arm import log_stage, run_arm, tracked
from flows.console import announce, console, show_banner
from flows.environment import show_progress
from gti_pipeline import columns as c
from gti_pipeline import schemas
from gti_pipeline.artifacts import Artifact, code_digest, digest
from gti_pipeline.config import BaselineName, Config
from gti_pipeline.data.source import Source, resolve_source
from gti_pipeline.report.comparison import build_comparison
from gti_pipeline.report.tables import arms_table
from gti_pipeline.settings import load_config
from gti_pipeline.stages.base import Workspace
from gti_pipeline.stages.baselines import needs_embeddings, why_not
from gti_pipeline.stages.comparison import SEED, rows_compared
from gti_pipeline.stages.evaluate import POPULAR
from gti_pipeline.tracking import Tracker

SECTIONS = ("data", "embed", "decode", "evaluate", "baselines")  # of the configuration, that baselines depend on


@dataclass(frozen=True)
class Baselines:
    """Finished baselines by name, those left out with the reason, and the evaluation of all (with the arm, if any)."""

    done: dict[str, Artifact]
    left_out: dict[str, str]
    evaluation: Artifact
    run_ids: dict[str, str]


@flow(name="gti-baselines", flow_run_name="{dataset}-baselines", persist_result=False)
def baselines(
    dataset: str = "vibrent", profile: str = "cpu", with_arm: str = "", overrides: tuple[str, ...] = ()
) -> Baselines:
    """Runs `baselines.names` and prints one table.

    Args:
        dataset: a file of configs/datasets.
        profile: a file of configs/profiles; its embedding model, list length and sample of test users are used.
        with_arm: a method whose recommendations stand in the same table; its stages run where they are not done yet.
        overrides: settings as `a.b=c`.
    """
    show_progress()
    config = load_config(profile=profile, dataset=dataset, method=with_arm or "gti", overrides=overrides)
    source = resolve_source(config.data, Path(config.home))
    announce(source)
    workspace = Workspace(Path(config.home), source.name)
    arm = run_arm(config, source) if with_arm else None
    data = tasks.data(config, workspace, source)
    names = dict.fromkeys(config.baselines.names)
    left_out: dict[str, str] = {name: reason for name in names if (reason := why_not(name))}
    wanted = [name for name in names if name not in left_out]
    vectors = tasks.embed(config, workspace, data) if any(map(needs_embeddings, wanted)) else None
    done: dict[str, Artifact] = {name: _baseline(config, workspace, data, vectors, name) for name in wanted}
    arms = done | ({with_arm: arm.done["recommend"]} if arm else {})
    evaluation = tasks.evaluate(config, workspace, data, arms, arm.done["semantic_ids"] if arm else None)
    result = Baselines(done, left_out, evaluation, _log(config, source, done, evaluation))
    _show(result, config, source, with_arm)
    return result


def _baseline(
    config: Config, workspace: Workspace, data: Artifact, vectors: Artifact | None, name: BaselineName
) -> Artifact:
    """One baseline as a task that bears its name; only what it uses is in its key."""
    task = tasks.baseline.with_options(name=f"baseline {name}")
    return task(config, workspace, data, vectors if needs_embeddings(name) else None, name)


def _log(config: Config, source: Source, done: dict[str, Artifact], evaluation: Artifact) -> dict[str, str]:
    """An MLflow run for each baseline, beside the arms' and with metrics of the same names; known ones stay."""
    tracker = Tracker(Path(config.home), source.name)
    tracker.sweep()
    metrics = schemas.METRICS.read(evaluation.path)
    sections = config.model_dump(mode="json", include=set(SECTIONS))
    measured = [config.evaluate.model_dump(mode="json"), code_digest("gti_pipeline.evaluate.stage")]
    run_ids = {}
    for name, artifact in done.items():
        key = digest({"baseline": artifact.key, "evaluate": measured})[:16]
        known = tracker.find(key)
        if known is None:
            with tracked(tracker, config, source, key, name, sections) as known:
                log_stage(tracker, known, artifact)
                tracker.log_metrics(known, metrics[metrics[c.ARM] == name], name)
        run_ids[name] = known
    return run_ids


def _show(result: Baselines, config: Config, source: Source, with_arm: str) -> None:
    out = console()
    out.print(stages_table(result, title=f"{source.name}: baselines"))
    metrics = schemas.METRICS.read(result.evaluation.path)
    arms = list(metrics[c.ARM].unique())
    users = int(metrics[c.NUM_USERS].max())
    title = f"{source.name}: seed {config.seed}, {users:,} test users, full ranking"
    out.print(arms_table(metrics, arms, k=config.evaluate.headline_k, title=title))
    where = {
        "page": _page(result, config, source, title, with_arm),
        "metrics": result.evaluation.path / f"{schemas.METRICS.name}.parquet",
        "per user": result.evaluation.path / f"{schemas.USER_METRICS.name}.parquet",
    }
    for name, path in where.items():
        out.print(f"{name + ':':<10}{path}", markup=False, highlight=False, soft_wrap=True)
    out.print("next:     see every run beside the arms: make ui", markup=False, highlight=False)
    show_banner(source)


def _page(result: Baselines, config: Config, source: Source, title: str, with_arm: str) -> Path:
    """All on one self-contained page, each against popularity, and the arm against the strongest baseline."""
    left_out = tuple(f"{name} was left out: {reason}" for name, reason in result.left_out.items())
    said = {name: note(artifact) for name, artifact in result.done.items()}
    users = schemas.USER_METRICS.read(result.evaluation.path).assign(**{SEED: config.seed})
    metrics = schemas.METRICS.read(result.evaluation.path)
    arms = (with_arm,) if with_arm else ()
    shown = replace(
        rows_compared(title, source, users, metrics, arms, POPULAR, config.evaluate),
        notes=(*left_out, *(f"{name}: {text}" for name, text in said.items() if text)),
        next_steps="See the runs side by side: make ui.",
    )
    folder = Path(config.home) / "reports" / source.name / f"baselines-{result.evaluation.key[:8]}"
    return build_comparison(shown, folder).page


def stages_table(result: Baselines, title: str) -> Table:
    """What was run, what was there already, and what was left out and why."""
    table = Table("baseline", "state", "key", "seconds", "note", title=title)
    for name, artifact in result.done.items():
        state, seconds = ("already there", "-") if artifact.cached else ("done", f"{artifact.summary['seconds']:.1f}")
        table.add_row(name, state, artifact.key, seconds, note(artifact))
    for name, reason in result.left_out.items():
        table.add_row(name, "SKIPPED", "-", "-", reason.replace("[", r"\["), style="bold red")
    return table


def note(artifact: Artifact) -> str:
    """What a baseline chose for itself on validation, or learned."""
    shown = {name: value for name, value in artifact.summary.items() if name not in ("users", "seconds")}
    return ", ".join(f"{name}={_short(value)}" for name, value in shown.items() if value is not None)


def _short(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) and not pd.isna(value) else str(value)
