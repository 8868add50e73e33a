"""ALS and BPR through `implicit`: against a dense solution, and on planted tastes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gti_pipeline.baselines import factorize
from gti_pipeline.baselines.factorize import als, bpr
from gti_pipeline.config import AlsConfig, BprConfig
from gti_pipeline.errors import GtiError

Rows = Callable[..., pd.DataFrame]
IDS = [f"i{n:02d}" for n in range(40)]
BLOCKS = [IDS[:20], IDS[20:]]
SMALL_ALS = AlsConfig(factors=4, regularization=0.1, alpha=2.0, iterations=8)
SMALL_BPR = BprConfig(factors=8, learning_rate=0.05, iterations=60)


def quiet(done: int, total: int) -> None:
    assert 0 < done <= total


@pytest.fixture(scope="module")
def tastes(rows: Rows) -> pd.DataFrame:
    """60 users; each has nine items of one of two halves of the catalogue, none of the other."""
    rng = np.random.default_rng(0)
    return rows({f"u{n:02d}": list(rng.choice(BLOCKS[n % 2], size=9, replace=False)) for n in range(60)})


@pytest.mark.parametrize(("method", "config"), [(als, SMALL_ALS), (bpr, SMALL_BPR)])
def test_planted_tastes_are_recovered(
    tastes: pd.DataFrame, none_valid: pd.DataFrame, listed: Callable[..., dict], method: Any, config: Any
) -> None:
    frame, _ = method(tastes, none_valid, tastes, IDS, 15, config, 0, quiet)
    lists = listed(frame)
    inside = [item in BLOCKS[int(user[1:]) % 2] for user, items in lists.items() for item in items]
    assert len(inside) == 60 * 15
    assert np.mean(inside) > 0.95  # half of them by chance


@pytest.mark.parametrize(("method", "config"), [(als, SMALL_ALS), (bpr, SMALL_BPR)])
def test_one_seed_one_result(tastes: pd.DataFrame, none_valid: pd.DataFrame, method: Any, config: Any) -> None:
    first, again = (method(tastes, none_valid, tastes, IDS, 5, config, 7, quiet)[0] for _ in range(2))
    assert first.equals(again)
    other = method(tastes, none_valid, tastes, IDS, 5, config, 8, quiet)[0]
    assert not first["score"].equals(other["score"])


def dense_als(counts: np.ndarray, users: np.ndarray, config: AlsConfig, seed: int) -> np.ndarray:
    """Hu, Koren and Volinsky's normal equations, solved densely from the library's own start; scores of `users`.

    The library's confidence is alpha * count where an item was had and 1 elsewhere.
    """
    state = np.random.RandomState(seed)  # as the library makes it from a seed
    x = 0.01 * state.uniform(size=(len(counts), config.factors))
    y = 0.01 * state.uniform(size=(counts.shape[1], config.factors))

    def solve(rows: np.ndarray, fixed: np.ndarray) -> np.ndarray:
        confidence = np.where(rows > 0, config.alpha * rows, 1.0)
        ridge = config.regularization * np.eye(config.factors)
        return np.stack(
            [
                np.linalg.solve(fixed.T @ (w[:, None] * fixed) + ridge, fixed.T @ (w * (r > 0)))
                for w, r in zip(confidence, rows, strict=True)
            ]
        )

    for _ in range(config.iterations):
        x = solve(counts, y)
        y = solve(counts.T, x)
    return solve(users, y) @ y.T


def test_als_agrees_with_the_normal_equations(tastes: pd.DataFrame, none_valid: pd.DataFrame, rows: Rows) -> None:
    """Many iterations lead both, whatever their starts, to the same scores; the users asked about are new ones."""
    config = AlsConfig(factors=2, regularization=0.1, alpha=3.0, iterations=150)
    asked = rows({"x": [*IDS[2:9], IDS[2]], "y": [IDS[25]], "z": [IDS[3], IDS[30]]})
    frame, _ = als(tastes, none_valid, asked, IDS, len(IDS), config, 0, quiet)
    found = frame.pivot(index="user_id", columns="item_id", values="score").reindex(columns=IDS).to_numpy()
    counts = [
        np.array([[history.count(item) for item in IDS] for history in table["history"].map(list)], dtype=float)
        for table in (tastes, asked)
    ]
    expected = dense_als(counts[0], counts[1], config, seed=1)
    assert found == pytest.approx(expected, abs=2e-3)
    assert np.ptp(expected) > 0.3


def test_bpr_gives_a_stranger_the_items_of_largest_bias(
    none_valid: pd.DataFrame, rows: Rows, listed: Callable[..., dict]
) -> None:
    rng = np.random.default_rng(1)
    training = rows({f"u{n}": ["i00", "i01", *rng.choice(IDS[2:], size=3, replace=False)] for n in range(80)})
    lists = listed(bpr(training, none_valid, rows({"new": ["i09"]}), IDS, 2, SMALL_BPR, 0, quiet)[0])
    assert set(lists["new"]) == {"i00", "i01"}


@pytest.mark.parametrize(("method", "config"), [(als, SMALL_ALS), (bpr, SMALL_BPR)])
def test_whether_items_come_back_is_learned_from_validation(
    tastes: pd.DataFrame, listed: Callable[..., dict], method: Any, config: Any
) -> None:
    for pick, expected in (("back", True), ("new", False)):
        rng = np.random.default_rng(2)
        targets = []
        for n, history in enumerate(tastes["history"]):
            fresh = [item for item in BLOCKS[n % 2] if item not in history]
            targets.append(rng.choice(history if pick == "back" else fresh))
        found, summary = method(tastes, tastes.assign(target=targets), tastes, IDS, 10, config, 0, quiet)
        assert summary["repeats"] is expected
        histories = dict(zip(tastes["user_id"], tastes["history"], strict=True))
        again = [item in histories[user] for user, items in listed(found).items() for item in items]
        assert any(again) is expected


@pytest.mark.parametrize(("method", "config"), [(als, SMALL_ALS), (bpr, SMALL_BPR)])
def test_the_absent_library_is_told_with_its_cure(
    monkeypatch: pytest.MonkeyPatch, tastes: pd.DataFrame, method: Any, config: Any
) -> None:
    assert factorize.missing_library() is None
    monkeypatch.setattr(factorize, "find_spec", lambda name: None)
    assert "gti-pipeline[implicit]" in str(factorize.missing_library())
    with pytest.raises(GtiError, match="not installed"):
        method(tastes, tastes, tastes, IDS, 5, config, 0, quiet)
