"""The tables of a search comparison in the layout of the paper's tables 1 and 2: arms down, cut-offs across. Pure."""

from __future__ import annotations

import math

import pandas as pd
from rich.table import Table

from gti_pipeline import columns as c
from gti_pipeline.report.paper import SEARCH
from gti_pipeline.search.evaluate import DIFFERENCE, RELATIVE
from gti_pipeline.search.metrics import NAMES, NDCG, PRECISION_GOOD, PRECISION_MAYBE

TITLES = {
    PRECISION_GOOD: "Precision, good",
    PRECISION_MAYBE: "Precision, good or maybe",
    NDCG: "NDCG, graded",
}
SHORT = {PRECISION_GOOD: "P", PRECISION_MAYBE: "P", NDCG: "N"}
PAPER = {PRECISION_GOOD: "P good", PRECISION_MAYBE: "P good+maybe", NDCG: "N"}  # its columns are `P good@5`
SURE = "*"  # marks a difference whose interval leaves out 0


def absolute_frame(metrics: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Means of one metric as text: a row per arm, a column per cut-off."""
    rows = metrics[metrics[c.METRIC] == metric]
    table = rows.pivot(index=c.ARM, columns=c.K, values=c.VALUE).loc[rows[c.ARM].unique()]
    return _named(table.map(lambda value: f"{value:.4f}"), metric)


def relative_frame(gains: pd.DataFrame, metric: str, *, paper: bool = True) -> pd.DataFrame:
    """Gains over the reference as text, `*` where the paired interval leaves out 0; the paper's own rows below.

    Args:
        gains: as `evaluate.gains`.
        metric: one of `metrics.NAMES`.
        paper: whether to add the paper's rows of the arms that are here.
    """
    rows = gains[gains[c.METRIC] == metric]
    ks = [int(k) for k in rows[c.K].unique()]
    lines: dict[str, dict[int, str]] = {}
    for arm, k, *numbers in _plain(rows):
        lines.setdefault(arm, {})[k] = _gain(*numbers)
    for arm in [arm for arm in SEARCH.gains.index if paper and arm in lines]:
        told = SEARCH.gains.loc[arm].to_dict()
        names = {k: f"{PAPER[metric]}@{k}" for k in ks}
        lines[f"{arm} in the paper"] = {k: _percent(told[name]) if name in told else "" for k, name in names.items()}
    return _named(pd.DataFrame.from_dict(lines, orient="index", columns=ks), metric)


def rich_tables(metrics: pd.DataFrame, gains: pd.DataFrame, reference: str, title: str) -> list[Table]:
    """For each metric the absolute table, and the relative one where there is more than one arm."""
    tables = []
    for metric in NAMES:
        tables.append(_rich(absolute_frame(metrics, metric), f"{title}: {TITLES[metric]}"))
        if len(gains):
            tables.append(_rich(relative_frame(gains, metric), f"{TITLES[metric]}, relative to {reference}"))
    return tables


def sentences(gains: pd.DataFrame, reference: str, k: int) -> list[str]:
    """What is and is not shown at the cut-off nearest to `k`: one sentence for each arm and metric."""
    if gains.empty:
        return []
    near = min(gains[c.K].unique(), key=lambda known: (abs(known - k), known))
    said = []
    for metric, rows in gains[gains[c.K] == near].groupby(c.METRIC, sort=False):
        for arm, _, _, difference, low, high in _plain(rows):
            what = f"{TITLES[str(metric)]} at {near}, difference {difference:+.4f} [{low:+.4f}, {high:+.4f}]"
            if low > 0 or high < 0:
                said.append(f"{arm} is {'better' if difference > 0 else 'worse'} than {reference}: {what}.")
            else:
                said.append(f"No difference shown between {arm} and {reference}: {what}.")
    return said


def _plain(gains: pd.DataFrame) -> list[tuple[str, int, float, float, float, float]]:
    """(arm, k, relative, difference, low, high) of each row."""
    names = gains[c.ARM].astype(str).tolist(), gains[c.K].astype(int).tolist()
    numbers = (gains[name].astype(float).tolist() for name in (RELATIVE, DIFFERENCE, c.LOW, c.HIGH))
    return list(zip(*names, *numbers, strict=True))


def _gain(relative: float, difference: float, low: float, high: float) -> str:
    del difference
    sure = SURE if low > 0 or high < 0 else ""
    return f"{_percent(relative)}{sure}" if math.isfinite(relative) else "n/a"


def _percent(share: float) -> str:
    return f"{100 * share:+.2f} %"


def _named(table: pd.DataFrame, metric: str) -> pd.DataFrame:
    return table.rename(columns=lambda k: f"{SHORT[metric]}@{k}").rename_axis(index="arm", columns=None)


def _rich(frame: pd.DataFrame, title: str) -> Table:
    table = Table("arm", *frame.columns, title=title)
    for column in table.columns[1:]:
        column.justify = "right"
    for arm, row in zip(frame.index, frame.to_numpy(), strict=True):
        table.add_row(str(arm), *map(str, row))
    return table
