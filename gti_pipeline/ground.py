"""GTI grounding (arXiv 2604.02324): the LM is frozen and only the new rows train, on paired text <-> SID prompts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from gti_pipeline.budget import Budget
from gti_pipeline.config import GroundConfig
from gti_pipeline.errors import GtiError
from gti_pipeline.lm.extended import ExtendedLM, freeze_old
from gti_pipeline.lm.prefix import PrefixCache, SplitExample, split_example, tail_loss
from gti_pipeline.lm.prompts import Example

Progress = Callable[[int, int], None]


@dataclass
class GroundResult:
    """What grounding did; the rows themselves are in `lm.new_rows`."""

    budget: Budget
    steps: list[tuple[int, str, float]] = field(default_factory=list)


def ground(
    lm: ExtendedLM,
    examples: dict[str, list[Example]],
    config: GroundConfig,
    seed: int,
    progress: Progress,
) -> GroundResult:
    """Trains `lm.new_rows` in place with Adam on the answers' next-token NLL; every other tensor stays as it is.

    Args:
        lm: its old rows and decoder are not changed, bit for bit.
        examples: by direction; each step's batch is of one direction.
        config: epochs, or fewer where `max_steps` ends it.
        seed: order of the batches.
        progress: called with (steps done, steps planned).

    Raises:
        GtiError: no examples, or the loss is not finite.
    """
    lm.eval()  # a frozen LM has no dropout; cached prefixes rely on it
    freeze_old(lm)
    split = {name: [split_example(e, lm.first_id, len(lm.new_rows)) for e in group] for name, group in examples.items()}
    total = sum(map(len, split.values()))
    if not total:
        raise GtiError(
            "ground: no pair to ground on: no item has the texts of ground.text_to_sid and ground.sid_to_text"
        )
    per_epoch = sum(math.ceil(len(group) / config.batch_size) for group in split.values())
    planned = math.ceil(config.epochs * per_epoch)
    steps = min(planned, config.max_steps or planned)
    result = GroundResult(Budget.start("ground", config.epochs, total, steps < planned, "ground.max_steps"))
    cache = PrefixCache(lm, config.cache_mb * 2**20)
    optimizer = torch.optim.Adam([lm.new_rows], lr=config.learning_rate)
    for step, (direction, batch) in enumerate(_batches(split, config.batch_size, seed), 1):
        loss = tail_loss(lm, batch, cache.get([e.prefix for e in batch]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        value = loss.item()
        if not math.isfinite(value):
            raise GtiError(f"ground: the loss is {value} at step {step}: lower ground.learning_rate")
        result.steps.append((step, f"loss_{direction}", value))
        result.budget.add(len(batch), sum(len(e.tail) for e in batch), sum(sum(e.supervised) for e in batch))
        progress(step, steps)
        if step == steps:
            return result
    return result


def _batches(split: dict[str, list[SplitExample]], size: int, seed: int) -> Iterator[tuple[str, list[SplitExample]]]:
    """Endless epochs of batches: each of one direction and of like lengths, in a new random order each epoch."""
    rng = np.random.default_rng(seed)
    while True:
        epoch = [(name, part) for name, group in split.items() for part in _by_length(group, size, rng)]
        for index in rng.permutation(len(epoch)):
            yield epoch[index]


def _by_length(group: Sequence[SplitExample], size: int, rng: np.random.Generator) -> Iterator[list[SplitExample]]:
    """Batches of like tail and prefix lengths; equal lengths are mixed anew each time."""
    order = sorted(rng.permutation(len(group)).tolist(), key=lambda i: (len(group[i].tail), len(group[i].prefix)))
    for start in range(0, len(order), size):
        yield [group[i] for i in order[start : start + size]]
