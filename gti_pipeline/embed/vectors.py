"""Vectors that the user brings (of images, of another model), joined to the items by id."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from gti_pipeline import columns as c
from gti_pipeline.config import VectorsConfig
from gti_pipeline.errors import GtiError, raise_all


@dataclass(frozen=True)
class Joined:
    """Vectors [N, D] in the items' order, and how many items the file lacks; their rows are zero."""

    file: str
    vectors: NDArray[np.float32]
    lacking: int


def join_vectors(item_ids: pd.Series, brought: VectorsConfig) -> Joined:
    """Rows of norm `weight` for the items that the file has; other rows of the file are ignored.

    Raises:
        GtiError: no such file or not Parquet, columns missing, ids that occur twice, vectors of unequal length or not
            finite, or a file that knows none of the items.
    """
    ids, rows = _read(Path(brought.file).expanduser())
    twice = sorted(ids[ids.duplicated()].unique())
    lengths = np.array([len(row) for row in rows])
    problems = []
    if twice:
        problems.append(f"{len(twice)} item ids occur twice: {twice[:5]}")
    if len(set(lengths)) > 1:
        odd = ids[lengths != lengths[0]].tolist()
        problems.append(f"vectors differ in length ({lengths[0]} first, otherwise for {odd[:5]})")
    else:
        bad = [item for item, row in zip(ids, rows, strict=True) if not np.isfinite(row).all()]
        if bad:
            problems.append(f"{len(bad)} vectors hold NaN or infinity, of items {bad[:5]}")
    places = pd.Index(ids).get_indexer(pd.Index(item_ids)) if not twice else np.zeros(len(item_ids), dtype=np.int64)
    if (places < 0).all():
        problems.append(f"none of the {len(item_ids)} items is in it; its ids look like {ids.head(3).tolist()}")
    raise_all(f"embed.vectors: {brought.file} cannot be used:", problems)
    there = places >= 0
    joined = np.zeros((len(item_ids), int(lengths[0])), dtype=np.float32)
    joined[there] = np.stack(rows)[places[there]]
    norms = np.linalg.norm(joined, axis=1, keepdims=True)
    scaled = (joined * (brought.weight / np.where(norms > 0, norms, 1))).astype(np.float32)
    return Joined(brought.file, scaled, int((~there).sum()))


def _read(path: Path) -> tuple[pd.Series, list[NDArray[np.float32]]]:
    """Ids as text and vectors."""
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise GtiError(f"embed.vectors: {path} cannot be read as Parquet: {error}") from error
    missing = [name for name in (c.ITEM_ID, c.EMBEDDING) if name not in table.column_names]
    if missing:
        raise GtiError(f"embed.vectors: {path} has no column {missing}; columns there: {table.column_names}")
    if not table.num_rows:
        raise GtiError(f"embed.vectors: {path} has no rows")
    ids = pd.Series([str(value) for value in table[c.ITEM_ID].to_pylist()])
    return ids, [np.asarray(row if row is not None else [], dtype=np.float32) for row in table[c.EMBEDDING].to_pylist()]
