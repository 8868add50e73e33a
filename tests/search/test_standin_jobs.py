"""The jobs stand-in: the committed files are what the generator makes, and its grades follow from the texts."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from gti_pipeline.banner import banner_text
from gti_pipeline.data.source import STANDINS, resolve_source
from gti_pipeline.search.data import prepare
from gti_pipeline.search.evaluate import popular
from gti_pipeline.search.metrics import per_query
from gti_pipeline.search.split import good_matches
from gti_pipeline.search.standin import generate, write_standin
from gti_pipeline.settings import load_config

COMMITTED = STANDINS / "jobs"


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return resolve_source(load_config(profile="tiny", dataset="jobs").data, tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def prepared(source):
    return prepare(load_config(profile="tiny", dataset="jobs").data, source)


def test_committed_files_are_generated_byte_for_byte(tmp_path):
    write_standin(tmp_path)
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert made == {path.name: path.read_bytes() for path in COMMITTED.iterdir()}
    assert sum(map(len, made.values())) < 1_000_000
    assert generate(1)["jobs.csv"] != generate(0)["jobs.csv"]


def test_it_is_named_and_announced(source):
    assert (source.name, source.is_standin) == ("jobs-standin", True)
    assert "GENERATED DATA" in banner_text(source)
    assert "jobs-standin" in banner_text(source)


def test_size_and_hazards(prepared):
    summary = prepared.summary
    assert (summary["items"], summary["queries"], summary["judgments"]) == (300, 250, 5000)
    assert summary["rejects"] == {
        "null name": 2,
        "query without text": 1,
        "null query id": 1,
        "grade not among data.judgments.grades": 2,
        "query not among the queries": 1,
        "item not in catalogue": 2,
        "duplicate judgment, conflicting": 1,
    }
    assert summary["left_out"] == {
        "duplicate query, identical: merged": 1,
        "duplicate judgment, identical: merged": 2,
    }
    assert 95 <= summary["tested_queries"] <= 105
    good = (prepared.judgments["grade"] == 2).groupby(prepared.judgments["query_id"]).sum()
    assert good.min() >= 1
    assert 3 < good.mean() < 7


def test_grades_follow_from_the_requirements_that_are_met(prepared):
    candidates = pd.read_csv(COMMITTED / "candidates.csv").set_index("candidate_id")
    jobs = pd.read_csv(COMMITTED / "jobs.csv").drop_duplicates("job_id").set_index("job_id")
    expected = []
    for row in prepared.judgments.itertuples():
        job, candidate = jobs.loc[row.query_id], candidates.loc[row.item_id]
        wanted = set(job["required_skills"].split(", "))
        skills = len(wanted & set(candidate["skills"].split(", ")))
        asked = len(wanted) + 2
        met = skills + (job["seniority"] == candidate["seniority"]) + (job["location"] == candidate["location"])
        expected.append((2 if met >= asked - 1 else 1) if skills and met >= asked / 2 else 0)
    assert prepared.judgments["grade"].tolist() == expected


def test_text_beats_popularity(prepared):
    items, test = prepared.items, prepared.queries[prepared.queries["split"] == "test"]
    vectorizer = TfidfVectorizer().fit(items["description"])
    scores = (vectorizer.transform(test["text"]) @ vectorizer.transform(items["description"]).T).toarray()
    top = np.argsort(-scores, axis=1, kind="stable")[:, :10]
    by_text = pd.DataFrame(
        {
            "user_id": np.repeat(test["query_id"].to_numpy(), 10),
            "rank": np.tile(np.arange(1, 11), len(test)),
            "item_id": items["item_id"].to_numpy()[top.reshape(-1)],
        }
    )
    judged = prepared.judgments[prepared.judgments["query_id"].isin(test["query_id"])]
    matches = good_matches(prepared.queries, prepared.judgments, "train")
    floor = per_query(popular(matches, test["query_id"].tolist(), 10), judged, [10]).mean()
    found = per_query(by_text, judged, [10]).mean()
    assert found[("ndcg_graded", 10)] > 4 * floor[("ndcg_graded", 10)]
    assert found[("precision_good", 10)] > 0.1


def test_the_standin_can_be_refused(tmp_path):
    from gti_pipeline.errors import GtiError

    config = load_config(profile="tiny", dataset="jobs", overrides=("data.require_real=true",)).data
    with pytest.raises(GtiError, match="the stand-in 'jobs' is refused"):
        resolve_source(config, Path(tmp_path))
