"""Leave-one-out: each user's last interaction is the test target, the one before it the validation target.

With a user's events e1..en in order and n >= min_history: test asks for en after e1..en-1, valid for en-1 after
e1..en-2, and train holds e1..en-2 with en-2 as its target. Users with fewer events are never tested and train whole.
"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from gti_pipeline import columns as c
from gti_pipeline.errors import raise_all
from gti_pipeline.schemas import SEQUENCES

TRAIN, VALID, TEST = "train", "valid", "test"
HELD_OUT = {TEST: 1, VALID: 2, TRAIN: 3}  # a tested user's target, counted from the end of the sequence


def leave_one_out(interactions: pd.DataFrame, min_history: int) -> pd.DataFrame:
    """Splits `schemas.INTERACTIONS` into `schemas.SEQUENCES`; histories whole, oldest first, never empty.

    A train row needs a history, so the only training event of a user with exactly three is in no train row.
    """
    rows = [
        (user, split, items[:end], items[end])
        for user, items in _by_user(interactions).items()
        for split, end in _targets(len(items), min_history)
    ]
    return pd.DataFrame(rows, columns=list(SEQUENCES.fields))


def _targets(count: int, min_history: int) -> Iterator[tuple[str, int]]:
    """(split, index of the target) of a user with so many events."""
    back = HELD_OUT if count >= min_history else {TRAIN: 1}
    for split, distance in back.items():
        if count - distance > 0:
            yield split, count - distance


def _by_user(interactions: pd.DataFrame) -> dict[str, list[str]]:
    """Item ids per user in order of (timestamp, source row)."""
    ordered = interactions.sort_values([c.USER_ID, c.TIMESTAMP, c.SOURCE_ROW])
    users: dict[str, list[str]] = {}
    for user, item in zip(ordered[c.USER_ID].tolist(), ordered[c.ITEM_ID].tolist(), strict=True):
        users.setdefault(user, []).append(item)
    return users


def training_interactions(interactions: pd.DataFrame, min_history: int) -> pd.DataFrame:
    """The events that training statistics may use: all but the last two of tested users, all of the others."""
    ordered = interactions.sort_values([c.USER_ID, c.TIMESTAMP, c.SOURCE_ROW], ignore_index=True)
    per_user = ordered.groupby(c.USER_ID, sort=False)[c.ITEM_ID]
    left, count = per_user.cumcount(ascending=False), per_user.transform("size")
    return ordered[(count < min_history) | (left >= HELD_OUT[VALID])].reset_index(drop=True)


def training_items(sequences: pd.DataFrame) -> pd.Series:
    """An item id per training event, from `schemas.SEQUENCES` alone.

    The same events as `training_interactions`, but for those of users with a single event, who have no sequence. A
    valid row's history is exactly what a tested user trains on; others have a train row only.
    """
    valid = sequences[sequences[c.SPLIT] == VALID]
    untested = sequences[(sequences[c.SPLIT] == TRAIN) & ~sequences[c.USER_ID].isin(valid[c.USER_ID])]
    items = [item for history in [*valid[c.HISTORY], *untested[c.HISTORY]] for item in history]
    return pd.Series(items + untested[c.TARGET].tolist(), name=c.ITEM_ID, dtype="str")


def check_no_leak(sequences: pd.DataFrame, interactions: pd.DataFrame, min_history: int) -> None:
    """The guard that runs in every pipeline: each history ends right before its target, targets are where they belong.

    It locates rows among the user's events by position, so a repeated item is no leak but a target event is.

    Raises:
        GtiError: names the users and rows that see their own target or a later event.
    """
    problems = []
    order = interactions[[c.USER_ID, c.TIMESTAMP, c.SOURCE_ROW]]
    if not order.equals(order.sort_values(list(order.columns))):
        problems.append("interactions are not ordered by (user_id, timestamp, source_row)")
    events = _by_user(interactions)
    for user, split, history, target in zip(*(sequences[name] for name in SEQUENCES.fields), strict=True):
        items = events.get(user, [])
        tested = len(items) >= min_history
        end = len(items) - (HELD_OUT[split] if tested else 1)
        if not (tested or split == TRAIN):
            problems.append(f"user {user!r} has a {split} row, but too few events to be tested")
        elif end < 1 or list(history) != items[:end] or target != items[end]:
            problems.append(f"user {user!r}, {split}: the history is not the events before the target")
    if problems:
        shown = [*problems[:5], f"... and {len(problems) - 5} more"] if len(problems) > 5 else problems
        raise_all("The split leaks, which is a bug in this program; nothing was trained on it:", shown)
