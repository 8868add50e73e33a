"""The pages: one self-contained file each (styles and figures inside, nothing fetched), readable on a phone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup

from gti_pipeline import columns as c
from gti_pipeline.artifacts import write_text
from gti_pipeline.report import POPULAR, ComparisonInput, ReportInput
from gti_pipeline.report.figures import inline_svg, metric_figure, run_figures, write_png
from gti_pipeline.report.tables import (
    BENEATH,
    COMPARED,
    FIRST,
    arms_frame,
    arms_markdown,
    compare_markdown,
    compare_relative,
    compare_values,
    difference_frame,
    final_frame,
    markdown,
    nearest_k,
    number,
    percent,
    slices_frame,
    stage_frame,
)
from gti_pipeline.report.verdict import against_popularity, between_arms, strongest, verdicts

TEMPLATES = Path(__file__).parent / "templates"
CURVES = ("semantic_ids", "ground", "sft")  # the stages whose loss a reader expects to see


@dataclass(frozen=True)
class Table:
    """A table of a page: its text, how many columns are aligned left, and which rows stand out."""

    columns: list[str]
    rows: list[list[str]]
    left: int = 1
    caption: str = ""


@dataclass(frozen=True)
class Drawing:
    """A figure of a page."""

    label: str
    svg: Markup


@dataclass(frozen=True)
class Written:
    """The files of a report."""

    page: Path
    text: Path
    figures: tuple[Path, ...]


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
    page = _render(
        "report.html",
        data=data,
        verdicts=verdicts(data.metrics, data.arm, data.differences, data.headline_k),
        metric_tables=_metric_tables(data),
        every_k=_every_k(data),
        slice_tables=[_table(frame) for frame in _slice_frames(data)],
        differences=_table(difference_frame(data.differences)),
        stages=_table(stage_frame(data.stages), left=3),
        budgets=_budget_table(data),
        drawings=[Drawing(name.replace("_", " "), _svg(figure, name)) for name, figure in figures.items()],
        missing=[stage for stage in CURVES if f"loss_{stage}" not in figures],
        data_facts=facts(data.data_summary),
        id_facts=facts(data.semantic_id_summary),
    )
    return _write(folder, "report.html", page, report_markdown(data), figures)


def build_comparison(data: ComparisonInput, folder: Path) -> Written:
    """Writes `comparison.html`, `comparison.md` and `figures/*.png` of several arms into `folder`."""
    arms = list(dict.fromkeys(data.metrics[c.ARM]))
    k = nearest_k(data.metrics, data.headline_k)
    slices = [slices_frame(data.metrics, arms, name, k) for name in COMPARED]
    drawn = {f"compare_{metric}": metric_figure(data.metrics, metric, tuple(arms)) for metric in COMPARED}
    figures = {name: figure for name, figure in drawn.items() if figure is not None}
    page = _render(
        "comparison.html",
        data=data,
        sentences=between_arms(data.differences, arms, data.reference),
        popularity=[
            against_popularity(data.metrics, arm, data.differences, data.headline_k) for arm in arms if arm != POPULAR
        ],
        others=_table(arms_frame(data.metrics, arms, ("precision", *BENEATH), intervals=False)),
        headline=_table(arms_frame(data.metrics, arms, ks=(k,)), caption="All test users"),
        slice_tables=[_table(frame) for frame in (slices if len(slices[0]) > 1 else ())],
        absolute=_numbers(compare_values(data.metrics), "absolute"),
        relative=_numbers(_gains(data), "relative"),
        differences=_table(difference_frame(data.differences)),
        drawings=[Drawing(name.replace("_", " "), _svg(figure, name)) for name, figure in figures.items()],
    )
    return _write(folder, "comparison.html", page, comparison_markdown(data), figures)


def report_markdown(data: ReportInput) -> str:
    """The run's numbers as Markdown: verdict, metrics, budgets."""
    parts = [f"# {data.title}\n", *_banner(data.banner)]
    parts += [said.text + "\n" for said in verdicts(data.metrics, data.arm, data.differences, data.headline_k)]
    arms = [data.arm, *data.baselines]
    whole = arms_markdown(data.metrics, arms) if len(arms) > 2 else markdown(_final(data))
    parts.append(f"## All test users\n\n{whole}")
    parts.append("## Slices of the test users\n\n" + "\n".join(map(markdown, _slice_frames(data))))
    if data.budgets:
        lines = [f"- {row.stage}: {row.text}; stopped: {row.stopped}\n" for row in data.budgets]
        parts.append("## How much was trained\n\n" + "".join(lines))
    return "\n".join(parts)


def comparison_markdown(data: ComparisonInput) -> str:
    """The comparison as Markdown: table, differences, what is shown."""
    arms = list(dict.fromkeys(data.metrics[c.ARM]))
    parts = [f"# {data.title}\n", *_banner(data.banner), compare_markdown(data.metrics, data.reference)]
    parts.append("".join(f"- {line}\n" for line in between_arms(data.differences, arms, data.reference)))
    if data.differences:
        parts.append(markdown(difference_frame(data.differences), left=2))
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
    return [_table(first, caption="All test users"), _table(beneath, caption="What else the lists show")]


def _every_k(data: ReportInput) -> list[Table]:
    """Many arms at every K; two arms are shown so already."""
    arms = [data.arm, *data.baselines]
    if len(arms) <= 2:
        return []
    frames = arms_frame(data.metrics, arms), arms_frame(data.metrics, arms, BENEATH, intervals=False)
    return [_table(frame) for frame in frames]


def _slice_frames(data: ReportInput) -> list[pd.DataFrame]:
    """Recall and NDCG at the headline K by slice of the test users."""
    k = nearest_k(data.metrics, data.headline_k)
    arms = [data.arm, *(data.baselines or (POPULAR,))]
    return [slices_frame(data.metrics, arms, name, k) for name in COMPARED]


def _budget_table(data: ReportInput) -> Table:
    rows = [
        [b.stage, b.text, b.stopped, f"{b.steps:,}", f"{b.epochs:.2f}", f"{b.examples:,}", f"{b.tokens:,}"]
        for b in data.budgets
    ]
    return Table(["stage", "what was done", "why it stopped", "steps", "epochs", "examples", "tokens"], rows, left=3)


def _gains(data: ComparisonInput) -> pd.DataFrame:
    gains = compare_relative(compare_values(data.metrics), data.reference)
    return gains.drop(index=data.reference, errors="ignore")


def _numbers(values: pd.DataFrame, kind: str) -> Table:
    spell = number if kind == "absolute" else percent
    rows = [[str(arm), *(spell(float(value)) for value in values.loc[arm])] for arm in values.index]
    return Table(["arm", *map(str, values.columns)], rows)


def _table(frame: pd.DataFrame, left: int = 1, caption: str = "") -> Table:
    return Table([str(name) for name in frame.columns], frame.astype(str).to_numpy().tolist(), left, caption)


def _svg(figure: Any, name: str) -> Markup:
    return Markup(inline_svg(figure, name))  # noqa: S704  drawn by matplotlib, which escapes its texts


def _banner(banner: str) -> list[str]:
    return [f"> **{' '.join(banner.split())}**\n"] if banner else []


def _render(template: str, **values: Any) -> str:
    """A page with every value escaped; a name the template lacks is an error."""
    loader = jinja2.FileSystemLoader(TEMPLATES)
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template(template).render(**values)


def _write(folder: Path, name: str, page: str, text: str, figures: Mapping[str, Any]) -> Written:
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    paths = [write_png(figure, folder / "figures" / f"{key}.png") for key, figure in figures.items()]
    write_text(folder / name, page)
    text_path = folder / ("metrics.md" if name == "report.html" else "comparison.md")
    write_text(text_path, text)
    return Written(folder / name, text_path, tuple(paths))
