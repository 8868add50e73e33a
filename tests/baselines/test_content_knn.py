"""Neighbours by text, against a dense computation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from gti_pipeline.baselines.content_knn import SETTINGS, Content, _index, content_knn, nearest

IDS = [f"i{n:03d}" for n in range(60)]


@pytest.fixture(scope="module")
def embeddings() -> pd.DataFrame:
    """Random vectors of many lengths; every fourth item is a copy of the one before it."""
    vectors = np.random.default_rng(3).normal(size=(len(IDS), 8)).astype(np.float32)
    vectors[3::4] = vectors[2::4]
    shuffled = np.random.default_rng(4).permutation(len(IDS))
    return pd.DataFrame({"item_id": [IDS[n] for n in shuffled], "embedding": [vectors[n] for n in shuffled]})


@pytest.fixture(scope="module")
def users(rows: Callable[..., pd.DataFrame]) -> pd.DataFrame:
    rng = np.random.default_rng(5)
    return rows({f"u{n}": [IDS[i] for i in rng.integers(len(IDS), size=1 + n % 7)] for n in range(40)})


def brute_force(embeddings: pd.DataFrame, history: list[str], num: int, setting: Content) -> list[tuple[str, float]]:
    vectors = {i: np.asarray(v, dtype=np.float64) for i, v in embeddings.itertuples(index=False)}
    weights = [setting.decay ** (len(history) - 1 - place) for place in range(len(history))]
    scores = {}
    for item, vector in vectors.items():
        cosines = [vector @ vectors[h] / np.linalg.norm(vector) / np.linalg.norm(vectors[h]) for h in history]
        scores[item] = round(float(np.dot(weights, cosines) / np.sum(weights)), 9)
    allowed = [item for item in scores if setting.repeats or item not in history]
    return [(item, scores[item]) for item in sorted(allowed, key=lambda item: (-scores[item], item))[:num]]


@pytest.mark.parametrize("setting", [Content(0.9, True), Content(0.5, True), Content(0.5, False)])
def test_equals_brute_force_list_for_list(
    embeddings: pd.DataFrame, users: pd.DataFrame, listed: Callable[..., dict], setting: Content
) -> None:
    frame = nearest(_index(embeddings), users, 7, setting)
    lists = listed(frame)
    assert set(lists) == set(users["user_id"])
    scores = frame.groupby("user_id")["score"].apply(list)
    for user, history in users.itertuples(index=False):
        expected = brute_force(embeddings, history, 7, setting)
        assert lists[user] == [item for item, _ in expected]
        assert scores[user] == pytest.approx([score for _, score in expected], abs=1e-5)


def test_the_whole_catalogue_can_be_asked_for(
    embeddings: pd.DataFrame, users: pd.DataFrame, listed: Callable[..., dict]
) -> None:
    lists = listed(nearest(_index(embeddings), users, 1000, Content(1.0, True)))
    assert all(sorted(items) == IDS for items in lists.values())


def test_items_with_the_same_text_stand_together_by_id(rows: Callable[..., pd.DataFrame]) -> None:
    same = pd.DataFrame({"item_id": ["c", "a", "b"], "embedding": [np.ones(3, dtype=np.float32)] * 3})
    for num in (1, 2, 3):
        found = nearest(_index(same), rows({"u": ["b"]}), num, Content(1.0, True))
        assert found["item_id"].tolist() == ["a", "b", "c"][:num]


def test_an_item_without_text_is_like_nothing(rows: Callable[..., pd.DataFrame], listed: Callable[..., dict]) -> None:
    vectors = [np.zeros(2), np.array([3.0, 0.0]), np.array([1.0, 1.0])]
    table = pd.DataFrame({"item_id": ["a", "b", "c"], "embedding": [v.astype(np.float32) for v in vectors]})
    frame = nearest(_index(table), rows({"u": ["b"]}), 3, Content(1.0, True))
    assert listed(frame) == {"u": ["b", "c", "a"]}
    assert frame["score"].tolist() == pytest.approx([1, 0.5**0.5, 0])


def test_the_setting_is_chosen_on_validation(embeddings: pd.DataFrame, rows: Callable[..., pd.DataFrame]) -> None:
    rng = np.random.default_rng(6)
    histories = {f"u{n}": [IDS[i] for i in rng.choice(len(IDS), size=5, replace=False)] for n in range(30)}
    back = rows(histories, {user: history[0] for user, history in histories.items()})
    assert content_knn(embeddings, back, back.head(1), 5)[1]["repeats"] is True
    index = _index(embeddings)
    # the truth is what one setting would say
    for setting in (Content(0.2, False), Content(1.0, False)):
        first = nearest(index, back, 1, setting).set_index("user_id")["item_id"]
        valid = rows(histories, first.to_dict())
        _, summary = content_knn(embeddings, valid, back.head(1), 5)
        assert summary == {**setting._asdict(), "valid_ndcg": 1.0}


def test_nothing_to_choose_by(embeddings: pd.DataFrame, users: pd.DataFrame, none_valid: pd.DataFrame) -> None:
    frame, summary = content_knn(embeddings, none_valid, users, 5)
    assert summary == {**SETTINGS[0]._asdict(), "valid_ndcg": None}
    assert frame.equals(nearest(_index(embeddings), users, 5, SETTINGS[0]))
