"""Interactions to prompts and answers: what each user is trained on, validated on and tested on.

`split_rules` says where a user's events are cut; here the parts become tables. A test row's history is all events
before the test part, a valid row's all training events. A train row's target is the last training event.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gti_pipeline import columns as c
from gti_pipeline.config import DataConfig
from gti_pipeline.data.split_rules import Cuts, Flags, Parts, Whole, cut_users, find_cuts, moment, ordered
from gti_pipeline.errors import GtiError
from gti_pipeline.schemas import RELEVANT, SEQUENCES

TRAIN, VALID, TEST = "train", "valid", "test"
SPLITS = np.array([TEST, VALID, TRAIN], dtype=object)  # the order of a user's rows


@dataclass(frozen=True)
class Split:
    """The tables of a split, its cuts (of a temporal one) and its facts for the data stage's summary."""

    sequences: pd.DataFrame  # schemas.SEQUENCES
    relevant: pd.DataFrame  # schemas.RELEVANT
    cuts: Cuts | None
    facts: dict[str, Any]


def split(interactions: pd.DataFrame, config: DataConfig, *, dated: bool = False) -> Split:
    """Splits `schemas.INTERACTIONS` by `config.split`; rows by user, for each test, valid, train.

    Histories are whole, oldest first, as arrays of item ids; only that of a train row may be empty, where the user
    has a single training event.

    Args:
        interactions: in any order.
        config: `split`, `min_history` and the names for messages.
        dated: whether timestamps are epoch seconds, as a cut by date needs; if not, they only order.

    Raises:
        GtiError: the cuts of a temporal split do not fit the data, or leave nobody to test.
    """
    events = ordered(interactions)
    cuts = find_cuts(events[c.TIMESTAMP].to_numpy(dtype=np.int64), config, dated=dated)
    parts = cut_users(events, config, cuts)
    if cuts is not None and not parts.tested.any():
        raise GtiError(
            f"data.split: no user with data.min_history={config.min_history} events has one before the cut"
            f" {moment(cuts.test, dated)} and one from it on, so there is nothing to test: move the cut"
        )
    sequences, relevant = _sequences(events, parts), relevant_items(events, parts)
    return Split(sequences, relevant, cuts, _facts(events, parts, cuts, relevant, config, dated))


def _sequences(events: pd.DataFrame, parts: Parts) -> pd.DataFrame:
    items = shared_strings(events[c.ITEM_ID])
    user, kind = rows(parts)
    start, end = parts.start[user], history_lengths(parts, user, kind) + parts.start[user]
    histories = np.empty(len(user), dtype=object)
    # views of one array: an object per row, none per event
    histories[:] = [items[a:b] for a, b in zip(start.tolist(), end.tolist(), strict=True)]
    return pd.DataFrame(
        {
            c.USER_ID: events[c.USER_ID].take(start).reset_index(drop=True),
            c.SPLIT: pd.Series(SPLITS[kind], dtype="str"),
            c.HISTORY: histories,
            c.TARGET: events[c.ITEM_ID].take(end).reset_index(drop=True),
        },
        columns=list(SEQUENCES.fields),
    )


def rows(parts: Parts) -> tuple[Whole, Whole]:
    """User number and place in `SPLITS` of every row of the sequences, in order."""
    present = np.stack([parts.tested, parts.validated, parts.train > 0], axis=1)  # [num_users, 3]
    user, kind = np.nonzero(present)
    return user, kind


def history_lengths(parts: Parts, user: Whole, kind: Whole) -> Whole:
    """How many of the user's events come before the row's target."""
    ends = np.stack([parts.seen, parts.train, parts.train - 1], axis=1)
    lengths: Whole = ends[user, kind]
    return lengths


def relevant_items(events: pd.DataFrame, parts: Parts) -> pd.DataFrame:
    """`schemas.RELEVANT`: the distinct items of each user's test part and of the validation part, oldest first."""
    tables = []
    for name, who, first, last in (
        (TEST, parts.tested, parts.seen, parts.total),
        (VALID, parts.validated, parts.train, parts.seen),
    ):
        at = np.flatnonzero(within(parts, np.where(who, first, 0), np.where(who, last, 0)))
        part = events[[c.USER_ID, c.ITEM_ID]].take(at).drop_duplicates()
        tables.append(part.assign(**{c.SPLIT: name}).astype({c.SPLIT: "str"}))
    return pd.concat(tables, ignore_index=True)[list(RELEVANT.fields)]


def within(parts: Parts, first: Whole, last: Whole) -> Flags:
    """Which events are their user's `first`th to `last`th, the last not included: [num_events]."""
    place = np.arange(parts.total.sum()) - np.repeat(parts.start, parts.total)
    return (place >= np.repeat(first, parts.total)) & (place < np.repeat(last, parts.total))


def training_interactions(
    interactions: pd.DataFrame, config: DataConfig, *, dated: bool = False, cuts: Cuts | None = None
) -> pd.DataFrame:
    """The events that training statistics may use, by user; `cuts` where they are known already."""
    events = ordered(interactions)
    cuts = cuts or find_cuts(events[c.TIMESTAMP].to_numpy(dtype=np.int64), config, dated=dated)
    parts = cut_users(events, config, cuts)
    return events[within(parts, np.zeros_like(parts.train), parts.train)].reset_index(drop=True)


def training_sequences(sequences: pd.DataFrame) -> dict[str, list[str]]:
    """Every user's training items, oldest first, from `schemas.SEQUENCES` alone: what `training_interactions` holds."""
    train = sequences[sequences[c.SPLIT] == TRAIN]
    rows_of = zip(train[c.USER_ID], train[c.HISTORY], train[c.TARGET], strict=True)
    return {user: [*history, target] for user, history, target in rows_of}


def training_items(sequences: pd.DataFrame) -> pd.Series:
    """An item id per training event, from `schemas.SEQUENCES` alone: the same events as `training_interactions`."""
    train = sequences[sequences[c.SPLIT] == TRAIN]
    items = np.concatenate([flat(train[c.HISTORY]), train[c.TARGET].to_numpy(dtype=object)])
    return pd.Series(items, name=c.ITEM_ID, dtype="str")


def flat(lists: pd.Series) -> NDArray[np.object_]:
    """All entries of lists, one after the other."""
    count = int(lists.map(len).sum())
    return np.fromiter(chain.from_iterable(lists), dtype=object, count=count)


def shared_strings(values: pd.Series) -> NDArray[np.object_]:
    """A column as Python strings, one object for all equal values."""
    codes, names = pd.factorize(values)
    strings: NDArray[np.object_] = np.asarray(names, dtype=object)[codes]
    return strings


def _facts(
    events: pd.DataFrame, parts: Parts, cuts: Cuts | None, relevant: pd.DataFrame, config: DataConfig, dated: bool
) -> dict[str, Any]:
    """Counts of who is tested on what, and who is not and why."""
    train = within(parts, np.zeros_like(parts.train), parts.train)
    tested = relevant[relevant[c.SPLIT] == TEST]
    facts = {
        "method": config.split.method,
        "tested_users": int(parts.tested.sum()),
        "validated_users": int(parts.validated.sum()),
        "users_with_too_few_events": int((parts.total < config.min_history).sum()),
        "training_events": int(train.sum()),
        "relevant_items": len(tested),
        "relevant_without_training_event": int((~tested[c.ITEM_ID].isin(events.loc[train, c.ITEM_ID].unique())).sum()),
    }
    if cuts is None:
        return facts
    times = events[c.TIMESTAMP].to_numpy(dtype=np.int64)
    return facts | {
        "valid_cut": moment(cuts.valid, dated),
        "cut": moment(cuts.test, dated),
        "events_validated_share": round(float(((times >= cuts.valid) & (times < cuts.test)).mean()), 4),
        "events_tested_share": round(float((times >= cuts.test).mean()), 4),
        "cold_users": int((parts.seen == 0).sum()),  # nothing is known of them before the cut: not tested
        "users_without_event_from_cut": int((parts.seen == parts.total).sum()),
    }
