"""Precision at two thresholds and graded NDCG at K, per query, over the whole catalogue.

An item that nobody judged counts as not good. Precision divides by K even where fewer items came back. The gain of
NDCG is the grade (2 good, 1 maybe), its discount log2(rank + 1), its ideal all judged items of the query, best first;
this is the paper's composite NDCG as trec_eval reckons it. Checked against ir-measures (P@K, P(rel=2)@K, nDCG@K).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gti_pipeline import columns as c
from gti_pipeline.errors import GtiError
from gti_pipeline.search.split import GOOD, MAYBE

PRECISION_GOOD = "precision_good"
PRECISION_MAYBE = "precision_good_maybe"
NDCG = "ndcg_graded"
NAMES = (PRECISION_GOOD, PRECISION_MAYBE, NDCG)

Values = NDArray[np.float64]


def per_query(recommendations: pd.DataFrame, judgments: pd.DataFrame, ks: Sequence[int]) -> pd.DataFrame:
    """The metrics of every query that is judged.

    Args:
        recommendations: user_id (the query), rank (from 1), item_id; other queries are ignored.
        judgments: query_id, item_id, grade; each pair once.
        ks: cut-offs, each at least 1.

    Returns:
        Values in 0..1: a row per query (index user_id, in the order of `judgments`), a column per (metric, k).

    Raises:
        GtiError: no judgment, a cut-off below 1, a query without a good or maybe item, an item or a rank that occurs
            twice in a query's list.
    """
    _check(recommendations, judgments, ks)
    queries = pd.Index(judgments[c.QUERY_ID].unique(), name=c.USER_ID)
    cutoffs = sorted(set(ks))
    listed = _grades_by_rank(recommendations, judgments, queries, max(cutoffs))
    ideal = _grades_at_best(judgments, queries, max(cutoffs))
    discounts = 1 / np.log2(np.arange(2, max(cutoffs) + 2))
    gains, best = np.cumsum(listed * discounts, axis=1), np.cumsum(ideal * discounts, axis=1)
    tables = {
        PRECISION_GOOD: np.cumsum(listed >= GOOD, axis=1) / np.arange(1, max(cutoffs) + 1),
        PRECISION_MAYBE: np.cumsum(listed >= MAYBE, axis=1) / np.arange(1, max(cutoffs) + 1),
        NDCG: np.minimum(gains / best, 1),  # the sums may differ in their last bit
    }
    columns = {(name, k): tables[name][:, k - 1] for name in NAMES for k in cutoffs}
    return pd.DataFrame(columns, index=queries).rename_axis(columns=[c.METRIC, c.K])


def _check(recommendations: pd.DataFrame, judgments: pd.DataFrame, ks: Sequence[int]) -> None:
    if judgments.empty:
        raise GtiError("nothing to evaluate: no query is judged")
    if not ks or min(ks) < 1:
        raise GtiError(f"search.ks must hold cut-offs of at least 1, got {list(ks)}")
    best = judgments.groupby(c.QUERY_ID, sort=False)[c.GRADE].max()
    if (best < MAYBE).any():
        raise GtiError(f"query {best[best < MAYBE].index[0]!r} is tested, but has no good or maybe item")
    for name in (c.RANK, c.ITEM_ID):
        twice = recommendations[recommendations.duplicated([c.USER_ID, name])]
        if len(twice):
            row = twice.iloc[0]
            raise GtiError(f"query {row[c.USER_ID]!r} has {name} {row[name]!r} twice ({len(twice)} such rows)")
    if len(recommendations) and recommendations[c.RANK].min() < 1:
        raise GtiError(f"ranks start from 1, got {recommendations[c.RANK].min()}")


def _grades_by_rank(recommendations: pd.DataFrame, judgments: pd.DataFrame, queries: pd.Index, longest: int) -> Values:
    """The grade of each listed item [Q, longest]; 0 where it is not judged or nothing is listed."""
    named = judgments.rename(columns={c.QUERY_ID: c.USER_ID})
    hits = recommendations[recommendations[c.RANK] <= longest].merge(named, on=[c.USER_ID, c.ITEM_ID])
    grades = np.zeros((len(queries), longest))
    grades[queries.get_indexer(pd.Index(hits[c.USER_ID])), hits[c.RANK].to_numpy() - 1] = hits[c.GRADE]
    return grades


def _grades_at_best(judgments: pd.DataFrame, queries: pd.Index, longest: int) -> Values:
    """The grades of each query's judged items, best first [Q, longest]."""
    ordered = judgments.sort_values(c.GRADE, ascending=False, kind="stable")
    place = ordered.groupby(c.QUERY_ID, sort=False).cumcount().to_numpy()
    inside = place < longest
    grades = np.zeros((len(queries), longest))
    rows = queries.get_indexer(pd.Index(ordered[c.QUERY_ID]))
    grades[rows[inside], place[inside]] = ordered[c.GRADE].to_numpy()[inside]
    return grades
