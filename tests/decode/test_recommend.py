"""The table of recommendations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tiny_models import make_catalogue, make_prompts
from transformers import PreTrainedModel

from gti_pipeline.decode import Trie, beam_search, recommend
from gti_pipeline.errors import GtiError
from gti_pipeline.schemas import RECOMMENDATIONS

CODES, TOKENS = make_catalogue(30, 3, 5)
ITEMS = [f"item-{i}" for i in range(30)]
LENGTHS = [5, 30, 9, 21, 9]
USERS = ["e", "a", "d", "b", "c"]


def silent(done: int, total: int) -> None:
    pass


def test_users_in_their_order_with_their_own_lists(model: PreTrainedModel, tmp_path: Path) -> None:
    prompts = make_prompts(LENGTHS)
    calls: list[tuple[int, int]] = []
    frame = recommend(
        model.train(), prompts, USERS, ITEMS, CODES, TOKENS, 8, 2, lambda done, total: calls.append((done, total))
    )
    assert calls == [(2, 5), (4, 5), (5, 5)]
    assert frame["user_id"].tolist() == [user for user in USERS for _ in range(8)]
    assert frame["rank"].tolist() == list(range(1, 9)) * 5
    trie = Trie.build(CODES, TOKENS)
    for user, prompt in zip(USERS, prompts, strict=True):
        [(items, scores)] = beam_search(model, [prompt], trie, 8)
        own = frame[frame["user_id"] == user]
        assert own["item_id"].tolist() == [ITEMS[i] for i in items]
        np.testing.assert_allclose(own["score"], scores, atol=1e-4)
    RECOMMENDATIONS.write(frame, tmp_path)
    assert RECOMMENDATIONS.read(tmp_path).equals(frame)


def test_short_lists_are_not_padded(model: PreTrainedModel) -> None:
    frame = recommend(model, make_prompts([4, 6]), ["a", "b"], ITEMS[:3], CODES[:3], TOKENS, 10, 4, silent)
    assert frame.groupby("user_id")["rank"].apply(list).to_dict() == {"a": [1, 2, 3], "b": [1, 2, 3]}


def test_no_users_give_an_empty_table(model: PreTrainedModel, tmp_path: Path) -> None:
    frame = recommend(model, [], [], ITEMS, CODES, TOKENS, 10, 4, silent)
    assert len(frame) == 0
    RECOMMENDATIONS.write(frame, tmp_path)


def test_refuses(model: PreTrainedModel) -> None:
    with pytest.raises(GtiError, match="1 prompts for 2 users"):
        recommend(model, [[1]], ["a", "b"], ITEMS, CODES, TOKENS, 2, 4, silent)
    with pytest.raises(GtiError, match="more than once"):
        recommend(model, [[1], [2]], ["a", "a"], ITEMS, CODES, TOKENS, 2, 4, silent)
    with pytest.raises(GtiError, match="30 semantic IDs for 29 items"):
        recommend(model, [[1]], ["a"], ITEMS[1:], CODES, TOKENS, 2, 4, silent)
