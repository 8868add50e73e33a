"""Metric and stage tables: for the terminal (rich), as Markdown and as frames. Pure: nothing here prints."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd
from rich.markup import escape
from rich.table import Table

from gti_pipeline import columns as c
from gti_pipeline.report import OVERALL, POPULAR, Difference, StageRow

ORDER = {"recall": "R", "precision": "P", "ndcg": "N"}
LONG = {"recall": "Recall", "precision": "Precision", "ndcg": "NDCG"}
COMPARED = ("recall", "ndcg")  # the paper's columns; with one target per user precision is recall / K


def metric_name(metric: str, k: int) -> str:
    """`Recall@10`."""
    return f"{LONG.get(metric, metric)}@{k}"


def number(value: float) -> str:
    """Four decimals, `n/a` where there is no number."""
    return f"{value:.4f}" if math.isfinite(value) else "n/a"


def with_interval(value: float, low: float, high: float) -> str:
    """`0.1670 [0.1200, 0.2100]`; the interval is left out where there is none."""
    return (
        f"{number(value)} [{number(low)}, {number(high)}]"
        if math.isfinite(low) and math.isfinite(high)
        else number(value)
    )


def percent(value: float) -> str:
    """A relative gain such as `+12.3 %`; `n/a` where the reference is 0."""
    return f"{value:+.1%}".replace("%", " %") if math.isfinite(value) else "n/a"


def final_frame(metrics: pd.DataFrame, arm: str, baseline: str = POPULAR, part: str = OVERALL) -> pd.DataFrame:
    """Metric, the arm with its interval, the baseline with its own, users: one row per metric and K, as text."""
    rows = metrics[metrics[c.SLICE] == part]
    own, other = (_by_metric(rows[rows[c.ARM] == name]) for name in (arm, baseline))
    table = [
        {
            "metric": metric_name(metric, k),
            arm: _cell(own, (metric, k)),
            baseline: _cell(other, (metric, k)),
            "users": f"{int(own.loc[(metric, k), c.NUM_USERS]):,}",
        }
        for metric, k in own.index
    ]
    return pd.DataFrame(table, columns=["metric", arm, baseline, "users"])


def final_table(
    metrics: pd.DataFrame, arm: str, baseline: str = POPULAR, part: str = OVERALL, title: str = ""
) -> Table:
    """`final_frame` for the terminal."""
    return _rich(final_frame(metrics, arm, baseline, part), title, left=1)


def final_markdown(metrics: pd.DataFrame, arm: str, baseline: str = POPULAR, part: str = OVERALL) -> str:
    """`final_frame` as Markdown."""
    return markdown(final_frame(metrics, arm, baseline, part), left=1)


def stage_frame(stages: Sequence[StageRow]) -> pd.DataFrame:
    """Stage, what happened, key, seconds and note, as text."""
    rows = []
    for row in stages:
        state, seconds = ("already there", "-") if row.cached else ("done", f"{row.seconds:.1f}")
        rows.append((row.stage, state, row.key, seconds, row.note))
    return pd.DataFrame(rows, columns=["stage", "state", "key", "seconds", "note"])


def stage_table(stages: Sequence[StageRow], title: str = "") -> Table:
    """`stage_frame` for the terminal."""
    return _rich(stage_frame(stages), title, left=3, also_left=("note",))


def compare_values(metrics: pd.DataFrame, names: Sequence[str] = COMPARED, part: str = OVERALL) -> pd.DataFrame:
    """The paper's layout as numbers: a row per arm, columns R@5, R@10, ..., N@5, ... ."""
    rows = metrics[(metrics[c.SLICE] == part) & metrics[c.METRIC].isin(list(names))]
    rows = rows.assign(place=rows[c.METRIC].map(list(names).index)).sort_values(["place", c.K], kind="stable")
    labels = [f"{ORDER.get(metric, metric)}@{k}" for metric, k in zip(rows[c.METRIC], rows[c.K], strict=True)]
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
    return _rich(compare_frame(metrics, reference), title, left=1)


def compare_markdown(metrics: pd.DataFrame, reference: str = "mean_sft") -> str:
    """`compare_frame` as Markdown."""
    return markdown(compare_frame(metrics, reference), left=1)


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


def markdown(frame: pd.DataFrame, left: int = 1) -> str:
    """A frame of text as a Markdown table, its first `left` columns aligned left, the others right."""
    marks = ["---" if place < left else "---:" for place in range(len(frame.columns))]
    lines = [frame.columns.tolist(), marks, *frame.to_numpy().tolist()]
    return "".join("| " + " | ".join(_plain(str(cell)) for cell in line) + " |\n" for line in lines)


def _plain(text: str) -> str:
    """A cell that can neither end its column nor its row, nor be read as HTML."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _by_metric(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows by (metric, k), in the order recall, precision, ndcg and then K."""
    places = {name: place for place, name in enumerate(ORDER)}
    order = rows[c.METRIC].map(lambda name: places.get(name, len(places)))
    return rows.assign(order=order).sort_values(["order", c.METRIC, c.K]).set_index([c.METRIC, c.K])


def _cell(rows: pd.DataFrame, key: tuple[str, int]) -> str:
    if key not in rows.index:
        return "-"
    value, low, high = rows.loc[[key]][[c.VALUE, c.LOW, c.HIGH]].to_numpy(dtype=float)[0]
    return with_interval(value, low, high)


def _rich(frame: pd.DataFrame, title: str, left: int, also_left: Sequence[str] = ()) -> Table:
    table = Table(title=escape(title) or None, title_justify="left")
    for place, name in enumerate(frame.columns):
        aligned = "left" if place < left or name in also_left else "right"
        table.add_column(escape(str(name)), justify=aligned, overflow="fold")  # type: ignore[arg-type]
    for row in frame.itertuples(index=False):
        table.add_row(*(escape(str(cell)) for cell in row))
    return table
