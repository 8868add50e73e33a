"""Metric and stage tables: for the terminal (rich), as Markdown and as frames. Pure: nothing here prints."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd
from rich.console import Group
from rich.markup import escape
from rich.table import Table

from gti_pipeline import columns as c
from gti_pipeline.report import OVERALL, POPULAR, StageRow

SHORT = {
    "recall": "R",
    "ndcg": "N",
    "precision": "P",
    "precision_good": "P good",
    "precision_good_maybe": "P good+maybe",
    "ndcg_graded": "N",
}
LONG = {
    "recall": "Recall",
    "ndcg": "NDCG",
    "precision": "Precision",
    "mrr": "MRR",
    "hit_rate": "Hit rate",
    "coverage": "Coverage",
    "popularity": "Popularity",
    "repeats": "Repeats",
    "sid_prefix_1": "SID 1 code",
    "sid_prefix_2": "SID 2 codes",
    "precision_good": "Precision (good)",
    "precision_good_maybe": "Precision (good or maybe)",
    "ndcg_graded": "Graded NDCG",
}
FIRST = ("recall", "ndcg", "precision")
OF_SEARCH = ("precision_good", "precision_good_maybe", "ndcg_graded")  # the paper's industrial table
BENEATH = tuple(name for name in LONG if name not in (*FIRST, *OF_SEARCH))
COMPARED = ("recall", "ndcg")  # the paper's columns; with one target per user precision is recall / K
NO_CONTEST = {"coverage", "popularity", "repeats"}  # more of them is neither better nor worse
BEST = "*"
SLICES = {
    "repeat": "Repeats: the next item was in the history",
    "novel": "Novel: the next item was not in the history",
    "warm_item": "Warm item: the next item has training events",
    "cold_item": "Cold item: the next item has none",
    "history_1_2": "History of 1 to 2 items",
    "history_3_5": "History of 3 to 5 items",
    "history_6_10": "History of 6 to 10 items",
    "history_11_up": "History of 11 items or more",
}


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


def final_frame(
    metrics: pd.DataFrame, arm: str, baselines: Sequence[str] = (POPULAR,), part: str = OVERALL
) -> pd.DataFrame:
    """Metric, the arm with its interval, the baselines with theirs, users: one row per metric and K, as text.

    Recall, NDCG and Precision at every K come first, the others beneath; of three arms or more the best is marked.
    """
    rows = metrics[metrics[c.SLICE] == part]
    arms = [arm, *baselines]
    tables = {name: _by_metric(rows[rows[c.ARM] == name]) for name in arms}
    lines = []
    for metric, k in tables[arm].index:
        cells = _marked(metric, [_value(tables[name], (metric, k)) for name in arms])
        users = f"{int(tables[arm].loc[(metric, k), c.NUM_USERS]):,}"
        lines.append([metric_name(metric, k), *cells, users])
    return pd.DataFrame(lines, columns=["metric", *arms, "users"])


def final_table(
    metrics: pd.DataFrame,
    arm: str,
    baselines: Sequence[str] = (POPULAR,),
    part: str = OVERALL,
    title: str = "",
    k: int = 10,
) -> Table | Group:
    """The closing table for the terminal: `final_frame`, the lesser metrics at K alone; many arms: `arms_table`."""
    if len(baselines) > 1:
        return arms_table(metrics, [arm, *baselines], k, part, title)
    k = nearest_k(metrics, k)
    frame = final_frame(metrics, arm, baselines, part)
    first = frame["metric"].str.startswith(tuple(LONG[name] + "@" for name in FIRST))
    shown_rows = frame[first | frame["metric"].str.endswith(f"@{k}")]
    return rich_table(shown_rows, title, left=1, sections=(int(first.sum()),))


def final_markdown(metrics: pd.DataFrame, arm: str, baselines: Sequence[str] = (POPULAR,), part: str = OVERALL) -> str:
    """`final_frame` as Markdown."""
    return markdown(final_frame(metrics, arm, baselines, part), left=1)


def arms_frame(
    metrics: pd.DataFrame,
    arms: Sequence[str],
    names: Sequence[str] = FIRST,
    ks: Sequence[int] = (),
    part: str = OVERALL,
    *,
    intervals: bool = True,
) -> pd.DataFrame:
    """A row per arm, a column per metric and K (all measured ones, if none are given), as text, the best marked."""
    rows = metrics[(metrics[c.SLICE] == part) & metrics[c.ARM].isin(list(arms)) & metrics[c.METRIC].isin(list(names))]
    tables = {name: _by_metric(rows[rows[c.ARM] == name]) for name in arms}
    columns: dict[str, list[str]] = {"arm": list(arms)}
    for metric, k in _by_metric(rows.drop_duplicates([c.METRIC, c.K])).index:
        if not ks or k in ks:
            values = [_value(tables[name], (metric, k)) for name in arms]
            columns[metric_name(metric, k)] = _marked(metric, values, intervals=intervals)
    return pd.DataFrame(columns)


def arms_table(metrics: pd.DataFrame, arms: Sequence[str], k: int = 10, part: str = OVERALL, title: str = "") -> Group:
    """Many arms for the terminal, at one K: Recall and NDCG with intervals, Precision; the others beneath."""
    k = nearest_k(metrics, k)
    first = arms_frame(metrics, arms, COMPARED, (k,), part)
    also = arms_frame(metrics, arms, ("precision",), (k,), part, intervals=False).drop(columns="arm")
    beneath = arms_frame(metrics, arms, BENEATH, (k,), part, intervals=False)
    beneath.columns = [name.removesuffix(f"@{k}") for name in beneath.columns]
    beneath = beneath.rename(columns={"arm": f"arm, @{k}"})
    note = f"{BEST} the best of its column"
    return Group(
        rich_table(pd.concat([first, also], axis=1), title, left=1), rich_table(beneath, "", left=1, caption=note)
    )


def arms_markdown(metrics: pd.DataFrame, arms: Sequence[str]) -> str:
    """Many arms as Markdown: the first metrics with intervals at every K, then the others."""
    first, beneath = arms_frame(metrics, arms), arms_frame(metrics, arms, BENEATH, intervals=False)
    return f"{markdown(first)}\n{markdown(beneath)}\n{BEST} the best of its column\n"


def slices_frame(metrics: pd.DataFrame, arms: Sequence[str], metric: str, k: int) -> pd.DataFrame:
    """A row per slice of the test users, a column per arm, users, as text; empty slices are left out."""
    rows = metrics[(metrics[c.METRIC] == metric) & (metrics[c.K] == k) & metrics[c.ARM].isin(list(arms))]
    lines = []
    for part, label in ({OVERALL: "All test users"} | SLICES).items():
        own = rows[rows[c.SLICE] == part]
        if not own.empty:
            tables = [_by_metric(own[own[c.ARM] == name]) for name in arms]
            cells = _marked(metric, [_value(table, (metric, k)) for table in tables])
            lines.append([label, *cells, f"{int(own[c.NUM_USERS].max()):,}"])
    return pd.DataFrame(lines, columns=[metric_name(metric, k), *arms, "users"])


def first_names(metrics: pd.DataFrame) -> tuple[str, ...]:
    """The metrics that stand first, the very first of them being the headline: those of the task that was measured."""
    return OF_SEARCH if (metrics[c.METRIC] == OF_SEARCH[0]).any() else FIRST


def nearest_k(metrics: pd.DataFrame, wanted: int) -> int:
    """The wanted K where the headline metric was measured there, else the K nearest to it."""
    ks = {int(k) for k in metrics.loc[metrics[c.METRIC] == first_names(metrics)[0], c.K]}
    return min(ks, key=lambda k: (abs(k - wanted), k), default=wanted)


def stage_frame(stages: Sequence[StageRow]) -> pd.DataFrame:
    """Stage, what happened, key, seconds and note, as text."""
    rows = []
    for row in stages:
        state, seconds = ("already there", "-") if row.cached else ("done", f"{row.seconds:.1f}")
        rows.append((row.stage, state, row.key, seconds, row.note))
    return pd.DataFrame(rows, columns=["stage", "state", "key", "seconds", "note"])


def stage_table(stages: Sequence[StageRow], title: str = "") -> Table:
    """`stage_frame` for the terminal."""
    return rich_table(stage_frame(stages), title, left=3, also_left=("note",))


def markdown(frame: pd.DataFrame, left: int = 1) -> str:
    """A frame of text as a Markdown table, its first `left` columns aligned left, the others right."""
    marks = ["---" if place < left else "---:" for place in range(len(frame.columns))]
    lines = [frame.columns.tolist(), marks, *frame.to_numpy().tolist()]
    return "".join("| " + " | ".join(_plain(str(cell)) for cell in line) + " |\n" for line in lines)


def _plain(text: str) -> str:
    """A cell that can neither end its column nor its row, nor be read as HTML."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _by_metric(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows by (metric, k), metrics in the order of `LONG`."""
    places = {name: place for place, name in enumerate(LONG)}
    order = rows[c.METRIC].map(lambda name: places.get(name, len(places)))
    return rows.assign(order=order).sort_values(["order", c.METRIC, c.K]).set_index([c.METRIC, c.K])


def _value(rows: pd.DataFrame, key: tuple[str, int]) -> tuple[float, float, float] | None:
    """Value, low and high; None where it was not measured."""
    if key not in rows.index:
        return None
    value, low, high = rows.loc[[key]][[c.VALUE, c.LOW, c.HIGH]].to_numpy(dtype=float)[0]
    return value, low, high


def _marked(metric: str, values: Sequence[tuple[float, float, float] | None], *, intervals: bool = True) -> list[str]:
    """The cells of one metric and K; the best of three or more is marked, as with two it is plain to see."""
    known = [value[0] for value in values if value is not None]
    best = max(known) if len(values) > 2 and known and metric not in NO_CONTEST else math.nan
    return [_cell(metric, value, best, intervals) for value in values]


def _cell(metric: str, value: tuple[float, float, float] | None, best: float, intervals: bool) -> str:
    if value is None:
        return "-"
    if metric == "popularity":  # in a large catalogue four decimals would all be zero
        return f"{100 * value[0]:.3g} %"
    text = with_interval(*value) if intervals else number(value[0])
    return (BEST if value[0] == best else "") + text


def rich_table(
    frame: pd.DataFrame,
    title: str,
    left: int,
    also_left: Sequence[str] = (),
    sections: Sequence[int] = (),
    caption: str = "",
) -> Table:
    """A frame of text for the terminal; `sections`: after how many rows a line is drawn."""
    table = Table(title=escape(title) or None, title_justify="left", caption=caption or None, caption_justify="left")
    for place, name in enumerate(frame.columns):
        aligned = "left" if place < left or name in also_left else "right"
        table.add_column(escape(str(name)), justify=aligned, overflow="fold")  # type: ignore[arg-type]
    for number_of_row, row in enumerate(frame.itertuples(index=False), 1):
        table.add_row(*(escape(str(cell)) for cell in row), end_section=number_of_row in sections)
    return table
