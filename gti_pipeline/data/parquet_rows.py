"""Parquet by row groups, every value as text."""

from __future__ import annotations

import contextlib
import json
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gti_pipeline.data.chunk import TEXT, Chunk
from gti_pipeline.data.json_rows import as_text
from gti_pipeline.errors import GtiError

BATCH_ROWS = 1 << 16
EXACT_FLOATS = 2**53  # whole numbers above it are not exact as floats


def parquet_chunks(path: Path, wanted: Sequence[str] | None) -> Iterator[Chunk]:
    """Yields the rows of a Parquet file, at least one chunk; the line is the row's number from 1.

    Raises:
        GtiError: the file is damaged or names a column twice.
    """
    names: list[str] = []
    row = 0
    for batch in _batches(path, wanted, names):
        columns = [text_column(column) for column in batch.columns]
        numbers = np.arange(row, row + batch.num_rows, dtype=np.int64)
        table = pa.table(columns, names=batch.schema.names) if columns else pa.table({})
        yield Chunk(tuple(names), table, numbers + 1, numbers, numbers + 1)
        row += batch.num_rows


def read_rows(path: Path, rows: Sequence[int]) -> Iterator[list[str | None]]:
    """Yields all values of the rows at the ascending positions `rows`, from 0."""
    start = 0
    for batch in _batches(path, None, []):
        first, last = bisect_left(rows, start), bisect_left(rows, start + batch.num_rows)
        inside = pa.array([row - start for row in rows[first:last]], pa.int64())
        for row in batch.take(inside).to_pylist():
            yield [as_text(value) for value in row.values()]
        start += batch.num_rows
        if last == len(rows):
            return


def raw_row(values: Sequence[str | None]) -> str:
    """How a row of Parquet is shown among the rejects."""
    return json.dumps(list(values), ensure_ascii=False)


def _batches(path: Path, wanted: Sequence[str] | None, names: list[str]) -> Iterator[pa.RecordBatch]:
    """Yields batches of the wanted columns, an empty one for an empty file; fills `names` with all columns."""
    try:
        file = pq.ParquetFile(path)
        names += file.schema_arrow.names
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise GtiError(f"{path}: has several columns called {twice}: rename them so that each name is unique")
        picked = [name for name in names if wanted is None or name in wanted]
        yield from file.iter_batches(BATCH_ROWS, columns=picked)
        if not file.metadata.num_rows:
            yield pa.RecordBatch.from_pylist([], schema=pa.schema([file.schema_arrow.field(name) for name in picked]))
    except (OSError, pa.ArrowException) as error:
        raise GtiError(f"{path}: cannot be read as Parquet: {error}") from error


def text_column(column: pa.Array) -> pa.Array:
    """A column as `TEXT`, null where empty or NaN; a float that is whole is written without its `.0`."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return text_column(column.cast(kind.value_type))
    if pa.types.is_null(kind):
        return pa.nulls(len(column), TEXT)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        text = column.cast(TEXT)
        return pc.if_else(pc.equal(text, ""), pa.scalar(None, TEXT), text)
    if pa.types.is_integer(kind):
        return column.cast(TEXT)
    if pa.types.is_floating(kind):
        return _floats(column.cast(pa.float64()))
    if pa.types.is_timestamp(kind):
        return _timestamps(column)
    return pa.array([_plain(value) for value in column.to_pylist()], TEXT)


def _plain(value: object) -> str | None:
    """Text of a value of a rarer type; bytes, as some writers store text, are read as UTF-8."""
    return as_text(value.decode("utf-8", "replace") if isinstance(value, bytes) else value)


def _floats(column: pa.Array) -> pa.Array:
    column = pc.if_else(pc.is_nan(column), pa.scalar(None, pa.float64()), column)
    whole = pc.and_(pc.equal(pc.floor(column), column), pc.less(pc.abs(column), float(EXACT_FLOATS)))
    whole = pc.fill_null(whole, False)
    if pc.all(whole).as_py() or len(column) == column.null_count:
        return column.cast(pa.int64()).cast(TEXT)
    integers = pc.if_else(whole, column, 0.0).cast(pa.int64()).cast(TEXT)
    texts = pa.array([as_text(value) for value in column.to_pylist()], TEXT)
    return pc.if_else(whole, integers, texts)


def _timestamps(column: pa.Array) -> pa.Array:
    """ISO text; fractions only where there are some, `+00:00` where the column has a time zone."""
    zoned = column.type.tz is not None
    column = column.cast(pa.timestamp(column.type.unit, "UTC")).cast(pa.timestamp(column.type.unit))
    with contextlib.suppress(pa.ArrowInvalid):  # raised where there are fractions
        column = column.cast(pa.timestamp("s"))
    text = pc.strftime(column, "%Y-%m-%dT%H:%M:%S").cast(TEXT)
    return pc.binary_join_element_wise(text, pa.scalar("+00:00", TEXT), pa.scalar("", TEXT)) if zoned else text
