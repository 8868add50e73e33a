"""What a run says in the terminal: the banner, and at the end the numbers, where they lie and what to do next."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.panel import Panel

from gti_pipeline.artifacts import Artifact
from gti_pipeline.banner import banner_text
from gti_pipeline.data.source import Source
from gti_pipeline.report import StageRow
from gti_pipeline.report.tables import final_table, stage_table
from gti_pipeline.report.verdict import against_popularity
from gti_pipeline.stages.evaluate import named_metrics
from gti_pipeline.stages.report import differences, next_steps, stage_note

if TYPE_CHECKING:  # so that a look at the data does not import Prefect
    from flows.arm import Arm


def console() -> Console:
    """Standard output; at least 100 columns, so that a table in a log file stays whole."""
    return Console(width=max(100, shutil.get_terminal_size().columns), soft_wrap=False)


def announce(source: Source) -> None:
    """Says what data is used."""
    show_banner(source)
    console().print(f"data set {source.name}: {source.note}", highlight=False, markup=False, soft_wrap=True)


def show_banner(source: Source) -> None:
    """A stand-in, said in a box that cannot be missed; nothing for real data."""
    if source.is_standin:
        console().print(Panel(banner_text(source), title="STAND-IN DATA", border_style="bold red", style="bold"))


def show_run(arm: Arm, source: Source) -> None:
    """The closing tables of one arm."""
    out = console()
    method = arm.config.method
    out.print(stage_table([_row(artifact) for artifact in arm.done.values()], title=f"{source.name}: stages"))
    if all(artifact.cached for artifact in arm.done.values()):
        out.print("Nothing to do: every stage's artifact was there already, none was computed again.", style="green")
    metrics = named_metrics(arm.done["evaluate"], method)
    out.print(final_table(metrics, method, title=f"{source.name}: {method}, seed {arm.config.seed} (95 % intervals)"))
    verdict = against_popularity(metrics, method, differences(arm.done["evaluate"], arm.config))
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
    return folder


def _row(artifact: Artifact) -> StageRow:
    return StageRow(artifact.stage, artifact.key, artifact.summary["seconds"], artifact.cached, stage_note(artifact))
