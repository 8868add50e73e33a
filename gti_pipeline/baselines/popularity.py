"""The most popular items, of all training events or of the newest; the same list for everyone."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from gti_pipeline import columns as c
from gti_pipeline.baselines.ranking import recommendations
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
    best = ranked_by_count(train_events).head(num)
    ids, counts = best.index.to_numpy(dtype=object), best.to_numpy(dtype=float)
    return recommendations(user_ids, [(ids, counts)] * len(user_ids))


def recent_popular(training: pd.DataFrame, user_ids: Sequence[str], num: int, share: float) -> pd.DataFrame:
    """`popular` over the newest training events only: what is in fashion when training ends.

    The window is a share of the events, not a span of time, so it is never empty. Events that are as old as its oldest
    event are all in it, so the order of the source plays no part. Where the timestamps are positions in each user's
    own sequence, the newest events are the late ones of long sequences.

    Args:
        training: `schemas.INTERACTIONS` of training alone.
        user_ids: whom to recommend to, distinct.
        num: the most items per user; fewer come back where the window holds fewer.
        share: of the training events, in (0, 1].

    Raises:
        GtiError: no training events, or a share that is none.
    """
    if not 0 < share <= 1:
        raise GtiError(f"baselines.recent_share={share}: a share of the training events above 0 and at most 1")
    newest = training[c.TIMESTAMP].nlargest(math.ceil(share * len(training)))
    window = training[training[c.TIMESTAMP] >= newest.min()]
    return popular(window[c.ITEM_ID], user_ids, num)


def ranked_by_count(train_events: pd.Series[str]) -> pd.Series[int]:
    """Number of events by item id, the most first, ties by item id.

    Raises:
        GtiError: no training events.
    """
    if train_events.empty:
        raise GtiError("no training events: popularity is not defined")
    return train_events.value_counts().sort_index().sort_values(ascending=False, kind="stable")
