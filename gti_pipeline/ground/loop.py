"""One phase of training: steps, checks, checkpoints. A resumed run ends in the same bits as an uninterrupted one."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from gti_pipeline.budget import Budget
from gti_pipeline.errors import GtiError
from gti_pipeline.ground import checkpoint
from gti_pipeline.lm.prefix import SplitExample

Progress = Callable[[int, int], None]
Steps = list[tuple[int, str, float]]
COUNTS = ("steps", "examples", "tokens", "supervised_tokens")

log = logging.getLogger(__name__)


@dataclass
class State:
    """What a checkpoint holds besides tensors."""

    step: int = 0
    best_loss: float = math.inf
    best_step: int = 0
    checks_without_gain: int = 0
    ended: bool = False
    steps: Steps = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)


@dataclass
class Phase:
    """What differs between the phases.

    Args:
        parameters: by name: what trains and is kept in checkpoints.
        optimizer: over them.
        loss: of a batch.
        measure: held-out losses by direction; empty: nothing is held out.
        tokens: of an example, for the budget.
        prefix: of the metrics' names.
        patience: checks without a gain that end the phase; 0: never.
        select: the new rows, of which the best are kept; None: the last ones.
    """

    parameters: Mapping[str, torch.nn.Parameter]
    optimizer: torch.optim.Optimizer
    loss: Callable[[list[SplitExample]], Tensor]
    measure: Callable[[], dict[str, float]]
    tokens: Callable[[SplitExample], int]
    prefix: str = ""
    patience: int = 0
    select: torch.nn.Parameter | None = None


def resume(phase: Phase, path: Path | None) -> tuple[State, Tensor | None]:
    """The state to go on from, and the best rows [n, d] so far; parameters and optimizer are put back in place."""
    best = None if phase.select is None else phase.select.detach().clone()
    found = checkpoint.load(path) if path else None
    if found is None:
        return State(), best
    tensors, values = found
    state = State(**{**values, "steps": [(step, name, value) for step, name, value in values["steps"]]})
    with torch.no_grad():
        for name, parameter in phase.parameters.items():
            parameter.copy_(tensors[f"parameter.{name}"])
    checkpoint.restore_optimizer(phase.optimizer, tensors)
    log.info("ground: resumes after step %d", state.step)
    return state, best if best is None else tensors["best"].to(best.device)


def run(
    phase: Phase,
    state: State,
    best: Tensor | None,
    order: Iterator[tuple[str, list[SplitExample]]],
    total: int,
    check_steps: int,
    path: Path | None,
    budget: Budget,
    progress: Progress,
) -> None:
    """Goes on from `state` to step `total`, or to the end of the patience; the best rows are in place afterwards.

    Raises:
        GtiError: a loss that is not finite.
    """
    for name, value in state.counts.items():
        setattr(budget, name, value)
    if not state.step and not state.steps:
        _check(phase, state, best)
    pending: list[tuple[int, str, Tensor]] = []  # read at the checks only: reading makes a GPU wait
    while state.step < total and not state.ended:
        direction, batch = next(order)
        loss = phase.loss(batch)
        phase.optimizer.zero_grad()
        loss.backward()
        phase.optimizer.step()
        state.step += 1
        pending.append((state.step, f"{phase.prefix}loss_{direction}", loss.detach()))
        budget.add(len(batch), sum(map(phase.tokens, batch)), sum(sum(e.supervised) for e in batch))
        if state.step % check_steps == 0 or state.step == total:
            state.steps += _read(pending)
            pending = []
            _check(phase, state, best)
            state.ended = 0 < phase.patience <= state.checks_without_gain
            if path:
                _save(phase, state, best, path, budget)
        progress(state.step, total)
    if phase.select is not None and best is not None and math.isfinite(state.best_loss):
        with torch.no_grad():
            phase.select.copy_(best)


def _check(phase: Phase, state: State, best: Tensor | None) -> None:
    """Measures the held-out loss, the mean over the directions, and keeps the rows where it is the least."""
    losses = phase.measure()
    if not losses:
        return
    mean = sum(losses.values()) / len(losses)
    named = {"valid_loss": mean} | {f"valid_loss_{name}": value for name, value in losses.items()}
    state.steps += [(state.step, phase.prefix + name, value) for name, value in named.items()]
    if mean < state.best_loss:
        state.best_loss, state.best_step, state.checks_without_gain = mean, state.step, 0
        if best is not None and phase.select is not None:
            best.copy_(phase.select.detach())
    else:
        state.checks_without_gain += 1


def _read(pending: list[tuple[int, str, Tensor]]) -> Steps:
    """The losses as numbers, in one transfer."""
    values = torch.stack([loss for _, _, loss in pending]).tolist()
    steps = [(step, name, value) for (step, name, _), value in zip(pending, values, strict=True)]
    bad = next(((step, value) for step, _, value in steps if not math.isfinite(value)), None)
    if bad:
        raise GtiError(f"ground: the loss is {bad[1]} at step {bad[0]}: lower ground.learning_rate")
    return steps


def _save(phase: Phase, state: State, best: Tensor | None, path: Path, budget: Budget) -> None:
    state.counts = {name: getattr(budget, name) for name in COUNTS}
    tensors: dict[str, Tensor] = {f"parameter.{name}": value for name, value in phase.parameters.items()}
    if best is not None:
        tensors["best"] = best
    checkpoint.save(path, tensors | checkpoint.optimizer_tensors(phase.optimizer), vars(state))
