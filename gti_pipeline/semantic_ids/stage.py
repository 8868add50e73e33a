"""The stage: item embeddings to unique semantic IDs, codebooks, training history and weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file

from gti_pipeline import columns as c
from gti_pipeline import schemas
from gti_pipeline.config import SemanticIdsConfig
from gti_pipeline.errors import GtiError
from gti_pipeline.semantic_ids.assign import Assignment, check_room, unique_codes
from gti_pipeline.semantic_ids.rqvae import RqVae
from gti_pipeline.semantic_ids.train import (
    Training,
    code_use,
    collision_rate,
    fit,
    latents_of,
    reconstruction_error,
)

WEIGHTS = "rqvae.safetensors"


@dataclass(frozen=True)
class SemanticIds:
    """What the stage makes.

    Attributes:
        semantic_ids: `schemas.SEMANTIC_IDS`, by ascending item_id; codes are int32 [L], 0..K-1.
        codebooks: `schemas.CODEBOOKS`, levels 1..L, codes 0..K-1, vectors in the latent space.
        steps: `schemas.STEPS`, the training history.
        summary: figures of the whole, JSON-ready.
        model: the trained RQ-VAE, in evaluation mode.
    """

    semantic_ids: pd.DataFrame
    codebooks: pd.DataFrame
    steps: pd.DataFrame
    summary: dict[str, Any]
    model: RqVae


def build(embeddings: pd.DataFrame, config: SemanticIdsConfig, progress: Callable[[int, int], None]) -> SemanticIds:
    """Trains the RQ-VAE and gives every item an ID of its own.

    Items are taken by ascending item_id, so the order of the rows does not matter.

    Args:
        embeddings: `schemas.ITEM_EMBEDDINGS`.
        config: the `semantic_ids` section.
        progress: called with (epochs done, epochs at most).

    Raises:
        GtiError: no items, vectors of unequal length or not finite, training that diverged, or more items than
            `codebook_size ** num_levels` IDs.
    """
    schemas.ITEM_EMBEDDINGS.check(embeddings.reset_index(drop=True))
    ordered = embeddings.sort_values(c.ITEM_ID, ignore_index=True)
    vectors = _matrix(ordered)
    check_room(len(vectors), config.num_levels, config.codebook_size)
    training = fit(vectors, config, progress)
    standard = training.model.standardise(torch.from_numpy(vectors))
    latents = latents_of(training.model, standard).numpy()
    assignment = unique_codes(latents, training.model.codebooks.detach().numpy())
    error = reconstruction_error(training.model, standard, torch.from_numpy(assignment.codes))
    return SemanticIds(
        semantic_ids=pd.DataFrame({c.ITEM_ID: ordered[c.ITEM_ID], c.CODES: list(assignment.codes.astype(np.int32))}),
        codebooks=_codebooks(training.model),
        steps=training.steps,
        summary=_summary(vectors, training, assignment, config) | {"reconstruction_error": error},
        model=training.model,
    )


def write(result: SemanticIds, folder: Path) -> dict[str, Any]:
    """Writes the three tables and `rqvae.safetensors` below `folder`; returns the summary."""
    schemas.SEMANTIC_IDS.write(result.semantic_ids, folder)
    schemas.CODEBOOKS.write(result.codebooks, folder)
    schemas.STEPS.write(result.steps, folder)
    save_file({name: value.contiguous() for name, value in result.model.state_dict().items()}, folder / WEIGHTS)
    return result.summary


def _matrix(frame: pd.DataFrame) -> NDArray[np.float32]:
    """The vectors as [N, D]; names the first items whose length or values are wrong."""
    if frame.empty:
        raise GtiError("semantic IDs: the table of item embeddings is empty")
    rows, ids = frame[c.EMBEDDING].tolist(), frame[c.ITEM_ID].to_numpy()
    lengths = np.array([len(row) for row in rows])
    odd = ids[lengths != lengths[0]].tolist()
    if odd:
        raise GtiError(f"item vectors differ in length ({lengths[0]} first, otherwise for {odd[:5]})")
    vectors = np.stack(rows).astype(np.float32)
    bad = ids[~np.isfinite(vectors).all(axis=1)].tolist()
    if bad:
        raise GtiError(f"{len(bad)} item vectors hold NaN or infinity, of items {bad[:5]}: check the embedding stage")
    return vectors


def _codebooks(model: RqVae) -> pd.DataFrame:
    rows = model.codebooks.detach().numpy()
    levels, size, _ = rows.shape
    return pd.DataFrame(
        {
            c.LEVEL: np.repeat(np.arange(1, levels + 1, dtype=np.int32), size),
            c.CODE: np.tile(np.arange(size, dtype=np.int32), levels),
            c.VECTOR: list(rows.reshape(levels * size, -1)),
        }
    )


def _summary(
    vectors: NDArray[np.float32], training: Training, assignment: Assignment, config: SemanticIdsConfig
) -> dict[str, Any]:
    use, perplexity = code_use(assignment.codes, config.codebook_size)
    return {
        "items": len(vectors),
        "levels": config.num_levels,
        "codebook_size": config.codebook_size,
        "code_use": use,
        "perplexity": perplexity,
        "collision_rate_before": collision_rate(assignment.nearest),
        "collision_rate": collision_rate(assignment.codes),
        "items_moved": assignment.moved,
        "items_moved_before_last_level": assignment.moved_early,
        "move_cost_share": assignment.cost / assignment.nearest_cost if assignment.nearest_cost > 0 else 0.0,
        "cosine_overall": mean_cosine(vectors, np.zeros(len(vectors), dtype=np.int64)),
        "cosine_within_first_code": mean_cosine(vectors, assignment.codes[:, 0]),
        "epochs": training.epochs,
        "stopped": training.stopped,
    }


def mean_cosine(vectors: NDArray[np.float32], groups: NDArray[np.int64]) -> float | None:
    """Mean cosine over all pairs of different items of one group; None where there is no pair.

    Args:
        vectors: [N, D]; a zero vector counts as cosine 0.
        groups: [N].
    """
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    units = vectors.astype(np.float64) / np.where(norms > 0, norms, 1)
    order = np.argsort(groups, kind="stable")
    starts = np.unique(groups[order], return_index=True)[1]
    sums = np.add.reduceat(units[order], starts, axis=0)  # |sum|^2 holds each pair twice and each item once
    sizes = np.diff(np.append(starts, len(groups)))
    pairs = int((sizes * (sizes - 1)).sum())
    return float((np.square(sums).sum() - np.square(units).sum()) / pairs) if pairs else None
