"""Training of the RQ-VAE: codebooks by k-means, then large-batch steps until a plateau."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain, count, islice

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from gti_pipeline import columns as c
from gti_pipeline.config import SemanticIdsConfig
from gti_pipeline.errors import GtiError
from gti_pipeline.semantic_ids.assign import nearest_codes
from gti_pipeline.semantic_ids.judge import code_use, collision_rate
from gti_pipeline.semantic_ids.kmeans import kmeans
from gti_pipeline.semantic_ids.losses import diversity_groups, losses
from gti_pipeline.semantic_ids.rqvae import CHUNK, RqVae, nearest

log = logging.getLogger(__name__)

WARMUP_STEPS = 50  # more bends the latent space away from the items' own neighbourhoods
CHECK_STEPS = 50  # or one epoch, where that is longer
LAST_REVIVALS = 5
MIN_GAIN = 0.01  # of the variance explained, or of the items without collision; gains add up over checks


@dataclass(frozen=True)
class Training:
    """A trained model, its history (`schemas.STEPS`), the epochs it took and why it stopped."""

    model: RqVae
    steps: pd.DataFrame
    epochs: int
    stopped: str


@dataclass
class _Progress:
    """What the loop remembers between checks."""

    step: int = 0
    records: list[tuple[int, str, float]] = field(default_factory=list)
    sums: dict[str, float] = field(default_factory=dict)
    since: int = 0
    bar_error: float = float("inf")  # what the next gain is measured from
    bar_collisions: float = float("inf")
    best_error: float = float("inf")
    best_state: dict[str, Tensor] = field(default_factory=dict)
    stale: int = 0


def fit(vectors: NDArray[np.float32], config: SemanticIdsConfig, progress: Callable[[int, int], None]) -> Training:
    """Trains an RQ-VAE on item vectors.

    Same rows in the same order, same seed: same model. torch's global random state is left as it was.

    Args:
        vectors: [N, D], finite, in the caller's canonical order.
        config: `epochs` is a ceiling; `patience` checks without a gain end the training sooner.
        progress: called with (epochs done, epochs at most); at the end both are the epochs done.

    Raises:
        GtiError: no vectors, non-finite vectors, or a loss that stopped being finite.
    """
    if vectors.ndim != 2 or 0 in vectors.shape:
        raise GtiError(f"semantic IDs need a matrix of at least one item vector, got shape {vectors.shape}")
    bad = int((~np.isfinite(vectors)).any(axis=1).sum())
    if bad:
        raise GtiError(f"{bad} of {len(vectors)} item vectors hold NaN or infinity: check the embedding stage")
    data = torch.from_numpy(np.ascontiguousarray(vectors, dtype=np.float32))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        return _fit(data, config, progress)


def _fit(data: Tensor, config: SemanticIdsConfig, progress: Callable[[int, int], None]) -> Training:
    model = RqVae(data.shape[1], config)
    model.set_scale(data)
    standard = model.standardise(data)
    model.start_from_pca(standard)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.learning_rate)
    _warm_up(model, standard, config.batch_size, optimizer)
    latents = latents_of(model, standard)
    _require_finite(latents, "latents after the warm-up", config)
    init_codebooks(model, latents, config)
    state = _Progress()
    interval = -(-CHECK_STEPS // -(-len(data) // config.batch_size))
    epoch, stopped = 0, f"reached the ceiling of {config.epochs} epochs"
    groups = diversity_groups(model.codebooks, config.seed) if config.diversity_weight else None
    for epoch in range(1, config.epochs + 1):
        model.train()
        for batch in _batches(len(data), config.batch_size):
            _step(model, standard[batch], groups, config, optimizer, state)
        progress(epoch, config.epochs)
        if epoch % interval and epoch < config.epochs:
            continue
        latents = latents_of(model, standard)
        _check(model, standard, latents, state)
        if state.stale >= config.patience:
            stopped = f"no gain of {MIN_GAIN:.0%} in reconstruction or collisions in {config.patience} checks"
            break
        revive(model, latents, optimizer)
        groups = diversity_groups(model.codebooks, config.seed) if config.diversity_weight else None
    model.load_state_dict(state.best_state)
    latents = latents_of(model, standard)
    for _ in range(LAST_REVIVALS):  # codes that lay unused at the best check; one revival can empty another code
        if not revive(model, latents):
            break
    steps = pd.DataFrame(state.records, columns=[c.STEP, c.METRIC, c.VALUE])
    progress(epoch, epoch)
    log.info("RQ-VAE: %d epochs, %d steps; %s", epoch, state.step, stopped)
    return Training(model, steps, epoch, stopped)


def _batches(items: int, batch_size: int) -> Iterator[Tensor]:
    """A shuffled epoch in equal parts of at most `batch_size`: no tiny last batch to balance codes over."""
    return iter(torch.randperm(items).tensor_split(-(-items // batch_size)))


def _warm_up(model: RqVae, standard: Tensor, batch_size: int, optimizer: torch.optim.Optimizer) -> None:
    """`WARMUP_STEPS` of the plain autoencoder, so that the codebooks do not start on what the encoder soon leaves."""
    model.train()
    epochs = (_batches(len(standard), batch_size) for _ in count())
    for batch in islice(chain.from_iterable(epochs), WARMUP_STEPS):
        optimizer.zero_grad(set_to_none=True)
        F.mse_loss(model.decode(model.encode(standard[batch])), standard[batch]).backward()
        optimizer.step()


def _step(
    model: RqVae,
    standard: Tensor,
    groups: Tensor | None,
    config: SemanticIdsConfig,
    optimizer: torch.optim.Optimizer,
    state: _Progress,
) -> None:
    """One update; adds the losses to the running sums."""
    state.step += 1
    loss, parts = losses(model, standard, groups, config)
    _require_finite(loss, f"the loss at step {state.step}", config)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    for name, part in {"loss": loss, **{f"loss_{name}": part for name, part in parts.items()}}.items():
        state.sums[name] = state.sums.get(name, 0.0) + float(part.detach())
    state.since += 1


def _require_finite(values: Tensor, what: str, config: SemanticIdsConfig) -> None:
    if not bool(torch.isfinite(values).all()):
        raise GtiError(
            f"RQ-VAE: {what}: not finite, the training diverged:"
            f" lower semantic_ids.learning_rate (now {config.learning_rate})"
        )


@torch.no_grad()
def latents_of(model: RqVae, standard: Tensor) -> Tensor:
    """Latents [N, C] of standardised vectors [N, D], without dropout."""
    model.eval()
    return torch.cat([model.encode(part) for part in standard.split(CHUNK)])


@torch.no_grad()
def reconstruction_error(model: RqVae, standard: Tensor, codes: Tensor) -> float:
    """Mean squared error of [N, D] decoded from codes [N, L]; 1 is the mean's own error."""
    model.eval()
    levels = torch.arange(codes.shape[1])
    total = 0.0
    for part, chosen in zip(standard.split(CHUNK), codes.split(CHUNK), strict=True):
        decoded = model.decode(model.codebooks[levels, chosen].sum(dim=1))
        total += float((decoded - part).square().sum())
    return total / standard.numel()


def _check(model: RqVae, standard: Tensor, latents: Tensor, state: _Progress) -> None:
    """Measures the model as it will be used, records it, and keeps the weights where they are the best so far."""
    codes, _ = nearest_codes(latents.numpy(), model.codebooks.detach().numpy())
    error = reconstruction_error(model, standard, torch.from_numpy(codes))
    collisions = collision_rate(codes)
    use, perplexity = code_use(codes, model.codebooks.shape[1])
    values = {name: total / state.since for name, total in state.sums.items()}
    values |= {"reconstruction_error": error, "collision_rate": collisions}
    for level, (share, even) in enumerate(zip(use, perplexity, strict=True), start=1):
        values |= {f"code_use_{level}": share, f"perplexity_{level}": even}
    state.records += [(state.step, name, value) for name, value in values.items()]
    state.sums, state.since = {}, 0
    gained = False
    if error <= state.bar_error - MIN_GAIN:
        gained, state.bar_error = True, error
    if collisions <= state.bar_collisions - MIN_GAIN:
        gained, state.bar_collisions = True, collisions
    state.stale = 0 if gained else state.stale + 1
    if error < state.best_error:
        state.best_error, state.best_state = error, copy.deepcopy(model.state_dict())
    log.debug("step %d: error %.4f, collisions %.4f, use %s", state.step, error, collisions, use)


@torch.no_grad()
def init_codebooks(model: RqVae, latents: Tensor, config: SemanticIdsConfig) -> None:
    """Each codebook by k-means on what the levels before it left of the latents [N, C] (TIGER's init, on all items)."""
    residual = latents
    for level in range(config.num_levels):
        points = residual.numpy()
        rows = kmeans(points, config.codebook_size, config.kmeans_iterations, config.seed + level)
        model.codebooks[level] = torch.from_numpy(rows)
        residual = residual - model.codebooks[level][nearest(residual, model.codebooks[level])[1]]


@torch.no_grad()
def revive(model: RqVae, latents: Tensor, optimizer: torch.optim.Optimizer | None = None) -> int:
    """Moves every unused code onto an item that its level quantizes badly, drawn by squared error; their number.

    Their Adam moments start again. Where nothing is left to quantize (fewer items than codes, equal vectors) they stay.
    """
    residual, revived = latents, 0
    state = optimizer.state[model.codebooks] if optimizer else {}
    moments = [value for value in state.values() if value.shape == model.codebooks.shape]
    for level in range(len(model.codebooks)):
        codebook = model.codebooks[level]
        error, codes = nearest(residual, codebook)
        unused = torch.bincount(codes, minlength=len(codebook)) == 0
        far = error > 1e-6 * residual.square().sum(dim=1)
        number = min(int(unused.sum()), int(far.sum()))
        if number:
            donors = torch.multinomial(error * far, number)
            places = unused.nonzero()[:number, 0]
            codebook[places] = residual[donors]
            for moment in moments:
                moment[level, places] = 0
            codes = nearest(residual, codebook)[1]
            revived += number
        residual = residual - codebook[codes]
    return revived
