"""Choosing one of a few settings on the validation targets, as any honest baseline would be tuned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import pandas as pd

from gti_pipeline import columns as c
from gti_pipeline.evaluate.metrics import NDCG, per_user

Setting = TypeVar("Setting")
CUTOFF = 10


def validation_ndcg(recommendations: pd.DataFrame, valid: pd.DataFrame) -> float:
    """Mean NDCG@10 over validation rows (user_id, target)."""
    relevant = valid[[c.USER_ID, c.TARGET]].rename(columns={c.TARGET: c.ITEM_ID})
    values = per_user(recommendations, relevant, [CUTOFF])
    return float(values[(NDCG, CUTOFF)].mean())


def choose(
    settings: Sequence[Setting], recommend: Callable[[Setting], pd.DataFrame], valid: pd.DataFrame
) -> tuple[Setting, float | None]:
    """The setting whose recommendations for the validation rows have the best NDCG@10, and that number.

    Of equals, the first. Where there is nothing to validate on, the first, and None.
    """
    if valid.empty:
        return settings[0], None
    values = [validation_ndcg(recommend(setting), valid) for setting in settings]
    best = max(values)
    return settings[values.index(best)], best
