"""Recall@K, Precision@K and NDCG@K per user, with binary relevance over the whole catalogue.

Only ranks count, scores do not. A user without results scores 0 and counts; Precision divides by K even where fewer
items came back; the ideal of NDCG holds min(K, relevant) items; an item predicted again is no second hit, but keeps its
rank. Checked against ir-measures (R@K, P@K, nDCG@K).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gti_pipeline import columns as c
from gti_pipeline.errors import GtiError

RECALL = "recall"
PRECISION = "precision"
NDCG = "ndcg"


def per_user(recommendations: pd.DataFrame, targets: pd.DataFrame, ks: Sequence[int]) -> pd.DataFrame:
    """The metrics of every user that has a target.

    Args:
        recommendations: user_id, rank (from 1, distinct within a user), item_id; users without a target are ignored.
        targets: user_id and target, a row for each relevant item of a user; repeated rows count once.
        ks: cut-offs, each at least 1.

    Returns:
        user_id, metric, k, value in 0..1: users in the order of `targets`, for each all metrics and cut-offs.

    Raises:
        GtiError: a rank below 1 or one that occurs twice for a user, no targets, a cut-off below 1.
    """
    _check(recommendations, targets, ks)
    relevant = targets[[c.USER_ID, c.TARGET]].drop_duplicates()
    users = pd.Index(relevant[c.USER_ID].unique())
    num_relevant = np.bincount(users.get_indexer(pd.Index(relevant[c.USER_ID])), minlength=len(users))  # [U]
    hit_users, hit_ranks = _hits(recommendations, relevant, users)
    cutoffs = sorted(set(ks))
    columns = [_at_k(hit_users, hit_ranks, num_relevant, k) for k in cutoffs]  # [3, U] each
    values = np.stack(columns, axis=1).transpose(2, 0, 1)  # [U, 3, number of cut-offs]
    names = [RECALL, PRECISION, NDCG]
    index = pd.MultiIndex.from_product([users, names, cutoffs], names=[c.USER_ID, c.METRIC, c.K])
    frame = pd.DataFrame({c.VALUE: values.reshape(-1)}, index=index).reset_index()
    return frame.astype({c.K: np.int32})


def _check(recommendations: pd.DataFrame, targets: pd.DataFrame, ks: Sequence[int]) -> None:
    """Refuses what has no metric."""
    if targets.empty:
        raise GtiError("nothing to evaluate: no user has a target")
    if not ks or min(ks) < 1:
        raise GtiError(f"evaluate.ks must hold cut-offs of at least 1, got {list(ks)}")
    ranks = recommendations[c.RANK]
    if len(ranks) and ranks.min() < 1:
        raise GtiError(f"ranks start from 1, got {ranks.min()}")
    twice = recommendations[recommendations.duplicated([c.USER_ID, c.RANK])]
    if len(twice):
        row = twice.iloc[0]
        raise GtiError(f"user {row[c.USER_ID]!r} has two items at rank {row[c.RANK]} ({len(twice)} such rows)")


def _hits(
    recommendations: pd.DataFrame, relevant: pd.DataFrame, users: pd.Index
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """User number and rank of every hit; an item counts at its first rank only."""
    firsts = recommendations.sort_values(c.RANK, kind="stable").drop_duplicates([c.USER_ID, c.ITEM_ID])
    renamed = relevant.rename(columns={c.TARGET: c.ITEM_ID})
    hits = firsts[[c.USER_ID, c.RANK, c.ITEM_ID]].merge(renamed, on=[c.USER_ID, c.ITEM_ID])
    return users.get_indexer(pd.Index(hits[c.USER_ID])), hits[c.RANK].to_numpy(dtype=np.int64)


def _at_k(
    hit_users: NDArray[np.int64], hit_ranks: NDArray[np.int64], num_relevant: NDArray[np.int64], k: int
) -> NDArray[np.float64]:
    """Recall, precision and NDCG at k of all users: [3, U]."""
    inside = hit_ranks <= k
    users, num_users = hit_users[inside], len(num_relevant)
    hits = np.bincount(users, minlength=num_users)
    gains = np.bincount(users, weights=1 / np.log2(hit_ranks[inside] + 1), minlength=num_users)
    ideal = np.cumsum(1 / np.log2(np.arange(2, k + 2)))[np.minimum(num_relevant, k) - 1]
    ndcg = np.minimum(gains / ideal, 1)  # the sums may differ in their last bit
    return np.stack([hits / num_relevant, hits / k, ndcg])
