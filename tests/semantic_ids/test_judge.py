import numpy as np
import pytest

from gti_pipeline.config import SemanticIdsConfig
from gti_pipeline.errors import GtiError
from gti_pipeline.semantic_ids.judge import (
    category_agreement,
    code_use,
    collision_rate,
    energy_before,
    neighbour_preservation,
    refuse_collapse,
)

CONFIG = SemanticIdsConfig(num_levels=2, codebook_size=8)


def test_collisions_and_use_by_hand() -> None:
    codes = np.array([[0, 1], [0, 1], [1, 1], [2, 1]])
    assert collision_rate(codes) == 0.25
    use, perplexity = code_use(codes, 4)
    assert use == [0.75, 0.25]
    assert perplexity == pytest.approx([2**1.5, 1.0])  # entropy of (1/2, 1/4, 1/4) is 1.5 bits


def test_neighbours_are_counted_as_by_brute_force() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(60, 5)).astype(np.float32)
    codes = rng.integers(0, 3, (60, 4))
    kept, chance = neighbour_preservation(vectors, codes, seed=0)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosine = units @ units.T
    np.fill_diagonal(cosine, -np.inf)
    for length in (1, 2, 3):
        same = (codes[:, None, :length] == codes[None, :, :length]).all(-1)
        shares = [same[i, np.argsort(-cosine[i])[:10]].mean() for i in range(60)]
        assert kept[length - 1] == pytest.approx(np.mean(shares))
        assert chance[length - 1] == pytest.approx((same.sum() - 60) / (60 * 59))


def test_equal_vectors_are_neighbours_and_one_item_has_none() -> None:
    codes = np.zeros((4, 2), dtype=np.int64)
    assert neighbour_preservation(np.ones((4, 3), dtype=np.float32), codes, seed=0)[0] == [1.0, 1.0]
    assert neighbour_preservation(np.ones((1, 3), dtype=np.float32), codes[:1], seed=0) == ([], [])


def test_category_agreement_is_one_for_the_same_partition_and_none_without_categories() -> None:
    codes = np.array([[0], [0], [1], [1], [2]])
    assert category_agreement(codes, ["a", "a", "b", "b", None]) == pytest.approx(1.0)
    assert category_agreement(codes, ["a", "b", "a", "b", None]) == pytest.approx(0.0, abs=1e-9)
    assert category_agreement(codes, [None] * 5) is None
    assert category_agreement(codes, ["a"] * 5) is None


def test_energy_left_by_each_level() -> None:
    latents = np.array([[-3.0], [3.0], [-1.0], [1.0]])
    codebooks = np.array([[[-2.0], [2.0]], [[-1.0], [1.0]]])
    codes = np.array([[0, 0], [1, 1], [0, 1], [1, 0]])
    assert energy_before(latents, codebooks, codes) == pytest.approx([1.0, 4 / 20])


def test_a_collapsed_level_and_too_many_collisions_are_told_together() -> None:
    vectors = np.arange(40, dtype=np.float32).reshape(20, 2)
    nearest = np.zeros((20, 2), dtype=np.int64)
    nearest[0, 0] = 1
    with pytest.raises(GtiError) as error:
        refuse_collapse(vectors, [1.0, 0.5], nearest, CONFIG)
    lines = str(error.value).splitlines()
    assert "level 1 uses 2 of the 8 codes that 20 distinct vectors could use" in lines[1]
    assert "level 2 uses 1 of the 8" in lines[2]
    assert len(lines) == 3  # 18 of 20 items collide: at the threshold, not above it
    nearest[0, 0] = 0
    with pytest.raises(GtiError, match=r"95.0% of 20 distinct vectors share their codes"):
        refuse_collapse(vectors, [1.0, 0.5], nearest, CONFIG)


def test_what_is_no_collapse() -> None:
    refuse_collapse(np.ones((6, 2), dtype=np.float32), [1.0, 0.0], np.zeros((6, 2), dtype=np.int64), CONFIG)
    few = np.arange(6, dtype=np.float32).reshape(3, 2)
    codes = np.array([[0, 0], [1, 0], [2, 0]])
    refuse_collapse(few, [1.0, 0.0], codes, CONFIG)  # the second level has nothing left to find
    with pytest.raises(GtiError, match="level 2 uses 1 of the 3"):
        refuse_collapse(few, [1.0, 0.4], codes, CONFIG.model_copy(update={"min_code_use": 0.5}))
