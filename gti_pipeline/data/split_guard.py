"""The guard that runs in every pipeline: nothing that is held out is seen before it is asked for."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from gti_pipeline import columns as c
from gti_pipeline.config import DataConfig
from gti_pipeline.data.split import (
    SPLITS,
    TEST,
    TRAIN,
    VALID,
    Split,
    flat,
    history_lengths,
    relevant_items,
    rows,
    shared_strings,
    training_items,
    within,
)
from gti_pipeline.data.split_rules import Cuts, Flags, Parts, Whole, cut_users, is_ordered, ordered
from gti_pipeline.errors import raise_all
from gti_pipeline.schemas import RELEVANT

SHOWN = 5


def check_no_leak(split: Split, interactions: pd.DataFrame, config: DataConfig) -> None:
    """Refuses a split in which a row sees its target or a later event, or training sees what is held out.

    Rows are located among the user's events by position, so a repeated item is no leak but a held-out event is. A
    temporal split's times are checked against its cuts as well, whatever the positions say.

    Raises:
        GtiError: names the users and rows.
    """
    problems = [] if is_ordered(interactions) else ["interactions are not ordered by (user_id, timestamp, source_row)"]
    events = ordered(interactions)
    parts = cut_users(events, config, split.cuts)
    names = pd.Index(events[c.USER_ID].take(parts.start))
    found = split.sequences
    user, kind = names.get_indexer(pd.Index(found[c.USER_ID])), pd.Index(SPLITS).get_indexer(pd.Index(found[c.SPLIT]))
    known = (user >= 0) & (kind >= 0)
    if split.cuts is not None:
        problems += _times(found[known], user[known], events, parts, split.cuts)
    problems += _misplaced(found, user, kind, names, parts, config.min_history)
    problems += _rows(found[known], user[known], kind[known], events, parts)
    problems += _relevant(split.relevant, relevant_items(events, parts))
    problems += _training(found, events, parts)
    if problems:
        more = [f"... and {len(problems) - SHOWN} more"] if len(problems) > SHOWN else []
        title = "The split leaks, which is a bug in this program; nothing was trained on it:"
        raise_all(title, [*problems[:SHOWN], *more])


def _misplaced(
    found: pd.DataFrame, user: Whole, kind: Whole, names: pd.Index, parts: Parts, min_history: int
) -> Iterator[str]:
    """Rows that the rule does not have, and those it has that are missing or there twice."""
    wanted, count = np.zeros((len(parts.total), len(SPLITS)), dtype=bool), np.zeros((len(parts.total), len(SPLITS)))
    wanted[rows(parts)] = True
    known = (user >= 0) & (kind >= 0)
    np.add.at(count, (user[known], kind[known]), 1)
    strange = ~known
    strange[known] = ~wanted[user[known], kind[known]]
    for at in np.flatnonzero(strange):
        row = found.iloc[at]
        few = user[at] >= 0 and parts.total[user[at]] < min_history
        reason = "but too few events to be tested" if few else "which the rule does not have"
        yield f"user {row[c.USER_ID]!r} has a {row[c.SPLIT]} row, {reason}"
    for number, place in np.argwhere(count > 1):
        yield f"user {names[number]!r} has {int(count[number, place])} {SPLITS[place]} rows"
    for number, place in np.argwhere(wanted & (count == 0)):
        yield f"user {names[number]!r} has no {SPLITS[place]} row, which the rule has"


def _rows(found: pd.DataFrame, user: Whole, kind: Whole, events: pd.DataFrame, parts: Parts) -> Iterator[str]:
    """Rows whose history is not exactly the events before the row's place, or whose target is not the event there."""
    items = shared_strings(events[c.ITEM_ID])
    start, wanted = parts.start[user], history_lengths(parts, user, kind)
    lengths = found[c.HISTORY].map(len).to_numpy(dtype=np.int64)
    inside = (wanted >= 0) & (wanted < parts.total[user])
    bad = ~inside | (lengths != wanted)
    bad[inside] |= found[c.TARGET].to_numpy(dtype=object)[inside] != items[(start + wanted)[inside]]
    same = ~bad
    differs = flat(found[c.HISTORY][same]) != items[_spans(start[same], lengths[same])]
    bad[np.flatnonzero(same)[_any(differs, lengths[same])]] = True
    for name, part in zip(found[c.USER_ID][bad], found[c.SPLIT][bad], strict=True):
        yield f"user {name!r}, {part}: the history is not the events before the target"


def _times(found: pd.DataFrame, user: Whole, events: pd.DataFrame, parts: Parts, cuts: Cuts) -> Iterator[str]:
    """Rows that see an event at or after their cut, or are asked for one before it; the last event seen is enough."""
    times = np.append(events[c.TIMESTAMP].to_numpy(dtype=np.int64), np.iinfo(np.int64).max)
    end = np.minimum(parts.start[user] + found[c.HISTORY].map(len).to_numpy(dtype=np.int64), len(events))
    last, target = np.where(end > parts.start[user], times[end - 1], np.iinfo(np.int64).min), times[end]
    splits = found[c.SPLIT].to_numpy(dtype=object)
    late = (splits == TEST) & ((last >= cuts.test) | (target < cuts.test))
    late |= (splits == VALID) & ((last >= cuts.valid) | (target < cuts.valid) | (target >= cuts.test))
    late |= (splits == TRAIN) & (target >= cuts.valid)
    for name, part in zip(found[c.USER_ID][late], found[c.SPLIT][late], strict=True):
        yield f"user {name!r}, {part}: it is on the wrong side of the cut"


def _relevant(found: pd.DataFrame, wanted: pd.DataFrame) -> Iterator[str]:
    """Relevant items that are no held-out events, and held-out events that are not among them."""
    columns = list(RELEVANT.fields)
    merged = found[columns].merge(wanted[columns], on=columns, how="outer", indicator=True)
    odd = merged[merged["_merge"] != "both"]
    for name, part, item, side in zip(*(odd[name] for name in (*columns, "_merge")), strict=True):
        what = "is relevant, but no event of that part" if side == "left_only" else "is held out, but not relevant"
        yield f"user {name!r}, {part}: item {item!r} {what}"


def _training(sequences: pd.DataFrame, events: pd.DataFrame, parts: Parts) -> Iterator[str]:
    """Items that training statistics count more or less often than the training events have them."""
    train = events.loc[within(parts, np.zeros_like(parts.train), parts.train), c.ITEM_ID]
    used, allowed = training_items(sequences).value_counts(), train.value_counts()
    both = pd.concat([used, allowed], axis=1, keys=["used", "allowed"]).fillna(0).astype(np.int64)
    for item, row in both[both["used"] != both["allowed"]].iterrows():
        yield f"item {item!r} has {row['used']} training events in the statistics, {row['allowed']} in truth"


def _spans(start: Whole, lengths: Whole) -> Whole:
    """The positions start, start + 1, ... of each row, one row after the other."""
    before = np.cumsum(lengths) - lengths
    positions: Whole = np.arange(lengths.sum()) + np.repeat(start - before, lengths)
    return positions


def _any(flags: Flags, lengths: Whole) -> Flags:
    """Whether any flag of each row is set, rows one after the other."""
    owners = np.repeat(np.arange(len(lengths)), lengths)
    hit: Flags = np.bincount(owners[flags.astype(bool)], minlength=len(lengths)) > 0
    return hit
