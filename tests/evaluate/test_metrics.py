"""Metrics against fractions worked out by hand, and against ir-measures."""

from __future__ import annotations

from fractions import Fraction
from math import log2

import ir_measures
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ir_measures import RR, P, R, Success, nDCG

from gti_pipeline.errors import GtiError
from gti_pipeline.evaluate.metrics import per_user

Lists = dict[str, list[str]]


def recommended(lists: Lists) -> pd.DataFrame:
    rows = [(user, rank, item, -float(rank)) for user, items in lists.items() for rank, item in enumerate(items, 1)]
    return pd.DataFrame(rows, columns=["user_id", "rank", "item_id", "score"])


def relevant(lists: Lists) -> pd.DataFrame:
    rows = [(user, item) for user, items in lists.items() for item in items]
    return pd.DataFrame(rows, columns=["user_id", "item_id"])


def measured(predicted: Lists, targets: Lists, *ks: int) -> dict[tuple[str, str, int], float]:
    frame = per_user(recommended(predicted), relevant(targets), ks)
    return {(user, *column): row[column] for user, row in frame.iterrows() for column in frame.columns}


def dcg(*ranks: int) -> float:
    return sum(1 / log2(rank + 1) for rank in ranks)


def test_one_target() -> None:
    found = measured({"u": ["a", "b", "c", "d"]}, {"u": ["c"]}, 1, 3, 4)
    assert [found["u", "recall", k] for k in (1, 3, 4)] == [0, 1, 1]
    assert [found["u", "precision", k] for k in (1, 3, 4)] == [0, float(Fraction(1, 3)), float(Fraction(1, 4))]
    assert [found["u", "ndcg", k] for k in (1, 3, 4)] == [
        0,
        float(Fraction(1, 2)),
        float(Fraction(1, 2)),
    ]  # 1 / log2(4)


def test_several_targets() -> None:
    """Targets a, c, x, y: hits at ranks 1 and 3; the ideal of NDCG@3 holds three of the four."""
    found = measured({"u": ["a", "b", "c", "d"]}, {"u": ["a", "c", "x", "y"]}, 1, 3, 4)
    assert [found["u", "recall", k] for k in (1, 3, 4)] == [
        float(Fraction(1, 4)),
        float(Fraction(1, 2)),
        float(Fraction(1, 2)),
    ]
    assert [found["u", "precision", k] for k in (1, 3, 4)] == [1, float(Fraction(2, 3)), float(Fraction(1, 2))]
    assert found["u", "ndcg", 1] == 1
    assert found["u", "ndcg", 3] == pytest.approx(dcg(1, 3) / dcg(1, 2, 3))
    assert found["u", "ndcg", 4] == pytest.approx(dcg(1, 3) / dcg(1, 2, 3, 4))


def test_mrr_is_of_the_first_hit_and_hit_rate_of_any() -> None:
    found = measured({"u": ["x", "y", "a", "b"]}, {"u": ["b", "a", "z"]}, 2, 3, 4)
    assert [found["u", "mrr", k] for k in (2, 3, 4)] == [0, float(Fraction(1, 3)), float(Fraction(1, 3))]
    assert [found["u", "hit_rate", k] for k in (2, 3, 4)] == [0, 1, 1]


def test_short_list_still_divides_by_k() -> None:
    found = measured({"u": ["b", "a"]}, {"u": ["a"]}, 10)
    assert found["u", "recall", 10] == 1
    assert found["u", "precision", 10] == float(Fraction(1, 10))
    assert found["u", "ndcg", 10] == pytest.approx(1 / log2(3))


def test_users_without_results_score_zero_and_count() -> None:
    found = measured({"u": ["a"]}, {"u": ["a"], "nobody": ["a", "b"]}, 1, 5)
    assert len(found) == 2 * 5 * 2
    assert {value for (user, _, _), value in found.items() if user == "nobody"} == {0}


def test_no_results_at_all() -> None:
    assert set(measured({}, {"u": ["a"]}, 5).values()) == {0}


def test_a_duplicate_is_no_second_hit_and_keeps_its_rank() -> None:
    """The second a takes rank 2 but no credit, so b is a hit at rank 3."""
    found = measured({"u": ["a", "a", "b"]}, {"u": ["a", "b"]}, 2, 3)
    assert [found["u", "recall", k] for k in (2, 3)] == [float(Fraction(1, 2)), 1]
    assert [found["u", "precision", k] for k in (2, 3)] == [float(Fraction(1, 2)), float(Fraction(2, 3))]
    assert found["u", "ndcg", 3] == pytest.approx(dcg(1, 3) / dcg(1, 2))


def test_repeated_targets_count_once() -> None:
    assert measured({"u": ["a"]}, {"u": ["a", "a"]}, 5) == measured({"u": ["a"]}, {"u": ["a"]}, 5)


def test_users_in_the_order_of_the_targets_and_only_ranks_count() -> None:
    frame = recommended({"b": ["x", "y"], "a": ["y", "x"], "stranger": ["x"]})
    targets = relevant({"b": ["x"], "a": ["x"]})
    found = per_user(frame, targets, [2, 1, 2])
    assert found.index.tolist() == ["b", "a"]
    names = ("recall", "ndcg", "precision", "mrr", "hit_rate")
    assert found.columns.tolist() == [(name, k) for name in names for k in (1, 2)]
    shuffled = frame.sample(frac=1, random_state=0).assign(score=0.0)
    pd.testing.assert_frame_equal(per_user(shuffled, targets, [1, 2]), found)


def test_refuses() -> None:
    frame, targets = recommended({"u": ["a", "b"]}), relevant({"u": ["a"]})
    with pytest.raises(GtiError, match="no user has a relevant item"):
        per_user(frame, targets.head(0), [5])
    with pytest.raises(GtiError, match="at least 1"):
        per_user(frame, targets, [0, 5])
    with pytest.raises(GtiError, match="start from 1"):
        per_user(frame.assign(rank=[0, 1]), targets, [5])
    with pytest.raises(GtiError, match="'u' has two items at rank 1"):
        per_user(frame.assign(rank=1), targets, [5])


ITEMS = st.sampled_from([f"i{n}" for n in range(12)])
USERS = st.sampled_from(["u1", "u2", "u3"])
TARGETS = st.dictionaries(USERS, st.lists(ITEMS, min_size=1, max_size=8, unique=True), min_size=1)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(USERS, st.lists(ITEMS, max_size=10)), TARGETS, st.integers(1, 12))
def test_always_between_0_and_1(predicted: Lists, targets: Lists, k: int) -> None:
    values = np.array(list(measured(predicted, targets, k).values()))
    assert ((values >= 0) & (values <= 1)).all()


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(USERS, st.lists(ITEMS, max_size=10, unique=True)), TARGETS)
def test_agrees_with_ir_measures(predicted: Lists, targets: Lists) -> None:
    """Without duplicates, which ir-measures does not take. It goes by scores, hence -rank."""
    ks = (1, 3, 10)
    found = measured(predicted, targets, *ks)
    qrels = [ir_measures.Qrel(user, item, 1) for user, items in targets.items() for item in items]
    run = [
        ir_measures.ScoredDoc(user, item, -rank)
        for user, items in predicted.items()
        for rank, item in enumerate(items, 1)
        if user in targets
    ]
    names = {"recall": R, "precision": P, "ndcg": nDCG, "mrr": RR, "hit_rate": Success}
    for metric, measure in names.items():
        for k in ks:
            expected = {m.query_id: m.value for m in ir_measures.iter_calc([measure @ k], qrels, run)}
            for user in targets:
                assert found[user, metric, k] == pytest.approx(expected.get(user, 0.0))
