import math

import ot
import pytest
import torch

from gti_pipeline.semantic_ids.sinkhorn import balanced_codes, plan


def _by_matrices(cost: torch.Tensor, epsilon: float, iterations: int) -> torch.Tensor:
    """Sinkhorn-Knopp as in the textbooks: scale columns, scale rows, again."""
    q = torch.exp(-cost.double() / epsilon)
    for _ in range(iterations):
        q = q / q.sum(0, keepdim=True) / q.shape[1]
        q = q / q.sum(1, keepdim=True) / q.shape[0]
    return q


def test_plan_matches_the_matrix_iteration() -> None:
    cost = torch.rand(12, 5, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(plan(cost, 0.1, 500, 1e-12), _by_matrices(cost, 0.1, 500), rtol=1e-6, atol=1e-12)


def test_marginals_are_uniform() -> None:
    cost = torch.rand(40, 7, generator=torch.Generator().manual_seed(1))
    q = plan(cost, 0.05, 2000, 1e-10)
    torch.testing.assert_close(q.sum(1), torch.full((40,), 1 / 40).double())
    torch.testing.assert_close(q.sum(0), torch.full((7,), 1 / 7).double(), rtol=1e-7, atol=0)


def test_few_iterations_match_the_matrix_iteration_too() -> None:
    cost = torch.rand(12, 5, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(plan(cost, 0.02, 10, 0.0), _by_matrices(cost, 0.02, 11), rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("epsilon", [1e-1, 3e-3, 1e-5])
def test_no_underflow_at_small_epsilon(epsilon: float) -> None:
    cost = torch.rand(30, 6, generator=torch.Generator().manual_seed(3)) * 2 - 1
    q = plan(cost, epsilon, 200, 1e-3)
    assert torch.isfinite(q).all()
    torch.testing.assert_close(q.sum(1), torch.full((30,), 1 / 30).double())


def test_codes_are_balanced_where_the_nearest_are_not() -> None:
    generator = torch.Generator().manual_seed(4)
    points = torch.randn(400, 2, generator=generator)
    centres = torch.tensor([[0.0, 0.0], [3.0, 0.0], [0.0, 3.0], [-3.0, -3.0]])
    distances = torch.cdist(points, centres).square()
    assert distances.argmin(1).bincount(minlength=4).max() > 300
    counts = balanced_codes(distances, 0.01).bincount(minlength=4)
    assert counts.min() > 80
    assert counts.max() < 120


def test_equal_distances_stay_finite() -> None:
    codes = balanced_codes(torch.zeros(8, 4), 0.003)
    assert codes.shape == (8,)
    assert math.isfinite(float(plan(torch.zeros(8, 4), 0.003).sum()))


@pytest.mark.parametrize("epsilon", [0.5, 0.05])
def test_plan_matches_pot(epsilon: float) -> None:
    cost = torch.rand(20, 6, generator=torch.Generator().manual_seed(4)).double()
    theirs = ot.sinkhorn([1 / 20] * 20, [1 / 6] * 6, cost.numpy(), epsilon, numItermax=20000, stopThr=1e-12)
    torch.testing.assert_close(plan(cost, epsilon, 20000, 1e-10), torch.from_numpy(theirs), rtol=1e-5, atol=1e-9)
