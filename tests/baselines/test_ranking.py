"""Scores to lists."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from gti_pipeline.baselines import ranking
from gti_pipeline.baselines.ranking import rank_by_product, recommendations, top

FEW = st.sampled_from([-np.inf, -1.0, 0.0, 0.5, 2.0])  # many ties


@given(arrays(np.float32, array_shapes(max_dims=1, max_side=30), elements=FEW), st.integers(1, 40))
def test_top_is_a_sort_by_score_then_position(scores: np.ndarray, num: int) -> None:
    expected = sorted((n for n, s in enumerate(scores) if s > -np.inf), key=lambda n: (-scores[n], n))[:num]
    assert top(scores, num).tolist() == expected


def test_products_by_blocks_and_hidden_items(monkeypatch, listed: Callable[..., dict]) -> None:
    rng = np.random.default_rng(0)
    profiles, factors = rng.normal(size=(7, 3)).astype(np.float32), rng.normal(size=(9, 3)).astype(np.float32)
    ids = np.array([f"i{n}" for n in range(9)], dtype=object)
    hidden = [[n, n + 1] for n in range(7)]
    monkeypatch.setattr(ranking, "CELLS", 20)  # two users at a time
    lists = listed(recommendations([f"u{n}" for n in range(7)], rank_by_product(profiles, factors, ids, 9, hidden)))
    for user in range(7):
        scores = factors @ profiles[user]
        expected = [f"i{n}" for n in np.argsort(-scores) if n not in hidden[user]]
        assert lists[f"u{user}"] == expected


def test_no_users(listed: Callable[..., dict]) -> None:
    frame = recommendations([], [])
    assert listed(frame) == {}
    assert frame.dtypes.astype(str).tolist() == ["str", "int32", "str", "float64"]


def test_a_user_without_a_list(listed: Callable[..., dict]) -> None:
    assert listed(recommendations(["u", "v"], [([], []), (["a"], [1])])) == {"v": ["a"]}
    assert isinstance(recommendations(["u"], [([], [])]), pd.DataFrame)
