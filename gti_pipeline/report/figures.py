"""Figures of a run, as `Figure` objects (no pyplot, no global state) and as PNG or inline SVG.

They are drawn small, about as wide as a phone, so that their text stays readable there; a page lays them side by side.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from gti_pipeline import columns as c
from gti_pipeline.report import OVERALL
from gti_pipeline.report.tables import FIRST, LONG

INK = "#1f2328"  # text and axes; in a page it follows the page's own text colour
COLOURS = ("#3b78c9", "#d9822b", "#2f9e6e", "#a05fb4", "#c0504d", "#7f7f7f")  # readable on white and on black
SIZE = (4.6, 3.1)  # inches
SMOOTH_FROM = 60  # curves with more points than this get a running mean


def loss_figure(stage: str, steps: pd.DataFrame) -> Figure | None:
    """The stage's losses over its steps; None where it logged none."""
    names = [name for name in dict.fromkeys(steps[c.METRIC]) if "loss" in str(name)]
    if not names:
        return None
    figure, axes = blank(f"{stage}: loss", "step", "loss")
    for place, name in enumerate(names):
        rows = steps[steps[c.METRIC] == name].sort_values(c.STEP)
        _curve(axes, rows, str(name), COLOURS[place % len(COLOURS)])
    values = steps.loc[steps[c.METRIC].isin(names), c.VALUE]
    finite = values[np.isfinite(values)]
    if not finite.empty and finite.min() > 0 and finite.max() / finite.min() > 100:
        axes.set_yscale("log")
    legend(axes)
    return figure


def codebook_figure(semantic_ids: pd.DataFrame, codebook_size: int) -> Figure | None:
    """How often each code is used, most used first, one curve per level; None without items."""
    if semantic_ids.empty:
        return None
    codes = np.stack([np.asarray(value) for value in semantic_ids[c.CODES]])
    figure, axes = blank("Codebook use", "codes, most used first", "items")
    for level in range(codes.shape[1]):
        counts = np.sort(np.bincount(codes[:, level], minlength=codebook_size))[::-1]
        used = f"level {level + 1}: {int((counts > 0).sum())} of {counts.size} used"
        axes.step(np.arange(1, counts.size + 1), counts, where="mid", color=COLOURS[level % len(COLOURS)], label=used)
    axes.set_ylim(bottom=0)
    legend(axes)
    return figure


def metric_figure(metrics: pd.DataFrame, metric: str, arms: tuple[str, ...]) -> Figure | None:
    """Bars of one metric at every K, the arms side by side, with their intervals; None where it was not measured."""
    rows = metrics[(metrics[c.SLICE] == OVERALL) & (metrics[c.METRIC] == metric) & metrics[c.ARM].isin(arms)]
    if rows.empty:
        return None
    ks = sorted(set(rows[c.K]))
    present = [arm for arm in arms if (rows[c.ARM] == arm).any()]
    label = LONG.get(metric, metric)
    figure, axes = blank(f"{label}@K, all test users", "K", label)
    width = 0.8 / len(present)
    for place, arm in enumerate(present):
        own = rows[rows[c.ARM] == arm].set_index(c.K).reindex(ks)
        value, low, high = (own[name].to_numpy(dtype=float) for name in (c.VALUE, c.LOW, c.HIGH))
        errors = np.clip(np.stack([value - low, high - value]), 0, None)
        at = np.arange(len(ks)) + (place - (len(present) - 1) / 2) * width
        whiskers = {"ecolor": INK, "elinewidth": 1, "capsize": 2}
        axes.bar(
            at, value, width * 0.92, color=COLOURS[place % len(COLOURS)], label=arm, yerr=errors, error_kw=whiskers
        )
    axes.set_xticks(np.arange(len(ks)), [str(k) for k in ks])
    legend(axes)
    return figure


def curve_figure(metric: str, rows: pd.DataFrame) -> Figure:
    """A metric over the steps of fine-tuning, a curve per arm: the mean of its seeds, in the band that they span.

    Args:
        metric: its name.
        rows: arm, seed, step, value.
    """
    figure, axes = blank(f"{metric.replace('_', ' ')} during SFT", "step", metric.replace("_", " "))
    for place, arm in enumerate(dict.fromkeys(rows[c.ARM])):
        seeds = rows[rows[c.ARM] == arm].groupby(c.STEP)[c.VALUE].agg(["mean", "min", "max"])
        colour = COLOURS[place % len(COLOURS)]
        axes.plot(seeds.index, seeds["mean"], color=colour, linewidth=1.5, marker=".", label=str(arm))
        axes.fill_between(seeds.index, seeds["min"], seeds["max"], color=colour, alpha=0.15, linewidth=0)
    legend(axes)
    return figure


def run_figures(
    *,
    metrics: pd.DataFrame,
    arms: tuple[str, ...],
    steps: Mapping[str, pd.DataFrame],
    codes: pd.DataFrame | None,
    codebook_size: int,
) -> dict[str, Figure]:
    """Every figure of one run by file name, those of missing stages left out; `arms`: whose metrics are drawn."""
    figures = {f"loss_{stage}": loss_figure(stage, frame) for stage, frame in steps.items()}
    if codes is not None:
        figures["codebook_use"] = codebook_figure(codes, codebook_size)
    for metric in FIRST:
        figures[f"metric_{metric}"] = metric_figure(metrics, metric, arms)
    return {name: figure for name, figure in figures.items() if figure is not None}


def write_png(figure: Figure, path: Path) -> Path:
    """The figure as a PNG on white."""
    FigureCanvasAgg(figure)
    figure.savefig(path, format="png", dpi=160, facecolor="white")
    return path


def inline_svg(figure: Figure, name: str) -> str:
    """The figure as SVG for a page: transparent, text in the page's colour, ids apart from other figures' ids."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    figure.set_layout_engine("none")  # it is laid out now; to do so again for the PNG takes as long as drawing it
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'href="#', f'href="#{name}-', svg)
    return svg.replace("url(#", f"url(#{name}-")


def blank(title: str, x: str, y: str) -> tuple[Figure, Axes]:
    """A figure of the usual size and its empty axes."""
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, fontsize=11, color=INK, loc="left")
    axes.set_xlabel(x, color=INK)
    axes.set_ylabel(y, color=INK)
    axes.tick_params(colors=INK)
    axes.grid(axis="y", alpha=0.25, color=INK)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_color(INK)
        spine.set_visible(side in ("left", "bottom"))
    return figure, axes


def _curve(axes: Axes, rows: pd.DataFrame, name: str, colour: str) -> None:
    """A curve; a long and noisy one faint, under its running mean."""
    x, y = rows[c.STEP].to_numpy(), rows[c.VALUE]
    if len(rows) <= SMOOTH_FROM:
        marker = "." if len(rows) < 4 else ""
        axes.plot(x, y, color=colour, linewidth=1.5, marker=marker, label=name)
        return
    axes.plot(x, y, color=colour, alpha=0.25, linewidth=0.8)
    axes.plot(x, y.rolling(len(rows) // 30, min_periods=1).mean(), color=colour, linewidth=1.5, label=name)


def legend(axes: Axes) -> None:
    """Names of what is drawn."""
    axes.legend(fontsize=8, frameon=False, labelcolor=INK)
