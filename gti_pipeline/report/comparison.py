"""The page of several arms side by side."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from gti_pipeline import columns as c
from gti_pipeline.report import OVERALL, ComparisonInput, paper
from gti_pipeline.report.budgets import budget_sentences, budgets_frame
from gti_pipeline.report.compare_tables import compare_markdown, compare_relative, compare_values, difference_frame
from gti_pipeline.report.diagnostic_figures import arms_figure, spectrum_figure
from gti_pipeline.report.diagnostic_tables import SIDE_BY_SIDE, side_by_side
from gti_pipeline.report.figures import curve_figure, metric_figure
from gti_pipeline.report.page import Table, Written, banner_lines, drawings, render, table, write
from gti_pipeline.report.tables import (
    BENEATH,
    OF_SEARCH,
    arms_frame,
    first_names,
    markdown,
    nearest_k,
    number,
    percent,
    slices_frame,
)
from gti_pipeline.report.verdict import Verdict, at_this_size, between_arms, verdicts


def build_comparison(data: ComparisonInput, folder: Path) -> Written:
    """Writes `comparison.html`, `comparison.md` and `figures/*.png` of several arms into `folder`."""
    names = first_names(data.metrics)
    k = nearest_k(data.metrics, data.headline_k)
    everyone = list(dict.fromkeys(data.metrics[c.ARM]))
    slices = [slices_frame(data.metrics, everyone, name, k) for name in names[:2]]
    figures, rows = _metric_figures(data), _diagnostic_figures(data)
    page = render(
        "comparison.html",
        data=data,
        sentences=sentences(data),
        verdicts=against_baselines(data),
        headline=_marked(data, arms_frame(data.metrics, everyone, names, ks=(k,)), "All test users"),
        slice_tables=[table(frame) for frame in slices if len(frame) > 1],
        absolute=_numbers(data, compare_values(data.metrics, names), "absolute"),
        relative=_numbers(data, _gains(data), "relative"),
        paper=beside_paper(data),
        others=_marked(data, arms_frame(data.metrics, everyone, BENEATH, (k,), intervals=False)),
        differences=table(difference_frame(data.differences)),
        budgets=table(budgets_frame(data.budgets), left=2),
        budget_sentences=budget_sentences(data.budgets),
        drawings=drawings(figures),
        diagnostics=_diagnostics(data),
        diagnostic_drawings=drawings(rows),
    )
    return write(folder, "comparison.html", page, comparison_markdown(data), "comparison.md", figures | rows)


def comparison_markdown(data: ComparisonInput) -> str:
    """The comparison as Markdown: table, what is shown, differences, budgets, diagnostics."""
    names = first_names(data.metrics)
    parts = [f"# {data.title}\n", *banner_lines(data.banner), compare_markdown(data.metrics, data.reference, names)]
    said = [*sentences(data), *budget_sentences(data.budgets)]
    parts.append("".join(f"- {line}\n" for line in [*said, *(verdict.text for verdict in against_baselines(data))]))
    if data.differences:
        parts.append(markdown(difference_frame(data.differences), left=2))
    for compared in beside_paper(data):
        frame = pd.DataFrame(compared.rows, columns=compared.columns)
        parts.append(f"{compared.caption}\n\n{markdown(frame, left=2)}")
    parts += [
        f"{measures.caption}\n\n{markdown(pd.DataFrame(measures.rows, columns=measures.columns))}"
        for measures in _diagnostics(data)
    ]
    return "\n".join(parts)


def sentences(data: ComparisonInput) -> list[str]:
    """What the differences to the reference show at the headline K, and what this size leaves open."""
    k = nearest_k(data.metrics, data.headline_k)
    of_baselines = data.reference in data.baselines
    arms = list(dict.fromkeys(data.metrics[c.ARM])) if of_baselines else data.arms
    to_reference = [d for d in data.differences if d.reference == data.reference]
    return [*between_arms(to_reference, arms, data.reference, k), *at_this_size(to_reference, data.seeds, k)]


def against_baselines(data: ComparisonInput) -> list[Verdict]:
    """Each arm against the strongest baseline and against popularity, on the same users."""
    found: list[Verdict] = []
    for arm in data.arms:
        others = data.metrics[data.metrics[c.ARM].isin([arm, *data.baselines])]
        found += verdicts(others, arm, data.differences, data.headline_k)
    return found


def beside_paper(data: ComparisonInput) -> list[Table]:
    """The paper's gains and ours, where the task, the arms and the cut-offs are the paper's; else nothing."""
    theirs = paper.SEARCH if first_names(data.metrics) == OF_SEARCH else paper.NEXT_ITEM
    if data.reference != paper.REFERENCE:
        return []
    frame = paper.beside_paper(_gains(data), theirs, data.arms)
    caption = f"Paper: {theirs.source}. Ours: {data.dataset}, another model, size and budget."
    return [] if frame.empty else [table(frame, left=2, caption=caption)]


def _gains(data: ComparisonInput) -> pd.DataFrame:
    gains = compare_relative(compare_values(data.metrics, first_names(data.metrics)), data.reference)
    return gains.drop(index=data.reference, errors="ignore")


def _numbers(data: ComparisonInput, values: pd.DataFrame, kind: str) -> Table:
    spell = number if kind == "absolute" else percent
    rows = [[str(arm), *(spell(float(value)) for value in values.loc[arm])] for arm in values.index]
    return _marked(data, pd.DataFrame(rows, columns=["arm", *map(str, values.columns)]))


def _marked(data: ComparisonInput, frame: pd.DataFrame, caption: str = "") -> Table:
    """A table of a row per arm, which says of a baseline that it is one."""
    names = [f"{name} (baseline)" if data.arms and name in data.baselines else name for name in frame["arm"]]
    return table(frame.assign(arm=names), caption=caption)


def _metric_figures(data: ComparisonInput) -> dict[str, Figure]:
    arms = tuple(dict.fromkeys(data.metrics[c.ARM]))
    overall = data.metrics[data.metrics[c.SLICE] == OVERALL]
    drawn = {f"compare_{name}": metric_figure(overall, name, arms) for name in first_names(data.metrics)}
    if data.curves is not None:
        for metric in dict.fromkeys(data.curves[c.METRIC]):
            rows = data.curves[data.curves[c.METRIC] == metric]
            drawn[f"curve_{str(metric).replace('@', '_at_')}"] = curve_figure(str(metric), rows)
    return {name: figure for name, figure in drawn.items() if figure is not None}


def _diagnostics(data: ComparisonInput) -> list[Table]:
    if data.diagnostics is None:
        return []
    return [
        table(side_by_side(data.diagnostics, data.arms, metric), caption=label)
        for metric, label in SIDE_BY_SIDE.items()
    ]


def _diagnostic_figures(data: ComparisonInput) -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    if data.diagnostics is not None:
        figures |= {metric: arms_figure(data.diagnostics, data.arms, metric) for metric in SIDE_BY_SIDE}
    if data.spectra is not None:
        tuned = data.spectra[data.spectra[c.STAGE] == "tuned"]
        curves = {arm: tuned[tuned[c.ARM] == arm] for arm in data.arms if (tuned[c.ARM] == arm).any()}
        figures["spectrum_tuned"] = spectrum_figure(curves, "Singular values after SFT")
    return figures
