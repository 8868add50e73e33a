"""Fine-tuning: ours (every item of the history a target) against one example per user and position.

Run:  .venv/bin/python tests/benchmarks/sft.py

The reference is the usual recipe: transformers' own Trainer on the merged model, a prompt for each position of each
user's history, its answer supervised, logits at every position. Ours is `fine_tune` with targets=all. Measured is how
many targets (items) per second each learns from, over steps of the same number of sequences. The two take turns.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from common import Table, device_arguments, parser, spread
from ground import merged
from models import LEVELS, histories, load
from transformers import PreTrainedModel, PrinterCallback, Trainer, TrainerCallback, TrainingArguments

from gti_pipeline.config import SftConfig
from gti_pipeline.lm.extended import IGNORED
from gti_pipeline.lm.prompts import Example
from gti_pipeline.sft import collate, fine_tune


class _Ticks(TrainerCallback):
    """The moment after each step."""

    def __init__(self) -> None:
        self.moments: list[float] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.moments.append(time.perf_counter())


def stock(model: PreTrainedModel, examples: Sequence[Example], steps: int, batch_size: int, cpu: bool) -> list[float]:
    """The reference: seconds of each step but the first; `model` trains in place."""
    rows = [
        {"input_ids": e.ids, "labels": [t if s else IGNORED for t, s in zip(e.ids, e.supervised, strict=True)]}
        for e in examples
    ]
    ticks = _Ticks()
    model.requires_grad_(True)
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            output_dir=folder,
            max_steps=steps,
            per_device_train_batch_size=batch_size,
            learning_rate=5e-5,
            save_strategy="no",
            use_cpu=cpu,
            dataloader_pin_memory=not cpu,
            disable_tqdm=True,
            report_to="none",
            remove_unused_columns=False,
        )
        trainer = Trainer(model=model, args=args, train_dataset=rows, data_collator=collate, callbacks=[ticks])
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return differences(ticks.moments)


def ours(model: Any, examples: Sequence[Example], steps: int, batch_size: int) -> list[float]:
    """Seconds of each step but the first; the extended LM trains in place."""
    moments: list[float] = []
    config = SftConfig(max_steps=steps, epochs=999, batch_size=batch_size, micro_batch_size=batch_size, save_steps=999)

    def tick(done: int, total: int) -> None:
        moments.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as folder:
        fine_tune(model, examples, [], config, seed=0, work=Path(folder), bf16=False, levels=LEVELS, progress=tick)
    return differences(moments)


def differences(moments: Sequence[float]) -> list[float]:
    return [after - before for before, after in pairwise(moments)]


def targets_of(examples: Sequence[Example]) -> float:
    """Mean items supervised per example."""
    return statistics.mean(sum(e.supervised) / LEVELS for e in examples)


def measure(args: argparse.Namespace) -> dict[str, object]:
    model, lm, prompter, _ = load(args)
    plain = merged(copy.deepcopy(model), lm)
    everything = histories(args.users, 500, prompter, "all")
    single = histories(args.users, 500, prompter, "last")
    sides: dict[str, Callable[[], list[float]]] = {
        "ours": lambda: ours(lm, everything, args.steps, args.batch_size),
        "reference": lambda: stock(plain, single, args.steps, args.batch_size, args.device == "cpu"),
    }
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(args.rounds):
        for name, side in sides.items():
            seconds[name] += side()
    speed = {
        name: [args.batch_size * targets_of(examples) / s for s in seconds[name]]
        for name, examples in (("ours", everything), ("reference", single))
    }
    means = {name: args.batch_size * targets_of(e) / statistics.mean(seconds[name])
             for name, e in (("ours", everything), ("reference", single))}  # fmt: skip
    return {
        "sequences per step": args.batch_size,
        "targets per sequence": round(targets_of(everything), 2),
        "tokens per sequence": round(statistics.mean(len(e.ids) for e in everything), 1),
        "targets/s": round(means["ours"], 2),
        "targets/s from to": spread(speed["ours"]),
        "reference tokens per sequence": round(statistics.mean(len(e.ids) for e in single), 1),
        "reference targets/s": round(means["reference"], 3),
        "reference targets/s from to": spread(speed["reference"]),
        "ratio": round(means["ours"] / means["reference"], 2),
    }


def main() -> None:
    """One row."""
    arguments = parser(__doc__)
    device_arguments(arguments)
    arguments.add_argument("--users", type=int, default=64)
    arguments.add_argument("--batch-size", type=int, default=8)
    arguments.add_argument("--steps", type=int, default=4, help="of each side and round; the first is not timed")
    arguments.add_argument("--rounds", type=int, default=2)
    args = arguments.parse_args()
    torch.manual_seed(0)
    Table(args.rows_file).add(measure(args))


if __name__ == "__main__":
    main()
