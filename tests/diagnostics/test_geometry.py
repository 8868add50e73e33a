"""Measures of rows against scipy, scikit-learn and cases whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import pdist, squareform
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics.pairwise import cosine_similarity
from sklearn.neighbors import NearestNeighbors

from gti_pipeline.diagnostics import geometry as g


@pytest.fixture
def rows() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(30, 7))


def test_cosines_are_those_of_scikit_learn(rows: np.ndarray) -> None:
    others = np.random.default_rng(1).normal(size=(5, 7))
    assert g.cosines(rows) == pytest.approx(cosine_similarity(rows))
    assert g.cosines(rows, others) == pytest.approx(cosine_similarity(rows, others))
    assert g.cosines(np.zeros((2, 3))).tolist() == [[0, 0], [0, 0]]


def test_upper_is_the_order_of_pdist(rows: np.ndarray) -> None:
    pairs = pdist(rows)
    assert g.upper(squareform(pairs)).tolist() == pairs.tolist()


def test_effective_rank_of_known_spectra(rows: np.ndarray) -> None:
    assert g.effective_rank(g.singular_values(np.eye(6) * 3)) == pytest.approx(6)
    assert g.effective_rank(g.singular_values(np.ones((50, 1)) @ rows[:1])) == pytest.approx(1)
    assert g.effective_rank(np.array([0.5, 0.25, 0.25])) == pytest.approx(2**1.5)  # entropy of 1.5 bits
    assert g.effective_rank(np.zeros(4)) == 0
    assert g.effective_rank(g.singular_values(rows)) == pytest.approx(g.effective_rank(g.singular_values(5 * rows)))
    assert g.singular_values(rows) == pytest.approx(np.sqrt(np.linalg.eigvalsh(rows.T @ rows)[::-1]))


def test_rsa_is_scipys_correlation_of_pairwise_cosines(rows: np.ndarray) -> None:
    vectors = np.round(rows[:, :4] + np.random.default_rng(2).normal(size=(30, 4)), 1)
    ours, theirs = (1 - pdist(table, "cosine") for table in (rows, vectors))
    found = g.rsa(rows, vectors)
    assert found.pearson == pytest.approx(pearsonr(ours, theirs).statistic)
    assert found.spearman == pytest.approx(spearmanr(ours, theirs).statistic)


def test_rsa_is_one_for_a_turned_and_scaled_copy_and_has_no_value_for_one_point(rows: np.ndarray) -> None:
    turn, _ = np.linalg.qr(np.random.default_rng(3).normal(size=(7, 7)))
    assert g.rsa(2.5 * rows @ turn, rows) == pytest.approx((1, 1))
    assert g.rsa(np.repeat(rows[:1], 30, axis=0), rows) == (None, None)  # rounding alone makes its cosines differ
    assert g.rsa(rows[:2], rows[:2]) == (None, None)  # one pair


def test_nearest_rows_are_those_of_scikit_learn(rows: np.ndarray) -> None:
    others = np.random.default_rng(4).normal(size=(40, 7)) * np.arange(1, 41)[:, np.newaxis]
    places, values = g.nearest(rows, others, 5)
    distances, wanted = NearestNeighbors(metric="cosine", n_neighbors=5).fit(others).kneighbors(rows)
    assert places.tolist() == wanted.tolist()
    assert values == pytest.approx(1 - distances)


def test_mean_pair_leaves_out_a_row_with_itself() -> None:
    assert g.mean_pair(np.array([[1.0, 0.2, 0.4], [0.2, 1.0, 0.6], [0.4, 0.6, 1.0]])) == pytest.approx(0.4)
    assert g.mean_pair(np.ones((1, 1))) is None
