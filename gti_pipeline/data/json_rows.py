"""JSON lines in blocks, numbers as they were written; also the Python-style lines of the Amazon 2014 metadata."""

from __future__ import annotations

import ast
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gti_pipeline.config import TableConfig
from gti_pipeline.data.blocks import byte_lengths, text_blocks, text_start
from gti_pipeline.data.chunk import Chunk, positions, text_table
from gti_pipeline.errors import GtiError

BAD_JSON = "not a JSON object"


def json_chunks(path: Path, file: str, config: TableConfig, wanted: Sequence[str] | None) -> Iterator[Chunk]:
    """Yields the rows of a JSON-lines file, at least one chunk; `wanted` None takes all columns.

    Raises:
        GtiError: the file cannot be read, or holds one array.
    """
    if text_start(path, config.encoding).lstrip().startswith("["):
        raise GtiError(
            f"{file}: holds one JSON array: write one object per line instead (JSON lines), for example with"
            f" `jq -c '.[]' {Path(file).name}`"
        )
    line, offset = 1, 0
    for block, _ in text_blocks(path, config.encoding):
        lines = list(io.StringIO(block.decode(), newline=""))
        yield _chunk(lines, block, line, offset, wanted)
        line, offset = line + len(lines), offset + len(block)


def _chunk(lines: list[str], block: bytes, line: int, offset: int, wanted: Sequence[str] | None) -> Chunk:
    bounds = np.cumsum([offset, *byte_lengths(lines, block)])
    parsed = {number: parse_object(text) for number, text in enumerate(lines) if text.strip()}
    kept = {number: value for number, value in parsed.items() if value is not None}
    columns = tuple(dict.fromkeys(name for value in kept.values() for name in value))
    names = [name for name in columns if wanted is None or name in wanted]
    return Chunk(
        columns=columns,
        values=text_table(names, [[as_text(value.get(name)) for name in names] for value in kept.values()]),
        line=positions([number + line for number in kept]),
        begin=bounds[list(kept)] if kept else positions([]),
        end=bounds[[number + 1 for number in kept]] if kept else positions([]),
        rejects=tuple((n + line, BAD_JSON, lines[n].strip()) for n, value in parsed.items() if value is None),
    )


def parse_object(raw: str) -> dict[str, Any] | None:
    """The object of one line, its numbers as text; None where it is none. NaN and Infinity count as null."""
    try:
        value = json.loads(raw, parse_int=str, parse_float=str, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        value = _python_object(raw)
    return value if isinstance(value, dict) else None


def _python_object(raw: str) -> Any:
    if not raw.lstrip().startswith(("{'", '{"')):
        return None
    try:
        value = ast.literal_eval(raw.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return {str(name): entry for name, entry in value.items()} if isinstance(value, dict) else None


def as_text(value: Any) -> str | None:
    """Text of one typed value: lists as Python-style list text, dates as ISO text; empty text and NaN are null."""
    if value is None or value == "" or value != value:  # NaN is the one value that differs from itself
        return None
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
