"""The page of a run: one self-contained file, readable on a phone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from gti_pipeline import columns as c
from gti_pipeline.report import POPULAR, ReportInput
from gti_pipeline.report.compare_tables import difference_frame
from gti_pipeline.report.diagnostic_figures import diagnostic_figures
from gti_pipeline.report.diagnostic_tables import numbers_frame, words_frame
from gti_pipeline.report.figures import run_figures
from gti_pipeline.report.page import Table, Written, banner_lines, drawings, render, table, write
from gti_pipeline.report.tables import (
    BENEATH,
    COMPARED,
    FIRST,
    arms_frame,
    arms_markdown,
    final_frame,
    markdown,
    nearest_k,
    slices_frame,
    stage_frame,
)
from gti_pipeline.report.verdict import strongest, verdicts

CURVES = ("semantic_ids", "ground", "sft")  # the stages whose loss a reader expects to see


def build_report(data: ReportInput, folder: Path) -> Written:
    """Writes `report.html`, `metrics.md` and `figures/*.png` of one run into `folder`."""
    # many bars say little: the arm, what it must beat, and popularity
    best = strongest(data.metrics, data.arm, data.headline_k)
    figures = run_figures(
        metrics=data.metrics,
        arms=tuple(dict.fromkeys(name for name in (data.arm, best, POPULAR) if name)),
        steps=data.steps,
        codes=data.semantic_ids,
        codebook_size=data.codebook_size,
    )
    rows = diagnostic_figures(data.diagnostics) if data.diagnostics else {}
    page = render(
        "report.html",
        data=data,
        verdicts=verdicts(data.metrics, data.arm, data.differences, data.headline_k),
        metric_tables=_metric_tables(data),
        every_k=_every_k(data),
        slice_tables=[table(frame) for frame in _slice_frames(data)],
        differences=table(difference_frame(data.differences)),
        stages=table(stage_frame(data.stages), left=3),
        budgets=_budget_table(data),
        drawings=drawings(figures),
        diagnostics=_diagnostics(data),
        diagnostic_drawings=drawings(rows),
        missing=[stage for stage in CURVES if f"loss_{stage}" not in figures],
        data_facts=facts(data.data_summary),
        id_facts=facts(data.semantic_id_summary),
    )
    return write(folder, "report.html", page, report_markdown(data), "metrics.md", figures | rows)


def report_markdown(data: ReportInput) -> str:
    """The run's numbers as Markdown: verdict, metrics, budgets."""
    parts = [f"# {data.title}\n", *banner_lines(data.banner)]
    parts += [said.text + "\n" for said in verdicts(data.metrics, data.arm, data.differences, data.headline_k)]
    arms = [data.arm, *data.baselines]
    whole = arms_markdown(data.metrics, arms) if len(arms) > 2 else markdown(_final(data))
    parts.append(f"## All test users\n\n{whole}")
    parts.append("## Slices of the test users\n\n" + "\n".join(map(markdown, _slice_frames(data))))
    if data.diagnostics:
        parts.append(f"## The new tokens' rows\n\n{markdown(numbers_frame(data.diagnostics.numbers))}")
    if data.budgets:
        lines = [f"- {row.stage}: {row.text}; stopped: {row.stopped}\n" for row in data.budgets]
        parts.append("## How much was trained\n\n" + "".join(lines))
    return "\n".join(parts)


def facts(summary: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """A summary as (name, text) pairs for a page, nested names joined with spaces."""
    pairs: list[tuple[str, str]] = []
    for name, value in summary.items():
        label = f"{prefix}{str(name).replace('_', ' ')}"
        if isinstance(value, Mapping):
            pairs += facts(value, f"{label} ")
        else:
            pairs.append((label, _fact(value)))
    return pairs


def _fact(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, (list, tuple)):
        return ", ".join(_fact(part) for part in value)
    return "-" if value is None else str(value)


def _final(data: ReportInput, names: Sequence[str] = (*FIRST, *BENEATH)) -> pd.DataFrame:
    own = data.metrics[data.metrics[c.METRIC].isin(list(names))]
    return final_frame(own, data.arm, data.baselines or (POPULAR,))


def _metric_tables(data: ReportInput) -> list[Table]:
    """All metrics of all test users: two arms side by side; more below one another, at the headline K."""
    arms = [data.arm, *data.baselines]
    if len(arms) > 2:
        ks = (nearest_k(data.metrics, data.headline_k),)
        first = arms_frame(data.metrics, arms, ks=ks)
        beneath = arms_frame(data.metrics, arms, BENEATH, ks, intervals=False)
    else:
        first, beneath = (_final(data, names) for names in (FIRST, BENEATH))
    return [table(first, caption="All test users"), table(beneath, caption="What else the lists show")]


def _every_k(data: ReportInput) -> list[Table]:
    """Many arms at every K; two arms are shown so already."""
    arms = [data.arm, *data.baselines]
    if len(arms) <= 2:
        return []
    frames = arms_frame(data.metrics, arms), arms_frame(data.metrics, arms, BENEATH, intervals=False)
    return [table(frame) for frame in frames]


def _slice_frames(data: ReportInput) -> list[pd.DataFrame]:
    """Recall and NDCG at the headline K by slice of the test users."""
    k = nearest_k(data.metrics, data.headline_k)
    arms = [data.arm, *(data.baselines or (POPULAR,))]
    return [slices_frame(data.metrics, arms, name, k) for name in COMPARED]


def _diagnostics(data: ReportInput) -> list[Table]:
    """The numbers over all levels and by level, then the nearest words."""
    if data.diagnostics is None:
        return []
    numbers, words = data.diagnostics.numbers, data.diagnostics.nearest_words
    return [
        table(numbers_frame(numbers), caption="Over all levels"),
        table(numbers_frame(numbers, by_level=True), left=2, caption="By level"),
        table(words_frame(words), left=4, caption="Nearest words of the most frequent codes"),
    ]


def _budget_table(data: ReportInput) -> Table:
    rows = [
        [b.stage, b.text, b.stopped, f"{b.steps:,}", f"{b.epochs:.2f}", f"{b.examples:,}", f"{b.tokens:,}"]
        for b in data.budgets
    ]
    return Table(["stage", "what was done", "why it stopped", "steps", "epochs", "examples", "tokens"], rows, left=3)
