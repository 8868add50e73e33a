"""The user's own history again: where people come back to what they had, little beats it."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from gti_pipeline import columns as c
from gti_pipeline.baselines.popularity import ranked_by_count
from gti_pipeline.baselines.ranking import recommendations


def repeat(users: pd.DataFrame, num: int, decay: float) -> pd.DataFrame:
    """The items of each user's history, by recency and count.

    Args:
        users: user_id and history (item ids, oldest first).
        num: the most items per user; fewer come back where the history holds fewer.
        decay: weight of an event against that of the one after it, in (0, 1]; 1 counts only.

    Returns:
        `schemas.RECOMMENDATIONS`; the score of an item is the sum over its events of decay ** (events since), ties by
        item id.
    """
    lists = [_by_weight(history, decay)[:num] for history in users[c.HISTORY]]
    return recommendations(users[c.USER_ID], [_columns(ranked) for ranked in lists])


def popular_repeat(train_events: pd.Series[str], users: pd.DataFrame, num: int, decay: float) -> pd.DataFrame:
    """`repeat`, then the most popular of the other items.

    Args:
        train_events: an item id per training event.
        users: user_id and history (item ids, oldest first).
        num: the most items per user.
        decay: as in `repeat`.

    Returns:
        `schemas.RECOMMENDATIONS`; the score of a repeated item is 1 + that of `repeat`, of another its share of the
        training events.

    Raises:
        GtiError: no training events.
    """
    counts = ranked_by_count(train_events)
    shares = list(zip(counts.index.tolist(), (counts / len(train_events)).tolist(), strict=True))
    lists = []
    for history in users[c.HISTORY]:
        own = [(item, 1 + weight) for item, weight in _by_weight(history, decay)[:num]]
        known = set(history)
        others = [pair for pair in shares[: num + len(known)] if pair[0] not in known]
        lists.append(_columns((own + others)[:num]))
    return recommendations(users[c.USER_ID], lists)


def _by_weight(history: Sequence[str], decay: float) -> list[tuple[str, float]]:
    """Distinct items with their weights, the heaviest first, ties by item id."""
    weights: dict[str, float] = {}
    for age, item in enumerate(reversed(list(history))):
        weights[item] = weights.get(item, 0.0) + decay**age
    return sorted(weights.items(), key=lambda pair: (-pair[1], pair[0]))


def _columns(ranked: Sequence[tuple[str, float]]) -> tuple[list[str], list[float]]:
    return [item for item, _ in ranked], [weight for _, weight in ranked]
