"""Recall, NDCG, precision, MRR and hit rate at K, per user, with binary relevance over the whole catalogue.

Only ranks count, scores do not. A user without results scores 0 and counts; Precision divides by K even where fewer
items came back; Recall divides by all relevant items; the ideal of NDCG holds min(K, relevant) items; MRR is 1 / rank
of the first hit, 0 where it is beyond K; an item predicted again is no second hit, but keeps its rank. Checked against
ir-measures (R@K, nDCG@K, P@K, RR@K, Success@K).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gti_pipeline import columns as c
from gti_pipeline.errors import GtiError

RECALL = "recall"
NDCG = "ndcg"
PRECISION = "precision"
MRR = "mrr"
HIT_RATE = "hit_rate"
NAMES = (RECALL, NDCG, PRECISION, MRR, HIT_RATE)

Values = NDArray[np.float64]
Whole = NDArray[np.int64]


def per_user(recommendations: pd.DataFrame, relevant: pd.DataFrame, ks: Sequence[int]) -> pd.DataFrame:
    """The metrics of every user that has a relevant item.

    Args:
        recommendations: user_id, rank (from 1, distinct within a user), item_id; users without a relevant item are
            ignored.
        relevant: user_id and item_id, a row for each relevant item of a user; repeated rows count once.
        ks: cut-offs, each at least 1.

    Returns:
        Values in 0..1: a row per user (index, in the order of `relevant`), a column per (metric, k).

    Raises:
        GtiError: a rank below 1 or one that occurs twice for a user, nothing relevant, a cut-off below 1.
    """
    _check(recommendations, relevant, ks)
    pairs = relevant[[c.USER_ID, c.ITEM_ID]].drop_duplicates()
    users = pd.Index(pairs[c.USER_ID].unique(), name=c.USER_ID)
    num_relevant = np.bincount(users.get_indexer(pd.Index(pairs[c.USER_ID])), minlength=len(users))  # [U]
    hit_users, hit_ranks = _hits(recommendations, pairs, users)
    cutoffs = sorted(set(ks))
    at = [_at_k(hit_users, hit_ranks, num_relevant, k) for k in cutoffs]  # [number of metrics, U] each
    values = np.stack(at, axis=1).transpose(2, 0, 1).reshape(len(users), -1)
    columns = pd.MultiIndex.from_product([NAMES, cutoffs], names=[c.METRIC, c.K])
    return pd.DataFrame(values, index=users, columns=columns)


def _check(recommendations: pd.DataFrame, relevant: pd.DataFrame, ks: Sequence[int]) -> None:
    """Refuses what has no metric."""
    if relevant.empty:
        raise GtiError("nothing to evaluate: no user has a relevant item")
    if not ks or min(ks) < 1:
        raise GtiError(f"evaluate.ks must hold cut-offs of at least 1, got {list(ks)}")
    ranks = recommendations[c.RANK]
    if len(ranks) and ranks.min() < 1:
        raise GtiError(f"ranks start from 1, got {ranks.min()}")
    twice = recommendations[recommendations.duplicated([c.USER_ID, c.RANK])]
    if len(twice):
        row = twice.iloc[0]
        raise GtiError(f"user {row[c.USER_ID]!r} has two items at rank {row[c.RANK]} ({len(twice)} such rows)")


def _hits(recommendations: pd.DataFrame, relevant: pd.DataFrame, users: pd.Index) -> tuple[Whole, Whole]:
    """User number and rank of every hit; an item counts at its first rank only."""
    firsts = recommendations.sort_values(c.RANK, kind="stable").drop_duplicates([c.USER_ID, c.ITEM_ID])
    hits = firsts[[c.USER_ID, c.RANK, c.ITEM_ID]].merge(relevant, on=[c.USER_ID, c.ITEM_ID])
    return users.get_indexer(pd.Index(hits[c.USER_ID])), hits[c.RANK].to_numpy(dtype=np.int64)


def _at_k(hit_users: Whole, hit_ranks: Whole, num_relevant: Whole, k: int) -> Values:
    """The metrics at k of all users, in the order of `NAMES`: [5, U]."""
    inside = hit_ranks <= k
    users, ranks, num_users = hit_users[inside], hit_ranks[inside], len(num_relevant)
    hits = np.bincount(users, minlength=num_users)
    gains = np.bincount(users, weights=1 / np.log2(ranks + 1), minlength=num_users)
    ideal = np.cumsum(1 / np.log2(np.arange(2, k + 2)))[np.minimum(num_relevant, k) - 1]
    ndcg = np.minimum(gains / ideal, 1)  # the sums may differ in their last bit
    first = np.zeros(num_users)
    np.maximum.at(first, users, 1 / ranks)
    return np.stack([hits / num_relevant, ndcg, hits / k, first, (hits > 0).astype(np.float64)])
