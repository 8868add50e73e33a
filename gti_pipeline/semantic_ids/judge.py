"""Are semantic IDs worth an hour of training? Measured on the IDs alone, before any language model sees them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gti_pipeline.config import SemanticIdsConfig
from gti_pipeline.errors import raise_all
from gti_pipeline.semantic_ids.assign import Floats, subtract, sum_of_squares

Ints = NDArray[np.int64]

NEIGHBOURS = 10
SAMPLE = 2000  # items whose neighbours are looked up
PREFIXES = 3
NOTHING_LEFT = 0.01  # of the latents' variance: a level that finds less than this has no reason to use many codes

log = logging.getLogger(__name__)


def collision_rate(codes: Ints) -> float:
    """1 - distinct code tuples / items, for codes [N, L]."""
    return 1 - len(np.unique(codes, axis=0)) / len(codes)


def code_use(codes: Ints, size: int) -> tuple[list[float], list[float]]:
    """Per level of [N, L]: the share of the codes in use, and exp(entropy), the number of codes in even use."""
    use, perplexity = [], []
    for level in codes.T:
        share = np.bincount(level, minlength=size) / len(level)
        share = share[share > 0]
        use.append(len(share) / size)
        perplexity.append(float(np.exp(-(share * np.log(share)).sum())))
    return use, perplexity


def energy_before(latents: Floats, codebooks: Floats, codes: Ints) -> list[float]:
    """Per level: what the levels before it left, as a share of the latents' variance (1, or more, at the first)."""
    residual: Floats = latents - latents.mean(axis=0)
    variance = sum_of_squares(residual) or 1.0
    residual = latents.copy()
    shares = [1.0]
    for level, codebook in enumerate(codebooks[:-1]):
        subtract(residual, codebook, codes[:, level])
        shares.append(sum_of_squares(residual) / variance)
    return shares


def refuse_collapse(vectors: Floats, energies: Sequence[float], nearest: Ints, config: SemanticIdsConfig) -> None:
    """Stops a run whose codes do not tell the items apart.

    Items with equal vectors cannot be told apart by any codes, so only distinct vectors count. A level that finds next
    to nothing left is not judged.

    Args:
        vectors: [N, D].
        energies: `energy_before`.
        nearest: [N, L], codes before the unique assignment.
        config: `min_code_use`, `max_collision_rate`.

    Raises:
        GtiError: names the level or the rate, the threshold, and what to try.
    """
    # a row's hash is 8 bytes; sorting the rows themselves takes gigabytes for a large catalogue
    first = np.unique([hash(row.tobytes()) for row in vectors], return_index=True)[1]
    codes, reachable = nearest[first], min(config.codebook_size, len(first))
    problems = []
    for level, energy in enumerate(energies):
        used = len(np.unique(codes[:, level]))
        if energy > NOTHING_LEFT and used < config.min_code_use * reachable:
            problems.append(
                f"level {level + 1} uses {used} of the {reachable} codes that {len(first)} distinct vectors could use,"
                f" fewer than semantic_ids.min_code_use={config.min_code_use}"
            )
    collisions = collision_rate(codes)
    if collisions > config.max_collision_rate:
        problems.append(
            f"{collisions:.1%} of {len(first)} distinct vectors share their codes with another before the assignment,"
            f" more than semantic_ids.max_collision_rate={config.max_collision_rate}"
        )
    cure = "try a larger codebook_size or num_levels, more epochs, another embed.model, or semantic_ids.method=rqkmeans"
    raise_all(f"The codebooks have collapsed, these semantic IDs would not tell the items apart ({cure}):", problems)


def neighbour_preservation(vectors: Floats, codes: Ints, seed: int) -> tuple[list[float], list[float]]:
    """How many of an item's nearest items share its prefix of length 1, 2, 3, and how many would by chance.

    Args:
        vectors: [N, D]; neighbours are by cosine.
        codes: [N, L].
        seed: of the sample of items.

    Returns:
        Two lists of min(3, L) shares; empty where there is no second item.
    """
    import faiss

    count, near = len(vectors), min(NEIGHBOURS, len(vectors) - 1)
    if not near:
        return [], []
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    units = np.ascontiguousarray(vectors / np.where(norms > 0, norms, 1), dtype=np.float32)
    index = faiss.IndexFlatIP(units.shape[1])
    index.add(units)
    sample = np.sort(np.random.default_rng(seed).permutation(count)[:SAMPLE])
    found = index.search(units[sample], near + 1)[1]
    others = np.stack([row[row != item][:near] for item, row in zip(sample, found, strict=True)])
    kept, chance = [], []
    for length in range(1, min(PREFIXES, codes.shape[1]) + 1):
        prefix, sizes = np.unique(codes[:, :length], axis=0, return_inverse=True, return_counts=True)[1:]
        kept.append(float((prefix[others] == prefix[sample][:, None]).mean()))
        chance.append(float((sizes * (sizes - 1)).sum() / (count * (count - 1))))
    return kept, chance


def category_agreement(codes: Ints, categories: Sequence[str | None]) -> float | None:
    """Normalised mutual information of the first code and a category, over the items that have one; else None."""
    from sklearn.metrics import normalized_mutual_info_score

    known = [i for i, category in enumerate(categories) if category is not None]
    if len({categories[i] for i in known}) < 2:
        return None
    return float(normalized_mutual_info_score([str(categories[i]) for i in known], codes[known, 0]))


def mean_cosine(vectors: Floats, groups: Ints) -> float | None:
    """Mean cosine over all pairs of different items of one group; None where there is no pair.

    Args:
        vectors: [N, D]; a zero vector counts as cosine 0.
        groups: [N].
    """
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    units = vectors / np.where(norms > 0, norms, 1)
    order = np.argsort(groups, kind="stable")
    starts = np.unique(groups[order], return_index=True)[1]
    sums = np.add.reduceat(
        units[order], starts, axis=0, dtype=np.float64
    )  # |sum|^2 holds each pair twice, each item once
    sizes = np.diff(np.append(starts, len(groups)))
    pairs = int((sizes * (sizes - 1)).sum())
    own = np.square(units, dtype=np.float64).sum()
    return float((np.square(sums).sum() - own) / pairs) if pairs else None


def judgement(
    vectors: Floats, codes: Ints, nearest: Ints, categories: Sequence[str | None], config: SemanticIdsConfig
) -> dict[str, Any]:
    """All figures above for the summary, JSON-ready."""
    use, perplexity = code_use(codes, config.codebook_size)
    kept, chance = neighbour_preservation(vectors, codes, config.seed)
    return {
        "code_use": use,
        "perplexity": perplexity,
        "collision_rate_before": collision_rate(nearest),
        "collision_rate": collision_rate(codes),
        "cosine_overall": mean_cosine(vectors, np.zeros(len(vectors), dtype=np.int64)),
        "cosine_within_first_code": mean_cosine(vectors, codes[:, 0]),
        "neighbours_sharing_prefix": kept,
        "neighbours_sharing_prefix_by_chance": chance,
        "category_nmi": category_agreement(codes, categories),
    }
