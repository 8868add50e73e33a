"""The stage on small dirty files: every reason with its line, exact sums, clear errors, same result from any format."""

import json

import pandas as pd
import pytest

from gti_pipeline import schemas
from gti_pipeline.config import DataConfig, TableConfig
from gti_pipeline.data.readers import read_table
from gti_pipeline.data.source import resolve_source
from gti_pipeline.data.stage import prepare, write
from gti_pipeline.data.summary import summary_rows
from gti_pipeline.errors import GtiError

ITEMS = """id;name;text;tags;group
1;"<b>Blue</b> &amp; white";A  shirt;['summer', 'linen'];g1
 2 ;Coat;;not a list;
;No id;x;[];g
3;;no name;[];g
4; <br> ;only a tag;[];g
1;"Blue &amp; white";A shirt;['summer', 'linen'];g1
2;Coat;another text;[];
5;Torn
6;Hat;"two
lines";[];g2
7;Scarf;;;
"""
OLD = """user;item;start;end
u1;1;2020-01-01;2020-01-05
u1;1;2020-01-20;2020-01-25
u1;1;2020-02-01;2020-02-05
u1;1;2020-03-15;
;1;2020-01-01;2020-01-05
u1;;2020-01-01;2020-01-05
u1;1;;2020-01-05
u1;1;yesterday;2020-01-05
u1;1;2020-05-05;2020-05-01
u1;1;2020-05-05;later
u1;3;2020-05-05;2020-05-06
u1;6;2020-01-02;2020-01-05
u1;6;2020-01-02;2020-01-05
u1;6
"""
NEW = """user;item;start;end
u2;2;2021-01-01;2021-01-05
u2;6;2021-01-02;2021-01-05
u2;7;2021-01-02;2021-01-05
u1;2;2019-01-01;2019-01-05
u3;1;2021-01-01;2021-01-05
"""


def config(**changes):
    settings = {
        "name": "small",
        "items": {
            "file": "items.csv",
            "delimiter": ";",
            "item_id": "id",
            "title": "name",
            "description": ("text", "tags"),
            "group_id": "group",
            "list_text": ("tags",),
        },
        "interactions": {
            "file": ("old.csv", "new.csv"),
            "delimiter": ";",
            "user_id": "user",
            "item_id": "item",
            "timestamp": "start",
            "end": "end",
        },
        "repeat_window_days": 30,
        "max_reject_share": 1.0,
    }
    return DataConfig.model_validate(settings | changes)


def run(tmp_path, settings, **files):
    for name, text in files.items():
        (tmp_path / f"{name}.csv").write_text(text, encoding="utf-8", newline="")
    settings = settings.model_copy(update={"dir": str(tmp_path)})
    return prepare(settings, resolve_source(settings, tmp_path))


@pytest.fixture
def prepared(tmp_path):
    return run(tmp_path, config(), items=ITEMS, old=OLD, new=NEW)


def test_items(prepared):
    items = prepared.items.astype(object).where(prepared.items.notna(), None)
    assert items.values.tolist() == [
        ["1", "Blue & white", "A shirt summer, linen", "g1"],
        ["2", "Coat", "not a list", None],
        ["6", "Hat", "two lines", "g2"],
        ["7", "Scarf", "", None],
    ]


def test_every_reject_reason_with_its_line(prepared):
    assert sorted(map(tuple, prepared.rejected[["file", "line", "reason"]].values.tolist())) == [
        ("items.csv", 4, "null item id"),
        ("items.csv", 5, "null name"),
        ("items.csv", 6, "null name"),
        (
            "items.csv",
            8,
            "duplicate item id, conflicting: line 8 differs from items.csv, line 3, which is kept",
        ),
        ("items.csv", 9, "wrong number of fields"),
        ("old.csv", 3, "repeat within 30 days"),
        ("old.csv", 6, "null user id"),
        ("old.csv", 7, "null item id"),
        ("old.csv", 8, "null timestamp"),
        ("old.csv", 9, "timestamp not parsable"),
        ("old.csv", 10, "end before start"),
        ("old.csv", 11, "end not parsable"),
        ("old.csv", 12, "item not in catalogue"),
        ("old.csv", 14, "exact duplicate"),
        ("old.csv", 15, "wrong number of fields"),
    ]
    raw = dict(zip(prepared.rejected["reason"], prepared.rejected["raw"], strict=True))
    assert raw["timestamp not parsable"] == "u1;1;yesterday;2020-01-05"


def test_repeats_are_measured_from_the_last_kept_row(prepared):
    # 20 January is 19 days after the kept 1 January; 1 February is 31 days after it, though 12 after the rejected row
    mine = prepared.interactions[prepared.interactions["user_id"] == "u1"]
    days = ((mine["timestamp"] - 1577836800) // 86400).tolist()
    assert list(zip(mine["item_id"], days, strict=True)) == [("2", -365), ("1", 0), ("6", 1), ("1", 31), ("1", 74)]


def test_source_row_is_the_position_over_the_files_listed(prepared):
    rows = prepared.interactions.set_index("source_row")["user_id"]
    assert rows.to_dict() == {0: "u1", 2: "u1", 3: "u1", 11: "u1", 13: "u2", 14: "u2", 15: "u2", 16: "u1", 17: "u3"}


def test_counts_add_up(prepared):
    summary = prepared.summary
    assert summary["files"]["items.csv"] == {
        "read": 10,
        "kept": 4,
        "rejected": {
            "duplicate item id, conflicting": 1,
            "null item id": 1,
            "null name": 2,
            "wrong number of fields": 1,
        },
        "left_out": {"duplicate item, identical: merged": 1},
    }
    assert (summary["rows_read"], summary["rows_kept"], sum(summary["rejects"].values())) == (29, 13, 15)
    facts = {key: summary[key] for key in ("users", "items", "interactions", "tested_users", "mean_history")}
    assert facts == {"users": 3, "items": 4, "interactions": 9, "tested_users": 2, "mean_history": 3.0}
    assert summary["repeat_share"] == 0.5
    assert json.loads(json.dumps(summary)) == summary
    assert summary["left_out"] == {"duplicate item, identical: merged": 1}
    report = summary_rows(summary)
    for file in ("items.csv", "old.csv", "new.csv"):
        (read,) = [count for f, what, _, count in report if (f, what) == (file, "rows read")]
        assert read == sum(count for f, what, _, count in report if f == file and what != "rows read")


def test_write_and_read_back(prepared, tmp_path):
    assert write(prepared, tmp_path) == prepared.summary
    assert schemas.ITEMS.read(tmp_path).equals(prepared.items)
    assert schemas.INTERACTIONS.read(tmp_path).equals(prepared.interactions)
    assert len(schemas.REJECTED.read(tmp_path)) == 15
    test = schemas.SEQUENCES.read(tmp_path).set_index(["user_id", "split"])
    assert list(test.loc[("u2", "test"), "history"]) == ["2", "6"]


def test_same_frames_from_parquet_and_json_lines(prepared, tmp_path):
    for name in ("items", "old", "new"):
        rows = read_table(tmp_path / f"{name}.csv", name, TableConfig(delimiter=";")).rows
        rows.to_parquet(tmp_path / f"{name}.parquet")
        rows.to_json(tmp_path / f"{name}.jsonl", orient="records", lines=True)
    for kind in ("parquet", "jsonl"):
        items = config().items.model_copy(update={"file": f"items.{kind}"})
        events = config().interactions.model_copy(update={"file": (f"old.{kind}", f"new.{kind}")})
        other = run(tmp_path, config().model_copy(update={"items": items, "interactions": events}))
        pd.testing.assert_frame_equal(other.items, prepared.items)
        pd.testing.assert_frame_equal(other.interactions, prepared.interactions)
        pd.testing.assert_frame_equal(other.sequences, prepared.sequences)


def test_missing_columns_are_all_reported_at_once(tmp_path):
    broken = {"items": ITEMS.replace("name;", "nam;", 1), "old": OLD, "new": NEW.replace("user;item", "usr;thing", 1)}
    with pytest.raises(GtiError) as error:
        run(tmp_path, config(), **broken)
    text = str(error.value)
    assert "items.csv: no column 'name' (data.items.title), nearest: 'nam'" in text
    assert "new.csv: no column 'user' (data.interactions.user_id), nearest: 'usr'" in text
    assert "new.csv: no column 'item' (data.interactions.item_id)" in text
    assert "old.csv" not in text


def test_empty_catalogue_says_the_counts(tmp_path):
    with pytest.raises(GtiError, match=r"no items left of 2 rows(.|\n)*2  null name"):
        run(tmp_path, config(), items="id;name;text;tags;group\n1;;;;\n2;;;;\n", old=OLD, new=NEW)
    with pytest.raises(GtiError, match="no items left of 0 rows"):
        run(tmp_path, config(), items="id;name;text;tags;group\n", old=OLD, new=NEW)


def test_no_interactions_says_the_counts(tmp_path):
    header = "user;item;start;end\n"
    with pytest.raises(GtiError, match=r"no interactions left of 1 rows(.|\n)*1  item not in catalogue"):
        run(tmp_path, config(), items=ITEMS, old=header + "u;x;2020-01-01;\n", new=header)


def test_nobody_to_test_is_an_error(tmp_path):
    with pytest.raises(GtiError, match=r"none of 3 users has data\.min_history=9"):
        run(tmp_path, config(min_history=9), items=ITEMS, old=OLD, new=NEW)


def test_too_many_rejects_stop_it_with_the_counts(tmp_path):
    with pytest.raises(GtiError) as error:
        run(tmp_path, config(max_reject_share=0.4), items=ITEMS, old=OLD, new=NEW)
    text = str(error.value)
    assert "5 of 10 rows of the items are rejected (50.0%)" in text
    assert "10 of 19 rows of the interactions" in text
    assert "1  end before start" in text


def many(number_of_users=20):
    """Item n is rented by users n and above: item i00 is the most frequent."""
    items = "".join(f"i{n:02d};x{n};;;\n" for n in range(10))
    rows = "".join(f"u{u:02d};i{n:02d};{n};\n" for u in range(number_of_users) for n in range(min(u + 1, 10)))
    return {"items": "id;name;text;tags;group\n" + items, "old": "user;item;start;end\n" + rows, "new": NEW[:20]}


def test_limits_keep_frequent_items_and_the_same_users_for_a_seed(tmp_path):
    settings = config(max_items=5, max_users=8, repeat_window_days=0)
    first, again = run(tmp_path, settings, **many()), run(tmp_path, settings)
    assert first.items["item_id"].tolist() == [f"i{n:02d}" for n in range(5)]
    assert first.summary["users"] == 8
    pd.testing.assert_frame_equal(first.interactions, again.interactions)
    other = run(tmp_path, settings.model_copy(update={"seed": 1}))
    assert set(other.interactions["user_id"]) != set(first.interactions["user_id"])
    left_out = first.summary["left_out"]
    assert left_out == {"left out by max_items": 5 + 65, "left out by max_users": 90 - len(first.interactions)}
    assert first.summary["rejects"] == {}


def test_limits_do_not_depend_on_the_order_of_rows(tmp_path):
    files = many()
    settings = config(max_items=5, max_users=8, repeat_window_days=0)
    first = run(tmp_path, settings, **files)
    head, *rows = files["old"].splitlines(keepends=True)
    turned = run(tmp_path, settings, **files | {"old": head + "".join(reversed(rows))})
    pd.testing.assert_frame_equal(first.sequences, turned.sequences)
