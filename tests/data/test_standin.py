"""The stand-in: the committed files are what the generator makes, in the real schema, with taste to be learnt."""

from pathlib import Path

import numpy as np
import pytest
import yaml
from sklearn.feature_extraction.text import TfidfVectorizer

from gti_pipeline.config import DataConfig
from gti_pipeline.data.source import STANDINS, resolve_source
from gti_pipeline.data.split import training_items
from gti_pipeline.data.stage import prepare
from gti_pipeline.data.standin import generate, write_standin

CONFIG = Path(__file__).resolve().parents[2] / "configs" / "datasets" / "vibrent.yaml"
COMMITTED = STANDINS / "vibrent"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    settings = DataConfig.model_validate(yaml.safe_load(CONFIG.read_text(encoding="utf-8"))["data"])
    settings = settings.model_copy(update={"kaggle": None})
    return prepare(settings, resolve_source(settings, tmp_path_factory.mktemp("home")))


def test_committed_files_are_generated_byte_for_byte(tmp_path):
    write_standin(tmp_path)
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert made == {path.name: path.read_bytes() for path in COMMITTED.iterdir()}
    assert sum(map(len, made.values())) < 1_000_000
    assert generate(1)["outfits.csv"] != generate(0)["outfits.csv"]


def test_size_and_hazards(prepared):
    summary = prepared.summary
    assert (summary["source"], summary["is_standin"]) == ("vibrent-standin", True)
    assert (summary["items"], summary["users"], summary["rows_read"]) == (300, 400, 3363)
    assert summary["rejects"] == {
        "null name": 2,
        "wrong number of fields": 2,
        "end before start": 3,
        "exact duplicate": 3,
        "item not in catalogue": 3,
        "repeat within 30 days": 4,
    }
    assert prepared.items["group_id"].nunique() == 170
    assert prepared.items["title"].str.match("(XS|S|M|L|XL) ").sum() == 15
    assert prepared.items["description"].str.contains("laget for").sum() == 6
    again = prepared.interactions.duplicated(["user_id", "item_id"]).mean()
    assert 0.07 < again < 0.11


def test_text_beats_popularity(prepared):
    ids = prepared.items["item_id"].tolist()
    place = {item: number for number, item in enumerate(ids)}
    vectors = TfidfVectorizer(sublinear_tf=True).fit_transform(
        prepared.items["title"] + " " + prepared.items["description"]
    )
    counts = np.bincount([place[item] for item in training_items(prepared.sequences)], minlength=len(ids))
    test = prepared.sequences[prepared.sequences["split"] == "test"]

    def recall_at_10(score):
        ranked = [np.argsort(-score(history), kind="stable")[:10] for history in test["history"]]
        return np.mean([place[target] in top for top, target in zip(ranked, test["target"], strict=True)])

    def similarity(history):
        recent = [place[item] for item in history[-5:]][::-1]
        weights = 0.75 ** np.arange(len(recent))
        return vectors @ (vectors[recent].T @ weights)

    popular = recall_at_10(lambda _: counts)
    assert 0.06 < popular < 0.15
    assert recall_at_10(similarity) > 2 * popular
