"""Work on a long list in shards that are kept as they are done, so that an interrupted run goes on where it was."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gti_pipeline.artifacts import digest

BATCHES = 4  # of the model in a shard: a few seconds of work on a CPU

log = logging.getLogger(__name__)

Floats = NDArray[np.float32]


class Shards:
    """Shards in one folder; None keeps none. A shard's name holds the digest of its texts."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def map(
        self,
        texts: Sequence[str],
        batch_size: int,
        compute: Callable[[list[str]], Floats],
        progress: Callable[[int, int], None],
    ) -> Floats:
        """Vectors [N, D] of N texts, in order; only shards that are not there yet are computed.

        Args:
            texts: at least one.
            batch_size: of the model.
            compute: a shard's texts to its vectors.
            progress: called with (texts done, N).
        """
        step = batch_size * BATCHES
        parts, found = [], 0
        for start in range(0, len(texts), step):
            part = list(texts[start : start + step])
            kept = self._read(part)
            found += len(part) if kept is not None else 0
            vectors = compute(part) if kept is None else kept
            if kept is None:
                self._write(part, vectors)
            parts.append(vectors)
            progress(min(start + step, len(texts)), len(texts))
        if found:
            log.info("embed: went on from an interrupted run: %d of %d texts were done", found, len(texts))
        return np.concatenate(parts)

    def _path(self, part: list[str]) -> Path | None:
        return self.folder / f"{digest(part)[:24]}.npy" if self.folder else None

    def _read(self, part: list[str]) -> Floats | None:
        """A kept shard; None where there is none, or it is damaged."""
        path = self._path(part)
        if path is None or not path.is_file():
            return None
        try:
            vectors = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError):
            return None
        whole = vectors.ndim == 2 and vectors.dtype == np.float32 and len(vectors) == len(part)
        return vectors if whole else None

    def _write(self, part: list[str], vectors: Floats) -> None:
        path = self._path(part)
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".part")
        with temporary.open("wb") as file:
            np.save(file, vectors, allow_pickle=False)
        temporary.replace(path)
