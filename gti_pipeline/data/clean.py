"""Raw rows and a column map to our items and interactions; every row that is left out says why."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import numpy as np
import pandas as pd

from gti_pipeline import columns as c
from gti_pipeline.config import DataConfig, InteractionsConfig, ItemsConfig
from gti_pipeline.data.readers import RawTable
from gti_pipeline.data.text import list_text, plain_text
from gti_pipeline.data.times import parse_times
from gti_pipeline.schemas import INTERACTIONS, ITEMS, REJECTED

NULL_ITEM = "null item id"
NULL_NAME = "null name"
SAME_ITEM = "duplicate item, identical"
OTHER_ITEM = "duplicate item id, conflicting"
NULL_USER = "null user id"
NULL_TIME = "null timestamp"
BAD_TIME = "timestamp not parsable"
BAD_END = "end not parsable"
INVERTED = "end before start"
UNKNOWN_ITEM = "item not in catalogue"
SAME_ROW = "exact duplicate"

SECONDS_A_DAY = 86_400


def as_names(value: str | tuple[str, ...]) -> tuple[str, ...]:
    """A setting that takes one name or several."""
    return (value,) if isinstance(value, str) else value


def repeat_reason(days: int) -> str:
    """The reason of a row that repeats an earlier one of the same user and item too soon."""
    return f"repeat within {days} days"


def column_problems(tables: Sequence[RawTable], config: ItemsConfig | InteractionsConfig) -> list[str]:
    """One line for each configured column that a file lacks: file, column, setting, nearest name, what is there."""
    problems = []
    for table in tables:
        (file,) = table.rows_read
        present = list(table.rows.columns)
        for setting, name in _mapped(config):
            if name not in present:
                nearest = difflib.get_close_matches(name, present, n=1, cutoff=0.5)
                hint = f", nearest: {nearest[0]!r}" if nearest else ""
                problems.append(f"{file}: no column {name!r} (data.{setting}){hint}; columns there: {present}")
    return problems


def _mapped(config: ItemsConfig | InteractionsConfig) -> list[tuple[str, str]]:
    """(setting, column) of every configured column."""
    if isinstance(config, InteractionsConfig):
        pairs = [(key, getattr(config, key)) for key in ("user_id", "item_id", "timestamp", "end")]
        return [(f"interactions.{key}", name) for key, name in pairs if name]
    pairs = [(key, getattr(config, key)) for key in ("item_id", "title", "description", "group_id", "list_text")]
    return [(f"items.{key}", name) for key, names in pairs if names for name in as_names(names)]


class _Reasons:
    """The first reason found against each row; rows without one are kept."""

    def __init__(self, raw: RawTable) -> None:
        self._raw = raw
        self._found = pd.Series(None, index=raw.rows.index, dtype=object)

    @property
    def kept(self) -> pd.Series:
        """Boolean, one per row."""
        return self._found.isna()

    def add(self, rows: pd.Series, reason: str) -> None:
        """Marks rows; both masks and subsets of the index work, rows already marked keep their first reason."""
        self._found[rows.reindex(self._found.index, fill_value=False) & self.kept] = reason

    def rejected(self) -> pd.DataFrame:
        """As `schemas.REJECTED`, the reader's own rejects included."""
        bad = self._raw.origin[~self.kept].assign(**{c.REASON: self._found[~self.kept]})
        return pd.concat([self._raw.rejected, bad[list(REJECTED.fields)]], ignore_index=True)


def clean_items(raw: RawTable, config: ItemsConfig) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Returns items (`schemas.ITEMS`, in source order) and rejects (`schemas.REJECTED`)."""
    rows, none = raw.rows, pd.Series(None, index=raw.rows.index, dtype=object)
    items = pd.DataFrame(
        {
            c.ITEM_ID: _ids(rows[config.item_id]),
            c.TITLE: _texts(rows, as_names(config.title), config.list_text),
            c.DESCRIPTION: _texts(rows, as_names(config.description), config.list_text),
            c.GROUP_ID: _ids(rows[config.group_id]) if config.group_id else none,
        },
        columns=list(ITEMS.fields),
    )
    reasons = _Reasons(raw)
    reasons.add(items[c.ITEM_ID].isna(), NULL_ITEM)
    reasons.add(items[c.TITLE] == "", NULL_NAME)
    usable = items[reasons.kept]
    first = usable.groupby(c.ITEM_ID, sort=False).transform("first").fillna("")
    same = (usable[list(first.columns)].fillna("") == first).all(axis=1)
    later = usable.duplicated(c.ITEM_ID)
    reasons.add(later & same, SAME_ITEM)
    reasons.add(later, OTHER_ITEM)
    return items[reasons.kept].reset_index(drop=True).astype("str"), reasons.rejected()


def clean_interactions(
    raw: RawTable, config: InteractionsConfig, item_ids: pd.Series, repeat_window_days: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Returns interactions (`schemas.INTERACTIONS`, by user, timestamp, source row) and rejects.

    `source_row` is the row's position over all interaction files in the order listed, unreadable rows not counted.
    Timestamps that are numbers count as seconds where `repeat_window_days` is applied.
    """
    rows = raw.rows
    events = pd.DataFrame(
        {
            c.USER_ID: _ids(rows[config.user_id]),
            c.ITEM_ID: _ids(rows[config.item_id]),
            c.TIMESTAMP: parse_times(rows[config.timestamp]),
            c.SOURCE_ROW: np.arange(len(rows), dtype=np.int64),
        },
        columns=list(INTERACTIONS.fields),
    )
    reasons = _Reasons(raw)
    reasons.add(events[c.USER_ID].isna(), NULL_USER)
    reasons.add(events[c.ITEM_ID].isna(), NULL_ITEM)
    reasons.add(rows[config.timestamp].isna(), NULL_TIME)
    reasons.add(events[c.TIMESTAMP].isna(), BAD_TIME)
    if config.end:
        end = parse_times(rows[config.end])
        reasons.add(end.isna() & rows[config.end].notna(), BAD_END)
        reasons.add((end < events[c.TIMESTAMP]).fillna(False).astype(bool), INVERTED)
    reasons.add(~events[c.ITEM_ID].isin(item_ids), UNKNOWN_ITEM)
    reasons.add(rows[reasons.kept].duplicated(), SAME_ROW)
    if repeat_window_days:
        repeats = _repeats(events[reasons.kept], repeat_window_days * SECONDS_A_DAY)
        reasons.add(repeats, repeat_reason(repeat_window_days))
    kept = events[reasons.kept].sort_values([c.USER_ID, c.TIMESTAMP, c.SOURCE_ROW], ignore_index=True)
    kept = kept.astype({c.USER_ID: "str", c.ITEM_ID: "str"}).astype({c.TIMESTAMP: "int64"})
    return kept, reasons.rejected()


def _repeats(events: pd.DataFrame, window: int) -> pd.Series:
    """True where the same user has the same item, kept, at most `window` seconds before."""
    again = events[events.duplicated([c.USER_ID, c.ITEM_ID], keep=False)]
    again = again.sort_values([c.TIMESTAMP, c.SOURCE_ROW])
    last_kept: dict[tuple[str, str], int] = {}
    flags = []
    for user, item, time in zip(again[c.USER_ID], again[c.ITEM_ID], again[c.TIMESTAMP], strict=True):
        before = last_kept.get((user, item))
        flags.append(before is not None and time - before <= window)
        if not flags[-1]:
            last_kept[user, item] = time
    return pd.Series(flags, index=again.index, dtype=bool)


def apply_limits(
    items: pd.DataFrame, interactions: pd.DataFrame, config: DataConfig
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Keeps the `max_items` most frequent items (ties in catalogue order), then `max_users` of a seeded shuffle."""
    if config.max_items is not None and config.max_items < len(items):
        counts = items[c.ITEM_ID].map(interactions[c.ITEM_ID].value_counts()).fillna(0)
        top = counts.sort_values(ascending=False, kind="stable").index[: config.max_items]
        items = items.loc[top.sort_values()].reset_index(drop=True)
        interactions = interactions[interactions[c.ITEM_ID].isin(items[c.ITEM_ID])]
    users = np.array(sorted(interactions[c.USER_ID].unique()), dtype=object)
    if config.max_users is not None and config.max_users < len(users):
        chosen = np.random.default_rng(config.seed).permutation(users)[: config.max_users]
        interactions = interactions[interactions[c.USER_ID].isin(chosen)]
    return items, interactions.reset_index(drop=True)


def _ids(values: pd.Series) -> pd.Series:
    """Stripped text, None where nothing is left."""
    return values.map(lambda value: (value.strip() or None) if isinstance(value, str) else None).astype(object)


def _texts(rows: pd.DataFrame, names: Sequence[str], lists: Sequence[str]) -> pd.Series:
    """The named columns as plain text, joined with spaces; empty text where all are null."""
    parts = [[_clean(value, name in lists) for value in rows[name]] for name in names]
    joined = [" ".join(filter(None, texts)) for texts in zip(*parts, strict=True)] if parts else [""] * len(rows)
    return pd.Series(joined, index=rows.index, dtype=object)


def _clean(value: str | None, is_list: bool) -> str:
    if value is None:
        return ""
    return plain_text(list_text(value) if is_list else value)
