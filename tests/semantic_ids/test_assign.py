from itertools import permutations, product

import numpy as np
import ot
import pytest

from gti_pipeline.errors import GtiError
from gti_pipeline.semantic_ids.assign import limit_occupancy, nearest_codes, unique_codes


def _distinct(codes: np.ndarray) -> bool:
    return len(np.unique(codes, axis=0)) == len(codes)


def _brute_force(distances: np.ndarray) -> float:
    items, size = distances.shape
    return min(sum(distances[i, k] for i, k in enumerate(p)) for p in permutations(range(size), items))


@pytest.mark.parametrize("seed", range(5))
def test_one_level_is_the_cheapest_permutation(seed: int) -> None:
    rng = np.random.default_rng(seed)
    latents, codebooks = rng.normal(size=(4, 3)), rng.normal(size=(1, 6, 3))
    result = unique_codes(latents, codebooks)
    distances = np.square(latents[:, None] - codebooks[0]).sum(-1)
    assert _distinct(result.codes)
    assert result.nearest_cost == pytest.approx(distances.min(1).sum())
    assert result.nearest_cost + result.cost == pytest.approx(_brute_force(distances))


def test_items_of_one_prefix_share_the_last_codes_at_least_cost() -> None:
    rng = np.random.default_rng(0)
    codebooks = rng.normal(size=(2, 5, 2))
    codebooks[0] *= 20
    prefix = np.repeat([0, 1, 2], [5, 4, 1])
    latents = codebooks[0][prefix] + rng.normal(size=(10, 2)) * 0.1
    result = unique_codes(latents, codebooks)
    residual = latents - codebooks[0][prefix]
    distances = np.square(residual[:, None] - codebooks[1]).sum(-1)
    np.testing.assert_array_equal(result.codes[:, 0], prefix)
    total = sum(_brute_force(distances[prefix == p]) for p in range(3))
    assert result.nearest_cost + result.cost == pytest.approx(total)
    assert result.moved == (result.codes != result.nearest).any(1).sum() > 0
    assert result.moved_early == 0
    assert _distinct(result.codes)


def test_without_collisions_nothing_moves() -> None:
    codebooks = np.array([[[0.0], [10.0]], [[-1.0], [1.0]]])
    latents = np.array([[-1.2], [0.9], [9.1], [11.3]])
    result = unique_codes(latents, codebooks)
    np.testing.assert_array_equal(result.codes, [[0, 0], [0, 1], [1, 0], [1, 1]])
    assert (result.moved, result.moved_early, result.cost) == (0, 0, 0.0)


def test_nearest_codes_match_a_loop() -> None:
    rng = np.random.default_rng(3)
    latents, codebooks = rng.normal(size=(50, 4)), rng.normal(size=(3, 8, 4))
    codes, cost = nearest_codes(latents, codebooks)
    left = 0.0
    for i, latent in enumerate(latents):
        residual = latent.copy()
        for level, codebook in enumerate(codebooks):
            code = min(range(8), key=lambda k: float(np.square(residual - codebook[k]).sum()))
            assert codes[i, level] == code
            residual -= codebook[code]
        left += float(np.square(residual).sum())
    assert cost == pytest.approx(left)


@pytest.mark.parametrize(("items", "levels", "size"), [(6, 2, 4), (16, 2, 4), (64, 3, 4), (50, 3, 4), (8, 3, 2)])
def test_equal_items_get_distinct_codes_up_to_the_last_place(items: int, levels: int, size: int) -> None:
    codebooks = np.random.default_rng(0).normal(size=(levels, size, 2))
    result = unique_codes(np.ones((items, 2)), codebooks)
    assert _distinct(result.codes)
    assert result.codes.min() >= 0
    assert result.codes.max() < size


def test_a_full_prefix_sends_the_cheapest_item_elsewhere() -> None:
    codebooks = np.array([[[0.0], [10.0]], [[-1.0], [1.0]]])
    latents = np.array([[-1.0], [1.0], [4.0]])  # all three nearest to 0, which holds two
    result = unique_codes(latents, codebooks)
    np.testing.assert_array_equal(result.codes, [[0, 0], [0, 1], [1, 0]])
    assert result.moved_early == 1


@pytest.mark.parametrize(("levels", "smallest", "more"), [(1, 6, 2), (2, 3, 3)])
def test_more_items_than_ids_is_an_error_that_names_the_cure(levels: int, smallest: int, more: int) -> None:
    size = 4 if levels == 1 else 2
    with pytest.raises(
        GtiError, match=rf"6 items .*{size}.*codebook_size to at least {smallest}.*num_levels to {more}"
    ):
        unique_codes(np.zeros((6, 2)), np.zeros((levels, size, 2)))


@pytest.mark.parametrize("seed", range(20))
def test_limited_occupancy_holds_and_is_close_to_the_optimum(seed: int) -> None:
    rng = np.random.default_rng(seed)
    distances = rng.random((7, 4))
    codes = distances.argmin(1)
    limited = limit_occupancy(distances, codes, 2)
    assert np.bincount(limited).max() <= 2
    rows = np.arange(7)
    best = min(
        distances[rows, list(p)].sum() for p in product(range(4), repeat=7) if np.bincount(p, minlength=4).max() <= 2
    )
    assert best <= distances[rows, limited].sum() <= best * 1.5
    np.testing.assert_array_equal(codes, distances.argmin(1))  # the argument is left as it was


@pytest.mark.parametrize("seed", range(5))
def test_a_full_level_costs_what_pot_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    latents, codebooks = rng.normal(size=(12, 3)), rng.normal(size=(1, 12, 3))  # every code is taken once
    result = unique_codes(latents, codebooks)
    distances = np.square(latents[:, None] - codebooks[0]).sum(-1)
    cheapest = ot.emd2(np.full(12, 1 / 12), np.full(12, 1 / 12), distances) * 12
    assert result.nearest_cost + result.cost == pytest.approx(cheapest)
