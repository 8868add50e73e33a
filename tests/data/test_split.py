"""The split: what each row sees, for any history, under each rule; and a guard that catches every mutation."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from math import floor
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from gti_pipeline.config import DataConfig, SplitConfig
from gti_pipeline.data.source import resolve_source
from gti_pipeline.data.split import Split, split, training_interactions, training_items, training_sequences
from gti_pipeline.data.split_guard import check_no_leak
from gti_pipeline.data.stage import prepare, write
from gti_pipeline.errors import GtiError
from gti_pipeline.schemas import RELEVANT, SEQUENCES

Events = dict[str, list[tuple[str, int]]]  # (item, time) by user
METHODS = ("leave_one_out", "ratio", "temporal")


def config(method: str = "leave_one_out", min_history: int = 3, **rule: Any) -> DataConfig:
    return DataConfig.model_validate({"min_history": min_history, "split": {"method": method, **rule}})


def frame(users: Events) -> pd.DataFrame:
    rows = [(u, i, t, n) for n, (u, i, t) in enumerate((u, *event) for u, events in users.items() for event in events)]
    events = pd.DataFrame(rows, columns=["user_id", "item_id", "timestamp", "source_row"])
    events = events.astype({"user_id": "str", "item_id": "str", "timestamp": "int64", "source_row": "int64"})
    return events.sort_values(["user_id", "timestamp", "source_row"], ignore_index=True)


def numbered(users: dict[str, str]) -> Events:
    """A time per item: its position halved, so that ties are broken by source row."""
    return {user: [(item, n // 2) for n, item in enumerate(items)] for user, items in users.items()}


def table(parts: Split) -> dict[tuple[str, str], tuple[str, str, str]]:
    """(history, target, relevant) by user and split, items as letters."""
    relevant: dict[tuple[str, str], str] = {}
    for user, name, item in parts.relevant.itertuples(index=False):
        relevant[user, name] = relevant.get((user, name), "") + item
    return {(u, s): ("".join(h), t, relevant.get((u, s), "")) for u, s, h, t in parts.sequences.itertuples(index=False)}


def test_leave_one_out_by_hand() -> None:
    events = frame(numbered({"a": "vwxyz", "b": "pqr", "c": "mn", "d": "k", "e": "xyxy"}))
    assert table(split(events, config())) == {
        ("a", "test"): ("vwxy", "z", "z"),
        ("a", "valid"): ("vwx", "y", "y"),
        ("a", "train"): ("vw", "x", ""),
        ("b", "test"): ("pq", "r", "r"),
        ("b", "valid"): ("p", "q", "q"),
        ("b", "train"): ("", "p", ""),
        ("c", "train"): ("m", "n", ""),
        ("d", "train"): ("", "k", ""),
        ("e", "test"): ("xyx", "y", "y"),
        ("e", "valid"): ("xy", "x", "x"),
        ("e", "train"): ("x", "y", ""),
    }


def test_ratio_by_hand() -> None:
    """Of ten events the last 3 are tested, the 2 before them validate; repeats within a part count once."""
    events = frame(numbered({"a": "abcdefghig", "b": "pqr", "c": "mn"}))
    assert table(split(events, config("ratio", test_share=0.3, valid_share=0.2))) == {
        ("a", "test"): ("abcdefg", "h", "hig"),
        ("a", "valid"): ("abcde", "f", "fg"),
        ("a", "train"): ("abcd", "e", ""),
        ("b", "test"): ("pq", "r", "r"),
        ("b", "valid"): ("p", "q", "q"),
        ("b", "train"): ("", "p", ""),
        ("c", "train"): ("m", "n", ""),
    }


DAY = 86_400
CUT = {"cut": "2021-03-03", "valid_cut": "2021-03-02"}
FIRST = int(datetime(2021, 3, 1, tzinfo=UTC).timestamp())


def days(users: dict[str, dict[int, str]]) -> pd.DataFrame:
    """Items by user and day of March 2021."""
    return frame(
        {u: [(item, FIRST + (d - 1) * DAY) for d, items in by.items() for item in items] for u, by in users.items()}
    )


TEMPORAL = days(
    {
        "all parts": {1: "ab", 2: "c", 3: "da", 4: "da"},
        "before": {1: "abc"},
        "cold": {3: "abc"},
        "no train": {2: "xy", 4: "z"},
        "no valid": {1: "x", 3: "yz"},
        "short": {1: "p", 3: "q"},
    }
)


def test_temporal_by_hand() -> None:
    parts = split(TEMPORAL, config("temporal", **CUT), dated=True)
    assert table(parts) == {
        ("all parts", "test"): ("abc", "d", "da"),
        ("all parts", "valid"): ("ab", "c", "c"),
        ("all parts", "train"): ("a", "b", ""),
        ("before", "train"): ("ab", "c", ""),
        ("no train", "test"): ("xy", "z", "z"),
        ("no valid", "test"): ("x", "y", "yz"),
        ("no valid", "train"): ("", "x", ""),
        ("short", "train"): ("", "p", ""),
    }
    facts = parts.facts
    assert (facts["tested_users"], facts["validated_users"], facts["cold_users"]) == (3, 1, 1)
    assert (facts["users_with_too_few_events"], facts["users_without_event_from_cut"]) == (1, 1)
    assert (facts["training_events"], facts["relevant_items"], facts["relevant_without_training_event"]) == (7, 5, 4)
    assert (facts["valid_cut"], facts["cut"]) == ("2021-03-02T00:00:00+00:00", "2021-03-03T00:00:00+00:00")


def test_a_date_is_in_the_datas_time_zone() -> None:
    at = [int(datetime(2021, 3, 2, 22 + h, 30, tzinfo=UTC).timestamp()) for h in (0, 1)]
    events = frame({"a": [("x", FIRST), ("y", at[0]), ("z", at[1])]})
    oslo = config("temporal", cut="2021-03-03", valid_share=0)
    oslo = oslo.model_copy(update={"interactions": oslo.interactions.model_copy(update={"time_zone": "Europe/Oslo"})})
    assert table(split(events, oslo, dated=True))["a", "test"] == ("xy", "z", "z")
    offset = config("temporal", cut="2021-03-03T00:00:00+02:00", valid_share=0)
    assert table(split(events, offset, dated=True))["a", "test"] == ("x", "y", "yz")


def test_temporal_by_shares_of_all_events_needs_no_dates() -> None:
    """20 events at times 0..19: the last 4 are tested, the 6 before them validate, whoever they belong to."""
    users = {u: [(f"{u}{t}", t) for t in range(20) if t % 2 == n] for n, u in enumerate("ab")}
    parts = split(frame(users), config("temporal", test_share=0.2, valid_share=0.3))
    assert parts.cuts == (10, 16)
    sequences = parts.sequences.set_index(["user_id", "split"])
    assert sequences.loc[("b", "valid"), "history"].tolist() == [f"b{t}" for t in (1, 3, 5, 7, 9)]
    assert sequences.loc[("a", "test"), "target"] == "a16"
    assert (parts.facts["cut"], parts.facts["events_tested_share"], parts.facts["events_validated_share"]) == (
        *("16", 0.2),
        0.3,
    )


def test_events_of_the_cuts_own_moment_are_all_after_it() -> None:
    users: Events = {"a": [("x", 1), ("y", 2), ("z", 5), ("w", 5)], "b": [("x", 1), ("y", 5), ("z", 5), ("w", 6)]}
    parts = split(frame(users), config("temporal", test_share=0.3, valid_share=0.1))
    assert parts.cuts == (2, 5)
    assert parts.facts["events_tested_share"] == 0.625
    assert table(parts)["b", "test"] == ("x", "y", "yzw")


HISTORIES = st.dictionaries(
    st.text("abc", min_size=1, max_size=3),
    st.lists(st.tuples(st.sampled_from("vwxyz"), st.integers(0, 30)), min_size=1, max_size=12),
    min_size=1,
)
RULES = st.one_of(
    st.just(("leave_one_out", 0.1, 0.1)),
    st.tuples(st.sampled_from(["ratio", "temporal"]), st.floats(0, 0.5), st.floats(0.01, 0.49)),
)


def brute_force(events: pd.DataFrame, setup: DataConfig, cuts: tuple[int, int] | None) -> dict[Any, Any]:
    """The rules, spelt out user by user over lists."""
    found: dict[Any, Any] = {}
    for user, group in events.groupby("user_id"):
        timed = list(zip(group["item_id"], group["timestamp"], strict=True))
        items, count = "".join(item for item, _ in timed), len(timed)
        tested = count >= setup.min_history
        if cuts:
            train, seen = (len([t for _, t in timed if t < cut]) for cut in cuts)
            tested = tested and 0 < seen < count
        elif tested:
            shares = (setup.split.valid_share, setup.split.test_share)
            one = setup.split.method == "leave_one_out"
            valid, test = (1 if one else max(1, floor(count * share + 1e-9)) for share in shares)
            valid = min(valid, count - 2)
            test = min(test, count - 1 - valid)
            train, seen = count - valid - test, count - test
        else:
            train = seen = count
        if train:
            found[user, "train"] = (items[: train - 1], items[train - 1], "")
        for name, first, last in (("valid", train, seen), ("test", seen, count)):
            if tested and 0 < first < last:
                distinct = "".join(dict.fromkeys(items[first:last]))
                found[user, name] = (items[:first], items[first], distinct)
    return found


@settings(max_examples=50, deadline=None)
@given(HISTORIES, RULES, st.integers(3, 5))
def test_agrees_with_brute_force_and_passes_the_guard(
    histories: Events, rule: tuple[str, float, float], least: int
) -> None:
    method, valid, test = rule
    setup = config(method, least, valid_share=valid, test_share=test)
    events = frame(histories)
    try:
        parts = split(events, setup)
    except GtiError:
        if method != "temporal":  # the others fit any data
            raise
        return
    check_no_leak(parts, events, setup)
    assert table(parts) == brute_force(events, setup, parts.cuts)
    SEQUENCES.check(parts.sequences)
    RELEVANT.check(parts.relevant)
    training = training_interactions(events, setup)
    by_user = {user: group["item_id"].tolist() for user, group in training.groupby("user_id")}
    assert training_sequences(parts.sequences) == by_user
    assert sorted(training_items(parts.sequences)) == sorted(training["item_id"])
    if parts.cuts:
        assert (training["timestamp"] < parts.cuts.valid).all()
        assert len(training) == (events["timestamp"] < parts.cuts.valid).sum()


@settings(max_examples=25, deadline=None)
@given(HISTORIES, RULES)
def test_changing_what_is_tested_changes_no_history_and_no_training_event(
    histories: Events, rule: tuple[str, float, float]
) -> None:
    method, valid, test = rule
    setup, events = config(method, valid_share=valid, test_share=test), frame(histories)
    try:
        before = split(events, setup)
    except GtiError:
        return
    place = events.groupby("user_id").cumcount()
    tested = before.sequences[before.sequences["split"] == "test"]
    first = events["user_id"].map(tested.set_index("user_id")["history"].map(len))
    other = split(events.assign(item_id=events["item_id"].mask(place >= first, "other")), setup)
    assert before.sequences["history"].map(list).tolist() == other.sequences["history"].map(list).tolist()
    assert sorted(training_items(before.sequences)) == sorted(training_items(other.sequences))


def test_the_order_of_rows_does_not_matter() -> None:
    shuffled = TEMPORAL.sample(frac=1, random_state=1)
    for method in METHODS:
        first, second = (split(events, config(method)) for events in (TEMPORAL, shuffled))
        pd.testing.assert_frame_equal(first.sequences, second.sequences)
        pd.testing.assert_frame_equal(first.relevant, second.relevant)


def test_order_is_timestamp_then_source_row() -> None:
    events = pd.DataFrame(
        [("a", "late", 9, 0), ("a", "tie2", 5, 2), ("a", "tie1", 5, 1)],
        columns=["user_id", "item_id", "timestamp", "source_row"],
    )
    row = split(events, config()).sequences.iloc[0]
    assert (row["split"], list(row["history"]), row["target"]) == ("test", ["tie1", "tie2"], "late")


def test_nothing_at_all() -> None:
    parts = split(frame({}), config())
    assert parts.sequences.empty
    assert parts.relevant.empty
    assert training_sequences(parts.sequences) == {}
    assert training_items(parts.sequences).empty


# ------------------------------------------------------------------------------------------------------------- guards

GUARDED = {
    "leave_one_out": config(),
    "ratio": config("ratio", test_share=0.3, valid_share=0.2),
    "temporal": config("temporal", **CUT),
}
RICH = days(
    {"ada": {1: "abab", 2: "cd", 3: "efa", 4: "e"}, "bob": {1: "bca", 2: "fg", 3: "aef"}, "eve": {1: "abc", 2: "d"}}
)


def at(parts: Split, user: str, name: str) -> int:
    rows = parts.sequences
    return int(rows.index[(rows["user_id"] == user) & (rows["split"] == name)][0])


def changed(parts: Split, user: str, name: str, **values: Any) -> Split:
    sequences = parts.sequences.copy()
    for column, value in values.items():
        sequences.at[at(parts, user, name), column] = value
    return replace(parts, sequences=sequences)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["test", "valid", "train"])
def test_the_guard_catches_a_row_that_sees_too_much(method: str, name: str) -> None:
    parts = split(RICH, GUARDED[method], dated=True)
    check_no_leak(parts, RICH, GUARDED[method])
    row = parts.sequences.loc[at(parts, "bob", name)]
    complaint = f"user 'bob', {name}: the history is not the events before the target"
    mutations = [
        {"history": [*row["history"], row["target"]]},  # its own target
        {"history": [*row["history"][:-1], row["target"]]},  # its own target in the place of another
        {"history": list(row["history"])[1:]},  # an event lost
        {"history": list(row["history"])[::-1]},  # out of order
        {"target": "zzz"},
    ]
    for mutation in mutations:
        with pytest.raises(GtiError, match="leaks") as error:
            check_no_leak(changed(parts, "bob", name, **mutation), RICH, GUARDED[method])
        assert complaint in str(error.value), mutation


@pytest.mark.parametrize("method", METHODS)
def test_the_guard_catches_a_training_row_moved_into_what_is_held_out(method: str) -> None:
    """A whole prefix is no leak by its looks: only the rule, and the statistics, tell that it is too long."""
    parts = split(RICH, GUARDED[method], dated=True)
    test = parts.sequences.loc[at(parts, "ada", "test")]
    longer = changed(parts, "ada", "train", history=test["history"], target=test["target"])
    with pytest.raises(GtiError) as error:
        check_no_leak(longer, RICH, GUARDED[method])
    assert "user 'ada', train: the history is not the events before the target" in str(error.value)
    assert f"item {test['target']!r} has" in str(error.value)
    assert ("user 'ada', train: it is on the wrong side of the cut" in str(error.value)) == (method == "temporal")


@pytest.mark.parametrize("method", METHODS)
def test_the_guard_catches_rows_that_are_missing_twice_or_nobodys(method: str) -> None:
    parts, setup = split(RICH, GUARDED[method], dated=True), GUARDED[method]
    rows = parts.sequences
    place = at(parts, "bob", "valid")
    cases = {
        "user 'bob' has no valid row": rows.drop(index=place),
        "user 'bob' has 2 valid rows": pd.concat([rows, rows.loc[[place]]], ignore_index=True),
        "user 'mallory' has a valid row": pd.concat([rows, rows.loc[[place]].assign(user_id="mallory")]),
        "user 'bob' has a tset row": rows.assign(split=rows["split"].mask(rows.index == place, "tset")),
    }
    for complaint, sequences in cases.items():
        with pytest.raises(GtiError) as error:
            check_no_leak(replace(parts, sequences=sequences), RICH, setup)
        assert complaint in str(error.value)


@pytest.mark.parametrize("method", METHODS)
def test_the_guard_catches_relevant_items_of_another_part(method: str) -> None:
    parts, setup = split(RICH, GUARDED[method], dated=True), GUARDED[method]
    extra = pd.DataFrame({"user_id": ["bob"], "split": ["test"], "item_id": ["c"]})
    more = replace(parts, relevant=pd.concat([parts.relevant, extra], ignore_index=True))
    with pytest.raises(GtiError, match="user 'bob', test: item 'c' is relevant, but no event of that part"):
        check_no_leak(more, RICH, setup)
    mine = (parts.relevant["user_id"] == "bob") & (parts.relevant["split"] == "test")
    with pytest.raises(GtiError, match="user 'bob', test: item 'f' is held out, but not relevant"):
        check_no_leak(replace(parts, relevant=parts.relevant[~mine]), RICH, setup)


def test_the_guard_catches_times_across_the_cut() -> None:
    """The split of one cut, held against another: the times tell, whatever the positions say."""
    setup = GUARDED["temporal"]
    parts = split(RICH, setup, dated=True)
    assert parts.cuts is not None
    earlier = replace(parts, cuts=parts.cuts._replace(test=parts.cuts.valid))
    with pytest.raises(GtiError, match="user 'ada', test: it is on the wrong side of the cut"):
        check_no_leak(earlier, RICH, setup)


def test_the_guard_refuses_to_test_a_user_who_trains_whole() -> None:
    with pytest.raises(GtiError, match="user 'ada' has a test row, but too few events to be tested"):
        check_no_leak(split(RICH, config()), RICH, config(min_history=11))


def test_the_guard_wants_ordered_interactions() -> None:
    parts = split(RICH, config())
    for events in (RICH.iloc[::-1], RICH.assign(source_row=RICH["source_row"].to_numpy()[::-1])):
        with pytest.raises(GtiError, match="not ordered"):
            check_no_leak(parts, events.reset_index(drop=True), config())


def test_the_guard_names_a_few_and_counts_the_rest() -> None:
    parts = split(RICH, config())
    with pytest.raises(GtiError, match=r"\.\.\. and \d+ more"):
        check_no_leak(replace(parts, sequences=parts.sequences.assign(target="zzz")), RICH, config())


# --------------------------------------------------------------------------------------------------------- bad settings


def test_a_date_for_timestamps_that_only_order_is_refused() -> None:
    with pytest.raises(GtiError, match=r"data\.split\.cut and data\.split\.valid_cut: a date needs(.|\n)*'timestamp'"):
        split(TEMPORAL, config("temporal", **CUT), dated=False)


@pytest.mark.parametrize(
    ("cuts", "complaint"),
    [
        ({"cut": "2030-01-01"}, "nothing to test: no event from the cut 2030-01-01T00:00:00"),
        ({"cut": "2020-01-01"}, "nothing to train on: no event before 2020-01-01T00:00:00"),
        ({"cut": "2021-03-02", "valid_cut": "2021-03-04"}, "is after the cut 2021-03-02T00:00:00"),
        ({"cut": "2021-03-02", "valid_cut": "2021-03-01"}, "nothing to train on: no event before 2021-03-01"),
    ],
)
def test_cuts_that_do_not_fit_the_data(cuts: dict[str, str], complaint: str) -> None:
    with pytest.raises(GtiError) as error:
        split(TEMPORAL, config("temporal", **cuts), dated=True)
    assert complaint in str(error.value)


def test_nobody_on_both_sides_of_the_cut() -> None:
    users = {"a": {1: "abc"}, "b": {3: "abc"}}
    with pytest.raises(GtiError, match=r"no user with data\.min_history=3 events has one before the cut"):
        split(days(users), config("temporal", cut="2021-03-02", valid_share=0), dated=True)


def test_settings_that_contradict_one_another_are_all_named() -> None:
    with pytest.raises(ValidationError) as error:
        SplitConfig.model_validate({"method": "ratio", "test_share": 0.6, "valid_share": 0.5, "cut": "3/4/2021"})
    text = str(error.value)
    assert "cut='3/4/2021' is no ISO date" in text
    assert "method=ratio has none" in text
    assert "leave no event to train on" in text
    assert SplitConfig.model_validate({"method": "temporal", "cut": date(2021, 3, 4)}).cut == "2021-03-04"


# --------------------------------------------------------------------------------------------------- through the stage


def prepared(folder: Path, time_format: str, times: list[str], **rule: Any) -> Any:
    (folder / "items.csv").write_text("item_id,title\n" + "".join(f"{item},{item}\n" for item in "abcd"))
    lines = [f"u,{item},{time}\n" for item, time in zip("abcd", times, strict=True)]
    (folder / "interactions.csv").write_text("user_id,item_id,timestamp\n" + "".join(lines))
    setup = DataConfig.model_validate(
        {
            "name": "small",
            "dir": str(folder),
            "interactions": {"time_format": time_format},
            "split": {"method": "temporal", **rule},
        }
    )
    return prepare(setup, resolve_source(setup, folder))


@pytest.mark.parametrize("time_format", ["auto", "iso"])
def test_the_stage_cuts_iso_dates_by_date(tmp_path: Path, time_format: str) -> None:
    found = prepared(tmp_path, time_format, ["2021-03-01", "2021-03-01", "2021-03-02", "2021-03-03"], **CUT)
    assert found.summary["split"]["cut"] == "2021-03-03T00:00:00+00:00"
    sequences = found.sequences.set_index("split")
    assert sequences["target"].to_dict() == {"test": "d", "valid": "c", "train": "b"}
    write(found, tmp_path)
    assert RELEVANT.read(tmp_path).to_numpy().tolist() == [["u", "test", "d"], ["u", "valid", "c"]]


def test_the_stage_cuts_milliseconds_by_date(tmp_path: Path) -> None:
    times = [str(1000 * (FIRST + day * DAY)) for day in (0, 0, 1, 2)]
    sequences = prepared(tmp_path, "milliseconds", times, **CUT).sequences.set_index("split")
    assert sequences["target"].to_dict() == {"test": "d", "valid": "c", "train": "b"}


@pytest.mark.parametrize("time_format", ["auto", "order"])
def test_the_stage_refuses_a_date_for_numbers_that_only_order(tmp_path: Path, time_format: str) -> None:
    with pytest.raises(GtiError, match="a date needs timestamps that are dates"):
        prepared(tmp_path, time_format, ["1", "2", "3", "4"], **CUT)
    shares = prepared(tmp_path, time_format, ["1", "2", "3", "4"], test_share=0.25, valid_share=0.25)
    assert shares.sequences.set_index("split")["target"].to_dict() == {"test": "d", "valid": "c", "train": "b"}
