"""The end of a run: the numbers, where they lie and what to do next."""

from __future__ import annotations

import shutil
from pathlib import Path

from flows.arm import Arm
from flows.console import console, show_banner
from gti_pipeline.artifacts import Artifact
from gti_pipeline.data.source import Source
from gti_pipeline.report import StageRow, baselines_of
from gti_pipeline.report.tables import final_table, stage_table
from gti_pipeline.report.verdict import verdicts
from gti_pipeline.stages.evaluate import named_metrics
from gti_pipeline.stages.report import differences, next_steps, stage_note


def show_run(arm: Arm, source: Source) -> None:
    """The closing tables of one arm."""
    out = console()
    config, method = arm.config, arm.config.method
    out.print(stage_table([_row(artifact) for artifact in arm.done.values()], title=f"{source.name}: stages"))
    if all(artifact.cached for artifact in arm.done.values()):
        out.print("Nothing to do: every stage's artifact was there already, none was computed again.", style="green")
    metrics = named_metrics(arm.done["evaluate"], method)
    title = f"{source.name}: {method}, seed {config.seed} ({100 * config.evaluate.confidence:g} % intervals)"
    k = config.evaluate.headline_k
    out.print(final_table(metrics, method, baselines_of(metrics, method), title=title, k=k))
    for verdict in verdicts(metrics, method, differences(arm.done["evaluate"], config), k):
        out.print(verdict.text, markup=False, highlight=False)
    page = publish(arm.done["report"], arm.workspace.home / "reports" / source.name / f"{method}-seed{arm.config.seed}")
    tracked = "logged before as" if arm.logged_before else "logged as"
    where = {
        "report": page / "report.html",
        "metrics": arm.done["evaluate"].path / "metrics.parquet",
        "recommendations": arm.done["recommend"].path / "recommendations.parquet",
        "rejected rows": arm.done["data"].path / "rejected.parquet",
        "model": arm.done["sft"].path / "model",
    }
    for name, path in where.items():
        out.print(f"{name + ':':<17}{path}", markup=False, highlight=False, soft_wrap=True)
    out.print(f"{'MLflow run:':<17}{tracked} {arm.run_id}, experiment {source.name}", markup=False, highlight=False)
    out.print(f"{'next:':<17}{next_steps(arm.config)}", markup=False, highlight=False)
    show_banner(source)


def publish(report: Artifact, folder: Path) -> Path:
    """Copies a report to a place with a name that people can find; the newest of its name stays."""
    if folder.exists():
        shutil.rmtree(folder)
    shutil.copytree(report.path, folder)
    (folder / "report.html").touch()  # `make report` opens the newest
    return folder


def _row(artifact: Artifact) -> StageRow:
    return StageRow(artifact.stage, artifact.key, artifact.summary["seconds"], artifact.cached, stage_note(artifact))
