"""The stage: item embeddings to unique semantic IDs, codebooks, training history and weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

from gti_pipeline import columns as c
from gti_pipeline import schemas
from gti_pipeline.config import SemanticIdsConfig
from gti_pipeline.errors import GtiError
from gti_pipeline.semantic_ids.assign import Assignment, check_room, nearest_codes, unique_codes
from gti_pipeline.semantic_ids.judge import energy_before, judgement, refuse_collapse
from gti_pipeline.semantic_ids.rqkmeans import fit_rqkmeans, rqkmeans_error
from gti_pipeline.semantic_ids.rqvae import RqVae
from gti_pipeline.semantic_ids.train import fit, latents_of, reconstruction_error

WEIGHTS = "rqvae.safetensors"
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Quantizer:
    """Codebooks [L, K, C] and how a vector becomes a latent [C]: through the RQ-VAE's encoder, or as it is."""

    codebooks: Floats
    model: RqVae | None

    def latents(self, vectors: Floats) -> Floats:
        """[N, D] to [N, C]."""
        if self.model is None:
            return vectors
        return np.asarray(latents_of(self.model, self.model.standardise(torch.from_numpy(vectors))).numpy())

    def error(self, vectors: Floats, codes: Ints) -> float:
        """The share of the variance of [N, D] that codes [N, L] leave unexplained."""
        if self.model is None:
            return rqkmeans_error(vectors, self.codebooks, codes)
        return reconstruction_error(
            self.model, self.model.standardise(torch.from_numpy(vectors)), torch.from_numpy(codes)
        )


@dataclass(frozen=True)
class SemanticIds:
    """What the stage makes.

    Attributes:
        semantic_ids: `schemas.SEMANTIC_IDS`, by ascending item_id; codes are int32 [L], 0..K-1.
        retired: the same of items that are no longer in the catalogue.
        codebooks: `schemas.CODEBOOKS`, levels 1..L, codes 0..K-1, vectors in the latent space.
        steps: `schemas.STEPS`, the training history.
        summary: figures of the whole, JSON-ready.
        model: the trained RQ-VAE, in evaluation mode; None for RQ-k-means.
    """

    semantic_ids: pd.DataFrame
    retired: pd.DataFrame
    codebooks: pd.DataFrame
    steps: pd.DataFrame
    summary: dict[str, Any]
    model: RqVae | None


def build(
    embeddings: pd.DataFrame,
    config: SemanticIdsConfig,
    progress: Callable[[int, int], None],
    categories: Mapping[str, str] | None = None,
) -> SemanticIds:
    """Trains the quantizer and gives every item an ID of its own.

    Items are taken by ascending item_id, so the order of the rows does not matter.

    Args:
        embeddings: `schemas.ITEM_EMBEDDINGS`.
        config: the `semantic_ids` section.
        progress: called with (epochs done, epochs at most); with (levels done, levels) by RQ-k-means.
        categories: by item_id, where items have one; only the judgement uses it.

    Raises:
        GtiError: no items, vectors of unequal length or not finite, training that diverged, more items than
            `codebook_size ** num_levels` IDs, or codebooks that collapsed (`judge.refuse_collapse`).
    """
    ordered, vectors = _ordered(embeddings)
    check_room(len(vectors), config.num_levels, config.codebook_size)
    quantizer, steps, trained = _train(vectors, config, progress)
    latents = quantizer.latents(vectors)
    assignment = unique_codes(latents, quantizer.codebooks)
    refuse_collapse(
        vectors, energy_before(latents, quantizer.codebooks, assignment.nearest), assignment.nearest, config
    )
    known = [(categories or {}).get(item) for item in ordered[c.ITEM_ID]]
    figures = judgement(vectors, assignment.codes, assignment.nearest, known, config)
    return SemanticIds(
        semantic_ids=_table(ordered[c.ITEM_ID], assignment.codes),
        retired=_table(ordered[c.ITEM_ID].head(0), assignment.codes[:0]),
        codebooks=_codebooks(quantizer.codebooks),
        steps=steps,
        summary=_summary(assignment, config)
        | trained
        | figures
        | {"reconstruction_error": quantizer.error(vectors, assignment.codes)},
        model=quantizer.model,
    )


def assign_new(
    embeddings: pd.DataFrame, quantizer: Quantizer, existing: pd.DataFrame
) -> tuple[pd.DataFrame, Assignment]:
    """Semantic IDs for the items that have none yet; those that have one keep it, whatever their vectors are now.

    Args:
        embeddings: `schemas.ITEM_EMBEDDINGS`, of old and new items.
        quantizer: what gave the existing IDs.
        existing: `schemas.SEMANTIC_IDS`; items that left the catalogue keep their places.

    Returns:
        `schemas.SEMANTIC_IDS` of existing and new items, by ascending item_id, and the new ones' assignment.

    Raises:
        GtiError: as `build`, and where the IDs that are left do not do.
    """
    ordered, vectors = _ordered(embeddings)
    new = ~ordered[c.ITEM_ID].isin(existing[c.ITEM_ID]).to_numpy()
    taken = np.stack(existing[c.CODES].tolist()).astype(np.int64)
    assignment = unique_codes(quantizer.latents(vectors[new]), quantizer.codebooks, taken)
    added = _table(ordered.loc[new, c.ITEM_ID], assignment.codes)
    table = pd.concat([existing[[c.ITEM_ID, c.CODES]], added]).sort_values(c.ITEM_ID, ignore_index=True)
    return table, assignment


def extend(
    embeddings: pd.DataFrame, base: Path, config: SemanticIdsConfig, categories: Mapping[str, str] | None = None
) -> SemanticIds:
    """As `build`, but on the codebooks and IDs of the artifact at `base`: only new items are given IDs."""
    ordered, vectors = _ordered(embeddings)
    quantizer = load_quantizer(base, vectors.shape[1], config)
    existing = pd.concat([schemas.SEMANTIC_IDS.read(base), schemas.RETIRED_IDS.read(base)])
    table, assignment = assign_new(ordered, quantizer, existing)
    here = table[c.ITEM_ID].isin(ordered[c.ITEM_ID])
    current, retired = table[here].reset_index(drop=True), table[~here].reset_index(drop=True)
    codes = np.stack(current[c.CODES].tolist()).astype(np.int64)
    nearest = nearest_codes(quantizer.latents(vectors), quantizer.codebooks)[0]
    known = [(categories or {}).get(item) for item in ordered[c.ITEM_ID]]
    return SemanticIds(
        semantic_ids=current,
        retired=retired,
        codebooks=schemas.CODEBOOKS.read(base),
        steps=schemas.STEPS.read(base),
        summary=_summary(assignment, config)
        | {"items": len(current), "items_new": len(assignment.codes), "items_retired": len(retired)}
        | {"epochs": 0, "stopped": f"extends {base.name}"}
        | judgement(vectors, codes, nearest, known, config)
        | {"reconstruction_error": quantizer.error(vectors, codes)},
        model=quantizer.model,
    )


def load_quantizer(folder: Path, dim: int, config: SemanticIdsConfig) -> Quantizer:
    """The quantizer of an artifact for vectors of length `dim`.

    Raises:
        GtiError: it was made for vectors of another length.
    """
    rows = schemas.CODEBOOKS.read(folder).sort_values([c.LEVEL, c.CODE])
    vectors = np.stack(rows[c.VECTOR].tolist()).astype(np.float32)
    codebooks = vectors.reshape(rows[c.LEVEL].nunique(), -1, vectors.shape[1])
    model, made_for = None, codebooks.shape[2]
    if config.method == "rqvae":
        weights = load_file(folder / WEIGHTS)
        made_for = len(weights["mean"])
        model = RqVae(made_for, config)
        model.load_state_dict(weights)
        model.eval()
    if made_for != dim:
        raise GtiError(
            f"semantic_ids.base={folder.name} was made for vectors of length {made_for}, these have {dim}:"
            " use the embed settings that it was made with, or no base"
        )
    return Quantizer(codebooks, model)


def write(result: SemanticIds, folder: Path) -> dict[str, Any]:
    """Writes the three tables and, for an RQ-VAE, `rqvae.safetensors` below `folder`; returns the summary."""
    schemas.SEMANTIC_IDS.write(result.semantic_ids, folder)
    schemas.RETIRED_IDS.write(result.retired, folder)
    schemas.CODEBOOKS.write(result.codebooks, folder)
    schemas.STEPS.write(result.steps, folder)
    if result.model:
        save_file({name: value.contiguous() for name, value in result.model.state_dict().items()}, folder / WEIGHTS)
    return result.summary


def _train(
    vectors: Floats, config: SemanticIdsConfig, progress: Callable[[int, int], None]
) -> tuple[Quantizer, pd.DataFrame, dict[str, Any]]:
    """The quantizer, its history, and how long it took."""
    if config.method == "rqkmeans":
        codebooks, steps = fit_rqkmeans(vectors, config, progress)
        return Quantizer(codebooks, None), steps, {"epochs": 0, "stopped": "k-means level by level"}
    training = fit(vectors, config, progress)
    quantizer = Quantizer(training.model.codebooks.detach().numpy(), training.model)
    return quantizer, training.steps, {"epochs": training.epochs, "stopped": training.stopped}


def _ordered(embeddings: pd.DataFrame) -> tuple[pd.DataFrame, Floats]:
    """The table by ascending item_id, checked, and its vectors [N, D]."""
    schemas.ITEM_EMBEDDINGS.check(embeddings)
    ordered = embeddings.sort_values(c.ITEM_ID, ignore_index=True)
    return ordered, _matrix(ordered)


def _table(item_ids: pd.Series, codes: Ints) -> pd.DataFrame:
    lists = pd.Series(list(codes.astype(np.int32)), dtype=object)  # also where there is none
    return pd.DataFrame({c.ITEM_ID: item_ids.to_numpy(), c.CODES: lists})


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


def _codebooks(rows: Floats) -> pd.DataFrame:
    levels, size, _ = rows.shape
    return pd.DataFrame(
        {
            c.LEVEL: np.repeat(np.arange(1, levels + 1, dtype=np.int32), size),
            c.CODE: np.tile(np.arange(size, dtype=np.int32), levels),
            c.VECTOR: list(rows.reshape(levels * size, -1)),
        }
    )


def _summary(assignment: Assignment, config: SemanticIdsConfig) -> dict[str, Any]:
    return {
        "method": config.method,
        "items": len(assignment.codes),
        "levels": config.num_levels,
        "codebook_size": config.codebook_size,
        "items_moved": assignment.moved,
        "items_moved_before_last_level": assignment.moved_early,
        "move_cost_share": assignment.cost / assignment.nearest_cost if assignment.nearest_cost > 0 else 0.0,
    }
