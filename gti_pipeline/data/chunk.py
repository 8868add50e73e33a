"""What a reader yields: some rows of a file, each with where it stood."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

TEXT = pa.large_string()
STR = pd.StringDtype(na_value=np.nan)  # how pandas holds it


@dataclass(frozen=True)
class Chunk:
    """Some rows of a file, in order.

    `columns`: every column of the file seen here. `values`: the wanted ones, `TEXT`, null where empty. `line`: the
    first line of each row. `begin`, `end`: its bytes in the file's text as UTF-8 (in Parquet: its row). `rejects`:
    (line, reason, raw text) of rows that cannot be read.
    """

    columns: tuple[str, ...]
    values: pa.Table
    line: NDArray[np.int64]
    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    rejects: tuple[tuple[int, str, str], ...] = ()

    @property
    def rows_read(self) -> int:
        """All data rows seen, rejected ones included."""
        return len(self.line) + len(self.rejects)


def text_table(names: Sequence[str], rows: Sequence[Sequence[str | None]]) -> pa.Table:
    """A table of `TEXT` columns from rows of values; empty text becomes null."""
    columns = list(zip(*rows, strict=True)) if rows else [() for _ in names]
    return pa.table([pa.array([value or None for value in column], TEXT) for column in columns], names=list(names))


def text_series(parts: Sequence[pa.Array], index: pd.Index) -> pd.Series:
    """Arrays of `TEXT`, one after the other, as a pandas column of `STR`, in one piece."""
    whole = pa.chunked_array(parts, TEXT).combine_chunks()
    return pd.Series(pd.array(whole, dtype=STR), index=index)


def is_in(values: pd.Series, among: pd.Series) -> NDArray[np.bool_]:
    """Which values of a `STR` column are among those of another; pandas' own `isin` calls Python for each of them."""
    found = pc.is_in(pa.array(values, TEXT), pa.array(among, TEXT), skip_nulls=True)
    return np.asarray(found, dtype=bool)


def positions(values: Sequence[int]) -> NDArray[np.int64]:
    """Whole numbers as an array."""
    return np.array(values, dtype=np.int64)
