"""What is in the lists, by hand; semantic-ID prefixes against a spelt-out loop."""

from __future__ import annotations

import math

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gti_pipeline.evaluate.lists import coverage, per_user_lists, prefix_hits

Lists = dict[str, list[str]]
TRAINING = pd.Series(["a"] * 5 + ["b"] * 3 + ["c"] * 2, name="item_id", dtype="str")


def recommended(lists: Lists) -> pd.DataFrame:
    rows = [(user, rank, item, 0.0) for user, items in lists.items() for rank, item in enumerate(items, 1)]
    return pd.DataFrame(rows, columns=["user_id", "rank", "item_id", "score"])


def histories_of(histories: Lists) -> pd.DataFrame:
    return pd.DataFrame({"user_id": list(histories), "history": list(histories.values())})


def test_popularity_is_the_mean_share_of_training_events() -> None:
    lists = recommended({"u": ["c", "a", "new"], "v": ["b"]})
    found = per_user_lists(lists, histories_of({"u": ["x"], "v": ["x"]}), TRAINING, (1, 2, 3))
    assert found.loc["u", "popularity"].tolist() == pytest.approx([0.2, 0.35, 0.7 / 3])
    assert found.loc["v", "popularity"].tolist() == pytest.approx([0.3, 0.3, 0.3])  # of the one item that came back


def test_repeats_are_of_the_users_own_history() -> None:
    lists = recommended({"u": ["c", "a", "b"], "v": ["c", "a", "b"]})
    found = per_user_lists(lists, histories_of({"v": ["a", "b", "a"], "u": ["c", "c"]}), TRAINING, (3, 1))
    assert found.index.tolist() == ["v", "u"]
    assert found.loc["u", "repeats"].to_dict() == {1: 1.0, 3: pytest.approx(1 / 3)}
    assert found.loc["v", "repeats"].to_dict() == {1: 0.0, 3: pytest.approx(2 / 3)}


def test_nothing_recommended_is_no_value() -> None:
    found = per_user_lists(recommended({"u": ["a"]}), histories_of({"u": ["a"], "nobody": ["a"]}), TRAINING, (5,))
    assert found.loc["u"].tolist() == [0.5, 1.0]
    assert all(math.isnan(value) for value in found.loc["nobody"])


def test_coverage_by_hand() -> None:
    lists = recommended({"u": ["a", "b", "c"], "v": ["b", "a", "d"]})
    assert coverage(lists, list("abcdefgh"), (3, 1, 2)) == {1: 0.25, 2: 0.25, 3: 0.5}


CODES = {"a": (0, 1, 0), "b": (0, 1, 1), "c": (0, 2, 0), "d": (1, 1, 0), "e": (2, 0, 0)}


def test_prefixes_by_hand() -> None:
    relevant = pd.DataFrame({"user_id": ["u", "v", "w"], "item_id": ["a", "a", "a"]})
    found = prefix_hits(recommended({"u": ["d", "c", "b"], "v": ["e", "d"]}), relevant, CODES, (1, 2, 3))
    assert found.loc["u", "sid_prefix_1"].tolist() == [0, 1, 1]  # c shares its first code
    assert found.loc["u", "sid_prefix_2"].tolist() == [0, 0, 1]  # b its first two
    assert found.loc["v"].sum() == found.loc["w"].sum() == 0  # 1 in the second place is another prefix; no list at all


def test_no_longer_prefix_than_the_ids_have() -> None:
    relevant = pd.DataFrame({"user_id": ["u"], "item_id": ["a"]})
    found = prefix_hits(recommended({"u": ["b"]}), relevant, {"a": [0], "b": [1]}, (1,))
    assert found.columns.tolist() == [("sid_prefix_1", 1)]


ITEMS = st.sampled_from(sorted(CODES))
USERS = st.sampled_from(["u", "v"])


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(USERS, st.lists(ITEMS, max_size=4), min_size=1),
    st.dictionaries(USERS, st.lists(ITEMS, min_size=1, max_size=3), min_size=1),
    st.integers(1, 4),
)
def test_prefixes_against_a_loop(lists: Lists, relevant: Lists, k: int) -> None:
    pairs = pd.DataFrame([(u, i) for u, items in relevant.items() for i in items], columns=["user_id", "item_id"])
    found = prefix_hits(recommended(lists), pairs, CODES, (k,))
    for user, items in relevant.items():
        for length in (1, 2):
            listed = {CODES[item][:length] for item in lists.get(user, [])[:k]}
            assert found.loc[user, (f"sid_prefix_{length}", k)] == any(CODES[i][:length] in listed for i in items)
