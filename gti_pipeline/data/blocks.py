"""Text files as blocks of whole lines in UTF-8, whatever their encoding, gzipped or not; memory stays small."""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from gti_pipeline.errors import GtiError

BLOCK_BYTES = 1 << 24


def encoding_problem(encoding: str) -> str | None:
    """What is wrong with the name of an encoding, or None."""
    try:
        "".encode(encoding)  # refuses codecs that are no text encodings, as base64
        codecs.getincrementaldecoder(encoding)
    except (LookupError, ValueError):
        return f"{encoding!r} is no encoding: for example utf-8, windows-1252, latin-1 or utf-16"
    return None


def text_blocks(path: Path, encoding: str) -> Iterator[tuple[bytes, bool]]:
    """Yields (block, whether it is the last): UTF-8 without a byte-order mark, whole lines; the last may be empty.

    Raises:
        GtiError: the file cannot be read, or a byte (named, with its offset) is not of the encoding.
    """
    pieces: list[bytes] = []  # of a line that is not complete yet
    for text in _decoded(path, encoding):
        piece = text.encode("utf-8", "replace")
        cut = _line_end(piece)
        if cut:
            yield b"".join([*pieces, piece[:cut]]), False
            pieces = []
        pieces.append(piece[cut:])
    yield b"".join(pieces), True


def byte_lengths(lines: Sequence[str], text: bytes) -> list[int]:
    """How many bytes each line of a text takes."""
    return [len(line) for line in lines] if text.isascii() else [len(line.encode()) for line in lines]


def text_start(path: Path, encoding: str) -> str:
    """The first piece of a text file, up to a block; empty where the file is."""
    return next(_decoded(path, encoding), "")


def read_spans(path: Path, encoding: str, spans: Sequence[tuple[int, int]]) -> Iterator[str]:
    """Yields the texts at (begin, end), bytes of what `text_blocks` yields; spans ascend and do not overlap."""
    done = 0
    buffer, base = b"", 0
    for block, _ in text_blocks(path, encoding):
        buffer += block
        while done < len(spans) and spans[done][1] <= base + len(buffer):
            begin, end = spans[done]
            yield buffer[begin - base : end - base].decode()
            done += 1
        if done == len(spans):
            return
        keep = min(spans[done][0] - base, len(buffer))
        buffer, base = buffer[keep:], base + keep


def _line_end(piece: bytes) -> int:
    """Just after the last line end; a final CR may be half of CR LF and does not count."""
    return (piece.rfind(b"\n") + 1) or (piece.rfind(b"\r", 0, len(piece) - 1) + 1)


def _decoded(path: Path, encoding: str) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder(encoding)()
    read, first = 0, True
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            while data := file.read(BLOCK_BYTES):
                read += len(data)
                text = decoder.decode(data)
                if text:
                    yield text.removeprefix("\ufeff") if first else text
                    first = False
            text = decoder.decode(b"", final=True)
            if text:
                yield text
    except UnicodeDecodeError as error:
        offset = read - len(error.object) + error.start
        raise GtiError(_not_decodable(path, encoding, error.object[error.start], offset)) from error
    except UnicodeError as error:
        raise GtiError(f"{path}: is not {encoding}: {error}: set the `encoding` of this table") from error
    except (OSError, EOFError, zlib.error) as error:
        raise GtiError(f"{path}: cannot be read: {error}") from error


def _not_decodable(path: Path, encoding: str, byte: int, offset: int) -> str:
    is_utf8 = codecs.lookup(encoding).name.startswith("utf-8")
    cure = "set encoding: windows-1252 for this table if that is what it is" if is_utf8 else "set another `encoding`"
    name = "UTF-8" if is_utf8 else encoding
    inside = " of the unpacked file" if path.suffix == ".gz" else ""
    return f"{path}: byte {byte:#04x} at offset {offset}{inside} is not {name}: {cure}, or convert the file to UTF-8"
