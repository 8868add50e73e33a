"""Rules that leave out users and items of clean tables: k-core, the most frequent items, a sample of users."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gti_pipeline import columns as c
from gti_pipeline.data.chunk import STR, is_in

K_CORE = "left out by k_core"
MAX_ITEMS = "left out by max_items"
MAX_USERS = "left out by max_users"


def k_core(events: pd.DataFrame, k: int) -> pd.DataFrame:
    """The interactions of users and items that have at least `k` of them, counted again until that is so."""
    users, _ = pd.factorize(events[c.USER_ID])
    items, _ = pd.factorize(events[c.ITEM_ID])
    rows = np.arange(len(events))
    while True:
        enough = (np.bincount(users[rows])[users[rows]] >= k) & (np.bincount(items[rows])[items[rows]] >= k)
        if enough.all():
            return events.iloc[rows]
        rows = rows[enough]


def most_frequent(items: pd.DataFrame, events: pd.DataFrame, max_items: int | None) -> pd.DataFrame:
    """The `max_items` items with the most interactions, ties in catalogue order; in catalogue order."""
    if max_items is None or max_items >= len(items):
        return items
    counts = items[c.ITEM_ID].map(events[c.ITEM_ID].value_counts()).fillna(0)
    top = counts.sort_values(ascending=False, kind="stable").index[:max_items]
    return items.loc[top.sort_values()]


def sampled_users(events: pd.DataFrame, max_users: int | None, seed: int) -> pd.DataFrame:
    """The interactions of the first `max_users` users of a seeded shuffle."""
    users = np.array(sorted(events[c.USER_ID].unique()), dtype=object)
    if max_users is None or max_users >= len(users):
        return events
    chosen = np.random.default_rng(seed).permutation(users)[:max_users]
    return events[is_in(events[c.USER_ID], pd.Series(chosen, dtype=STR))]
