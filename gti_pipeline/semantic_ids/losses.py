"""What the RQ-VAE minimises (arXiv 2203.01941), with LETTER's diversity regularizer (arXiv 2405.07314)."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from gti_pipeline.config import SemanticIdsConfig
from gti_pipeline.semantic_ids.assign import limit_occupancy
from gti_pipeline.semantic_ids.kmeans import kmeans
from gti_pipeline.semantic_ids.rqvae import Quantized, RqVae, squared_distances, straight_through

NUM_GROUPS = 10  # LETTER's clusters of one codebook


def losses(
    model: RqVae, standard: Tensor, groups: Tensor | None, config: SemanticIdsConfig
) -> tuple[Tensor, dict[str, Tensor]]:
    """One batch's loss and its parts.

    loss = reconstruction + codebook + commitment_weight * commitment + diversity_weight * diversity. All are means over
    items and coordinates; codebook, commitment and diversity are sums over levels. Reconstruction is 1 for a model
    that knows only the mean (see `RqVae`).

    Args:
        model: in training mode.
        standard: standardised vectors [B, D].
        groups: `diversity_groups` of every level [L, K]; None leaves the diversity out.
        config: the weights and `sinkhorn_epsilon`.

    Returns:
        The loss, and the parts by name.
    """
    latents = model.encode(standard)
    quantized = model.quantize(latents, config.sinkhorn_epsilon)
    decoded = model.decode(straight_through(latents, quantized.codewords))
    levels = quantized.codes.shape[1]
    parts = {
        "reconstruction": F.mse_loss(decoded, standard),
        "codebook": levels * F.mse_loss(quantized.codewords, quantized.residuals.detach()),
        "commitment": levels * F.mse_loss(quantized.residuals, quantized.codewords.detach()),
    }
    loss = parts["reconstruction"] + parts["codebook"] + config.commitment_weight * parts["commitment"]
    if groups is not None:
        parts["diversity"] = diversity_loss(quantized, model.codebooks, groups)
        loss = loss + config.diversity_weight * parts["diversity"]
    return loss, parts


def diversity_loss(quantized: Quantized, codebooks: Tensor, groups: Tensor) -> Tensor:
    """LETTER's regularizer: a codeword is drawn to a random other one of its group, away from all the rest.

    For an item's codeword e: -log(exp(e . e+) / sum over all others of exp(e . e_j)), the mean over items, summed over
    levels. Items whose code is alone in its group have no e+ and are left out.

    Args:
        quantized: codes [B, L] and codewords [B, L, C].
        codebooks: [L, K, C].
        groups: [L, K], the group of each code.
    """
    total = codebooks.new_zeros(())
    for level, codebook in enumerate(codebooks):
        codes = quantized.codes[:, level]
        positives = _other_of_group(codes, groups[level])
        similarity = (quantized.codewords[:, level] @ codebook.T).scatter(1, codes[:, None], float("-inf"))
        kept = positives != codes
        if bool(kept.any()):
            total = total + F.cross_entropy(similarity[kept], positives[kept])
    return total


def _other_of_group(codes: Tensor, groups: Tensor) -> Tensor:
    """For each code [B] a random other one of its group (itself where it is alone); groups [K]."""
    order = torch.argsort(groups, stable=True)
    sizes = torch.bincount(groups)
    starts = sizes.cumsum(0) - sizes
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order))
    size, start = sizes[groups[codes]], starts[groups[codes]]
    step = 1 + (torch.rand(len(codes)) * (size - 1)).long().clamp(max=(size - 2).clamp(min=0))
    return order[start + (place[codes] - start + step) % size]


def diversity_groups(codebooks: Tensor, seed: int) -> Tensor:
    """Every level's codes in groups of about equal size, by k-means with limited clusters: [L, K, C] to [L, K]."""
    levels = []
    for codebook in codebooks.detach():
        count = max(1, min(NUM_GROUPS, len(codebook) // 2))
        rows = codebook.numpy()
        centroids = torch.from_numpy(kmeans(rows, count, iterations=10, seed=seed))
        distances = squared_distances(codebook, centroids).numpy().astype(np.float64)
        levels.append(limit_occupancy(distances, distances.argmin(axis=1), -(-len(rows) // count)))
    return torch.from_numpy(np.stack(levels))
