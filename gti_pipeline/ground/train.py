"""The two phases of grounding: the new rows alone, and, where it is asked for, everything on the same pairs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from gti_pipeline.budget import Budget
from gti_pipeline.config import GroundConfig
from gti_pipeline.errors import GtiError
from gti_pipeline.ground import loop
from gti_pipeline.ground.batches import batches, by_length
from gti_pipeline.lm.extended import IGNORED, ExtendedLM, freeze_old
from gti_pipeline.lm.prefix import PrefixCache, SplitExample, split_example, tail_loss, tail_nll
from gti_pipeline.lm.prompts import Example

SECOND = "second_phase_"
Split = dict[str, list[SplitExample]]


@dataclass
class GroundResult:
    """What grounding did; the rows themselves are in `lm.new_rows`.

    `steps` holds (step, metric, value): loss_<direction> of each step's batch and, where pairs are held out,
    valid_loss (the mean over the directions) and valid_loss_<direction> from step 0 on; metrics of the second phase
    begin with second_phase_. `best_step` is the step whose rows were kept.
    """

    budget: Budget
    steps: list[tuple[int, str, float]] = field(default_factory=list)
    best_step: int | None = None
    second_phase: Budget | None = None


def ground(
    lm: ExtendedLM,
    examples: Mapping[str, Sequence[Example]],
    config: GroundConfig,
    seed: int,
    progress: loop.Progress,
    *,
    valid: Mapping[str, Sequence[Example]] | None = None,
    work: Path | None = None,
) -> GroundResult:
    """Trains `lm.new_rows` in place with Adam on the answers' next-token NLL; every other tensor stays as it is.

    Only with `second_phase_steps` the rest of `lm` trains too, afterwards.

    Args:
        lm: its old rows and decoder are not changed, bit for bit, in the first phase.
        examples: by direction; each step's batch is of one direction.
        config: epochs, or fewer where `max_steps` or the held-out loss ends it.
        seed: order of the batches.
        progress: called with (steps done, steps planned).
        valid: held-out examples by direction: the rows with the least loss on them are kept.
        work: where checkpoints lie until the stage is done; a run that finds some goes on from there.

    Raises:
        GtiError: no examples, or the loss is not finite.
    """
    lm.eval()  # a frozen LM has no dropout; cached prefixes rely on it
    split, held = _split(lm, examples), _split(lm, valid or {})
    total = sum(map(len, split.values()))
    if not total:
        raise GtiError(
            "ground: no pair to ground on: no item has the texts of ground.text_to_sid and ground.sid_to_text"
        )
    per_epoch = sum(math.ceil(len(group) / config.batch_size) for group in split.values())
    planned = math.ceil(config.epochs * per_epoch)
    steps = min(planned, config.max_steps or planned)
    result = GroundResult(Budget.start("ground", config.epochs, total, steps < planned, "ground.max_steps"))
    job = _Job(lm, split, held, config, seed, progress, work, result)
    _first_phase(job, steps)
    if config.second_phase_steps:
        _second_phase(job)
    return result


@dataclass(frozen=True)
class _Job:
    """What both phases need: pairs that train and pairs that are held out by direction, and where results go."""

    lm: ExtendedLM
    split: Split
    held: Split
    config: GroundConfig
    seed: int
    progress: loop.Progress
    work: Path | None
    result: GroundResult


def _first_phase(job: _Job, steps: int) -> None:
    lm, config, result = job.lm, job.config, job.result
    freeze_old(lm)
    memory = config.cache_mb * 2**20
    held_cache = PrefixCache(lm, memory // 4 if job.held else 0)
    cache = PrefixCache(lm, memory - held_cache.budget)
    held_batches = _in_order(job.held, config.batch_size)
    phase = loop.Phase(
        parameters={"new_rows": lm.new_rows},
        optimizer=torch.optim.Adam([lm.new_rows], lr=config.learning_rate),
        loss=lambda batch: tail_loss(lm, batch, cache.get([e.prefix for e in batch])),
        measure=lambda: _held_out_losses(lm, held_batches, held_cache),
        tokens=lambda example: len(example.tail),
        patience=config.patience,
        select=lm.new_rows if job.held else None,
    )
    path = job.work / "first.safetensors" if job.work else None
    state, best = loop.resume(phase, path)
    order = batches(job.split, config.batch_size, job.seed)
    going_on = state.step < steps and not state.ended
    for _, batch in held_batches if going_on else []:
        held_cache.warm([e.prefix for e in batch])
    for _, batch in islice(order, state.step):
        if going_on:
            cache.warm([e.prefix for e in batch])
    loop.run(phase, state, best, order, steps, config.check_steps, path, result.budget, job.progress)
    result.steps += state.steps
    if job.held:
        result.best_step = state.best_step
    if state.ended:
        result.budget.limited_by = "ground.patience"
        result.budget.ended = f"no gain on the held-out pairs since step {state.best_step}, whose rows were kept"


def _second_phase(job: _Job) -> None:
    """Everything unfrozen, whole sequences, a fixed number of steps; the last weights are kept."""
    lm, config, result = job.lm, job.config, job.result
    lm.requires_grad_(True)
    groups = [
        {"params": [p for p in lm.parameters() if p is not lm.new_rows], "lr": config.second_phase_learning_rate},
        {"params": [lm.new_rows], "lr": config.learning_rate},
    ]
    held_batches = _in_order(job.held, config.batch_size)
    phase = loop.Phase(
        parameters=dict(lm.named_parameters()),
        optimizer=torch.optim.Adam(groups),
        loss=lambda batch: _whole_loss(lm, batch),
        measure=lambda: _held_out_losses(lm, held_batches, PrefixCache(lm, 0)),
        tokens=lambda example: len(example.prefix) + len(example.tail),
        prefix=SECOND,
    )
    path = job.work / "second.safetensors" if job.work else None
    state, best = loop.resume(phase, path)
    order = islice(batches(job.split, config.batch_size, job.seed + 1), state.step, None)
    examples = sum(map(len, job.split.values()))
    budget = Budget.start("ground_second_phase", math.inf, examples, True, "ground.second_phase_steps")
    loop.run(phase, state, best, order, config.second_phase_steps, config.check_steps, path, budget, job.progress)
    budget.planned_epochs = round(budget.epochs, 2)
    result.second_phase = budget
    result.steps += state.steps


def _split(lm: ExtendedLM, examples: Mapping[str, Sequence[Example]]) -> Split:
    """By direction, cut before the first new token; directions without examples are left out."""
    num_new = len(lm.new_rows)
    return {name: [split_example(e, lm.first_id, num_new) for e in group] for name, group in examples.items() if group}


def _in_order(split: Split, size: int) -> list[tuple[str, list[SplitExample]]]:
    """Each example once, in batches of like lengths, always the same."""
    rng = np.random.default_rng(0)
    return [(name, part) for name, group in split.items() for part in by_length(group, size, rng)]


@torch.no_grad()
def _held_out_losses(
    lm: ExtendedLM, held: Sequence[tuple[str, list[SplitExample]]], cache: PrefixCache
) -> dict[str, float]:
    """Mean NLL of the supervised tokens of each direction."""
    sums: dict[str, list[Tensor]] = {}
    for direction, batch in held:
        sums.setdefault(direction, []).append(tail_nll(lm, batch, cache.get([e.prefix for e in batch]))[0])
    return {direction: torch.cat(nll).mean().item() for direction, nll in sums.items()}


def _whole_loss(lm: ExtendedLM, batch: Sequence[SplitExample]) -> Tensor:
    """Mean NLL of the supervised tokens, prefixes and all run with gradients."""
    device = lm.old_rows.device
    ids = [torch.tensor([*e.prefix, *e.tail], device=device) for e in batch]
    asked = [torch.tensor([False] * len(e.prefix) + e.supervised, device=device) for e in batch]
    labels = [row.masked_fill(~answer, IGNORED) for row, answer in zip(ids, asked, strict=True)]
    loss: Tensor = lm(
        input_ids=pad_sequence(ids, batch_first=True),
        attention_mask=pad_sequence([torch.ones_like(row) for row in ids], batch_first=True),
        labels=pad_sequence(labels, batch_first=True, padding_value=IGNORED),
    )["loss"]
    return loss
