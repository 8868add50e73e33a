"""Diagnostics of the new tokens' rows as tables of text."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from gti_pipeline import columns as c
from gti_pipeline.report.tables import number

MOMENTS = {"init": "at init", "grounded": "after grounding", "tuned": "after SFT"}
SIDE_BY_SIDE = {
    "effective_rank": "Effective rank",
    "rsa_pearson": "RSA with the codebooks, Pearson",
    "rsa_spearman": "RSA with the codebooks, Spearman",
}
NAMES = SIDE_BY_SIDE | {
    "mean_cosine": "Mean cosine of two new rows",
    "mean_cosine_old": "Mean cosine of two old rows",
    "mean_norm": "Mean length of a new row",
    "mean_norm_old": "Mean length of an old row",
}
ALL_LEVELS = 0


def present(stages: pd.Series) -> list[str]:
    """The moments that a table has, in the order of a run."""
    return [moment for moment in MOMENTS if (stages == moment).any()]


def numbers_frame(numbers: pd.DataFrame, *, by_level: bool = False) -> pd.DataFrame:
    """A row per measure (and level), a column per moment, as text; `n/a` where the rows are all one point."""
    moments = present(numbers[c.STAGE])
    values = numbers.set_index([c.METRIC, c.LEVEL, c.STAGE])[c.VALUE]
    known = set(zip(numbers[c.METRIC], numbers[c.LEVEL], strict=True))
    levels = sorted(set(numbers[c.LEVEL]) - {ALL_LEVELS}) if by_level else [ALL_LEVELS]
    lines = []
    for metric, label in NAMES.items():
        for level in levels:
            found = [values.get((metric, level, moment), math.nan) for moment in moments]
            if (metric, level) in known:
                lines.append([label, *([str(level)] if by_level else []), *(_short(metric, value) for value in found)])
    names = ["measure", *(["level"] if by_level else []), *(MOMENTS[moment] for moment in moments)]
    return pd.DataFrame(lines, columns=names)


def words_frame(words: pd.DataFrame) -> pd.DataFrame:
    """A row per code and moment with its nearest old tokens, nearest first."""
    lines = []
    order = {moment: place for place, moment in enumerate(MOMENTS)}
    rows = words.assign(order=words[c.STAGE].map(order)).sort_values([c.LEVEL, c.CODE, "order", c.RANK])
    for (level, code, moment), group in rows.groupby([c.LEVEL, c.CODE, c.STAGE], sort=False):
        said = ", ".join(f"{word} {value:.2f}" for word, value in zip(group[c.WORD], group[c.VALUE], strict=True))
        lines.append([str(level), str(code), MOMENTS[str(moment)], said])
    return pd.DataFrame(lines, columns=["level", "code", "when", "nearest words, with cosine"])


def side_by_side(diagnostics: pd.DataFrame, arms: Sequence[str], metric: str) -> pd.DataFrame:
    """One measure over all levels: a row per arm, a column per moment; a dash where an arm has no such moment."""
    rows = diagnostics[(diagnostics[c.METRIC] == metric) & (diagnostics[c.LEVEL] == ALL_LEVELS)]
    values = rows.set_index([c.ARM, c.STAGE])[c.VALUE]
    moments = present(rows[c.STAGE])
    lines = [
        [arm, *(_short(metric, values[arm, moment]) if (arm, moment) in values.index else "-" for moment in moments)]
        for arm in arms
    ]
    return pd.DataFrame(lines, columns=["arm", *(MOMENTS[moment] for moment in moments)])


def _short(metric: str, value: float) -> str:
    if metric == "effective_rank":
        return f"{value:.1f}"
    return number(round(value, 4) + 0.0)  # no minus before a zero
