"""Figures of the new tokens' rows: the paper's 2 and 5 (cosines), 6 (spectrum), 7 (likeness to the codebooks)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gti_pipeline import columns as c
from gti_pipeline.report import Diagnostics
from gti_pipeline.report.diagnostic_tables import ALL_LEVELS, MOMENTS, SIDE_BY_SIDE, present
from gti_pipeline.report.figures import COLOURS, INK, blank, legend

CELLS = 160  # of a picture's side; more are averaged, as no screen shows them apart
BLOCKS = {"affinity": "50 old and 50 new tokens", "by_level": "new tokens by level"}


def diagnostic_figures(diagnostics: Diagnostics) -> dict[str, Figure]:
    """Every figure of one run by file name."""
    figures: dict[str, Figure] = {}
    for block in BLOCKS:
        rows = diagnostics.cosines[diagnostics.cosines[c.BLOCK] == block]
        for moment in present(rows[c.STAGE]):
            figures[f"cosine_{block}_{moment}"] = cosine_figure(rows[rows[c.STAGE] == moment], block, moment)
    curves = {MOMENTS[m]: frame for m, frame in _by_moment(diagnostics.spectrum).items()}
    figures["spectrum"] = spectrum_figure(curves, "Singular values of the new rows")
    for metric in ("rsa_pearson", "rsa_spearman"):
        figures[metric] = rsa_figure(diagnostics.numbers, metric)
    return figures


def cosine_figure(rows: pd.DataFrame, block: str, moment: str) -> Figure:
    """The cosines of one block of `schemas.COSINES` at one moment; lines part the levels, old tokens first."""
    ordered = rows.sort_values(c.POSITION)
    matrix = np.stack([np.asarray(values, dtype=np.float64) for values in ordered[c.COSINES]])
    figure, axes = blank(f"Cosine, {MOMENTS[moment]}", BLOCKS[block], "")
    side = len(matrix)
    picture = axes.imshow(
        coarse(matrix, CELLS), vmin=-1, vmax=1, cmap="RdBu_r", interpolation="none", extent=(0, side, side, 0)
    )
    levels = ordered[c.LEVEL].to_numpy()
    edges = np.flatnonzero(np.diff(levels)) + 1
    for edge in edges.tolist():
        axes.axhline(edge, color=INK, linewidth=0.6)
        axes.axvline(edge, color=INK, linewidth=0.6)
    starts = np.concatenate([[0], edges])
    middles = (starts + np.concatenate([edges, [side]])) / 2
    names = ["old" if level == 0 else f"{level}" for level in levels[starts]]
    axes.set_xticks(middles, names)
    axes.set_yticks(middles, names)
    axes.grid(visible=False)
    bar = figure.colorbar(picture, ax=axes)
    bar.ax.tick_params(colors=INK)
    return figure


def coarse(matrix: NDArray[np.float64], most: int) -> NDArray[np.float64]:
    """[n, n] as means of blocks, at most `most` on a side; the same matrix where it is no larger."""
    if len(matrix) <= most:
        return matrix
    starts = np.unique(np.linspace(0, len(matrix), most, endpoint=False).astype(int))
    sizes = np.diff([*starts, len(matrix)])
    sums = np.add.reduceat(np.add.reduceat(matrix, starts, axis=0), starts, axis=1)
    return np.asarray(sums / np.outer(sizes, sizes))


def spectrum_figure(curves: dict[str, pd.DataFrame], title: str) -> Figure:
    """Singular values over their largest, by rank, a curve per name."""
    figure, axes = blank(title, "rank", "share of the largest")
    for place, (name, rows) in enumerate(curves.items()):
        ordered = rows.sort_values(c.RANK)
        values = ordered[c.VALUE].to_numpy(dtype=float)
        shares = values / max(values.max(), np.finfo(float).tiny)
        colour = COLOURS[place % len(COLOURS)]
        axes.plot(ordered[c.RANK], shares, color=colour, linewidth=1.5, label=name)
    axes.set_yscale("log")
    axes.set_ylim(1e-4, 1.5)
    legend(axes)
    return figure


def rsa_figure(numbers: pd.DataFrame, metric: str) -> Figure:
    """The likeness to the codebooks over all levels and by level, a bar per moment."""
    rows = numbers[numbers[c.METRIC] == metric]
    levels = sorted(set(rows[c.LEVEL]))
    groups = ["all" if level == ALL_LEVELS else f"level {level}" for level in levels]
    values = rows.set_index([c.STAGE, c.LEVEL])[c.VALUE]
    bars = {
        MOMENTS[moment]: [float(values.get((moment, level), math.nan)) for level in levels]
        for moment in present(rows[c.STAGE])
    }
    return bar_figure(SIDE_BY_SIDE[metric], "correlation", groups, bars)


def arms_figure(diagnostics: pd.DataFrame, arms: Sequence[str], metric: str) -> Figure:
    """One measure over all levels: a group per arm, a bar per moment."""
    rows = diagnostics[(diagnostics[c.METRIC] == metric) & (diagnostics[c.LEVEL] == ALL_LEVELS)]
    values = rows.set_index([c.STAGE, c.ARM])[c.VALUE]
    bars = {
        MOMENTS[moment]: [float(values.get((moment, arm), math.nan)) for arm in arms]
        for moment in present(rows[c.STAGE])
    }
    return bar_figure(SIDE_BY_SIDE[metric], SIDE_BY_SIDE[metric].split(" with")[0], arms, bars)


def bar_figure(title: str, y: str, groups: Sequence[str], bars: dict[str, list[float]]) -> Figure:
    """Groups of bars; what is not a number leaves a gap."""
    figure, axes = blank(title, "", y)
    width = 0.8 / max(1, len(bars))
    for place, (name, values) in enumerate(bars.items()):
        at = np.arange(len(groups)) + (place - (len(bars) - 1) / 2) * width
        axes.bar(at, np.nan_to_num(values), width * 0.92, color=COLOURS[place % len(COLOURS)], label=name)
    tilt = 20 if max(map(len, groups), default=0) * len(groups) > 40 else 0
    axes.set_xticks(np.arange(len(groups)), list(groups), rotation=tilt)
    axes.axhline(0, color=INK, linewidth=0.8)
    legend(axes)
    return figure


def _by_moment(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    return {moment: frame[frame[c.STAGE] == moment] for moment in present(frame[c.STAGE])}
