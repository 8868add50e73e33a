"""The order of grounding: batches of one direction and of like lengths. It follows from the seed alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from gti_pipeline.lm.prefix import SplitExample


def batches(
    split: Mapping[str, Sequence[SplitExample]], size: int, seed: int
) -> Iterator[tuple[str, list[SplitExample]]]:
    """Endless epochs of batches: each of one direction and of like lengths, in a new random order each epoch."""
    rng = np.random.default_rng(seed)
    while True:
        epoch = [(name, part) for name, group in split.items() for part in by_length(group, size, rng)]
        for index in rng.permutation(len(epoch)):
            yield epoch[index]


def by_length(group: Sequence[SplitExample], size: int, rng: np.random.Generator) -> Iterator[list[SplitExample]]:
    """Batches of like tail and prefix lengths; equal lengths are mixed anew each time."""
    order = sorted(rng.permutation(len(group)).tolist(), key=lambda i: (len(group[i].tail), len(group[i].prefix)))
    for start in range(0, len(order), size):
        yield [group[i] for i in order[start : start + size]]
