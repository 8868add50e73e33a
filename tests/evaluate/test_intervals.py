"""The bootstrap on cases whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import bootstrap

from gti_pipeline.errors import GtiError
from gti_pipeline.evaluate import intervals
from gti_pipeline.evaluate.intervals import mean_interval, mean_intervals, paired_interval


def test_equal_values_have_no_width() -> None:
    mean, low, high = mean_interval(np.full(37, 0.1), 200, 0.95)
    assert mean == pytest.approx(0.1)
    assert low <= mean <= high
    assert high - low < 1e-12


def test_one_user() -> None:
    assert mean_interval(np.array([0.25]), 50, 0.95) == (0.25, 0.25, 0.25)


def test_seeded_and_the_same_draws_for_every_column() -> None:
    values = np.random.default_rng(1).random((50, 3))
    together = mean_intervals(values, 300, 0.9, seed=4)
    assert (together == mean_intervals(values, 300, 0.9, seed=4)).all()
    assert (together[1:] != mean_intervals(values, 300, 0.9, seed=5)[1:]).any()
    for column in range(3):
        np.testing.assert_allclose(mean_interval(values[:, column], 300, 0.9, seed=4), together[:, column])


def test_chunks_do_not_change_the_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(1).random(50)
    whole = mean_interval(values, 300, 0.9)
    monkeypatch.setattr(intervals, "CELLS", 350)
    np.testing.assert_allclose(mean_interval(values, 300, 0.9), whole)


def test_agrees_with_scipy_within_the_noise_of_resampling() -> None:
    values = np.random.default_rng(2).exponential(size=200)
    expected = bootstrap((values,), np.mean, n_resamples=20000, method="percentile", rng=0).confidence_interval
    _, low, high = mean_interval(values, 20000, 0.95)
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=0.01)


def test_covers_the_true_mean_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    covered = 0
    for trial in range(300):
        _, low, high = mean_interval(rng.normal(1.0, 2.0, size=80), 300, 0.9, seed=trial)
        covered += low <= 1.0 <= high
    assert 0.85 < covered / 300 < 0.94


def test_pairing_removes_what_users_have_in_common() -> None:
    rng = np.random.default_rng(4)
    users = rng.normal(0, 10, size=200)
    mean, low, high = paired_interval(users + 0.5, users, 500, 0.95)
    assert mean == pytest.approx(0.5)
    assert high - low < 1e-9
    noise = rng.normal(0, 0.1, size=200)
    mean, low, high = paired_interval(users + 0.5 + noise, users, 500, 0.95)
    assert 0.4 < low < mean < high < 0.6
    assert mean_interval(users, 500, 0.95).high - mean_interval(users, 500, 0.95).low > 2


def test_refuses() -> None:
    with pytest.raises(GtiError, match="no users"):
        mean_interval(np.empty(0), 10, 0.95)
    with pytest.raises(GtiError, match="finite"):
        mean_interval(np.array([0.0, np.nan]), 10, 0.95)
    with pytest.raises(GtiError, match="3 against 2"):
        paired_interval(np.zeros(3), np.zeros(2), 10, 0.95)
