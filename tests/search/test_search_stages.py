"""The stages of the search task with the tiny LM, three levels of 1,024 codes: tokens, lists and what is left alone."""

import pandas as pd
import pytest

from gti_pipeline import schemas
from gti_pipeline.data.source import resolve_source
from gti_pipeline.errors import GtiError
from gti_pipeline.settings import load_config
from gti_pipeline.stages import embed, search_data, search_evaluate, search_recommend, search_sft, semantic_ids, vocab
from gti_pipeline.stages.base import Workspace
from gti_pipeline.stages.language_model import load_prompter
from gti_pipeline.vocab import load_rows, sid_text

LARGE = (
    "semantic_ids.num_levels=3",
    "semantic_ids.codebook_size=1024",
    "semantic_ids.method=rqkmeans",
    "semantic_ids.min_code_use=0",
    "embed.dim=16",
    "sft.max_steps=3",
    "sft.valid_users=4",
    "decode.max_users=12",
)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    config = load_config(profile="tiny", dataset="jobs", method="mean_sft", overrides=(*LARGE, f"home={home}"))
    source = resolve_source(config.data, home)
    workspace = Workspace(home, source.name)
    made = {"data": search_data.run(config, workspace, source)}
    made["embed"] = embed.run(config, workspace, made["data"])
    made["ids"] = semantic_ids.run(config, workspace, made["data"], made["embed"])
    made["vocab"] = vocab.run(config, workspace, made["data"], made["ids"])
    made["sft"] = search_sft.run(config, workspace, made["data"], made["ids"], made["vocab"], made["vocab"])
    made["recommend"] = search_recommend.run(config, workspace, made["data"], made["ids"], made["vocab"], made["sft"])
    made["evaluate"] = search_evaluate.run(config, workspace, made["data"], made["recommend"])
    return config, workspace, source, made


def test_each_item_is_three_tokens_of_its_own(done):
    config, _, _, made = done
    prompter, (rows, token_ids) = load_prompter(config, made["vocab"]), load_rows(made["vocab"].path)
    assert token_ids.shape == (3, 1024)
    assert len(rows) == 3 * 1024
    codes = schemas.SEMANTIC_IDS.read(made["ids"].path)
    seen = set()
    for item_codes in codes["codes"]:
        ids = prompter.encode(sid_text(item_codes))
        assert ids == [token_ids[level, code] for level, code in enumerate(item_codes)]
        seen.add(tuple(ids))
    assert len(seen) == 300


def test_two_hundred_candidates_each_of_the_catalogue_once(done):
    _, _, _, made = done
    found = schemas.RECOMMENDATIONS.read(made["recommend"].path)
    assert found.groupby("user_id").size().tolist() == [200] * 12
    assert not found.duplicated(["user_id", "item_id"]).any()
    assert set(found["item_id"]) <= set(schemas.ITEMS.read(made["data"].path)["item_id"])
    assert (found.groupby("user_id")["score"].diff().dropna() <= 1e-6).all()
    queries = schemas.QUERIES.read(made["data"].path).set_index("query_id")["split"]
    assert set(queries[found["user_id"].unique()]) == {"test"}


def test_metrics_are_of_the_lists_and_the_judgments(done):
    _, _, _, made = done
    found = schemas.RECOMMENDATIONS.read(made["recommend"].path)
    judged = schemas.JUDGMENTS.read(made["data"].path).rename(columns={"query_id": "user_id"})
    top = found[found["rank"] <= 50].merge(judged, on=["user_id", "item_id"])
    expected = (top["grade"] >= 1).groupby(top["user_id"]).sum().reindex(found["user_id"].unique(), fill_value=0) / 50
    metrics = schemas.METRICS.read(made["evaluate"].path).set_index(["arm", "metric", "k"])["value"]
    assert metrics["model", "precision_good_maybe", 50] == pytest.approx(expected.mean())
    assert set(metrics.index.get_level_values("k")) == {5, 10, 20, 50, 100}
    assert set(metrics.index.get_level_values("arm")) == {"model", "popular"}
    values = schemas.USER_METRICS.read(made["evaluate"].path)
    assert values.groupby("arm")["user_id"].nunique().to_dict() == {"model": 12, "popular": 12}


def test_only_good_matches_of_training_queries_are_examples(done):
    _, _, _, made = done
    queries, judgments = schemas.QUERIES.read(made["data"].path), schemas.JUDGMENTS.read(made["data"].path)
    training = set(queries.loc[queries["split"] == "train", "query_id"])
    good = judgments[(judgments["grade"] == 2) & judgments["query_id"].isin(training)]
    assert made["sft"].summary["search_examples"] == len(good)


def test_what_is_there_is_not_made_again(done):
    config, workspace, source, made = done
    assert search_data.run(config, workspace, source).cached
    longer = config.model_copy(update={"search": config.search.model_copy(update={"candidates": 100})})
    upstream = (made["data"], made["ids"], made["vocab"])
    assert search_sft.run(longer, workspace, *upstream, made["vocab"]).cached
    shorter = search_recommend.run(longer, workspace, *upstream, made["sft"])
    assert not shorter.cached
    first = schemas.RECOMMENDATIONS.read(shorter.path).groupby("user_id").size()
    assert first.tolist() == [100] * 12


def test_a_leak_in_the_data_stops_fine_tuning(done, monkeypatch):
    config, workspace, _, made = done
    queries, judgments = schemas.QUERIES.read(made["data"].path), schemas.JUDGMENTS.read(made["data"].path)
    of_test = queries.loc[queries["split"] == "test", "query_id"].iloc[0]
    leaked = pd.DataFrame({"query_id": [of_test], "item_id": judgments["item_id"].iloc[:1], "text": ["x"]})
    monkeypatch.setattr(search_sft, "good_matches", lambda *_: leaked)
    other = config.model_copy(update={"seed": 99})
    with pytest.raises(GtiError, match=f"query '{of_test}' is itself in test"):
        search_sft.run(other, workspace, made["data"], made["ids"], made["vocab"], made["vocab"])
