"""Reads CSV, Parquet and JSON lines as text, with exact line numbers; what cannot be read becomes a reject."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from gti_pipeline import columns as c
from gti_pipeline.config import TableConfig
from gti_pipeline.data.blocks import read_spans
from gti_pipeline.data.chunk import STR, TEXT, Chunk, text_series
from gti_pipeline.data.csv_rows import csv_chunks, delimiter_of, record
from gti_pipeline.data.json_rows import as_text, json_chunks, parse_object
from gti_pipeline.data.parquet_rows import parquet_chunks, raw_row, read_rows
from gti_pipeline.errors import GtiError
from gti_pipeline.schemas import REJECTED

CSV, JSON, PARQUET = "csv", "json", "parquet"
FORMATS = {
    ".csv": CSV,
    ".tsv": CSV,
    ".txt": CSV,
    ".dat": CSV,
    ".data": CSV,
    ".item": CSV,
    ".jsonl": JSON,
    ".json": JSON,
    ".ndjson": JSON,
    ".parquet": PARQUET,
}
BEGIN, END = "begin", "end"


@dataclass(frozen=True)
class TableFile:
    """A file, what it is called in rejects and messages, and how it is written."""

    path: Path
    name: str
    config: TableConfig

    @property
    def format(self) -> str:
        """CSV, JSON or PARQUET."""
        kind = suffix(self.path)
        if kind not in FORMATS:
            raise GtiError(f"{self.path}: unknown format {kind or '(none)'!r}: use one of {', '.join(FORMATS)}")
        return FORMATS[kind]


def suffix(path: Path) -> str:
    """The ending that tells the format, `.gz` aside."""
    return Path(path.name.removesuffix(".gz")).suffix.lower()


@dataclass(frozen=True)
class RawTable:
    """The rows of one or several files, nothing interpreted yet.

    `rows`: the columns asked for, each value text or missing (empty text is missing too). `origin`: of the same rows,
    the file (its place in `files`), the line (the first line of the row; in Parquet the row's number, from 1), and
    where its text begins and ends. `rejected`: as `schemas.REJECTED`. `columns`: all columns per file. `rows_read`:
    data rows per file, always the rows here plus the rejected ones plus those that `left_out` counts (rows of another
    kind than `keep` asks for).
    """

    rows: pd.DataFrame
    origin: pd.DataFrame
    rejected: pd.DataFrame
    files: tuple[TableFile, ...]
    columns: dict[str, tuple[str, ...]]
    rows_read: dict[str, int]
    left_out: dict[str, int]

    def raw(self, positions: NDArray[np.int64]) -> list[str]:
        """The texts of the rows at ascending positions, read from the files once more."""
        texts: list[str] = []
        for file, spans in self._spans(positions):
            texts += _raw_texts(file, spans)
        return texts

    def whole(self, positions: NDArray[np.int64]) -> Iterator[dict[str, str]]:
        """Yields all columns of the rows at ascending positions but missing values, read from the files once more."""
        for file, spans in self._spans(positions):
            for row in _whole_rows(file, spans, self.columns[file.name]):
                yield {name: value for name, value in row.items() if value}

    def _spans(self, positions: NDArray[np.int64]) -> Iterator[tuple[TableFile, pd.DataFrame]]:
        origin = self.origin.iloc[positions]
        for place, file in enumerate(self.files):
            spans = origin[origin[c.FILE] == place]
            if len(spans):
                yield file, spans


def read_table(
    path: Path, file: str, config: TableConfig | None = None, wanted: Sequence[str] | None = None
) -> RawTable:
    """Reads one file in chunks; its format follows from its name, `.gz` allowed for text.

    Args:
        path: where the file is.
        file: what it is called in rejects and messages.
        config: how it is written.
        wanted: the columns to take, of those that are there; None takes all.

    Raises:
        GtiError: an unknown format, a file that is damaged, not of its encoding, or without a usable header.
    """
    source = TableFile(path, file, config or TableConfig())
    needed = None if wanted is None else [*wanted, *source.config.keep]
    columns: dict[str, None] = {}
    chunks, left_out, rows_read = [], 0, 0
    for chunk in _chunks(source, needed):
        columns |= dict.fromkeys(chunk.columns)
        rows_read += chunk.rows_read
        kept = _kept(chunk, source.config.keep)
        left_out += len(chunk.line) - len(kept.line)
        chunks.append(kept)
    names = [name for name in columns if wanted is None or name in wanted]
    return _table(source, tuple(columns), names, chunks, rows_read, left_out)


def concat(tables: Sequence[RawTable]) -> RawTable:
    """One table of all files' rows, in the order given; a column that a file lacks is missing there."""
    names = list(dict.fromkeys(name for table in tables for name in table.rows))
    starts = np.cumsum([0, *(len(table.files) for table in tables)])
    origins = [
        table.origin.assign(**{c.FILE: table.origin[c.FILE] + start})
        for table, start in zip(tables, starts, strict=False)
    ]
    return RawTable(
        rows=pd.concat([table.rows.reindex(columns=names).astype(STR) for table in tables], ignore_index=True),
        origin=pd.concat(origins, ignore_index=True),
        rejected=pd.concat([table.rejected for table in tables], ignore_index=True),
        files=tuple(file for table in tables for file in table.files),
        columns={file: names for table in tables for file, names in table.columns.items()},
        rows_read={file: count for table in tables for file, count in table.rows_read.items()},
        left_out={file: count for table in tables for file, count in table.left_out.items()},
    )


def _chunks(source: TableFile, wanted: Sequence[str] | None) -> Iterator[Chunk]:
    if source.format == CSV:
        return csv_chunks(source.path, source.name, source.config, wanted)
    if source.format == JSON:
        return json_chunks(source.path, source.name, source.config, wanted)
    return parquet_chunks(source.path, wanted)


def _kept(chunk: Chunk, keep: Mapping[str, Sequence[str]]) -> Chunk:
    """The rows whose columns have one of the values asked for; columns that are not there are told elsewhere."""
    mask = np.ones(len(chunk.line), dtype=bool)
    for name, values in keep.items():
        if name in chunk.values.column_names:
            column = pc.utf8_trim_whitespace(chunk.values.column(name))
            mask &= pc.is_in(column, pa.array(values, TEXT)).to_numpy()
        elif name not in chunk.columns and len(mask):
            mask[:] = False
    if mask.all():
        return chunk
    values = chunk.values.filter(pa.array(mask))
    return Chunk(chunk.columns, values, chunk.line[mask], chunk.begin[mask], chunk.end[mask], chunk.rejects)


def _table(
    source: TableFile,
    columns: tuple[str, ...],
    names: Sequence[str],
    chunks: Sequence[Chunk],
    rows_read: int,
    left_out: int,
) -> RawTable:
    line = np.concatenate([chunk.line for chunk in chunks])
    rejects = [(source.name, *reject) for chunk in chunks for reject in chunk.rejects]
    if len(line) + len(rejects) + left_out != rows_read:
        raise GtiError(
            f"{source.name}: {rows_read} rows read, but {len(line)} kept + {len(rejects)} rejected + {left_out} left"
            " out: report a bug"
        )
    origin = {
        c.FILE: np.zeros(len(line), dtype=np.int64),
        c.LINE: line,
        BEGIN: np.concatenate([chunk.begin for chunk in chunks]),
        END: np.concatenate([chunk.end for chunk in chunks]),
    }
    return RawTable(
        rows=_rows(chunks, names),
        origin=pd.DataFrame(origin),
        rejected=pd.DataFrame(rejects, columns=list(REJECTED.fields)),
        files=(source,),
        columns={source.name: columns},
        rows_read={source.name: rows_read},
        left_out={source.name: left_out},
    )


def _rows(chunks: Sequence[Chunk], names: Sequence[str]) -> pd.DataFrame:
    """The chunks' values as `str` columns; a column that a chunk lacks is missing there."""
    frame = pd.DataFrame(index=pd.RangeIndex(sum(len(chunk.line) for chunk in chunks)))
    for name in names:
        parts: list[pa.Array] = []
        for chunk in chunks:
            there = name in chunk.values.column_names
            parts += chunk.values.column(name).chunks if there else [pa.nulls(len(chunk.line), TEXT)]
        frame[name] = text_series(parts, frame.index)
    return frame


def _raw_texts(file: TableFile, spans: pd.DataFrame) -> Iterator[str]:
    begins, ends = spans[BEGIN].tolist(), spans[END].tolist()
    if file.format == PARQUET:
        return (raw_row(row) for row in read_rows(file.path, begins))
    texts = read_spans(file.path, file.config.encoding, list(zip(begins, ends, strict=True)))
    return (text.strip() if file.format == JSON else text.rstrip("\r\n") for text in texts)


def _whole_rows(file: TableFile, spans: pd.DataFrame, columns: Sequence[str]) -> Iterator[dict[str, str | None]]:
    if file.format == PARQUET:
        for row in read_rows(file.path, spans[BEGIN].tolist()):
            yield dict(zip(columns, row, strict=True))
        return
    for text in _raw_texts(file, spans):
        if file.format == JSON:
            yield {name: as_text(value) for name, value in (parse_object(text) or {}).items()}
        else:
            fields = record(text, delimiter_of(file.path, file.config))
            yield {name: value or None for name, value in zip(columns, fields, strict=True)}
