"""Which test users a number is about: a user is in one slice of each kind."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gti_pipeline import columns as c

ALL = "all"  # everyone; not among the slices a user is listed in
REPEAT = "repeat"  # the target is in the user's own history
NOVEL = "novel"
WARM_ITEM = "warm_item"  # the target has a training event
COLD_ITEM = "cold_item"
HISTORY = {"history_1_2": 1, "history_3_5": 3, "history_6_10": 6, "history_11_up": 11}  # shortest history of each
SLICES = (REPEAT, NOVEL, WARM_ITEM, COLD_ITEM, *HISTORY)


def user_slices(test: pd.DataFrame, training_items: pd.Series) -> pd.DataFrame:
    """Says who is where.

    Args:
        test: user_id, history, target (the first relevant item in time).
        training_items: an item id per training event.

    Returns:
        `schemas.USER_SLICES`, slice by slice in the order of `SLICES`, users in the order of `test`.
    """
    again = [target in set(history) for history, target in zip(test[c.HISTORY], test[c.TARGET], strict=True)]
    lengths = test[c.HISTORY].map(len).to_numpy(dtype=np.int64)
    bucket = np.searchsorted(list(HISTORY.values()), lengths, side="right") - 1
    kinds = (
        np.where(again, REPEAT, NOVEL),
        np.where(test[c.TARGET].isin(training_items.unique()), WARM_ITEM, COLD_ITEM),
        np.array(list(HISTORY))[bucket],
    )
    frames = [pd.DataFrame({c.USER_ID: test[c.USER_ID].to_numpy(), c.SLICE: names}) for names in kinds]
    found = pd.concat(frames, ignore_index=True).astype("str")
    return found.iloc[found[c.SLICE].map(SLICES.index).argsort(kind="stable")].reset_index(drop=True)
