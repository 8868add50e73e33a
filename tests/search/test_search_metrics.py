"""Precision and graded NDCG against ir-measures and against numbers worked out by hand."""

import math

import ir_measures
import numpy as np
import pandas as pd
import pytest
from ir_measures import P, nDCG

from gti_pipeline.errors import GtiError
from gti_pipeline.search.metrics import per_query

KS = [1, 3, 5, 10, 50]


def lists(rows):
    return pd.DataFrame(
        [(query, rank, item) for query, items in rows.items() for rank, item in enumerate(items, 1)],
        columns=["user_id", "rank", "item_id"],
    )


def judged(rows):
    return pd.DataFrame(
        [(query, item, grade) for query, items in rows.items() for item, grade in items.items()],
        columns=["query_id", "item_id", "grade"],
    )


def test_by_hand():
    found = per_query(lists({"q": ["b", "x", "a"]}), judged({"q": {"a": 2, "b": 1, "c": 2, "d": 0}}), [1, 3, 5]).loc[
        "q"
    ]
    assert found["precision_good"].tolist() == [0, 1 / 3, 1 / 5]
    assert found["precision_good_maybe"].tolist() == [1, 2 / 3, 2 / 5]
    gain = 1 + 2 / math.log2(4)
    ideal = 2 + 2 / math.log2(3) + 1 / math.log2(4)
    assert found["ndcg_graded"].tolist() == pytest.approx([1 / 2, gain / ideal, gain / ideal])


def test_as_ir_measures():
    rng = np.random.default_rng(0)
    items = [f"i{n}" for n in range(40)]
    truth, found = {}, {}
    for number in range(30):
        query = f"q{number}"
        chosen = rng.permutation(items)[: rng.integers(1, 25)]
        truth[query] = {item: int(grade) for item, grade in zip(chosen, rng.integers(0, 3, len(chosen)), strict=True)}
        truth[query][str(chosen[0])] = int(rng.integers(1, 3))  # at least one is maybe or better
        found[query] = list(rng.permutation(items)[: rng.integers(0, 40)])
    found["q0"] = []  # nothing came back
    ours = per_query(lists(found), judged(truth), KS)
    run = {query: {item: -float(rank) for rank, item in enumerate(listed)} for query, listed in found.items() if listed}
    oracles = {"precision_good": P(rel=2), "precision_good_maybe": P, "ndcg_graded": nDCG}
    asked = {measure @ k: (name, k) for name, measure in oracles.items() for k in KS}
    compared = 0
    for metric in ir_measures.iter_calc(list(asked), truth, run):
        if metric.query_id in run:
            assert ours.loc[metric.query_id, asked[metric.measure]] == pytest.approx(metric.value), metric
            compared += 1
    assert compared == len(asked) * len(run)
    assert (ours.loc["q0"] == 0).all()


def test_what_has_no_metric_is_refused():
    good = judged({"q": {"a": 2}})
    with pytest.raises(GtiError, match="no query is judged"):
        per_query(lists({"q": ["a"]}), good.head(0), [5])
    with pytest.raises(GtiError, match="query 'p' is tested, but has no good or maybe item"):
        per_query(lists({"q": ["a"]}), judged({"q": {"a": 2}, "p": {"a": 0}}), [5])
    with pytest.raises(GtiError, match="query 'q' has item_id 'a' twice"):
        per_query(lists({"q": ["a", "a"]}), good, [5])
    with pytest.raises(GtiError, match="at least 1"):
        per_query(lists({"q": ["a"]}), good, [0, 5])
