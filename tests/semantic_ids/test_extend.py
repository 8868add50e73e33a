"""New items get IDs of their own; nobody else's changes."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gti_pipeline import schemas
from gti_pipeline.config import SemanticIdsConfig
from gti_pipeline.errors import GtiError
from gti_pipeline.semantic_ids.assign import unique_codes
from gti_pipeline.semantic_ids.stage import build, extend, write

CONFIG = SemanticIdsConfig(
    num_levels=3, codebook_size=8, hidden_dims=(32,), latent_dim=8, epochs=40, batch_size=128, min_code_use=0
)


def _frame(vectors: np.ndarray, first: int = 0) -> pd.DataFrame:
    ids = [f"item-{first + i:03d}" for i in range(len(vectors))]
    return pd.DataFrame({"item_id": ids, "embedding": list(vectors.astype(np.float32))})


def _quiet(done: int, total: int) -> None: ...


def _codes(frame: pd.DataFrame) -> dict[str, tuple[int, ...]]:
    return {item: tuple(codes) for item, codes in zip(frame["item_id"], frame["codes"].map(list), strict=True)}


@pytest.mark.parametrize("seed", range(8))
def test_free_last_codes_are_given_at_least_cost(seed: int) -> None:
    rng = np.random.default_rng(seed)
    codebooks = rng.normal(size=(1, 6, 3))
    latents = rng.normal(size=(3, 3))
    taken = np.array([[1], [4]])
    result = unique_codes(latents, codebooks, taken)
    free = [0, 2, 3, 5]
    distances = np.square(latents[:, None] - codebooks[0]).sum(-1)
    best = min(sum(distances[i, k] for i, k in enumerate(p)) for p in permutations(free, 3))
    assert sum(distances[i, k] for i, k in enumerate(result.codes[:, 0])) == pytest.approx(best)
    assert set(result.codes[:, 0]) <= set(free)


@pytest.mark.parametrize("seed", range(8))
def test_no_taken_id_is_given_again_up_to_the_last_place(seed: int) -> None:
    rng = np.random.default_rng(seed)
    codebooks = rng.normal(size=(3, 3, 2))
    every = np.array([(a, b, d) for a in range(3) for b in range(3) for d in range(3)])
    taken = every[rng.permutation(27)[: rng.integers(1, 26)]]
    latents = np.repeat(rng.normal(size=(1, 2)), 27 - len(taken), axis=0)  # all want the same place
    result = unique_codes(latents, codebooks, taken)
    assert len(np.unique(np.concatenate([taken, result.codes]), axis=0)) == 27
    with pytest.raises(GtiError, match="28 items"):
        unique_codes(np.repeat(latents[:1], 28 - len(taken), axis=0), codebooks, taken)


@pytest.mark.parametrize("method", ["rqvae", "rqkmeans"])
def test_existing_items_keep_their_ids_also_those_that_left(tmp_path: Path, method: str) -> None:
    rng = np.random.default_rng(0)
    config = CONFIG.model_copy(update={"method": method})
    old = rng.normal(size=(8, 16))[np.arange(60) % 8] + rng.normal(0, 0.2, (60, 16))
    first = build(_frame(old), config, _quiet)
    write(first, tmp_path)
    changed = _frame(np.concatenate([old + 1, old[:20]])).iloc[5:]  # other vectors, 20 twins, five items gone
    result = extend(changed, tmp_path, config)
    before, after = _codes(first.semantic_ids), _codes(result.semantic_ids)
    gone = {f"item-{i:03d}" for i in range(5)}
    assert {item: codes for item, codes in after.items() if item in before} == {
        item: codes for item, codes in before.items() if item not in gone
    }
    assert _codes(result.retired) == {item: before[item] for item in gone}
    assert len(after) == 75
    assert len({*after.values(), *before.values()}) == 80
    assert (result.summary["items_new"], result.summary["items_retired"]) == (20, 5)


def test_new_items_lie_beside_their_twins(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    centres = rng.normal(size=(8, 16)) * 4
    old = centres[np.arange(64) % 8] + rng.normal(0, 0.1, (64, 16))
    first = build(_frame(old), CONFIG, _quiet)
    write(first, tmp_path)
    both = np.concatenate([old, old[:16] + rng.normal(0, 0.01, (16, 16))])
    after = _codes(extend(_frame(both), tmp_path, CONFIG).semantic_ids)
    beside = [after[f"item-{64 + i:03d}"][0] == after[f"item-{i:03d}"][0] for i in range(16)]
    assert np.mean(beside) > 0.8


def test_a_retired_item_that_comes_back_has_its_old_id(tmp_path: Path) -> None:
    vectors = np.random.default_rng(2).normal(size=(30, 16))
    first = build(_frame(vectors), CONFIG, _quiet)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    write(first, tmp_path / "a")
    write(extend(_frame(vectors).iloc[3:], tmp_path / "a", CONFIG), tmp_path / "b")
    back = extend(_frame(vectors), tmp_path / "b", CONFIG)
    assert _codes(back.semantic_ids) == _codes(first.semantic_ids)
    assert back.retired.empty


def test_vectors_of_another_length_are_refused(tmp_path: Path) -> None:
    write(build(_frame(np.random.default_rng(3).normal(size=(30, 16))), CONFIG, _quiet), tmp_path)
    with pytest.raises(GtiError, match="vectors of length 16, these have 9"):
        extend(_frame(np.ones((31, 9))), tmp_path, CONFIG)
    assert schemas.RETIRED_IDS.read(tmp_path).empty
