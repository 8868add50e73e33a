"""A finished comparison: its page and table below reports/, and an MLflow run of its own. Imports no Prefect."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flows.arm import Arm, ending, tags_of
from flows.console import console, show_banner
from gti_pipeline import schemas
from gti_pipeline.artifacts import code_digest, digest
from gti_pipeline.data.source import Source
from gti_pipeline.report import ComparisonInput
from gti_pipeline.report.comparison import build_comparison
from gti_pipeline.report.page import Written, template_digests
from gti_pipeline.stages.comparison import Trained
from gti_pipeline.tracking import Tracker

METHOD = "comparison"  # the tag of its run, where an arm's has its method
CODE = ("gti_pipeline.stages.comparison", "gti_pipeline.report.comparison")


def trained_of(arms: Sequence[Arm]) -> list[Trained]:
    """The arms as a comparison reads them."""
    return [Trained(arm.config.method, arm.config.seed, arm.done) for arm in arms]


def publish_comparison(arms: Sequence[Arm], source: Source, shown: ComparisonInput, name: str) -> Path:
    """Writes page and table into the folder `name` below reports/, logs them, and says where all lies.

    `name` must differ wherever the artifacts do.
    """
    folder = arms[0].workspace.home / "reports" / source.name / name
    written = build_comparison(shown, folder)
    schemas.METRICS.write(shown.metrics, folder)
    files = {"page": written.page, "table": folder / f"{schemas.METRICS.name}.parquet"}
    out = console()
    for what, path in files.items():
        out.print(f"{what + ':':<12}{path}", markup=False, highlight=False, soft_wrap=True)
    run = log_comparison(arms, source, shown, written, files["table"])
    out.print(f"{'MLflow run:':<12}{run}, experiment {source.name}", markup=False, highlight=False)
    out.print(f"{'next:':<12}make report, make ui", markup=False, highlight=False)
    show_banner(source)
    return written.page


def log_comparison(arms: Sequence[Arm], source: Source, shown: ComparisonInput, written: Written, table: Path) -> str:
    """Logs page, table and figures as a run beside the arms' and says which; an identical one is not logged twice."""
    tracker = Tracker(arms[0].workspace.home, source.name)
    code = [code_digest(module) for module in CODE]
    arms_runs = {f"{arm.config.method} seed {arm.config.seed}": arm.run_id for arm in arms}
    parts = {"comparison": written.page.parent.name, "runs": arms_runs, "code": code, "templates": template_digests()}
    key = digest(parts)[:16]
    known = tracker.find(key)
    if known:
        return f"logged before as {known}"
    params = {"arms": ", ".join(shown.arms), "seeds": shown.seeds, "reference": shown.reference, "runs": arms_runs}
    title = f"{METHOD}: {', '.join(shown.arms)}, {shown.seeds} seed(s)"
    run_id = tracker.start(title, key, params, tags_of(arms[0].config, source, METHOD))
    with ending(tracker, run_id):
        tracker.log_files(run_id, [written.page, written.text, table])
        tracker.log_files(run_id, written.figures, "figures")
    return f"logged as {run_id}"
