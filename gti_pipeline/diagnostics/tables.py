"""The paper's figures 2, 5, 6 and 7 as tables, for one moment of a run (init, grounded, tuned).

Shapes: L levels of K codes, d hidden size, C length of a codebook vector.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gti_pipeline import columns as c
from gti_pipeline.diagnostics.geometry import (
    Floats,
    Ints,
    cosines,
    effective_rank,
    mean_pair,
    nearest,
    rsa,
    singular_values,
)
from gti_pipeline.schemas import COSINES, DIAGNOSTICS, NEAREST_WORDS, SPECTRUM

INIT, GROUNDED, TUNED = MOMENTS = ("init", "grounded", "tuned")
ALL_LEVELS = 0
AFFINITY, BY_LEVEL = "affinity", "by_level"
SAMPLED = 50  # pretrained tokens, and new ones, of the affinity block: the paper's numbers
SHOWN = 1024  # new tokens in the picture by level; more are sampled, each level alike
COMPARED = 2048  # codes in a similarity analysis; more are sampled: pairs grow with the square
CODES, WORDS = 3, 5  # codes of each level whose nearest words are told, and how many


@dataclass(frozen=True)
class Moment:
    """The rows of the tokens at one moment."""

    name: str  # one of MOMENTS
    new_rows: Floats  # [L, K, d]
    old_rows: Floats  # [old tokens, d]


@dataclass(frozen=True)
class Codes:
    """What the new tokens stand for."""

    codebooks: Floats  # [L, K, C]
    counts: Ints  # [L, K]: how many items have the code

    @property
    def used(self) -> NDArray[np.bool_]:
        """[L, K]: a code that no item has is never trained, so its row says nothing."""
        return np.asarray(self.counts > 0)


def numbers(moment: Moment, codes: Codes, ordinary: Ints) -> pd.DataFrame:
    """`schemas.DIAGNOSTICS`: by level, and over all (level 0).

    Effective rank, norms and cosines are over all tokens of a level; the similarity analysis is over the codes that an
    item has. `ordinary` are the ids of the old tokens that are text.
    """
    levels = len(moment.new_rows)
    old = moment.old_rows[ordinary]
    old_norm = float(np.linalg.norm(old, axis=1).mean())
    alike = mean_pair(cosines(_drawn(old, COMPARED)))
    rows: list[tuple[str, int, str, float | None]] = [
        (moment.name, ALL_LEVELS, "mean_norm_old", old_norm),
        (moment.name, ALL_LEVELS, "mean_cosine_old", alike),
    ]
    for level in range(levels + 1):
        chosen = slice(None) if level == ALL_LEVELS else slice(level - 1, level)
        values = _of_level(moment.new_rows[chosen], codes.codebooks[chosen], codes.used[chosen])
        rows += [(moment.name, level, name, value) for name, value in values.items()]
    return pd.DataFrame(rows, columns=list(DIAGNOSTICS.fields)).astype({c.LEVEL: np.int32, c.VALUE: np.float64})


def _of_level(rows: Floats, codebooks: Floats, used: NDArray[np.bool_]) -> dict[str, float | None]:
    flat = rows.reshape(-1, rows.shape[-1])
    places = np.flatnonzero(used.reshape(-1))
    places = places[_sample(len(places), COMPARED)]
    likeness = rsa(flat[places], codebooks.reshape(-1, codebooks.shape[-1])[places])
    return {
        "effective_rank": effective_rank(singular_values(flat)),
        "rsa_pearson": likeness.pearson,
        "rsa_spearman": likeness.spearman,
        "mean_cosine": mean_pair(cosines(_drawn(flat, COMPARED))),
        "mean_norm": float(np.linalg.norm(flat, axis=1).mean()),
        "tokens": float(len(flat)),
        "used_codes": float(used.sum()),
    }


def spectrum(moment: Moment) -> pd.DataFrame:
    """`schemas.SPECTRUM`: the singular values of all new rows [L*K, d], the largest first."""
    values = singular_values(moment.new_rows.reshape(-1, moment.new_rows.shape[-1]))
    frame = pd.DataFrame({c.STAGE: moment.name, c.RANK: np.arange(1, len(values) + 1), c.VALUE: values})
    return frame.astype({c.RANK: np.int32})[list(SPECTRUM.fields)]


def cosine_blocks(moment: Moment, ordinary: Ints, names: Callable[[int], str]) -> pd.DataFrame:
    """`schemas.COSINES`: two square blocks, a row per token with its cosines to all tokens of its block.

    `affinity`: a sample of old tokens, then one of new ones. `by_level`: new tokens by level, then code. The samples
    are the same at every moment and of every arm.
    """
    levels, size, dim = moment.new_rows.shape
    flat = moment.new_rows.reshape(-1, dim)
    old = ordinary[_sample(len(ordinary), SAMPLED)]
    new = _sample(len(flat), SAMPLED)
    share = _sample(size, max(1, SHOWN // levels))
    by_level = (np.arange(levels)[:, np.newaxis] * size + share).reshape(-1)
    mixed = np.concatenate([moment.old_rows[old], flat[new]])
    labels = [names(int(token)) for token in old] + [_label(place, size) for place in new]
    where = np.concatenate([np.zeros(len(old), dtype=np.int64), new // size + 1])
    return pd.concat(
        [
            _block(moment.name, AFFINITY, mixed, labels, where),
            _block(moment.name, BY_LEVEL, flat[by_level], [_label(p, size) for p in by_level], by_level // size + 1),
        ],
        ignore_index=True,
    )


def _block(name: str, block: str, rows: Floats, tokens: Sequence[str], levels: Ints) -> pd.DataFrame:
    values = cosines(rows).astype(np.float32)
    columns = {c.STAGE: name, c.BLOCK: block, c.POSITION: np.arange(len(rows)), c.TOKEN: list(tokens)}
    frame = pd.DataFrame(columns | {c.LEVEL: levels, c.COSINES: list(values)})
    return frame.astype({c.POSITION: np.int32, c.LEVEL: np.int32})[list(COSINES.fields)]


def nearest_words(moment: Moment, codes: Codes, ordinary: Ints, names: Callable[[int], str]) -> pd.DataFrame:
    """`schemas.NEAREST_WORDS`: the old tokens nearest by cosine to the most frequent codes of each level."""
    chosen = np.argsort(-codes.counts, axis=1, kind="stable")[:, :CODES]
    pairs = [(level, int(code)) for level, row in enumerate(chosen) for code in row]
    of_codes = np.stack([moment.new_rows[level, code] for level, code in pairs])
    places, values = nearest(of_codes, moment.old_rows[ordinary], WORDS)
    rows = [
        (moment.name, level + 1, code, rank, names(int(ordinary[place])), float(value))
        for (level, code), found, alike in zip(pairs, places, values, strict=True)
        for rank, (place, value) in enumerate(zip(found, alike, strict=True), 1)
    ]
    frame = pd.DataFrame(rows, columns=list(NEAREST_WORDS.fields))
    return frame.astype({c.LEVEL: np.int32, c.CODE: np.int32, c.RANK: np.int32})


def _label(place: int, size: int) -> str:
    return f"{place // size + 1}:{place % size}"


def _sample(total: int, most: int) -> Ints:
    """At most so many of 0 .. total-1, ascending, the same at every call."""
    if total <= most:
        return np.arange(total, dtype=np.int64)
    return np.sort(np.random.default_rng(0).permutation(total)[:most]).astype(np.int64)


def _drawn(rows: Floats, most: int) -> Floats:
    return rows[_sample(len(rows), most)]
