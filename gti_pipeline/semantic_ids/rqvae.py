"""The residual-quantizing autoencoder (RQ-VAE: arXiv 2203.01941; for semantic IDs TIGER, arXiv 2305.05065)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gti_pipeline.config import SemanticIdsConfig
from gti_pipeline.semantic_ids.sinkhorn import balanced_codes

CHUNK = 8192  # items worked on at a time where no gradients are needed


@dataclass(frozen=True)
class Quantized:
    """A batch's codes; N items, L levels, C latent dimensions.

    Attributes:
        codes: [N, L].
        residuals: [N, L, C]: r_1 = z, r_{l+1} = r_l - q_l; gradients reach z only.
        codewords: [N, L, C]: q_l, the chosen rows; gradients reach the codebooks only.
    """

    codes: Tensor
    residuals: Tensor
    codewords: Tensor


class RqVae(nn.Module):
    """MLP encoder, L codebooks of K rows, mirrored decoder; each beside a linear map that starts as the data's PCA.

    The networks' last layers start at zero, so training starts from the best linear code of C numbers and can only
    improve on it; from random weights it takes hundreds of epochs to get there.

    Vectors are standardised first, by their mean and one global scale: tight unit-norm vectors differ in the third
    decimal only, and a network trained on them as they are learns their mean and collapses. A mean square of 1 in
    every coordinate, on average, makes the reconstruction error the share of variance left unexplained.

    Args:
        dim: D, the length of an item vector.
        config: `num_levels` L, `codebook_size` K, `latent_dim` C, `hidden_dims`, `dropout`.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, dim: int, config: SemanticIdsConfig) -> None:
        super().__init__()
        widths = (dim, *config.hidden_dims, config.latent_dim)
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("scale", torch.ones(()))
        self.encoder = _mlp(widths, config.dropout)
        self.decoder = _mlp(widths[::-1], config.dropout)
        self.linear_encoder = nn.Linear(dim, config.latent_dim, bias=False)
        self.linear_decoder = nn.Linear(config.latent_dim, dim, bias=False)
        self.codebooks = nn.Parameter(torch.zeros(config.num_levels, config.codebook_size, config.latent_dim))

    def set_scale(self, vectors: Tensor) -> None:
        """Takes mean and scale from the data [N, D]; for equal vectors scale 1, not their rounding noise."""
        mean = vectors.double().mean(dim=0)
        spread = float((vectors - mean).square().mean().sqrt())
        size = float(vectors.double().square().mean().sqrt())
        self.mean.copy_(mean)
        self.scale.fill_(spread if spread > 1e-6 * size else 1.0)

    @torch.no_grad()
    def start_from_pca(self, standard: Tensor) -> None:
        """Sets the linear maps to the first C principal axes of standardised vectors [N, D], the networks to zero.

        One factor gives the latents a mean square of 1: as they come they have a mean square of up to D / C, and the
        commitment loss, a mean over C coordinates, outweighs the reconstruction, a mean over D.
        """
        values, axes = torch.linalg.eigh(standard.T.double() @ standard.double())
        first = axes[:, values.argsort(descending=True)][:, : self.linear_encoder.out_features].T
        first = first * torch.where(first.sum(dim=1, keepdim=True) < 0, -1, 1)  # an axis has no sign of its own
        for weight in (self.linear_encoder.weight, self.linear_decoder.weight):
            weight.zero_()
        size = float((standard @ first.T.float()).square().mean().sqrt())
        size = size if size > 1e-3 else 1.0  # equal vectors: the rounding noise stays as small as it is
        self.linear_encoder.weight[: len(first)] = first / size
        self.linear_decoder.weight[:, : len(first)] = first.T * size
        for network in (self.encoder, self.decoder):
            for parameter in network[-1].parameters():
                parameter.zero_()

    def standardise(self, vectors: Tensor) -> Tensor:
        """[N, D] to [N, D], of mean 0 and mean square 1."""
        return (vectors - self.mean) / self.scale

    def encode(self, standard: Tensor) -> Tensor:
        """Standardised vectors [N, D] to latents [N, C]."""
        latents: Tensor = self.linear_encoder(standard) + self.encoder(standard)
        return latents

    def decode(self, latents: Tensor) -> Tensor:
        """Latents [N, C], quantized or not, to standardised vectors [N, D]."""
        vectors: Tensor = self.linear_decoder(latents) + self.decoder(latents)
        return vectors

    def quantize(self, latents: Tensor, sinkhorn_epsilon: float = 0.0) -> Quantized:
        """Residual quantization [N, C]: the nearest row at each level; above epsilon 0 the last level is balanced."""
        codes, residuals, codewords = [], [], []
        residual = latents
        for level, codebook in enumerate(self.codebooks):
            chosen = squared_distances(residual.detach(), codebook.detach())
            last = level == len(self.codebooks) - 1
            code = balanced_codes(chosen, sinkhorn_epsilon) if last and sinkhorn_epsilon else chosen.argmin(dim=1)
            codeword = F.embedding(code, codebook)
            codes.append(code)
            residuals.append(residual)
            codewords.append(codeword)
            residual = residual - codeword.detach()
        return Quantized(torch.stack(codes, 1), torch.stack(residuals, 1), torch.stack(codewords, 1))


def squared_distances(rows: Tensor, codebook: Tensor) -> Tensor:
    """[N, C] and [K, C] to [N, K], by one matrix product; rounding can leave a tiny negative."""
    norms = rows.square().sum(1, keepdim=True) + codebook.square().sum(1)
    return torch.addmm(norms, rows, codebook.T, alpha=-2)


def nearest(rows: Tensor, codebook: Tensor) -> tuple[Tensor, Tensor]:
    """Squared distance [N] and code [N] of each row's nearest codeword, in parts that bound the memory."""
    found = [squared_distances(part, codebook).min(dim=1) for part in rows.split(CHUNK)]
    return torch.cat([part.values for part in found]).clamp(min=0), torch.cat([part.indices for part in found])


def straight_through(latents: Tensor, codewords: Tensor) -> Tensor:
    """The sum of the codewords [N, L, C] in the forward pass, the identity on latents [N, C] in the backward pass."""
    return latents + (codewords.sum(dim=1) - latents).detach()


def _mlp(widths: tuple[int, ...], dropout: float) -> nn.Sequential:
    """Linear layers with ReLU and dropout between them; neither follows the last."""
    layers: list[nn.Module] = []
    for inner, outer in pairwise(widths[:-1]):
        layers += [nn.Linear(inner, outer), nn.ReLU(), nn.Dropout(dropout)]
    return nn.Sequential(*layers, nn.Linear(widths[-2], widths[-1]))
