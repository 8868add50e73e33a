"""Sinkhorn-Knopp: codes in equal shares, for the last level during training (LC-Rec, arXiv 2311.09049)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

INNER = 10  # updates between two returns to logarithms
TINY = 1e-150  # keeps a column that underflows from dividing by zero until the next return to logarithms


def potentials(cost: Tensor, epsilon: float, iterations: int = 50, tolerance: float = 0.01) -> tuple[Tensor, Tensor]:
    """Dual potentials of the entropic transport between B rows and K columns, all of equal mass.

    The plan is `exp((f[:, None] + g - cost) / epsilon)`: its rows sum to 1/B exactly, its columns to 1/K within the
    tolerance. Potentials are logarithms, so no epsilon underflows; between them run some updates by matrix-vector
    products on the rescaled kernel, without the exponentials that make the plain log-domain loop slow (stabilised
    scaling, Schmitzer, arXiv 1610.06519).

    Args:
        cost: [B, K].
        epsilon: entropy weight in units of the cost, above 0.
        iterations: at most so many row and column updates, rounded up to a multiple of `INNER`.
        tolerance: stop once no column's mass is further than this share from 1/K.

    Returns:
        f [B] and g [K], float64.
    """
    rows, columns = cost.shape
    scaled = -cost.double() / epsilon
    log_v = -torch.logsumexp(scaled, dim=0) - math.log(columns)
    log_u = -torch.logsumexp(scaled + log_v, dim=1) - math.log(rows)
    for _ in range(-(-iterations // INNER)):
        kernel = torch.exp(scaled + log_u[:, None] + log_v)
        if bool(((kernel.sum(dim=0) * columns - 1).abs() <= tolerance).all()):
            break
        u = torch.ones_like(log_u)
        for _ in range(INNER - 1):
            v = torch.mv(kernel.T, u).mul_(columns).clamp_(min=TINY).reciprocal_()
            u = torch.mv(kernel, v).mul_(rows).clamp_(min=TINY).reciprocal_()
        log_u = log_u + u.log()
        log_v = -torch.logsumexp(scaled + log_u[:, None], dim=0) - math.log(columns)
        log_u = -torch.logsumexp(scaled + log_v, dim=1) - math.log(rows)
    return log_u * epsilon, log_v * epsilon


def plan(cost: Tensor, epsilon: float, iterations: int = 50, tolerance: float = 0.01) -> Tensor:
    """The transport plan [B, K] itself; see `potentials`."""
    f, g = potentials(cost, epsilon, iterations, tolerance)
    return torch.exp((f[:, None] + g - cost) / epsilon)


def balanced_codes(distances: Tensor, epsilon: float, iterations: int = 50) -> Tensor:
    """The likeliest code of each row under the balanced plan.

    Distances are first brought to -1..1 as in LC-Rec, so that epsilon means the same at every scale.

    Args:
        distances: [B, K], squared.
        epsilon: LC-Rec's is 0.003.

    Returns:
        Codes [B].
    """
    low, high = distances.min(), distances.max()
    middle = (low + high) / 2
    cost = (distances - middle) / (high - middle + 1e-5)
    _, g = potentials(cost, epsilon, iterations)
    return (cost - g).argmin(dim=1)  # a row's own potential is the same for all its codes
