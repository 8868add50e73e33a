"""Raw rows and a column map to our items and interactions; every row that is not kept says why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from gti_pipeline import columns as c
from gti_pipeline.config import InteractionsConfig, ItemsConfig
from gti_pipeline.data.chunk import STR, TEXT, text_series
from gti_pipeline.data.duplicates import repeats, same_rows
from gti_pipeline.data.mapping import as_names
from gti_pipeline.data.readers import RawTable
from gti_pipeline.data.text import list_text, plain_text
from gti_pipeline.data.times import Times, parse_times
from gti_pipeline.data.verdicts import Mask, Verdicts
from gti_pipeline.errors import GtiError
from gti_pipeline.schemas import INTERACTIONS, ITEMS

NULL_ITEM = "null item id"
NULL_NAME = "null name"
SAME_ITEM = "duplicate item, identical: merged"
OTHER_ITEM = "duplicate item id, conflicting"
MERGED = "merged into its group"
NULL_USER = "null user id"
NULL_TIME = "null timestamp"
BAD_TIME = "timestamp not parsable"
BAD_END = "end not parsable"
INVERTED = "end before start"
BAD_RATING = "rating not a number"
LOW_RATING = "rating below min_rating"
UNKNOWN_ITEM = "item not in catalogue"
SAME_ROW = "exact duplicate"

SECONDS_A_DAY = 86_400
TEXTS_AT_ONCE = 1 << 16


def repeat_reason(days: int) -> str:
    """The reason of a row that repeats an earlier one of the same user and item too soon."""
    return f"repeat within {days} days"


def no_match_reason(config: InteractionsConfig) -> str:
    """The reason of a row that finds none to join."""
    assert config.join is not None
    return f"no row of {', '.join(as_names(config.join.file))} with this {config.join.on}"


# -------------------------------------------------------------------------------------------------------------- items


def clean_items(raw: RawTable, config: ItemsConfig) -> tuple[pd.DataFrame, Verdicts]:
    """Returns items (`schemas.ITEMS`; the index is the row's position in `raw`) and the verdicts over all rows."""
    rows, verdicts = raw.rows, Verdicts(raw)
    items = pd.DataFrame(
        {
            c.ITEM_ID: ids(rows[config.item_id]),
            c.TITLE: _texts(rows, as_names(config.title), config.list_text),
            c.DESCRIPTION: _texts(rows, as_names(config.description), config.list_text),
            c.GROUP_ID: ids(rows[config.group_id]) if config.group_id else pd.Series(pd.NA, rows.index, dtype=STR),
        },
        columns=list(ITEMS.fields),
    )
    verdicts.add(items[c.ITEM_ID].isna().to_numpy(), NULL_ITEM)
    verdicts.add((items[c.TITLE] == "").to_numpy(), NULL_NAME)
    _judge_duplicates(items, verdicts)
    return items[verdicts.kept], verdicts


def _judge_duplicates(items: pd.DataFrame, verdicts: Verdicts) -> None:
    """A later row of an item id is merged where it says the same as the first, else rejected with both lines."""
    usable = items[verdicts.kept]
    again = usable[usable.duplicated(c.ITEM_ID, keep=False)]
    if again.empty:
        return
    texts = again.fillna("")
    codes, _ = pd.factorize(texts[c.ITEM_ID])
    _, first = np.unique(codes, return_index=True)  # codes are numbered by first appearance
    same = (texts.to_numpy(dtype=object) == texts.to_numpy(dtype=object)[first[codes]]).all(axis=1)
    later = np.arange(len(codes)) != first[codes]
    position = again.index.to_numpy(dtype=np.int64)
    verdicts.add(_mask(items, position[later & same]), SAME_ITEM, left_out=True)
    verdicts.add(_mask(items, position[later & ~same]), OTHER_ITEM)
    for place in np.flatnonzero(later & ~same):
        earlier, this = int(position[first[codes[place]]]), int(position[place])
        verdicts.detail(this, f"line {verdicts.line(this)} differs from {verdicts.place(earlier)}, which is kept")


def to_groups(items: pd.DataFrame, verdicts: Verdicts) -> tuple[pd.DataFrame, pd.Series]:
    """Items of one group become one item, called as the group is, with the text of the group's first item.

    An item without a group stays an item of its own.

    Returns:
        The items (`schemas.ITEMS`), and for each former item id (the index) the new one.

    Raises:
        GtiError: an item without a group is called as some group is.
    """
    level = items[c.GROUP_ID].fillna(items[c.ITEM_ID])
    alone = items.loc[items[c.GROUP_ID].isna(), c.ITEM_ID]
    clash = sorted(alone[alone.isin(items[c.GROUP_ID])])
    if clash:
        raise GtiError(
            f"data.item_level=group: {len(clash)} items without a group are called as a group is, for example"
            f" {clash[:3]}: rename the groups"
        )
    grouped = items.assign(**{c.ITEM_ID: level}).drop_duplicates(c.ITEM_ID)
    verdicts.leave_only(grouped.index.to_numpy(dtype=np.int64), MERGED)
    return grouped, pd.Series(level.to_numpy(dtype=object), index=items[c.ITEM_ID].to_numpy(dtype=object), dtype=STR)


def _texts(rows: pd.DataFrame, names: Sequence[str], lists: Sequence[str]) -> pd.Series:
    """The named columns as plain text, joined with spaces; empty text where all are null."""
    chunks = [pa.array(texts, TEXT) for texts in _joined(rows, names, lists)]
    return text_series(chunks, rows.index)


def _joined(rows: pd.DataFrame, names: Sequence[str], lists: Sequence[str]) -> Iterator[list[str]]:
    for start in range(0, len(rows), TEXTS_AT_ONCE):
        part = rows.iloc[start : start + TEXTS_AT_ONCE]
        columns = [[_clean(value, name in lists) for value in part[name].to_list()] for name in names]
        yield [" ".join(filter(None, texts)) for texts in zip(*columns, strict=True)] if names else [""] * len(part)


def _clean(value: object, is_list: bool) -> str:
    if not isinstance(value, str):
        return ""
    return plain_text(list_text(value) if is_list else value)


# ------------------------------------------------------------------------------------------------------- interactions


def clean_interactions(
    raw: RawTable, config: InteractionsConfig, levels: pd.Series, repeat_window_days: int, unmatched: Mask | None = None
) -> tuple[pd.DataFrame, Verdicts, bool]:
    """Returns interactions (`schemas.INTERACTIONS`, by user, timestamp, source row), verdicts, and if times are dates.

    `source_row` is the row's position in `raw`, that is over all interaction files in the order listed.

    Args:
        raw: the mapped columns.
        config: the column map.
        levels: the catalogue: what an item id of the file (the index) is called in our items.
        repeat_window_days: as in the configuration.
        unmatched: rows that found none to join.

    Raises:
        GtiError: timestamps can be read in two ways, or only order where days are to be counted.
    """
    rows, verdicts = raw.rows, Verdicts(raw)
    if unmatched is not None:
        verdicts.add(unmatched, no_match_reason(config))
    users, user_names = pd.factorize(ids(rows[config.user_id]), sort=True)
    items, item_names = pd.factorize(ids(rows[config.item_id]))
    verdicts.add(users < 0, NULL_USER)
    verdicts.add(items < 0, NULL_ITEM)
    start = _judge_times(rows, config, verdicts)
    if repeat_window_days and not start.dated:
        raise GtiError(_no_days(config, repeat_window_days))
    low = _judge_ratings(rows, config, verdicts)
    times = start.values.to_numpy(dtype=np.int64, na_value=0)
    events = pd.DataFrame({c.USER_ID: users, c.ITEM_ID: items, c.TIMESTAMP: times})  # numbers are quicker than text
    verdicts.add(same_rows(raw, events[verdicts.kept]), SAME_ROW)
    places, level_names = _places(item_names, levels)
    events[c.ITEM_ID] = np.append(places, -1)[items]
    verdicts.add((events[c.ITEM_ID] < 0).to_numpy(), UNKNOWN_ITEM)
    verdicts.add(low, LOW_RATING, left_out=True)
    events = events[verdicts.kept]
    if repeat_window_days:
        again = events.index[repeats(events, repeat_window_days * SECONDS_A_DAY)].to_numpy(dtype=np.int64)
        verdicts.add(_mask(rows, again), repeat_reason(repeat_window_days))
        events = events[verdicts.kept[events.index]]
    return _named(events, user_names, level_names), verdicts, start.dated


def _places(item_names: pd.Index, levels: pd.Series) -> tuple[NDArray[np.int64], pd.Index]:
    """For each item id of the file, which of the returned names it goes by in our items; -1 for unknown ones."""
    codes, names = pd.factorize(levels)
    found = pc.index_in(pa.array(item_names, TEXT), pa.array(levels.index, TEXT))
    places = np.asarray(pc.fill_null(found, -1), dtype=np.int64)
    return np.append(codes, -1)[places], names


def _judge_times(rows: pd.DataFrame, config: InteractionsConfig, verdicts: Verdicts) -> Times:
    def read(name: str, setting: str) -> Times:
        what = f"data.interactions.{setting} (column {name!r})"
        return parse_times(rows[name], config.time_format, config.time_zone, what)

    start = read(config.timestamp, "timestamp")
    verdicts.add(rows[config.timestamp].isna().to_numpy(), NULL_TIME)
    verdicts.add(start.values.isna().to_numpy(), BAD_TIME)
    if config.end:
        end = read(config.end, "end").values
        verdicts.add((end.isna() & rows[config.end].notna()).to_numpy(), BAD_END)
        verdicts.add((end < start.values).fillna(False).to_numpy(dtype=bool), INVERTED)
    return start


def _no_days(config: InteractionsConfig, days: int) -> str:
    return (
        f"data.interactions.timestamp (column {config.timestamp!r}) holds numbers, which under"
        f" time_format={config.time_format} only order, but data.repeat_window_days={days} counts days: set"
        " data.interactions.time_format to seconds or milliseconds, or data.repeat_window_days=0"
    )


def _judge_ratings(rows: pd.DataFrame, config: InteractionsConfig, verdicts: Verdicts) -> Mask:
    """Rejects ratings that are no numbers; returns which are too low."""
    if config.rating is None or config.min_rating is None:
        return np.zeros(len(rows), dtype=bool)
    rating = pd.to_numeric(rows[config.rating], errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    verdicts.add(~np.isfinite(rating), BAD_RATING)
    low: Mask = np.less(rating, config.min_rating)
    return low


def _named(events: pd.DataFrame, user_names: pd.Index, item_names: pd.Index) -> pd.DataFrame:
    """`schemas.INTERACTIONS` by user, timestamp and source row, from the numbers of users and items by source row."""
    order = np.lexsort((events[c.TIMESTAMP], events[c.USER_ID]))  # stable
    events = events.iloc[order]
    found = {
        c.USER_ID: pd.array(user_names.array.take(events[c.USER_ID].to_numpy()), dtype=STR),
        c.ITEM_ID: pd.array(item_names.array.take(events[c.ITEM_ID].to_numpy()), dtype=STR),
        c.TIMESTAMP: events[c.TIMESTAMP].to_numpy(),
        c.SOURCE_ROW: events.index.to_numpy(dtype=np.int64),
    }
    return pd.DataFrame(found, columns=list(INTERACTIONS.fields))


# --------------------------------------------------------------------------------------------------------------- both


def ids(values: pd.Series) -> pd.Series:
    """Stripped text, missing where nothing is left.

    In a column of whole numbers of which some were written as floats, as happens where others are missing, `1.0` is 1.
    """
    text = values.str.strip()
    text = text.mask(text == "")
    present = text.dropna()
    if present.str.fullmatch(r"-?\d+\.0").any() and present.str.fullmatch(r"-?\d+(?:\.0)?").all():
        text = text.str.removesuffix(".0")
    return text


def _mask(rows: pd.DataFrame, positions: NDArray[np.int64]) -> Mask:
    """True at the given positions."""
    mask = np.zeros(len(rows), dtype=bool)
    mask[positions] = True
    return mask
