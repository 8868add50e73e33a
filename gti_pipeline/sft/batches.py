"""From examples to batches: which examples, in which order, padded how."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Sampler
from transformers.trainer_pt_utils import get_length_grouped_indices

from gti_pipeline.lm.extended import IGNORED
from gti_pipeline.lm.prompts import Example

FILLER: dict[str, list[int]] = {"input_ids": [0, 0], "labels": [IGNORED, IGNORED]}  # a row that teaches nothing


def mix(next_item: list[Example], pairs: list[Example], share: float, seed: int) -> list[Example]:
    """Multi-task examples: all next-item ones, and pairs drawn without repeats until they make up `share`.

    Where there are too few pairs for the share, all are taken.
    """
    wanted = len(pairs) if share >= 1 else round(len(next_item) * share / (1 - share))
    chosen = np.random.default_rng(seed).permutation(len(pairs))[:wanted]
    return next_item + [pairs[i] for i in chosen]


def as_rows(examples: Sequence[Example]) -> list[dict[str, list[int]]]:
    """Examples as the rows that `collate` takes."""
    return [
        {"input_ids": e.ids, "labels": [t if s else IGNORED for t, s in zip(e.ids, e.supervised, strict=True)]}
        for e in examples
    ]


def collate(rows: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
    """Rows to right-padded [B, T] tensors: input_ids, attention_mask, labels."""
    ids = [torch.tensor(row["input_ids"]) for row in rows]
    labels = [torch.tensor(row["labels"]) for row in rows]
    return {
        "input_ids": pad_sequence(ids, batch_first=True),
        "attention_mask": pad_sequence([torch.ones_like(i) for i in ids], batch_first=True),
        "labels": pad_sequence(labels, batch_first=True, padding_value=IGNORED),
    }


class Order(Sampler[int]):
    """Batches of like lengths; an epoch's order follows from its number and the seed alone.

    So a resumed run sees what an uninterrupted one sees. The stock sampler draws from torch's own generator, whose
    state a resumed run does not have.

    accelerate deals micro-batches to the processes in turn, and where an epoch does not come out even it would deal
    some examples twice. So the last batch is filled up with `filler`, the index of a row that teaches nothing, to a
    multiple of `share`, the examples that all processes take at a time.
    """

    def __init__(self, lengths: list[int], batch_size: int, seed: int, share: int = 1) -> None:
        self.lengths = lengths
        self.batch_size = batch_size
        self.seed = seed
        self.filler = len(lengths)
        self.fillers = -len(lengths) % share
        self.epoch = 0

    @property
    def steps(self) -> int:
        """Optimizer steps in an epoch; the last may be of fewer examples."""
        return math.ceil(len(self.lengths) / self.batch_size)

    def set_epoch(self, epoch: int) -> None:
        """Called by the Trainer."""
        self.epoch = epoch

    def indices(self, epoch: int) -> list[int]:
        """The examples of an epoch in order."""
        generator = torch.Generator().manual_seed((self.seed << 20) + epoch)
        return list(get_length_grouped_indices(self.lengths, self.batch_size, generator=generator))

    def __iter__(self) -> Iterator[int]:
        yield from self.indices(self.epoch)
        yield from [self.filler] * self.fillers

    def __len__(self) -> int:
        return len(self.lengths) + self.fillers
