"""The baseline every arm must beat: the most popular items of the training events, the same for everyone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from gti_pipeline import columns as c
from gti_pipeline.errors import GtiError


def popular(train_events: pd.Series[str], user_ids: Sequence[str], num: int) -> pd.DataFrame:
    """The `num` items with the most training events, ties by item id.

    Args:
        train_events: an item id per training event; events of validation or test must not be among them.
        user_ids: whom to recommend to, distinct.
        num: the most items per user.

    Returns:
        `schemas.RECOMMENDATIONS`; the score is the number of events.

    Raises:
        GtiError: no training events.
    """
    if train_events.empty:
        raise GtiError("no training events: popularity is not defined")
    counts = train_events.value_counts().rename_axis(c.ITEM_ID).reset_index(name=c.SCORE)
    top = counts.sort_values([c.SCORE, c.ITEM_ID], ascending=[False, True]).head(num)
    return pd.DataFrame(
        {
            c.USER_ID: pd.Series(np.repeat(np.asarray(user_ids, dtype=object), len(top)), dtype="str"),
            c.RANK: np.tile(np.arange(1, len(top) + 1, dtype=np.int32), len(user_ids)),
            c.ITEM_ID: pd.Series(np.tile(top[c.ITEM_ID].to_numpy(dtype=object), len(user_ids)), dtype="str"),
            c.SCORE: np.tile(top[c.SCORE].to_numpy(dtype=np.float64), len(user_ids)),
        }
    )
