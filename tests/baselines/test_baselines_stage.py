"""Baselines as artifacts: no held-out event reaches them, and each is computed again only for its own sake."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest

from gti_pipeline import schemas
from gti_pipeline.artifacts import Artifact
from gti_pipeline.config import BaselineName, Config
from gti_pipeline.data.split import split, training_interactions, training_sequences
from gti_pipeline.stages import baselines as stage
from gti_pipeline.stages.base import Workspace

NAMES: tuple[BaselineName, ...] = get_args(BaselineName)
IDS = [f"i{n:02d}" for n in range(25)]
SMALL = {
    "lm": {"device": "cpu"},
    "decode": {"beams": 10, "max_users": 30},
    "evaluate": {"ks": [5, 10]},
}
QUICK = {
    "als": {"factors": 4},
    "bpr": {"factors": 4, "iterations": 10},
    "sasrec": {"dim": 8, "layers": 1, "heads": 1, "epochs": 3},
}


def config_with(**baselines: Any) -> Config:
    return Config.model_validate(SMALL | {"baselines": QUICK | baselines})


def events() -> pd.DataFrame:
    """40 users of 1 to 9 events; those of fewer than 3 are never tested."""
    rng = np.random.default_rng(0)
    rows = [(f"u{n:02d}", rng.choice(IDS), int(t)) for n in range(40) for t in range(1 + n % 9)]
    frame = pd.DataFrame(rows, columns=["user_id", "item_id", "timestamp"])
    return frame.astype({"user_id": "str", "item_id": "str"}).assign(source_row=np.arange(len(rows)))


def other_items(frame: pd.DataFrame, which: pd.Series) -> pd.DataFrame:
    """The same events, but for some of them with another item each."""
    moved = [
        IDS[(IDS.index(item) + 7) % len(IDS)] if change else item
        for item, change in zip(frame["item_id"], which, strict=True)
    ]
    return frame.assign(item_id=pd.Series(moved, index=frame.index, dtype="str"))


def data_artifact(folder: Path, interactions: pd.DataFrame) -> Artifact:
    folder.mkdir()
    texts = {"title": "t", "description": "", "group_id": None}
    schemas.ITEMS.write(pd.DataFrame({"item_id": IDS}).assign(**texts), folder)
    schemas.INTERACTIONS.write(interactions, folder)
    parts = split(interactions, Config().data)
    schemas.SEQUENCES.write(parts.sequences, folder)
    return Artifact("data", folder.name, folder)


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    folder = tmp_path_factory.mktemp("vectors")
    rng = np.random.default_rng(1)
    values = list(rng.normal(size=(len(IDS), 4)).astype(np.float32))
    schemas.ITEM_EMBEDDINGS.write(pd.DataFrame({"item_id": IDS, "embedding": values}), folder)
    return Artifact("embed", "vectors", folder)


def run(config: Config, home: Path, data: Artifact, vectors: Artifact, name: BaselineName) -> Artifact:
    return stage.run(config, Workspace(home, "few"), data, vectors if stage.needs_embeddings(name) else None, name)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, vectors: Artifact) -> tuple[Path, Artifact, dict[str, Artifact]]:
    """All baselines on the data as it is."""
    home = tmp_path_factory.mktemp("home")
    data = data_artifact(home / "data-a", events())
    return home, data, {name: run(config_with(), home, data, vectors, name) for name in NAMES}


def last(frame: pd.DataFrame) -> pd.Series:
    """Which events are tested: the last of users with at least three."""
    by_user = frame.groupby("user_id")["timestamp"]
    return (frame["timestamp"] == by_user.transform("max")) & (by_user.transform("size") >= 3)


@pytest.mark.parametrize("name", NAMES)
def test_held_out_events_change_no_list(done: Any, vectors: Artifact, tmp_path: Path, name: BaselineName) -> None:
    whole = events()
    data = data_artifact(tmp_path / "data-b", other_items(whole, last(whole)))
    mine = schemas.RECOMMENDATIONS.read(run(config_with(), tmp_path, data, vectors, name).path)
    assert mine.equals(schemas.RECOMMENDATIONS.read(done[2][name].path))
    # and what is trained on does
    data = data_artifact(tmp_path / "data-c", other_items(whole, ~last(whole)))
    other = schemas.RECOMMENDATIONS.read(run(config_with(), tmp_path, data, vectors, name).path)
    assert not mine.equals(other)


@pytest.mark.parametrize("name", NAMES)
def test_the_lists_are_those_of_the_sampled_test_users(done: Any, name: BaselineName) -> None:
    _, data, artifacts = done
    found = schemas.RECOMMENDATIONS.read(artifacts[name].path)
    sequences = schemas.SEQUENCES.read(data.path)
    tested = stage.sample_rows(sequences[sequences["split"] == "test"], 30, stage.USER_SEED)
    assert found["user_id"].unique().tolist() == tested["user_id"].tolist()
    assert set(found["item_id"]) <= set(IDS)
    assert found["rank"].max() <= 10
    assert not found.duplicated(["user_id", "item_id"]).any()


def test_the_training_events_are_those_of_the_split() -> None:
    whole = events()
    expected = training_interactions(whole, Config().data)
    found = stage.training_events(
        whole.sample(frac=1, random_state=0), training_sequences(split(whole, Config().data).sequences)
    )
    assert found.reset_index(drop=True).equals(expected)
    assert 0 < len(expected) < len(whole)


def test_a_setting_of_one_leaves_the_others_as_they_are(done: Any, vectors: Artifact) -> None:
    home, data, artifacts = done
    changed = config_with(names=["sasrec", "popular"], bpr={"factors": 4, "iterations": 11})
    again = {name: run(changed, home, data, vectors, name) for name in NAMES}
    assert [name for name in NAMES if not again[name].cached] == ["bpr"]
    assert all(again[name].key == artifacts[name].key for name in NAMES if name != "bpr")


def test_only_what_uses_the_vectors_depends_on_them(done: Any, vectors: Artifact) -> None:
    home, data, artifacts = done
    other = Artifact("embed", "other", vectors.path)
    again = {name: run(config_with(), home, data, other, name) for name in NAMES}
    assert [name for name in NAMES if again[name].key != artifacts[name].key] == ["content_knn"]


def test_the_training_of_sasrec_leaves_a_curve(done: Any) -> None:
    steps = schemas.STEPS.read(done[2]["sasrec"].path)
    assert set(steps["metric"]) == {"loss", "valid_ndcg"}
    assert steps["step"].max() == done[2]["sasrec"].summary["epochs"] == 3
