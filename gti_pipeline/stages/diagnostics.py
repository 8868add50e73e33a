"""What the new tokens' rows are like at their start, after grounding and after fine-tuning."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gti_pipeline import columns as c
from gti_pipeline import schemas
from gti_pipeline.artifacts import Artifact
from gti_pipeline.config import Config
from gti_pipeline.diagnostics.tables import (
    ALL_LEVELS,
    GROUNDED,
    INIT,
    TUNED,
    Codes,
    Moment,
    cosine_blocks,
    nearest_words,
    numbers,
    spectrum,
)
from gti_pipeline.lm.extended import embedding_rows
from gti_pipeline.lm.load import load_model, load_tokenizer
from gti_pipeline.stages.base import Workspace, run_stage
from gti_pipeline.stages.language_model import MODEL, load_codes
from gti_pipeline.stages.vocab import TOKENIZER, base_path
from gti_pipeline.vocab import load_rows

TABLES = (schemas.DIAGNOSTICS, schemas.COSINES, schemas.SPECTRUM, schemas.NEAREST_WORDS)


def run(
    config: Config,
    workspace: Workspace,
    semantic_ids: Artifact,
    vocab: Artifact,
    ground: Artifact | None,
    sft: Artifact,
) -> Artifact:
    """Tables: diagnostics, cosines, spectrum, nearest_words; `ground` is None for an arm without grounding."""

    def make(folder: Path, key: str) -> dict[str, Any]:
        del key
        token_ids = load_rows(vocab.path)[1]
        codes = load_code_use(semantic_ids, token_ids.shape)
        ordinary, names = _words(vocab, int(token_ids.min()))
        frames: dict[str, list[pd.DataFrame]] = {table.name: [] for table in TABLES}
        for moment in _moments(config, base_path(config, workspace, vocab), vocab, ground, sft):
            frames[schemas.DIAGNOSTICS.name].append(numbers(moment, codes, ordinary))
            frames[schemas.COSINES.name].append(cosine_blocks(moment, ordinary, names))
            frames[schemas.SPECTRUM.name].append(spectrum(moment))
            frames[schemas.NEAREST_WORDS.name].append(nearest_words(moment, codes, ordinary, names))
        whole = {name: pd.concat(parts, ignore_index=True) for name, parts in frames.items()}
        for table in TABLES:
            table.write(whole[table.name], folder)
        return summary(whole[schemas.DIAGNOSTICS.name])

    inputs = {"semantic_ids": semantic_ids.key, "vocab": vocab.key, "sft": sft.key}
    if ground is not None:
        inputs["ground"] = ground.key
    return run_stage(workspace, "diagnostics", module=__name__, settings={}, inputs=inputs, write=make)


def summary(frame: pd.DataFrame) -> dict[str, dict[str, float | None]]:
    """The numbers over all levels, by moment and metric, as JSON has them."""
    rows = frame[frame[c.LEVEL] == ALL_LEVELS]
    found: dict[str, dict[str, float | None]] = {}
    for moment, metric, value in zip(rows[c.STAGE], rows[c.METRIC], rows[c.VALUE], strict=True):
        found.setdefault(moment, {})[metric] = None if np.isnan(value) else round(float(value), 6)
    return found


def load_code_use(semantic_ids: Artifact, shape: tuple[int, ...]) -> Codes:
    """The codebooks [L, K, C] and how many items have each code, [L, K] = `shape`."""
    rows = schemas.CODEBOOKS.read(semantic_ids.path).sort_values([c.LEVEL, c.CODE])
    vectors = np.stack(rows[c.VECTOR].tolist()).astype(np.float64)
    codes = np.stack(list(load_codes(semantic_ids).values()))
    counts = [np.bincount(codes[:, level], minlength=shape[1]) for level in range(shape[0])]
    return Codes(vectors.reshape(*shape, -1), np.stack(counts).astype(np.int64))


def _moments(config: Config, base: Path, vocab: Artifact, ground: Artifact | None, sft: Artifact) -> Iterator[Moment]:
    """One at a time: a large vocabulary is held once."""
    rows, token_ids = load_rows(vocab.path)
    shape, first = token_ids.shape, int(token_ids.min())
    old = _matrix(config, base)[:first]
    yield Moment(INIT, rows.numpy().reshape(*shape, -1), old)
    whole = {TUNED: sft.path / MODEL}
    if ground is not None and (ground.path / MODEL).is_dir():  # its second phase moved the old rows too
        whole = {GROUNDED: ground.path / MODEL} | whole
    elif ground is not None:
        yield Moment(GROUNDED, load_rows(ground.path)[0].numpy().reshape(*shape, -1), old)
    del old
    for name, path in whole.items():
        matrix = _matrix(config, path)
        yield Moment(name, matrix[first : first + token_ids.size].reshape(*shape, -1), matrix[:first])


def _matrix(config: Config, path: Path) -> NDArray[np.float32]:
    """The embedding matrix of a model, in main memory."""
    settings = config.lm.model_copy(update={"device": "cpu", "dtype": "float32"})
    return np.asarray(embedding_rows(load_model(path, settings)).detach().numpy())


def _words(vocab: Artifact, first: int) -> tuple[NDArray[np.int64], Callable[[int], str]]:
    """The ids below `first` that stand for text, and what they stand for."""
    tokenizer = load_tokenizer(vocab.path / TOKENIZER)
    special = set(tokenizer.all_special_ids)
    ordinary = np.array([token for token in range(first) if token not in special], dtype=np.int64)
    return ordinary, lambda token: str(tokenizer.decode([token])).strip() or f"token {token}"
