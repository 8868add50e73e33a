"""Rules over clean tables against brute force and hand-made counts: repeats, k-core, ratings, groups, joins, shards."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gti_pipeline.config import DataConfig
from gti_pipeline.data.clean import ids
from gti_pipeline.data.duplicates import repeats
from gti_pipeline.data.limits import k_core
from gti_pipeline.data.readers import read_table
from gti_pipeline.data.source import resolve_source
from gti_pipeline.data.stage import clean, prepare
from gti_pipeline.data.verdicts import Verdicts
from gti_pipeline.errors import GtiError

ITEMS = "item_id,title,group\n" + "".join(f"i{n},Item {n},g{n // 2}\n" for n in range(6)) + "i6,Alone,\n"


def build(tmp_path, files, **changes):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    config = DataConfig.model_validate({"name": "t", "dir": str(tmp_path), "max_reject_share": 1.0} | changes)
    return config, resolve_source(config, tmp_path)


def cleaned(tmp_path, events, catalogue=ITEMS, **changes):
    return clean(*build(tmp_path, {"items.csv": catalogue, "interactions.csv": events}, **changes))


def pairs(result):
    return list(zip(result.interactions["user_id"], result.interactions["item_id"], strict=True))


def reasons(result):
    return result.rejected[["line", "reason"]].values.tolist()


event = st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"), st.integers(0, 30))


@settings(max_examples=100, deadline=None)
@given(st.lists(event, max_size=25), st.integers(0, 12))
def test_repeats_against_a_loop(events, window):
    frame = pd.DataFrame(events, columns=["user_id", "item_id", "timestamp"]).astype({"timestamp": "int64"})
    frame[["user_id", "item_id"]] = frame[["user_id", "item_id"]].astype("str")
    last, expected = {}, [False] * len(events)
    for place in sorted(range(len(events)), key=lambda n: (events[n][2], n)):
        user, item, time = events[place]
        if (user, item) in last and time - last[user, item] <= window:
            expected[place] = True
        else:
            last[user, item] = time
    assert repeats(frame, window).tolist() == expected


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("wxyz")), max_size=25), st.integers(1, 4))
def test_k_core_against_a_loop(events, k):
    left = list(enumerate(events))
    while True:
        users, items = [u for _, (u, _) in left], [i for _, (_, i) in left]
        fewer = [(n, (u, i)) for n, (u, i) in left if users.count(u) >= k and items.count(i) >= k]
        if fewer == left:
            break
        left = fewer
    frame = pd.DataFrame(events, columns=["user_id", "item_id"]).astype("str")
    assert k_core(frame, k).index.tolist() == [n for n, _ in left]


def test_k_core_is_counted_as_left_out(tmp_path):
    events = (
        "user_id,item_id,timestamp\n" + "".join(f"u{u},i{i},{i}\n" for u in range(3) for i in range(2)) + "u0,i5,9\n"
    )
    result = cleaned(tmp_path, events, k_core=2)
    assert result.items["item_id"].tolist() == ["i0", "i1"]
    assert len(result.interactions) == 6
    assert result.summary["left_out"] == {"left out by k_core": 5 + 1}
    assert result.summary["rejects"] == {}
    with pytest.raises(GtiError, match="k_core=9, max_items and max_users leave 0 items and 0 interactions"):
        prepare(*build(tmp_path, {}, k_core=9))


def test_ratings(tmp_path):
    events = "user_id,item_id,timestamp,stars\nu,i0,1,4\nu,i1,2,3.5\nu,i2,3,\nu,i3,4,good\nu,i4,5,5.0\nu,i5,6,inf\n"
    result = cleaned(tmp_path, events, interactions={"rating": "stars", "min_rating": 4})
    assert pairs(result) == [("u", "i0"), ("u", "i4")]
    assert result.summary["left_out"] == {"rating below min_rating": 1}
    assert reasons(result) == [[4, "rating not a number"], [5, "rating not a number"], [7, "rating not a number"]]


def test_a_low_rating_does_not_make_the_next_row_a_repeat(tmp_path):
    events = "user_id,item_id,timestamp,stars\nu,i0,2020-01-01,1\nu,i0,2020-01-05,5\n"
    result = cleaned(tmp_path, events, interactions={"rating": "stars", "min_rating": 4}, repeat_window_days=30)
    assert pairs(result) == [("u", "i0")]
    assert result.summary["rejects"] == {}


def test_repeats_need_days(tmp_path):
    events = "user_id,item_id,timestamp\nu,i0,1\nu,i0,2\nu,i0,2592003\n"
    with pytest.raises(GtiError, match=r"holds numbers.*only order.*seconds or milliseconds"):
        cleaned(tmp_path, events, repeat_window_days=30)
    result = cleaned(tmp_path, events, repeat_window_days=30, interactions={"time_format": "seconds"})
    assert reasons(result) == [[3, "repeat within 30 days"]]
    result = cleaned(tmp_path, events, repeat_window_days=30, interactions={"time_format": "milliseconds"})
    assert reasons(result) == [[3, "repeat within 30 days"], [4, "repeat within 30 days"]]


def test_ambiguous_dates_are_an_error_that_names_the_choice(tmp_path):
    events = "user_id,item_id,timestamp\nu,i0,03/04/2021\n"
    with pytest.raises(GtiError, match=r"data.interactions.timestamp \(column 'timestamp'\): '03/04/2021'.*day_first"):
        cleaned(tmp_path, events)


def test_exact_duplicates_compare_columns_that_are_not_mapped(tmp_path):
    events = 'user_id,item_id,timestamp,note\nu,i0,1,a\nu,i0,1,b\n"u",i0,1,"a"\nu,i0,1,\nu,i0,1,\n'
    result = cleaned(tmp_path, events)
    assert reasons(result) == [[4, "exact duplicate"], [6, "exact duplicate"]]
    assert result.rejected["raw"].tolist() == ['"u",i0,1,"a"', "u,i0,1,"]


def test_exact_duplicates_across_files_of_other_formats(tmp_path):
    config, _ = build(
        tmp_path,
        {
            "items.csv": ITEMS,
            "a.csv": "user_id,item_id,timestamp,note\nu,i0,1,a\nu,i1,1,a\nu,i2,1,\n",
            "b.jsonl": '{"timestamp": 1, "user_id": "u", "item_id": "i0", "note": "a"}\n'
            '{"user_id": "u", "item_id": "i1", "timestamp": 1, "note": "b"}\n'
            '{"user_id": "u", "item_id": "i2", "timestamp": 1}\n',
        },
        interactions={"file": ("a.csv", "b.jsonl")},
    )
    result = clean(config, resolve_source(config, tmp_path))
    assert reasons(result) == [[1, "exact duplicate"], [3, "exact duplicate"]]


def test_group_level(tmp_path):
    events = "user_id,item_id,timestamp\nu,i0,2020-01-01\nu,i1,2020-01-02\nu,i3,2020-01-03\nu,i6,2020-01-04\n"
    result = cleaned(tmp_path, events, items={"group_id": "group"}, item_level="group", repeat_window_days=30)
    assert result.items[["item_id", "title"]].values.tolist() == [
        ["g0", "Item 0"],
        ["g1", "Item 2"],
        ["g2", "Item 4"],
        ["i6", "Alone"],
    ]
    assert pairs(result) == [("u", "g0"), ("u", "g1"), ("u", "i6")]
    assert reasons(result) == [[3, "repeat within 30 days"]]
    assert result.summary["left_out"] == {"merged into its group": 3}


def test_group_level_clashes_and_needs_a_column(tmp_path):
    events = "user_id,item_id,timestamp\nu,i0,1\n"
    with pytest.raises(GtiError, match=r"1 items without a group are called as a group is, for example \['g1'\]"):
        cleaned(tmp_path, events, ITEMS + "g1,Clash,\n", items={"group_id": "group"}, item_level="group")
    with pytest.raises(GtiError, match=r"data.item_level=group needs data.items.group_id"):
        cleaned(tmp_path, events, item_level="group")


def test_duplicate_items(tmp_path):
    items = "item_id,title,group\na,A,\nb,B,g\na,<b>A</b>,\na,Other,\nb,B,\n"
    config, source = build(
        tmp_path,
        {"items.csv": items, "interactions.csv": "user_id,item_id,timestamp\nu,a,1\n"},
        items={"group_id": "group"},
    )
    result = clean(config, source)
    assert result.items["item_id"].tolist() == ["a", "b"]
    assert result.summary["left_out"] == {"duplicate item, identical: merged": 1}
    assert reasons(result) == [
        [5, "duplicate item id, conflicting: line 5 differs from items.csv, line 2, which is kept"],
        [6, "duplicate item id, conflicting: line 6 differs from items.csv, line 3, which is kept"],
    ]
    assert result.summary["files"]["items.csv"]["rejected"] == {"duplicate item id, conflicting": 2}


def test_join(tmp_path):
    files = {
        "items.csv": ITEMS,
        "baskets.csv": "order,item_id\n1,i0\n1,i1\n2.0,i2\n9,i3\n,i4\n",
        "orders.csv": "order,user_id,timestamp,kind\n1,u,5,prior\n2,v,1,prior\n2,w,1,prior\n,x,1,prior\n9,u,1,test\n",
    }
    on = {"file": "orders.csv", "on": "order", "keep": {"kind": ("prior",)}}
    config, source = build(tmp_path, files, interactions={"file": "baskets.csv", "join": on})
    result = clean(config, source)
    assert pairs(result) == [("u", "i0"), ("u", "i1"), ("v", "i2")]
    found = result.rejected[["file", "line", "reason"]].values.tolist()
    assert found == [
        ["baskets.csv", 5, "no row of orders.csv with this order"],
        ["baskets.csv", 6, "no row of orders.csv with this order"],
        ["orders.csv", 4, "duplicate key to join"],
        ["orders.csv", 5, "null key to join"],
    ]
    assert result.summary["files"]["orders.csv"]["left_out"] == {"left out by keep": 1}


def test_join_names_columns_that_neither_table_has(tmp_path):
    files = {"items.csv": ITEMS, "interactions.csv": "order,item_id\n1,i0\n", "orders.csv": "id,user\n1,u\n"}
    on = {"file": "orders.csv", "on": "order"}
    with pytest.raises(GtiError) as error:
        clean(*build(tmp_path, files, interactions={"join": on}))
    for said in (
        "interactions.csv: no column 'user_id' (data.interactions.user_id)",
        "interactions.csv: no column 'timestamp'",
        "orders.csv: no column 'order' (data.interactions.join.on)",
    ):
        assert said in str(error.value)


def test_a_folder_of_shards(tmp_path):
    head = "user_id,item_id,timestamp\n"
    files = {
        "items.csv": ITEMS,
        "log/part-1.csv": head + "v,i1,2\n",
        "log/part-0.csv": head + "u,i0,1\nbroken\n",
        "log/_SUCCESS": "",
        "log/readme.md": "x",
    }
    result = clean(*build(tmp_path, files, interactions={"file": "log"}))
    assert list(result.summary["files"]) == ["items.csv", "log/part-0.csv", "log/part-1.csv"]
    assert result.interactions["source_row"].tolist() == [0, 1]
    assert result.rejected["file"].tolist() == ["log/part-0.csv"]
    (tmp_path / "none").mkdir()
    with pytest.raises(GtiError, match=r"none is a folder without a file that can be read"):
        build(tmp_path, {}, interactions={"file": "none"})


def test_settings_that_do_not_fit_are_all_named(tmp_path):
    changes = {
        "items": {"encoding": "utf-9", "delimiter": "\n", "header": ("a", "a")},
        "interactions": {"time_zone": "Mars/Base", "min_rating": 3, "encoding": "base64"},
        "item_level": "group",
    }
    with pytest.raises(GtiError) as error:
        cleaned(tmp_path, "x\n", **changes)
    for said in (
        "'utf-9' is no encoding",
        "line ends",
        "['a'] more than once",
        "Mars/Base",
        "min_rating=3",
        "'base64'",
    ):
        assert said in str(error.value)
    assert "data.items.group_id" in str(error.value)


def test_a_wrong_delimiter_is_suspected(tmp_path):
    with pytest.raises(GtiError, match=r"split at ';' \(data.interactions.delimiter\)"):
        cleaned(tmp_path, "user_id;item_id;timestamp\nu;i0;1\n")


def test_floats_of_whole_numbers_are_ids():
    assert ids(pd.Series([" 1.0", "2", None, "", "-3.0"], dtype="str")).fillna("none").tolist() == [
        "1",
        "2",
        "none",
        "none",
        "-3",
    ]
    assert ids(pd.Series(["1.0", "1.5", "v2"], dtype="str")).tolist() == ["1.0", "1.5", "v2"]


def test_ties_stay_in_source_order(tmp_path):
    events = "user_id,item_id,timestamp\n" + "".join(f"u,i{n},7\n" for n in (3, 0, 5, 1))
    assert [item for _, item in pairs(cleaned(tmp_path, events))] == ["i3", "i0", "i5", "i1"]


def test_sums_are_checked_in_code(tmp_path):
    _, source = build(tmp_path, {"items.csv": ITEMS, "interactions.csv": "user_id\nu\n"})
    verdicts = Verdicts(read_table(source.files["items.csv"], "items.csv"))
    assert verdicts.account(np.arange(7))["items.csv"] == {"read": 7, "kept": 7, "rejected": {}, "left_out": {}}
    with pytest.raises(GtiError, match=r"items.csv: 7 rows read, but 6 kept"):
        verdicts.account(np.arange(6))
