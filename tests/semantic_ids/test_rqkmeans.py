import numpy as np
import pytest

from gti_pipeline.config import SemanticIdsConfig
from gti_pipeline.semantic_ids.rqkmeans import fit_rqkmeans, rqkmeans_error

CONFIG = SemanticIdsConfig(method="rqkmeans", num_levels=2, codebook_size=4)


def _quiet(done: int, total: int) -> None:
    assert 0 < done <= total


def test_every_codeword_is_the_mean_of_what_it_quantizes() -> None:
    vectors = np.random.default_rng(0).normal(size=(320, 8)).astype(np.float32)
    codebooks, steps = fit_rqkmeans(vectors, CONFIG, _quiet)
    residual = vectors.astype(np.float64)
    for codebook in codebooks:
        codes = np.square(residual[:, None] - codebook).sum(-1).argmin(1)
        means = np.stack([residual[codes == code].mean(0) for code in range(4)])
        np.testing.assert_allclose(codebook, means, atol=0.02)
        residual -= codebook[codes]
    errors = steps.loc[steps["metric"] == "reconstruction_error", "value"].tolist()
    assert errors[1] < errors[0] < 1
    left = np.square(residual).sum() / np.square(vectors - vectors.mean(0)).sum()
    assert errors[1] == pytest.approx(left, rel=1e-4)


def test_the_error_of_codes_by_hand() -> None:
    vectors = np.array([[0.0], [2.0], [4.0]], dtype=np.float32)  # variance sum 8
    codebooks = np.array([[[0.0], [3.0]], [[0.0], [1.0]]], dtype=np.float32)
    codes = np.array([[0, 0], [1, 0], [1, 0]])
    assert rqkmeans_error(vectors, codebooks, codes) == pytest.approx(2 / 8)


def test_equal_seeds_equal_codebooks_and_the_vectors_stay_as_they_were() -> None:
    vectors = np.random.default_rng(1).normal(size=(100, 6)).astype(np.float32)
    before = vectors.copy()
    first, _ = fit_rqkmeans(vectors, CONFIG, _quiet)
    np.testing.assert_array_equal(first, fit_rqkmeans(vectors, CONFIG, _quiet)[0])
    np.testing.assert_array_equal(vectors, before)
