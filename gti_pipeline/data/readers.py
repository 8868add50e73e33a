"""Reads CSV, Parquet and JSON lines as text, with exact line numbers; what cannot be read becomes a reject."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from gti_pipeline import columns as c
from gti_pipeline.errors import GtiError
from gti_pipeline.schemas import REJECTED

BOM = b"\xef\xbb\xbf"
WRONG_FIELDS = "wrong number of fields"
OPEN_QUOTE = "unclosed quote"
LONG_FIELD = "field too long"
BAD_JSON = "not a JSON object"


@dataclass(frozen=True)
class RawTable:
    """The rows of one or several files, nothing interpreted yet.

    `rows`: the files' own columns, each value text or None (empty text is None too). `origin`: file, line (the first
    line of the row; in Parquet the row's number, from 1) and raw text of the same rows. `rejected`: as
    `schemas.REJECTED`. `rows_read`: data rows per file; always the rows kept plus the rows rejected.
    """

    rows: pd.DataFrame
    origin: pd.DataFrame
    rejected: pd.DataFrame
    rows_read: dict[str, int]


def read_table(path: Path, file: str, delimiter: str = ",") -> RawTable:
    """Reads one file; its format follows from its name, `.gz` allowed for text.

    Args:
        path: where the file is.
        file: what it is called in rejects and messages.
        delimiter: of CSV; one character.

    Raises:
        GtiError: an unknown format, a file that is damaged, not UTF-8, or without a usable header.
    """
    kind = Path(path.name.removesuffix(".gz")).suffix.lower()
    if kind == ".parquet":
        return _read_parquet(path, file)
    if kind in (".csv", ".tsv", ".txt"):
        return _read_csv(_read_text(path), file, delimiter)
    if kind in (".jsonl", ".json", ".ndjson"):
        return _read_json_lines(_read_text(path), file)
    raise GtiError(f"{path}: unknown format {kind or '(none)'!r}: use .csv, .tsv, .txt, .parquet, .jsonl or .json")


def concat(tables: Sequence[RawTable]) -> RawTable:
    """One table of all files' rows, in the order given; a column that a file lacks is None there."""
    rows = pd.concat([table.rows for table in tables], ignore_index=True).astype(object)
    return RawTable(
        rows=rows.where(rows.notna(), None),
        origin=pd.concat([table.origin for table in tables], ignore_index=True),
        rejected=pd.concat([table.rejected for table in tables], ignore_index=True),
        rows_read={file: count for table in tables for file, count in table.rows_read.items()},
    )


def _read_text(path: Path) -> str:
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError) as error:
        raise GtiError(f"{path}: cannot be read: {error}") from error
    skipped = len(BOM) if content.startswith(BOM) else 0
    try:
        return content[skipped:].decode("utf-8")
    except UnicodeDecodeError as error:
        offset = error.start + skipped
        raise GtiError(
            f"{path}: byte {content[offset]:#04x} at offset {offset} is not UTF-8:"
            " convert the file to UTF-8 (it may be Windows-1252)"
        ) from error


def _table(
    file: str,
    names: Sequence[str],
    kept: list[tuple[list[Any], int, str]],
    rejects: list[tuple[Any, ...]],
    rows_read: int,
) -> RawTable:
    if len(kept) + len(rejects) != rows_read:
        raise GtiError(f"{file}: {rows_read} rows read, but {len(kept)} kept + {len(rejects)} rejected: report a bug")
    return RawTable(
        rows=pd.DataFrame([values for values, _, _ in kept], columns=list(names), dtype=object),
        origin=pd.DataFrame({c.FILE: file, c.LINE: [line for _, line, _ in kept], c.RAW: [raw for _, _, raw in kept]}),
        rejected=pd.DataFrame(rejects, columns=list(REJECTED.fields)),
        rows_read={file: rows_read},
    )


# ---------------------------------------------------------------------------------------------------------------- CSV


def _read_csv(text: str, file: str, delimiter: str) -> RawTable:
    lines = list(io.StringIO(text, newline=""))  # splits where the csv module does: \n, \r\n and \r only
    names, first = _header(lines, file, delimiter)
    kept: list[tuple[list[Any], int, str]] = []
    rejects: list[tuple[Any, ...]] = []
    rows_read = 0
    for begin, end, fields, problem in _records(lines, first, delimiter, len(names)):
        rows_read += 1
        raw = "".join(lines[begin:end]).rstrip("\r\n")
        if problem:
            rejects.append((file, begin + 1, problem, raw))
        else:
            kept.append(([value or None for value in fields], begin + 1, raw))
    return _table(file, names, kept, rejects, rows_read)


def _header(lines: list[str], file: str, delimiter: str) -> tuple[list[str], int]:
    """Column names and the index of the line after them."""
    reader = csv.reader(lines, delimiter=delimiter)
    names = [name.strip() for name in next(reader, [])]
    if not any(names):
        raise GtiError(f"{file}: line 1 has no column names: the first line must be a header")
    twice = sorted({name for name in names if name and names.count(name) > 1})
    if twice:
        raise GtiError(f"{file}: line 1 names {twice} more than once: rename the columns so that each name is unique")
    return names, reader.line_num


def _records(
    lines: list[str], first: int, delimiter: str, width: int
) -> Iterator[tuple[int, int, list[str], str | None]]:
    """Yields (begin, end, fields, problem) of each row, lines[begin:end]; blank lines are no rows.

    A stray quote opens a field that swallows the rows after it. So a row of several lines must obey the quoting rules
    strictly; where it does not, only its first line is bad and reading goes on at the next.
    """
    begin = first
    while begin < len(lines):
        origin = begin
        reader = csv.reader((lines[i] for i in range(origin, len(lines))), delimiter=delimiter)
        while begin < len(lines):
            fields, problem = _next_row(reader, width)
            end = origin + reader.line_num
            if (end > begin + 1 or end == len(lines)) and _breaks_quoting(lines[begin:end], delimiter):
                yield begin, begin + 1, [], OPEN_QUOTE
                begin += 1
                break
            if fields or problem:
                yield begin, end, fields, problem
            begin = end


def _next_row(reader: Any, width: int) -> tuple[list[str], str | None]:
    try:
        fields = next(reader)
    except csv.Error:
        return [], LONG_FIELD
    return fields, WRONG_FIELDS if fields and len(fields) != width else None


def _breaks_quoting(chunk: list[str], delimiter: str) -> bool:
    """Whether a quote stays open at the end of the row or, over several lines, closes in the middle of a field."""
    if len(chunk) == 1:
        probe = [chunk[0].rstrip("\r\n") + "\n", "\n"]  # a closed row leaves the blank line as a row of its own
        try:
            return len(list(csv.reader(probe, delimiter=delimiter))) == 1
        except csv.Error:
            return False
    try:
        list(csv.reader(chunk, delimiter=delimiter, strict=True))
    except csv.Error:
        return True
    return False


# --------------------------------------------------------------------------------------------- JSON lines and Parquet


def _read_json_lines(text: str, file: str) -> RawTable:
    if text.lstrip().startswith("["):
        raise GtiError(f"{file}: holds one JSON array: write one object per line instead (JSON lines)")
    objects: list[tuple[dict[str, Any], int, str]] = []
    rejects: list[tuple[Any, ...]] = []
    rows_read = 0
    for number, line in enumerate(io.StringIO(text, newline=""), start=1):
        raw = line.strip()
        if not raw:
            continue
        rows_read += 1
        value = _parse_object(raw)
        if value is None:
            rejects.append((file, number, BAD_JSON, raw))
        else:
            objects.append((value, number, raw))
    names = list(dict.fromkeys(name for value, _, _ in objects for name in value))
    kept = [([_as_text(value.get(name)) for name in names], number, raw) for value, number, raw in objects]
    return _table(file, names, kept, rejects, rows_read)


def _parse_object(raw: str) -> dict[str, Any] | None:
    try:
        # numbers keep the text they were written in; NaN and Infinity are no JSON and count as null
        value = json.loads(raw, parse_int=str, parse_float=str, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _read_parquet(path: Path, file: str) -> RawTable:
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise GtiError(f"{path}: cannot be read as Parquet: {error}") from error
    columns = [[_as_text(value) for value in column.to_pylist()] for column in table.columns]
    rows = [list(row) for row in zip(*columns, strict=True)]
    kept = [(row, number, json.dumps(row, ensure_ascii=False)) for number, row in enumerate(rows, start=1)]
    return _table(file, table.column_names, kept, [], table.num_rows)


def _as_text(value: Any) -> str | None:
    """Text of one typed value; lists become Python-style list text, dates ISO text."""
    if value is None or value == "" or value != value:  # NaN is the one value that differs from itself
        return None
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
