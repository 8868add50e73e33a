"""Rows of interactions that say again what an earlier row said: whole, or the same user and item too soon."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pandas as pd

from gti_pipeline import columns as c
from gti_pipeline.data.readers import RawTable
from gti_pipeline.data.verdicts import Mask


def same_rows(raw: RawTable, events: pd.DataFrame) -> Mask:
    """Later rows that are the same as an earlier one in every column, mapped or not.

    Only rows with the same user, item and time can be. Where a file has columns that were not taken, those are read
    once more, whole.
    """
    same = np.zeros(len(raw.rows), dtype=bool)
    suspects = events.index[events.duplicated(keep=False)].to_numpy(dtype=np.int64)
    rows = raw.rows.iloc[suspects]
    taken = set(raw.rows.columns)
    if all(taken.issuperset(columns) for columns in raw.columns.values()):
        same[suspects[rows.duplicated().to_numpy()]] = True
        return same
    suspects = suspects[rows.duplicated(keep=False).to_numpy()]
    seen: set[bytes] = set()
    for position, row in zip(suspects, raw.whole(suspects), strict=True):
        key = hashlib.blake2b(json.dumps(row, sort_keys=True).encode(), digest_size=16).digest()
        same[position] = key in seen
        seen.add(key)
    return same


def repeats(events: pd.DataFrame, window: int) -> Mask:
    """True where the same user has the same item, kept, at most `window` seconds before.

    Within a pair of user and item, sorted by time, the next row kept after a kept one is the first that is later than
    the window; all pairs take that step together.
    """
    flags = np.zeros(len(events), dtype=bool)
    again = np.flatnonzero(events.duplicated([c.USER_ID, c.ITEM_ID], keep=False))
    if not len(again):
        return flags
    part = events.iloc[again]
    pair = part.groupby([c.USER_ID, c.ITEM_ID], sort=False).ngroup().to_numpy(dtype=np.int64)
    time = part[c.TIMESTAMP].to_numpy()
    order = np.lexsort((time, pair))
    pair, time = pair[order], time[order] - time.min()
    moment = pair * (int(time.max()) + window + 1) + time  # ascending; a window never reaches the next pair
    following = np.searchsorted(moment, moment + window, side="right")
    alive = np.flatnonzero(np.diff(pair, prepend=-1))
    kept = np.zeros(len(pair), dtype=bool)
    while len(alive):
        kept[alive] = True
        nearest = following[alive]
        inside = nearest < len(pair)
        alive = nearest[inside][pair[nearest[inside]] == pair[alive[inside]]]
    flags[again[order[~kept]]] = True
    return flags
