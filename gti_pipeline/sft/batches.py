"""From examples to batches: which examples, in which order, padded how."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Sampler
from transformers.trainer_pt_utils import get_length_grouped_indices

from gti_pipeline.lm.extended import IGNORED
from gti_pipeline.lm.prompts import Example

FILLER: dict[str, list[int]] = {"input_ids": [0, 0], "labels": [IGNORED, IGNORED]}  # a row that teaches nothing


def pairs_beside(size: int, share: float) -> int:
    """How many pairs stand beside `size` examples of a step, to be `share` (below 1) of the whole."""
    return round(size * share / (1 - share))


def as_rows(examples: Sequence[Example]) -> list[dict[str, list[int]]]:
    """Examples as the rows that `collate` takes."""
    return [
        {"input_ids": e.ids, "labels": [t if s else IGNORED for t, s in zip(e.ids, e.supervised, strict=True)]}
        for e in examples
    ]


def collate(rows: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
    """Rows to right-padded [B, T] tensors: input_ids, attention_mask, labels. Of fillers at most one is left."""
    rows = [row for row in rows if row != FILLER] or rows[:1]
    ids = [torch.tensor(row["input_ids"]) for row in rows]
    labels = [torch.tensor(row["labels"]) for row in rows]
    return {
        "input_ids": pad_sequence(ids, batch_first=True),
        "attention_mask": pad_sequence([torch.ones_like(i) for i in ids], batch_first=True),
        "labels": pad_sequence(labels, batch_first=True, padding_value=IGNORED),
    }


class Order(Sampler[int]):
    """Steps of like lengths; an epoch's order follows from its number and the seed alone.

    So a resumed run sees what an uninterrupted one sees. The stock sampler draws from torch's own generator, whose
    state a resumed run does not have.

    Pairs come on top: a step holds the same examples with and without them, so arms of equal steps learn from the same
    targets. An epoch is each example once, with as many pairs as stand beside them; pairs are drawn without repeats,
    over and over, and each epoch goes on where the one before it stopped.

    accelerate deals micro-batches to the processes in turn, and the Trainer counts them to know where a step ends. So
    each step is filled up with `filler`, the index of a row that teaches nothing, to a multiple of `at_a_time`.

    Args:
        lengths: of the examples, in tokens; their indices come first.
        batch_size: examples of a step; the last of an epoch may have fewer.
        seed: of the order.
        at_a_time: rows that all processes take at a time.
        pair_lengths: of the pairs, in tokens; their indices follow.
        pairs_share: of a step's rows that are pairs, below 1.
    """

    def __init__(
        self,
        lengths: list[int],
        batch_size: int,
        seed: int,
        at_a_time: int = 1,
        pair_lengths: Sequence[int] = (),
        pairs_share: float = 0,
    ) -> None:
        self.lengths = lengths
        self.pair_lengths = list(pair_lengths)
        self.batch_size = batch_size
        self.seed = seed
        self.at_a_time = at_a_time
        self.filler = len(lengths) + len(pair_lengths)
        self.share = pairs_share if self.pair_lengths else 0.0
        sizes = [min(batch_size, len(lengths) - first) for first in range(0, len(lengths), batch_size)]
        self.pairs = [pairs_beside(size, self.share) for size in sizes]  # by step of an epoch
        self.rows = sum(map(self._filled, map(sum, zip(sizes, self.pairs, strict=True))))
        self.epoch = 0

    @property
    def steps(self) -> int:
        """Optimizer steps in an epoch; the last may be of fewer examples."""
        return len(self.pairs)

    @property
    def micro_batches(self) -> int:
        """Of a whole step, for each process."""
        return self._filled(self.batch_size + pairs_beside(self.batch_size, self.share)) // self.at_a_time

    def set_epoch(self, epoch: int) -> None:
        """Called by the Trainer."""
        self.epoch = epoch

    def indices(self, epoch: int) -> list[int]:
        """The examples of an epoch in order, without pairs."""
        return _grouped(self.lengths, self.batch_size, self.seed, epoch)

    def times_seen(self, steps: int) -> NDArray[np.int64]:
        """How often each example, then each pair, is seen in so many steps from the start."""
        epochs, rest = divmod(steps, self.steps)
        begun = np.array(self.indices(epochs)[: rest * self.batch_size], dtype=np.int64)
        drawn = np.array(self._drawn(0, epochs * sum(self.pairs) + sum(self.pairs[:rest])), dtype=np.int64)
        examples = epochs + np.bincount(begun, minlength=len(self.lengths))
        return np.concatenate([examples, np.bincount(drawn, minlength=len(self.pair_lengths))])

    def __iter__(self) -> Iterator[int]:
        examples = iter(self.indices(self.epoch))
        start = self.epoch * sum(self.pairs)
        drawn = iter(self._drawn(start, start + sum(self.pairs)))
        for pairs in self.pairs:
            step = list(islice(examples, self.batch_size))
            # like lengths side by side, so that micro-batches are padded little
            step += sorted((len(self.lengths) + i for i in islice(drawn, pairs)), key=self._pair_length, reverse=True)
            yield from step + [self.filler] * (self._filled(len(step)) - len(step))

    def __len__(self) -> int:
        return self.rows

    def _drawn(self, start: int, stop: int) -> list[int]:
        """The pairs drawn from the `start`-th to before the `stop`-th of a run: a new order whenever all had a turn."""
        count = len(self.pair_lengths)
        if start == stop:
            return []
        first = start // count
        rounds = range(first, math.ceil(stop / count))
        size = pairs_beside(self.batch_size, self.share)
        drawn = [i for n in rounds for i in _grouped(self.pair_lengths, size, self.seed, n)]
        return drawn[start - first * count : stop - first * count]

    def _pair_length(self, index: int) -> int:
        return self.pair_lengths[index - len(self.lengths)]

    def _filled(self, rows: int) -> int:
        return math.ceil(rows / self.at_a_time) * self.at_a_time


def _grouped(lengths: list[int], batch_size: int, seed: int, number: int) -> list[int]:
    """A shuffle with like lengths together: the `number`-th of the seed."""
    generator = torch.Generator().manual_seed((seed << 20) + number)
    return list(get_length_grouped_indices(lengths, batch_size, generator=generator))
