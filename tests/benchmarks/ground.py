"""Grounding: ours against the paper's Algorithm 1 as written; the same losses, examples per second, peak memory.

Run:  .venv/bin/python tests/benchmarks/ground.py

The reference runs whole sequences, computes logits over the vocabulary at every position and a dense gradient of the
whole embedding matrix, and masks it to the new rows. Both see the same batches in the same order, both directions.
Ours computes each frozen prefix in the first epoch only; so its first epoch and the later ones are timed apart. The
two take turns, and the peak of memory is that of a process of its own.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence

import torch
from common import Table, alone, device_arguments, median, parser, peak_mb, spread
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

from gti_pipeline.config import GroundConfig
from gti_pipeline.ground import batches, ground
from gti_pipeline.lm.extended import IGNORED, ExtendedLM, embedding_rows, merge
from gti_pipeline.lm.prefix import SplitExample, split_example
from gti_pipeline.lm.prompts import Example


def algorithm_1(
    model: PreTrainedModel,
    first_id: int,
    num_new: int,
    examples: Mapping[str, Sequence[Example]],
    config: GroundConfig,
    seed: int,
) -> Iterator[float]:
    """The reference: endless losses, one per step. `model` has the new rows in its matrix and is changed in place."""
    matrix = embedding_rows(model)
    mask = torch.zeros(len(matrix), 1, device=matrix.device)
    mask[first_id : first_id + num_new] = 1
    optimizer = torch.optim.Adam([matrix], lr=config.learning_rate)
    split = {name: [split_example(e, first_id, num_new) for e in group] for name, group in examples.items()}
    for _, batch in batches(split, config.batch_size, seed):
        ids, attention, labels = (tensor.to(matrix.device) for tensor in whole_sequences(batch))
        logits = model(input_ids=ids, attention_mask=attention).logits.float()
        loss = cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        matrix.grad *= mask
        optimizer.step()
        yield loss.item()


def whole_sequences(batch: Sequence[SplitExample]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Right-padded ids, attention mask and labels [B, T]."""
    ids = [torch.tensor([*e.prefix, *e.tail]) for e in batch]
    answers = [torch.tensor([False] * len(e.prefix) + e.supervised) for e in batch]
    labels = [row.masked_fill(~answer, IGNORED) for row, answer in zip(ids, answers, strict=True)]
    return (
        pad_sequence(ids, batch_first=True),
        pad_sequence([torch.ones_like(row) for row in ids], batch_first=True),
        pad_sequence(labels, batch_first=True, padding_value=IGNORED),
    )


def merged(model: PreTrainedModel, lm: ExtendedLM) -> PreTrainedModel:
    """The LM with the new rows in its matrix, all else frozen; in place, so give it a copy where `lm` is used too."""
    plain = merge(model, lm.new_rows.detach(), lm.first_id)
    plain.requires_grad_(False)
    embedding_rows(plain).requires_grad_(True)
    return plain.eval()


def take_turns(args: argparse.Namespace) -> tuple[list[float], list[float], list[float], list[float], int]:
    """Losses and seconds per step, of ours and of the reference; and the steps of an epoch.

    `ground` tells after each step; the reference takes its step then, outside our time.
    """
    from models import load, pairs

    model, lm, prompter, _ = load(args)
    examples = pairs(args.items, prompter)
    per_epoch = sum(math.ceil(len(group) / args.batch_size) for group in examples.values())
    config = GroundConfig(batch_size=args.batch_size, epochs=999, max_steps=per_epoch * 2)
    reference = algorithm_1(merged(copy.deepcopy(model), lm), lm.first_id, len(lm.new_rows), examples, config, 0)
    theirs: list[float] = []
    seconds: list[float] = []
    reference_seconds: list[float] = []
    start = time.perf_counter()

    def after_step(done: int, total: int) -> None:
        nonlocal start
        end = time.perf_counter()
        seconds.append(end - start)
        if done <= args.reference_steps:
            theirs.append(next(reference))
            reference_seconds.append(time.perf_counter() - end)
        start = time.perf_counter()

    result = ground(lm, examples, config, 0, after_step)
    ours = [value for _, name, value in result.steps if name.startswith("loss")]
    return ours, theirs, seconds, reference_seconds, per_epoch


def one_side(args: argparse.Namespace) -> dict[str, object]:
    """Peak memory of a few steps of one side alone."""
    from models import load, pairs

    model, lm, prompter, _ = load(args)
    examples = pairs(args.items, prompter)
    config = GroundConfig(batch_size=args.batch_size, epochs=999, max_steps=args.memory_steps)
    before = peak_mb()
    if args.one == "ours":
        ground(lm, examples, config, 0, lambda *_: None)
    else:
        steps = algorithm_1(merged(model, lm), lm.first_id, len(lm.new_rows), examples, config, 0)
        for _ in range(args.memory_steps):
            next(steps)
    gpu = torch.cuda.max_memory_allocated() // 2**20 if args.device == "cuda" else 0
    return {"before": before, "peak": peak_mb(), "gpu": gpu}


def main() -> None:
    """One table."""
    arguments = parser(__doc__)
    device_arguments(arguments)
    arguments.add_argument("--items", type=int, default=12)
    arguments.add_argument("--batch-size", type=int, default=4)
    arguments.add_argument("--reference-steps", type=int, default=20)
    arguments.add_argument("--memory-steps", type=int, default=4)
    arguments.add_argument("--one", choices=["ours", "reference"], help="measure the memory of one side")
    args = arguments.parse_args()
    if args.one:
        print(json.dumps(one_side(args)))
        return
    ours, theirs, seconds, reference, per_epoch = take_turns(args)
    apart = max(abs(a - b) for a, b in zip(ours, theirs, strict=False))
    assert args.dtype != "float32" or apart < 1e-4, f"the losses differ by {apart}"
    table = Table(args.rows_file)
    later = seconds[per_epoch:]
    over_ten = seconds[:per_epoch] + 9 * later
    for name, own in (("first epoch", seconds[:per_epoch]), ("later epochs", later), ("ten epochs", over_ten)):
        table.add(
            {
                "grounding": name,
                "examples/s": round(args.batch_size / statistics.mean(own), 3),
                "step s": median(own),
                "step s from to": spread(own),
                "reference examples/s": round(args.batch_size / statistics.mean(reference), 3),
                "reference step s": median(reference),
                "reference step s from to": spread(reference),
                "ratio": round(statistics.mean(reference) / statistics.mean(own), 2),
                "greatest difference of losses": float(f"{apart:.1e}"),
                "steps compared": len(theirs),
            }
        )
    options = [f"--{name}={getattr(args, name.replace('-', '_'))}" for name in PASSED]
    sides = {side: alone(__file__, "--one", side, *options) for side in ("ours", "reference")}
    table.add(
        {
            "peak memory, MiB": "gpu" if args.device == "cuda" else "process",
            **{f"{side}: {name}": value for side, found in sides.items() for name, value in found.items()},
        }
    )


PASSED = ("items", "batch-size", "memory-steps", "device", "dtype")

if __name__ == "__main__":
    main()
