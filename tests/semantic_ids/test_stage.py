import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

from gti_pipeline import schemas
from gti_pipeline.config import SemanticIdsConfig
from gti_pipeline.errors import GtiError
from gti_pipeline.semantic_ids.judge import mean_cosine
from gti_pipeline.semantic_ids.stage import build, write

CONFIG = SemanticIdsConfig(
    num_levels=3, codebook_size=8, hidden_dims=(32,), latent_dim=8, epochs=60, batch_size=128, patience=3
)


def _frame(vectors: np.ndarray) -> pd.DataFrame:
    ids = [f"item-{i:03d}" for i in range(len(vectors))]
    return pd.DataFrame({"item_id": ids, "embedding": list(vectors.astype(np.float32))})


def _quiet(done: int, total: int) -> None: ...


def _codes(frame: pd.DataFrame) -> dict[str, tuple[int, ...]]:
    return {item: tuple(codes.tolist()) for item, codes in zip(frame["item_id"], frame["codes"], strict=True)}


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.normal(size=(10, 24))[np.arange(120) % 10] + rng.normal(0, 0.2, (120, 24))


def test_tables_weights_and_summary(vectors: np.ndarray, tmp_path) -> None:
    result = build(_frame(vectors), CONFIG, _quiet)
    assert write(result, tmp_path) == result.summary
    codes = schemas.SEMANTIC_IDS.read(tmp_path)
    assert len(set(_codes(codes).values())) == 120
    books = schemas.CODEBOOKS.read(tmp_path)
    assert sorted(books["level"].unique()) == [1, 2, 3]
    assert books.groupby("level")["code"].agg(["min", "max"]).to_numpy().tolist() == [[0, 7]] * 3
    assert len(schemas.STEPS.read(tmp_path))
    weights = load_file(tmp_path / "rqvae.safetensors")
    np.testing.assert_array_equal(np.stack(books["vector"]).reshape(3, 8, 8), weights["codebooks"])
    summary = result.summary
    assert summary["collision_rate"] == 0
    assert min(summary["code_use"]) >= 0.9
    assert summary["cosine_within_first_code"] > summary["cosine_overall"] + 0.3


def test_row_order_does_not_matter(vectors: np.ndarray) -> None:
    frame = _frame(vectors)
    shuffled = frame.sample(frac=1, random_state=1)
    assert _codes(build(frame, CONFIG, _quiet).semantic_ids) == _codes(build(shuffled, CONFIG, _quiet).semantic_ids)


def test_six_equal_items_and_four_codes() -> None:
    frame = _frame(np.ones((6, 5)))
    config = CONFIG.model_copy(update={"codebook_size": 4, "num_levels": 2, "epochs": 5})
    codes = _codes(build(frame, config, _quiet).semantic_ids)
    assert len(set(codes.values())) == 6
    with pytest.raises(GtiError, match=r"6 items share the empty prefix.*at least 6"):
        build(frame, config.model_copy(update={"num_levels": 1}), _quiet)


@pytest.mark.parametrize("items", [1, 5])
def test_fewer_items_than_codes(items: int) -> None:
    result = build(_frame(np.random.default_rng(0).normal(size=(items, 12))), CONFIG, _quiet)
    assert len(set(_codes(result.semantic_ids).values())) == items
    assert np.isfinite(np.stack(result.codebooks["vector"])).all()


def test_many_equal_vectors_fill_prefixes_and_spill_over() -> None:
    config = CONFIG.model_copy(update={"codebook_size": 4, "epochs": 10})
    result = build(_frame(np.ones((60, 5))), config, _quiet)  # of 64 IDs
    assert len(set(_codes(result.semantic_ids).values())) == 60
    assert result.summary["items_moved_before_last_level"] > 0


def test_bad_tables_are_clear_errors(vectors: np.ndarray) -> None:
    frame = _frame(vectors)
    with pytest.raises(GtiError, match="empty"):
        build(frame.iloc[:0], CONFIG, _quiet)
    broken = frame.copy()
    broken.at[3, "embedding"] = np.full(24, np.nan, dtype=np.float32)
    with pytest.raises(GtiError, match="item-003"):
        build(broken, CONFIG, _quiet)
    broken.at[3, "embedding"] = np.ones(7, dtype=np.float32)
    with pytest.raises(GtiError, match=r"length.*item-003"):
        build(broken, CONFIG, _quiet)
    with pytest.raises(GtiError, match="item_embeddings"):
        build(pd.concat([frame, frame.iloc[:1]]), CONFIG, _quiet)


def test_mean_cosine_by_hand() -> None:
    vectors = np.array([[1, 0], [0, 2], [3, 0], [0, 0]], dtype=np.float32)
    assert mean_cosine(vectors[:3], np.zeros(3, dtype=np.int64)) == pytest.approx(1 / 3)
    assert mean_cosine(vectors, np.array([0, 1, 0, 1])) == pytest.approx(0.5)
    assert mean_cosine(vectors, np.arange(4)) is None
