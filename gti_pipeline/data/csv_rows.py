"""CSV in blocks, with exact line numbers: Arrow's parser for blocks without quotes, the csv module for the others.

Both paths give the same rows, lines and rejects; the csv module's is the one that defines them.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from gti_pipeline.config import TableConfig
from gti_pipeline.data.blocks import byte_lengths, text_blocks
from gti_pipeline.data.chunk import TEXT, Chunk, positions, text_table
from gti_pipeline.errors import GtiError

WRONG_FIELDS = "wrong number of fields"
OPEN_QUOTE = "unclosed quote"
LONG_FIELD = "field too long"
ONE_BYTE = "\x1f"  # stands for a longer delimiter while Arrow parses

Found = tuple[int, int, list[str], str | None]  # first line, line after, fields, problem


@dataclass(frozen=True)
class _Layout:
    delimiter: str
    names: tuple[str, ...]
    wanted: tuple[int, ...]  # which of the names

    @property
    def picked(self) -> list[str]:
        return [self.names[index] for index in self.wanted]


@dataclass(frozen=True)
class _Parsed:
    """A block's rows, counted from the block's start, and how much of the block they are."""

    values: pa.Table
    line: NDArray[np.int64]
    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    rejects: list[tuple[int, str, str]]
    lines: int
    size: int


def csv_chunks(path: Path, file: str, config: TableConfig, wanted: Sequence[str] | None) -> Iterator[Chunk]:
    """Yields the rows of a CSV file, at least one chunk; `wanted` None takes all columns.

    A delimiter of several characters knows no quotes. Blank lines are no rows.

    Raises:
        GtiError: the file cannot be read or has no usable header.
    """
    layout, line, offset, rest = None, 1, 0, b""
    for block, last in text_blocks(path, config.encoding):
        text = rest + block
        if layout is None:
            layout, lines = _start(text, file, path, config, wanted)
            skipped = sum(map(len, text.splitlines(keepends=True)[:lines]))
            text, line, offset = text[skipped:], 1 + lines, skipped
        parsed = _parse_plain(text, layout) or _parse_any(text, layout, last)
        yield Chunk(
            columns=layout.names,
            values=parsed.values,
            line=parsed.line + line,
            begin=parsed.begin + offset,
            end=parsed.end + offset,
            rejects=tuple((number + line, reason, raw) for number, reason, raw in parsed.rejects),
        )
        line, offset, rest = line + parsed.lines, offset + parsed.size, text[parsed.size :]


def record(raw: str, delimiter: str) -> list[str]:
    """The fields of one row's text."""
    if len(delimiter) > 1:
        return raw.split(delimiter)
    return next(csv.reader(io.StringIO(raw, newline=""), delimiter=delimiter))


# ------------------------------------------------------------------------------------------------------------- header


def delimiter_of(path: Path, config: TableConfig) -> str:
    """The configured delimiter; a .tsv file is split at tabs where none but the default is configured."""
    is_tsv = Path(path.name.removesuffix(".gz")).suffix.lower() == ".tsv"
    return "\t" if is_tsv and config.delimiter == "," else config.delimiter


def _start(
    text: bytes, file: str, path: Path, config: TableConfig, wanted: Sequence[str] | None
) -> tuple[_Layout, int]:
    """The layout, and how many lines the header takes."""
    delimiter = delimiter_of(path, config)
    names, lines = (list(config.header), 0) if config.header else _header(text, file, delimiter)
    picked = [index for index, name in enumerate(names) if wanted is None or name in wanted]
    return _Layout(delimiter, tuple(names), tuple(picked)), lines


def _header(text: bytes, file: str, delimiter: str) -> tuple[list[str], int]:
    """Column names and how many lines they take."""
    first = text[: csv.field_size_limit()].decode(errors="ignore")
    if len(delimiter) > 1:
        line = next(io.StringIO(first, newline=""), "").rstrip("\r\n")
        names, lines = [name.strip() for name in line.split(delimiter)], 1
    else:
        reader = csv.reader(io.StringIO(first, newline=""), delimiter=delimiter)
        names, lines = [name.strip() for name in next(reader, [])], reader.line_num
    if not any(names):
        raise GtiError(f"{file}: line 1 has no column names: the first line must be a header, or `header` be set")
    twice = sorted({name for name in names if name and names.count(name) > 1})
    if twice:
        raise GtiError(f"{file}: line 1 names {twice} more than once: rename the columns so that each name is unique")
    return names, lines


# -------------------------------------------------------------------------------------------------------- quick parser


def _parse_plain(text: bytes, layout: _Layout) -> _Parsed | None:
    """Parses a block where each line is one row; None where that is not sure."""
    delimiter = layout.delimiter
    if delimiter.encode() != delimiter.encode("ascii", "ignore") or len(delimiter) > 1:
        if ONE_BYTE.encode() in text:
            return None
        plain = text.replace(delimiter.encode(), ONE_BYTE.encode())
        delimiter = ONE_BYTE
    else:
        plain = text
    quoted = len(layout.delimiter) == 1 and b'"' in text
    if quoted or text.count(b"\r") != text.count(b"\r\n"):
        return None
    begin, end, fields = _lines(plain, delimiter)
    if len(begin) and int((end - begin).max()) > csv.field_size_limit():
        return None
    row = end > begin
    good = row & (fields == len(layout.names))
    values = _arrow(plain, delimiter, layout, int(good.sum()))
    if plain is not text:
        begin, end, _ = _lines(text, delimiter)
    bad = np.flatnonzero(row & ~good)
    rejects = [(int(n), WRONG_FIELDS, text[begin[n] : end[n]].decode()) for n in bad]
    return _Parsed(values, np.flatnonzero(good), begin[good], end[good], rejects, len(begin), len(text))


def _lines(text: bytes, delimiter: str) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Begin and end (without its line end) of each line, and its number of fields."""
    data = np.frombuffer(text, dtype=np.uint8)
    stop = np.flatnonzero(data == ord("\n"))
    if text and not text.endswith(b"\n"):
        stop = np.append(stop, len(text))
    begin = np.append(0, stop[:-1] + 1) if len(stop) else stop
    has_cr = (stop > begin) & (data[np.maximum(stop - 1, 0)] == ord("\r")) if len(stop) else stop > begin
    marks = np.flatnonzero(data == ord(delimiter))
    fields = np.searchsorted(marks, stop) - np.searchsorted(marks, begin) + 1
    return begin, stop - has_cr, fields


def _arrow(text: bytes, delimiter: str, layout: _Layout, expected: int) -> pa.Table:
    """The wanted columns of the lines that have all fields."""
    if not expected or not layout.wanted:
        return text_table(layout.picked, [()] * 0)
    names = [str(index) for index in range(len(layout.names))]  # the true ones may be empty
    table = pa_csv.read_csv(
        pa.BufferReader(text),
        pa_csv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=names),
        pa_csv.ParseOptions(
            delimiter=delimiter, quote_char=False, escape_char=False, invalid_row_handler=lambda _: "skip"
        ),
        pa_csv.ConvertOptions(
            check_utf8=False,
            column_types=dict.fromkeys(names, TEXT),
            null_values=[""],
            strings_can_be_null=True,
            include_columns=[names[index] for index in layout.wanted],
        ),
    )
    if table.num_rows != expected:
        raise GtiError(f"Arrow finds {table.num_rows} rows in a block of {expected}: report a bug")
    return table.rename_columns(layout.picked)


# --------------------------------------------------------------------------------------------------------- any parser


def _parse_any(text: bytes, layout: _Layout, last: bool) -> _Parsed:
    """Parses any block; a row that reaches the end of a block that is not the last is left for the next one."""
    lines = list(io.StringIO(text.decode(), newline=""))  # splits where the csv module does: \n, \r\n and \r only
    bounds = np.cumsum([0, *byte_lengths(lines, text)])
    kept: list[tuple[int, int, list[str]]] = []
    rejects: list[tuple[int, str, str]] = []
    used = 0
    for begin, end, fields, problem in _records(lines, layout, last):
        used = end
        if problem:
            rejects.append((begin, problem, "".join(lines[begin:end]).rstrip("\r\n")))
        else:
            kept.append((begin, end, fields))
    used = len(lines) if last else used
    return _Parsed(
        values=text_table(layout.picked, [[fields[index] for index in layout.wanted] for _, _, fields in kept]),
        line=positions([begin for begin, _, _ in kept]),
        begin=bounds[[begin for begin, _, _ in kept]] if kept else positions([]),
        end=bounds[[end for _, end, _ in kept]] if kept else positions([]),
        rejects=rejects,
        lines=used,
        size=int(bounds[used]),
    )


def _records(lines: list[str], layout: _Layout, last: bool) -> Iterator[Found]:
    """Yields (begin, end, fields, problem) of each row, lines[begin:end]; blank lines are no rows."""
    if len(layout.delimiter) == 1:
        yield from _quoted(lines, layout, last)
        return
    for number, line in enumerate(lines):
        text = line.rstrip("\r\n")
        if text:
            fields = text.split(layout.delimiter)
            yield number, number + 1, fields, WRONG_FIELDS if len(fields) != len(layout.names) else None


def _quoted(lines: list[str], layout: _Layout, last: bool) -> Iterator[Found]:
    """Rows by the csv module.

    A stray quote opens a field that swallows the rows after it. So a row of several lines must obey the quoting rules
    strictly; where it does not, only its first line is bad and reading goes on at the next.
    """
    begin = 0
    while begin < len(lines):
        origin = begin
        reader = csv.reader((lines[i] for i in range(origin, len(lines))), delimiter=layout.delimiter)
        while begin < len(lines):
            fields, problem = _next_row(reader, len(layout.names))
            end = origin + reader.line_num
            if end == len(lines) and not last:
                return
            if (end > begin + 1 or end == len(lines)) and _breaks_quoting(lines[begin:end], layout.delimiter):
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
