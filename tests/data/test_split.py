"""The split: what each row sees, for any history."""

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gti_pipeline.data.split import check_no_leak, leave_one_out, training_interactions, training_items
from gti_pipeline.errors import GtiError


def frame(users):
    """Interactions of {user: [items]}; the timestamp is the position halved, so ties are broken by source row."""
    rows = [(u, i, n // 2, 0) for u, items in sorted(users.items()) for n, i in enumerate(items)]
    events = pd.DataFrame(rows, columns=["user_id", "item_id", "timestamp", "source_row"])
    return events.assign(source_row=range(len(events)))


def table(sequences):
    return {(u, s): (list(h), t) for u, s, h, t in sequences.itertuples(index=False)}


def test_by_hand():
    events = frame({"a": list("vwxyz"), "b": list("pqr"), "c": list("mn"), "d": ["k"], "e": list("xyxy")})
    assert table(leave_one_out(events, 3)) == {
        ("a", "test"): (list("vwxy"), "z"),
        ("a", "valid"): (list("vwx"), "y"),
        ("a", "train"): (list("vw"), "x"),
        ("b", "test"): (list("pq"), "r"),
        ("b", "valid"): (["p"], "q"),
        ("c", "train"): (["m"], "n"),
        ("e", "test"): (list("xyx"), "y"),
        ("e", "valid"): (list("xy"), "x"),
        ("e", "train"): (["x"], "y"),
    }


def test_users_below_min_history_train_whole():
    assert table(leave_one_out(frame({"a": list("wxyz")}), 5)) == {("a", "train"): (list("wxy"), "z")}


def test_order_is_timestamp_then_source_row():
    events = pd.DataFrame(
        [("a", "late", 9, 0), ("a", "tie2", 5, 2), ("a", "tie1", 5, 1)],
        columns=["user_id", "item_id", "timestamp", "source_row"],
    )
    assert table(leave_one_out(events, 3))["a", "test"] == (["tie1", "tie2"], "late")


users = st.dictionaries(
    st.text("abc", min_size=1, max_size=3), st.lists(st.sampled_from("vwxyz"), min_size=1, max_size=8)
)


@settings(max_examples=60, deadline=None)
@given(users, st.integers(3, 5))
def test_properties(histories, min_history):
    events = frame(histories)
    sequences = leave_one_out(events, min_history)
    check_no_leak(sequences, events, min_history)
    tested = {user for user, items in histories.items() if len(items) >= min_history}
    assert set(sequences.loc[sequences["split"] == "test", "user_id"]) == tested
    assert set(sequences.loc[sequences["split"] == "valid", "user_id"]) == tested
    for (user, split), (history, target) in table(sequences).items():
        back = {"test": 1, "valid": 2, "train": 3}[split] if user in tested else 1
        assert histories[user][:-back] == history != []
        assert histories[user][-back] == target


@settings(max_examples=60, deadline=None)
@given(users)
def test_changing_every_last_item_leaves_every_history_of_tested_users_identical(histories):
    changed = {user: [*items[:-1], "other"] for user, items in histories.items()}
    before, after = leave_one_out(frame(histories), 3), leave_one_out(frame(changed), 3)
    assert before["history"].map(list).tolist() == after["history"].map(list).tolist()
    kept = before["split"] != "test"
    tested = before["user_id"].isin(before.loc[~kept, "user_id"])
    assert before[kept & tested].equals(after[kept & tested])


@settings(max_examples=60, deadline=None)
@given(users, st.integers(3, 5))
def test_training_events_hold_no_target_of_valid_or_test(histories, min_history):
    events = frame(histories)
    training = training_interactions(events, min_history)
    expected = [
        item
        for user, items in sorted(histories.items())
        for item in (items[:-2] if len(items) >= min_history else items)
    ]
    assert training["item_id"].tolist() == expected
    singles = [items[0] for items in histories.values() if len(items) == 1]
    assert sorted([*training_items(leave_one_out(events, min_history)), *singles]) == sorted(expected)


@pytest.mark.parametrize("split", ["test", "valid", "train"])
def test_the_guard_catches_a_leak(split):
    events = frame({"a": list("vwxyz")})
    sequences = leave_one_out(events, 3)
    at = sequences.index[sequences["split"] == split][0]
    leaking = sequences.copy()
    leaking.at[at, "history"] = [*sequences.at[at, "history"], sequences.at[at, "target"]]
    with pytest.raises(GtiError, match=f"user 'a', {split}"):
        check_no_leak(leaking, events, 3)
    future = sequences.copy()
    future.at[at, "target"] = "v"
    with pytest.raises(GtiError, match="leaks"):
        check_no_leak(future, events, 3)


def test_the_guard_refuses_to_test_a_user_who_trains_whole():
    events = frame({"a": list("vwxyz")})
    with pytest.raises(GtiError, match="too few events to be tested"):
        check_no_leak(leave_one_out(events, 3), events, 6)


def test_the_guard_wants_ordered_interactions():
    events = frame({"a": list("vwxyz")})
    with pytest.raises(GtiError, match="not ordered"):
        check_no_leak(leave_one_out(events, 3), events.iloc[::-1].reset_index(drop=True), 3)
