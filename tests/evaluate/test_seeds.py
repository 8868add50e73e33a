"""The bootstrap over users and seeds against cases whose answer is known."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from gti_pipeline.errors import GtiError
from gti_pipeline.evaluate.intervals import mean_intervals
from gti_pipeline.evaluate.seeds import seed_intervals


def test_one_seed_is_the_bootstrap_over_users() -> None:
    values = np.random.default_rng(0).random((1, 80, 3))
    assert seed_intervals(values, 500, 0.9, seed=4) == pytest.approx(mean_intervals(values[0], 500, 0.9, seed=4))


def test_a_difference_that_every_user_and_seed_has_is_certain() -> None:
    mean, low, high = seed_intervals(np.full((3, 50, 1), 0.25), 300, 0.95)[:, 0]
    assert (mean, low, high) == (0.25, 0.25, 0.25)


def test_users_alike_leave_the_draws_of_seeds_alone() -> None:
    by_seed = np.array([0.0, 1.0, 5.0])
    values = np.repeat(by_seed[:, np.newaxis, np.newaxis], 40, axis=1)
    exact = sorted(np.mean(draw) for draw in product(by_seed, repeat=3))  # all 27 draws are equally likely
    mean, low, high = seed_intervals(values, 20_000, 0.8)[:, 0]
    assert mean == pytest.approx(2.0)
    assert low == pytest.approx(np.quantile(exact, 0.1), abs=1e-9)
    assert high == pytest.approx(np.quantile(exact, 0.9), abs=1e-9)


def test_effects_that_add_up_have_variances_that_add_up() -> None:
    rng = np.random.default_rng(1)
    of_seeds, of_users = rng.normal(0, 0.3, 30), rng.normal(0, 2.0, 400)
    values = (of_seeds[:, np.newaxis] + of_users)[:, :, np.newaxis]
    _, low, high = seed_intervals(values, 20_000, 0.6827)[:, 0]  # one standard error to each side
    wanted = np.sqrt(of_seeds.var() / 30 + of_users.var() / 400)
    assert (high - low) / 2 == pytest.approx(wanted, rel=0.05)
    _, low, high = mean_intervals(values.mean(axis=0), 20_000, 0.6827)[:, 0]
    assert (high - low) / 2 < 0.95 * wanted  # what averaging over seeds first leaves out


def test_a_gain_of_one_lucky_seed_is_not_shown() -> None:
    values = np.zeros((3, 200, 1))
    values[0] = 0.3
    assert seed_intervals(values, 2000, 0.95)[1, 0] == 0.0
    assert mean_intervals(values.mean(axis=0), 2000, 0.95)[1, 0] == pytest.approx(0.1)


@pytest.mark.parametrize("values", [np.zeros((0, 3, 1)), np.zeros((2, 0, 1)), np.full((1, 2, 1), np.nan)])
def test_nothing_and_what_is_no_number_are_refused(values: np.ndarray) -> None:
    with pytest.raises(GtiError):
        seed_intervals(values, 10, 0.95)
