"""Queries and judgments from files: what is kept, why the rest is not, and splits without a leak."""

import pandas as pd
import pytest

from gti_pipeline.config import DataConfig, SplitConfig
from gti_pipeline.data.source import resolve_source
from gti_pipeline.errors import GtiError
from gti_pipeline.search.data import prepare
from gti_pipeline.search.split import check_no_leak, good_matches, split_queries

ITEMS = "item_id,title\n" + "".join(f"i{n},Thing {n}\n" for n in range(6))
QUERIES = "query_id,query\n" + "".join(f"q{n},find thing {n}\n" for n in range(8))
JUDGMENTS = "query_id,item_id,grade\n" + "".join(f"q{n},i{n % 6},2\nq{n},i{(n + 1) % 6},0\n" for n in range(8))
SPLIT = {"valid_share": 0.125, "test_share": 0.25}


def run(folder, files=None, **settings):
    texts = {"items": ITEMS, "queries": QUERIES, "judgments": JUDGMENTS} | (files or {})
    for name, text in texts.items():
        (folder / f"{name}.csv").write_text(text, encoding="utf-8")
    given = {"name": "things", "task": "search", "dir": str(folder), "split": SPLIT, "max_reject_share": 1}
    config = DataConfig.model_validate(given | settings)
    return prepare(config, resolve_source(config, folder))


def account(prepared, file):
    found = prepared.summary["files"][file]
    assert found["read"] == found["kept"] + sum(found["rejected"].values()) + sum(found["left_out"].values())
    return found


def test_every_judgment_is_accounted_for(tmp_path):
    bad = [
        "q0,i0,2",  # said before
        "q0,i0,1",  # said otherwise before
        ",i0,2",
        "q0,,2",
        "q0,i2,5",
        "q0,i2,good",
        "q0,i2,",
        "q77,i0,2",
        "q0,i77,2",
        "q0,i3",
    ]
    prepared = run(tmp_path, {"judgments": JUDGMENTS + "\n".join(bad) + "\n"})
    found = account(prepared, "judgments.csv")
    assert (found["read"], found["kept"]) == (26, 16)
    assert found["rejected"] == {
        "duplicate judgment, conflicting": 1,
        "grade not among data.judgments.grades": 3,
        "item not in catalogue": 1,
        "null item id": 1,
        "null query id": 1,
        "query not among the queries": 1,
        "wrong number of fields": 1,
    }
    assert found["left_out"] == {"duplicate judgment, identical: merged": 1}
    (clash,) = prepared.rejected[prepared.rejected["reason"].str.contains("conflicting")].itertuples()
    assert (clash.line, clash.raw) == (19, "q0,i0,1")
    assert "line 19 differs from judgments.csv, line 2, which is kept" in clash.reason
    kept = prepared.judgments.set_index(["query_id", "item_id"])["grade"]
    assert kept[("q0", "i0")] == 2


def test_every_query_is_accounted_for(tmp_path):
    bad = "q0,find thing 0\nq1,another\n,nobody\nq20,<p> </p>\nq21,never judged\nq22,only bad\n"
    prepared = run(tmp_path, {"queries": QUERIES + bad, "judgments": JUDGMENTS + "q22,i0,0\n"})
    found = account(prepared, "queries.csv")
    assert (found["read"], found["kept"]) == (14, 8)
    assert found["rejected"] == {"duplicate query id, conflicting": 1, "null query id": 1, "query without text": 1}
    assert found["left_out"] == {"duplicate query, identical: merged": 1, "no good or maybe item": 2}
    assert account(prepared, "judgments.csv")["left_out"] == {"no good or maybe item": 1}


def test_several_text_columns_are_named(tmp_path):
    queries = "query_id,job_title,skills,city\n" + "".join(f"q{n},Cook {n},\"['a', 'b']\",\n" for n in range(8))
    columns = {"text": ["job_title", "skills", "city"], "list_text": ["skills"]}
    prepared = run(tmp_path, {"queries": queries}, queries=columns)
    assert prepared.queries["text"].iloc[0] == "job title: Cook 0; skills: a, b"


def test_limits_leave_out_and_say_so(tmp_path):
    prepared = run(tmp_path, max_users=4, max_items=4)
    assert len(prepared.queries) == 4
    assert len(prepared.items) == 4
    assert set(prepared.judgments["query_id"]) <= set(prepared.queries["query_id"])
    assert set(prepared.judgments["item_id"]) <= set(prepared.items["item_id"])
    for file in ("items.csv", "queries.csv", "judgments.csv"):
        account(prepared, file)
    again = run(tmp_path, max_users=4, max_items=4)
    pd.testing.assert_frame_equal(again.queries, prepared.queries)


def test_missing_columns_are_all_named(tmp_path):
    with pytest.raises(GtiError) as error:
        run(tmp_path, {"queries": "id,query\nq0,x\n", "judgments": "query_id,item,grad\nq0,i0,2\n"})
    for part in (
        "'query_id' (data.queries.query_id)",
        "'item_id' (data.judgments.item_id), nearest: 'item'",
        "'grade'",
    ):
        assert part in str(error.value)


def test_settings_that_do_not_go_with_the_task_are_all_named(tmp_path):
    split = {"valid_share": 0.5, "test_share": 0.5}
    with pytest.raises(GtiError) as error:
        run(tmp_path, k_core=5, split=split, judgments={"grades": {"1": 1}})
    for part in ("data.k_core=5", "no value that means 2", "leave no query to train on"):
        assert part in str(error.value)


def test_nothing_left_is_an_error(tmp_path):
    with pytest.raises(GtiError, match="no query with a good or maybe item is left"):
        run(tmp_path, {"judgments": "query_id,item_id,grade\nq0,i0,0\n"})
    with pytest.raises(GtiError, match="no judgments left of 1 rows"):
        run(tmp_path, {"judgments": "query_id,item_id,grade\nq0,i99,2\n"})
    with pytest.raises(GtiError, match="both are needed"):
        run(tmp_path, {"judgments": "query_id,item_id,grade\n" + "".join(f"q{n},i0,1\n" for n in range(8))})


def frame(texts):
    return pd.DataFrame({"query_id": [f"q{n}" for n in range(len(texts))], "text": texts})


def test_split_follows_texts_and_seed_not_rows():
    queries = frame([f"text {n % 30}" for n in range(60)])
    queries.loc[queries.index[30:], "text"] = queries["text"][30:].str.upper()
    parts = split_queries(queries, SplitConfig(valid_share=0.1, test_share=0.3), 0)
    assert (parts[:30].to_numpy() == parts[30:].to_numpy()).all()  # equal texts, case aside
    assert parts[:30].value_counts().to_dict() == {"train": 18, "test": 9, "valid": 3}
    mixed = queries.sample(frac=1, random_state=1)
    assert split_queries(mixed, SplitConfig(valid_share=0.1, test_share=0.3), 0).sort_index().equals(parts)
    assert not split_queries(queries, SplitConfig(valid_share=0.1, test_share=0.3), 1).equals(parts)


def test_only_good_matches_of_training_queries_are_trained_on():
    queries = frame(["a", "b", "c"]).assign(split=["train", "valid", "test"])
    judgments = pd.DataFrame(
        [("q0", "i0", 2), ("q0", "i1", 1), ("q0", "i2", 0), ("q1", "i0", 2), ("q2", "i3", 2)],
        columns=["query_id", "item_id", "grade"],
    )
    matches = good_matches(queries, judgments, "train")
    assert matches.to_dict("records") == [{"query_id": "q0", "item_id": "i0", "text": "a"}]
    check_no_leak(matches, queries)


@pytest.mark.parametrize(
    ("query", "text", "complaint"),
    [("q2", "c", "'q2' is itself in test"), ("q1", "b", "'q1' is itself in valid"), ("q9", " C", "'q9' has the text")],
)
def test_a_leak_is_refused(query, text, complaint):
    queries = frame(["a", "b", "c"]).assign(split=["train", "valid", "test"])
    matches = pd.DataFrame({"query_id": ["q0", query], "text": ["a", text], "item_id": ["i0", "i0"]})
    with pytest.raises(GtiError, match=complaint):
        check_no_leak(matches, queries)
