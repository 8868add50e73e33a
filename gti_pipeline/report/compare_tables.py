"""Several arms in the paper's layout, absolute and relative, and their paired differences. Pure: it prints nothing."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from rich.table import Table

from gti_pipeline import columns as c
from gti_pipeline.report import OVERALL, Difference
from gti_pipeline.report.tables import (
    COMPARED,
    OF_SEARCH,
    SHORT,
    first_names,
    markdown,
    metric_name,
    number,
    percent,
    rich_table,
)


def compare_values(metrics: pd.DataFrame, names: Sequence[str] = COMPARED, part: str = OVERALL) -> pd.DataFrame:
    """The paper's layout as numbers: a row per arm, columns R@5, R@10, ..., N@5, ... ."""
    rows = metrics[(metrics[c.SLICE] == part) & metrics[c.METRIC].isin(list(names))]
    rows = rows.assign(place=rows[c.METRIC].map(list(names).index)).sort_values(["place", c.K], kind="stable")
    labels = [f"{SHORT.get(metric, metric)}@{k}" for metric, k in zip(rows[c.METRIC], rows[c.K], strict=True)]
    wide = rows.assign(label=labels).pivot(index=c.ARM, columns="label", values=c.VALUE)
    return wide.reindex(index=list(dict.fromkeys(metrics[c.ARM])), columns=list(dict.fromkeys(labels)))


def compare_relative(values: pd.DataFrame, reference: str) -> pd.DataFrame:
    """Gains over the reference arm, as shares; missing where the reference is 0 or no arm of the table."""
    if reference not in values.index:
        return values * float("nan")
    return values / values.loc[[reference]].replace(0, float("nan")).iloc[0] - 1


def compare_frame(
    metrics: pd.DataFrame, reference: str = "mean_sft", names: Sequence[str] = COMPARED, part: str = OVERALL
) -> pd.DataFrame:
    """Absolute values with the gain over the reference below each arm, as text."""
    values = compare_values(metrics, names, part)
    gains = compare_relative(values, reference)
    rows = []
    for arm in values.index:
        rows.append([arm, *(number(value) for value in values.loc[arm])])
        if arm != reference and reference in values.index:
            rows.append([f"  against {reference}", *(percent(value) for value in gains.loc[arm])])
    return pd.DataFrame(rows, columns=["arm", *values.columns])


def compare_table(metrics: pd.DataFrame, reference: str = "mean_sft", title: str = "") -> Table:
    """`compare_frame` for the terminal."""
    return rich_table(
        compare_frame(metrics, reference, OF_SEARCH if first_names(metrics) == OF_SEARCH else COMPARED), title, left=1
    )


def compare_markdown(metrics: pd.DataFrame, reference: str = "mean_sft", names: Sequence[str] = COMPARED) -> str:
    """`compare_frame` as Markdown."""
    return markdown(compare_frame(metrics, reference, names), left=1)


def difference_frame(differences: Sequence[Difference]) -> pd.DataFrame:
    """Paired differences with their intervals and what each shows, as text."""
    rows = [
        (
            f"{d.arm} - {d.reference}",
            metric_name(d.metric, d.k),
            f"{d.value:+.4f} [{d.low:+.4f}, {d.high:+.4f}]",
            f"{d.num_users:,}",
            shown(d),
        )
        for d in differences
    ]
    return pd.DataFrame(rows, columns=["arms", "metric", "difference", "users", "shown"])


def shown(difference: Difference) -> str:
    """Whether a paired difference is told apart from none: its interval holds 0 or it does not."""
    if difference.low > 0:
        return "higher"
    return "lower" if difference.high < 0 else "not shown"
