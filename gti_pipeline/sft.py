"""Supervised fine-tuning on next-item prediction, with transformers' Trainer (paper's step 5)."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Sampler
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_pt_utils import get_length_grouped_indices

from gti_pipeline.budget import Budget
from gti_pipeline.config import SftConfig
from gti_pipeline.errors import GtiError
from gti_pipeline.lm.extended import IGNORED, ExtendedLM
from gti_pipeline.lm.prompts import Example

Progress = Callable[[int, int], None]
COMPLETE = "complete"  # a file that marks a checkpoint as wholly written

log = logging.getLogger(__name__)


@dataclass
class SftResult:
    """What fine-tuning did; the weights are those of the model that was passed."""

    budget: Budget
    steps: list[tuple[int, str, float]] = field(default_factory=list)
    resumed_from: int = 0


def mix(next_item: list[Example], pairs: list[Example], share: float, seed: int) -> list[Example]:
    """Multi-task examples: all next-item ones, and pairs drawn without repeats until they make up `share`.

    Where there are too few pairs for the share, all are taken.
    """
    wanted = len(pairs) if share >= 1 else round(len(next_item) * share / (1 - share))
    chosen = np.random.default_rng(seed).permutation(len(pairs))[:wanted]
    return next_item + [pairs[i] for i in chosen]


def fine_tune(
    lm: ExtendedLM,
    examples: Sequence[Example],
    valid: Sequence[Example],
    config: SftConfig,
    *,
    seed: int,
    work: Path,
    bf16: bool,
    progress: Progress,
) -> SftResult:
    """Trains all of `lm` in place; resumes from the newest whole checkpoint in `work`.

    Args:
        lm: float32 weights; `bf16` trains in mixed precision.
        examples: shuffled anew each epoch, in batches of like lengths.
        valid: their mean NLL is reported each epoch; nothing is selected on it.
        config: budgets and rates.
        seed: order of the batches, dropout.
        work: where checkpoints lie until the stage is done.
        bf16: bfloat16 autocast.
        progress: called with (steps done, steps planned).

    Raises:
        GtiError: no examples, or the loss is not finite.
    """
    if not examples:
        raise GtiError("sft: no training example: no user has two interactions left for training")
    lm.requires_grad_(True)
    order = _Order([len(e.ids) for e in examples], config.batch_size, seed)
    planned = math.ceil(config.epochs * order.steps)
    steps = min(planned, config.max_steps or planned)
    budget = Budget.start("sft", config.epochs, len(examples), steps < planned, "sft.max_steps")
    result = SftResult(budget)
    checkpoint = _newest_checkpoint(work)
    trainer = _SftTrainer(
        model=lm,
        args=_arguments(
            config, steps, seed, work, bf16=bf16, cpu=lm.old_rows.device.type == "cpu", evaluate=bool(valid)
        ),
        train_dataset=_as_rows(examples),
        eval_dataset=_as_rows(valid) if valid else None,
        data_collator=collate,
        callbacks=[_Recorder(result, steps, progress)],
        rates=config,
        order=order,
    )
    trainer.remove_callback(PrinterCallback)
    if checkpoint:
        result.resumed_from = int(checkpoint.name.rsplit("-", 1)[1])
        log.info("sft: resumes after step %d of %d", result.resumed_from, steps)
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    _fill(budget, examples, steps, order)
    return result


def collate(rows: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
    """Rows to right-padded [B, T] tensors: input_ids, attention_mask, labels."""
    ids = [torch.tensor(row["input_ids"]) for row in rows]
    labels = [torch.tensor(row["labels"]) for row in rows]
    return {
        "input_ids": pad_sequence(ids, batch_first=True),
        "attention_mask": pad_sequence([torch.ones_like(i) for i in ids], batch_first=True),
        "labels": pad_sequence(labels, batch_first=True, padding_value=IGNORED),
    }


def _as_rows(examples: Sequence[Example]) -> list[dict[str, list[int]]]:
    return [
        {"input_ids": e.ids, "labels": [t if s else IGNORED for t, s in zip(e.ids, e.supervised, strict=True)]}
        for e in examples
    ]


def _arguments(
    config: SftConfig, steps: int, seed: int, work: Path, *, bf16: bool, cpu: bool, evaluate: bool
) -> TrainingArguments:
    return TrainingArguments(
        output_dir=str(work),
        max_steps=steps,
        per_device_train_batch_size=config.micro_batch_size,
        per_device_eval_batch_size=config.micro_batch_size,
        gradient_accumulation_steps=config.batch_size // config.micro_batch_size,
        learning_rate=config.learning_rate,
        weight_decay=config.weight_decay,
        warmup_steps=round(config.warmup_share * steps),
        lr_scheduler_type="linear",
        eval_strategy="epoch" if evaluate else "no",
        save_strategy="steps",
        save_steps=config.save_steps,
        save_total_limit=1,
        logging_steps=1,
        logging_nan_inf_filter=False,
        seed=seed,
        bf16=bf16,
        use_cpu=cpu,
        dataloader_pin_memory=not cpu,
        disable_tqdm=True,
        report_to="none",
        remove_unused_columns=False,
        label_names=["labels"],
        prediction_loss_only=True,
    )


class _Order(Sampler[int]):
    """Batches of like lengths; an epoch's order follows from its number and the seed alone.

    So a resumed run sees what an uninterrupted one sees. The stock sampler draws from torch's own generator, whose
    state a resumed run does not have.
    """

    def __init__(self, lengths: list[int], batch_size: int, seed: int) -> None:
        self.lengths = lengths
        self.batch_size = batch_size
        self.seed = seed
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
        return iter(self.indices(self.epoch))

    def __len__(self) -> int:
        return len(self.lengths)


class _SftTrainer(Trainer):
    """The stock Trainer with a learning rate of its own for the new rows and an order of its own."""

    def __init__(self, *, rates: SftConfig, order: _Order, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rates = rates
        self.order = order

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler[int]:
        return self.order

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """AdamW in three groups: matrices decay, norms do not, new rows have their own rate and no decay."""
        assert self.model is not None
        if self.optimizer is None:
            groups: dict[str, list[Tensor]] = {"decay": [], "plain": [], "new": []}
            for name, parameter in self.model.named_parameters():
                kind = "new" if name.endswith("new_rows") else "decay" if parameter.dim() > 1 else "plain"
                groups[kind].append(parameter)
            decay = self.rates.weight_decay
            self.optimizer = torch.optim.AdamW(
                [
                    {"params": groups["decay"], "lr": self.rates.learning_rate, "weight_decay": decay},
                    {"params": groups["plain"], "lr": self.rates.learning_rate, "weight_decay": 0.0},
                    {"params": groups["new"], "lr": self.rates.new_token_learning_rate, "weight_decay": 0.0},
                ]
            )
        return self.optimizer


class _Recorder(TrainerCallback):
    """Keeps the step metrics, shows progress, marks whole checkpoints, stops on a loss that is not finite."""

    def __init__(self, result: SftResult, steps: int, progress: Progress) -> None:
        self.result = result
        self.total = steps
        self.progress = progress

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Takes the metrics of the steps before a resumption from the checkpoint's own log."""
        for entry in state.log_history:
            self._record(int(entry["step"]), entry)

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: Any = None, **_: Any
    ) -> None:
        """One entry of the log."""
        self._record(state.global_step, logs or {})

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Progress."""
        self.progress(state.global_step, self.total)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Marks the checkpoint that was just written as whole."""
        (Path(str(args.output_dir)) / f"checkpoint-{state.global_step}" / COMPLETE).touch()

    def _record(self, step: int, entry: dict[str, Any]) -> None:
        for name, ours in (("loss", "loss"), ("eval_loss", "valid_loss"), ("learning_rate", "learning_rate")):
            if name in entry:
                value = float(entry[name])
                if ours == "loss" and not math.isfinite(value):
                    raise GtiError(f"sft: the loss is {value} at step {step}: lower sft.learning_rate")
                self.result.steps.append((step, ours, value))


def _newest_checkpoint(work: Path) -> Path | None:
    """The newest checkpoint that was wholly written; a half-written one is never resumed from."""
    whole = [path.parent for path in work.glob(f"checkpoint-*/{COMPLETE}")]
    return max(whole, key=lambda path: int(path.name.rsplit("-", 1)[1]), default=None)


def _fill(budget: Budget, examples: Sequence[Example], steps: int, order: _Order) -> None:
    """Counts what so many steps saw: whole epochs, and the beginning of one more."""
    epochs, rest = divmod(steps, order.steps)
    begun = [examples[i] for i in order.indices(epochs)[: rest * order.batch_size]]
    budget.steps = steps
    budget.examples = epochs * len(examples) + len(begun)
    budget.tokens = epochs * sum(len(e.ids) for e in examples) + sum(len(e.ids) for e in begun)
    budget.supervised_tokens = epochs * sum(sum(e.supervised) for e in examples) + sum(sum(e.supervised) for e in begun)
