"""Fine-tuning with transformers' Trainer, which brings resumption, accumulation, mixed precision and processes."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Sampler
from transformers import PrinterCallback, Trainer, TrainingArguments
from transformers.utils import SAFE_WEIGHTS_NAME

from gti_pipeline.budget import Budget
from gti_pipeline.config import SftConfig
from gti_pipeline.errors import GtiError
from gti_pipeline.lm.extended import ExtendedLM
from gti_pipeline.lm.prompts import Example
from gti_pipeline.sft.batches import FILLER, Order, as_rows, collate
from gti_pipeline.sft.recorder import Progress, Recorder, SftResult, Validate, newest_checkpoint
from gti_pipeline.sft.weights import Best, load_trainable, save_trainable

LOG_EVERY = 10  # steps, on a GPU: reading the loss makes it wait

log = logging.getLogger(__name__)


def fine_tune(
    lm: ExtendedLM,
    examples: Sequence[Example],
    valid: Sequence[Example],
    config: SftConfig,
    *,
    seed: int,
    work: Path,
    bf16: bool,
    levels: int,
    progress: Progress,
    validate: Validate | None = None,
    pairs: Sequence[Example] = (),
) -> SftResult:
    """Trains `lm` in place; resumes from the newest whole checkpoint in `work`.

    Args:
        lm: float32 weights; `bf16` trains in mixed precision. All of it trains, or after `add_lora` the new rows and
            the adapters.
        examples: shuffled anew each epoch, in batches of like lengths.
        valid: their mean NLL is reported each epoch; nothing is selected on it.
        config: budgets, rates, and whether the last or the best weights stay.
        seed: order of the batches, dropout.
        work: where checkpoints lie until the stage is done.
        bf16: bfloat16 autocast.
        levels: tokens of a semantic ID, by which the budget counts items.
        progress: called with (steps done, steps planned).
        validate: the validation recall of an LM in eval mode, 0..1; called every `config.eval_every` of the steps.
        pairs: text<->SID pairs that stand in each step beside its examples, as many as `config.pairs_share` says.

    Raises:
        GtiError: no examples, a batch that the processes cannot share evenly, or the loss is not finite.
    """
    if not examples:
        raise GtiError("sft: no training example: no user has two interactions left for training")
    if config.method == "full":
        lm.requires_grad_(True)
    steps, planned = _planned_steps(config, len(examples))
    args = _arguments(config, steps, seed, work, bf16=bf16, cpu=lm.old_rows.device.type == "cpu", evaluate=bool(valid))
    order = _order(examples, pairs, config, seed, config.micro_batch_size * args.world_size)
    args.gradient_accumulation_steps = order.micro_batches
    per_epoch = len(examples) + sum(order.pairs)
    result = SftResult(Budget.start("sft", config.epochs, per_epoch, steps < planned, "sft.max_steps"))
    best = Best(work) if config.select == "best" and validate else None
    recorder = Recorder(lm, result, steps, progress, validate, _checks(config.eval_every, steps), best)
    trainer = _SftTrainer(
        model=lm,
        args=args,
        train_dataset=[*as_rows(examples), *as_rows(pairs), FILLER],
        eval_dataset=as_rows(valid) if valid else None,
        data_collator=collate,
        callbacks=[recorder],
        rates=config,
        order=order,
    )
    trainer.remove_callback(PrinterCallback)
    checkpoint = newest_checkpoint(work)
    if checkpoint:
        result.resumed_from = int(checkpoint.name.rsplit("-", 1)[1])
        log.info("sft: resumes after step %d of %d", result.resumed_from, steps)
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    recorder.take_best()
    trainer.accelerator.wait_for_everyone()  # `work` is removed after this
    _fill(result.budget, lm, examples, pairs, levels, steps, order)
    if config.extra_steps:
        ended = "as planned" if steps == planned else f"budget: sft.max_steps={config.max_steps}"
        result.budget.ended = f"{ended}, and sft.extra_steps={config.extra_steps}"
    return result


def _order(
    examples: Sequence[Example], pairs: Sequence[Example], config: SftConfig, seed: int, at_a_time: int
) -> Order:
    own, beside = ([len(e.ids) for e in some] for some in (examples, pairs))
    return Order(own, config.batch_size, seed, at_a_time, beside, config.pairs_share)


def _planned_steps(config: SftConfig, examples: int) -> tuple[int, int]:
    """Optimizer steps to do, and as many as the epochs alone would be; `extra_steps` are in both."""
    epochs = math.ceil(config.epochs * math.ceil(examples / config.batch_size))
    return min(epochs, config.max_steps or epochs) + config.extra_steps, epochs + config.extra_steps


def _checks(share: float, steps: int) -> set[int]:
    """The steps after which recall is measured: every `share` of all steps, and the last."""
    return {min(steps, math.ceil(n * share * steps)) for n in range(1, math.ceil(1 / share) + 1)}


def _arguments(
    config: SftConfig, steps: int, seed: int, work: Path, *, bf16: bool, cpu: bool, evaluate: bool
) -> TrainingArguments:
    args = TrainingArguments(
        output_dir=str(work),
        max_steps=steps,
        per_device_train_batch_size=config.micro_batch_size,
        per_device_eval_batch_size=config.micro_batch_size,
        learning_rate=config.learning_rate,
        weight_decay=config.weight_decay,
        warmup_steps=round(config.warmup_share * steps),
        lr_scheduler_type="linear",
        eval_strategy="epoch" if evaluate else "no",
        save_strategy="steps",
        save_steps=config.save_steps,
        save_total_limit=1,
        logging_steps=1 if cpu else LOG_EVERY,
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
        ddp_find_unused_parameters=False,
    )
    at_a_time = config.micro_batch_size * args.world_size
    if config.batch_size % at_a_time:
        raise GtiError(
            f"sft.batch_size={config.batch_size} is not a multiple of sft.micro_batch_size={config.micro_batch_size}"
            f" x {args.world_size} processes: set sft.micro_batch_size to at most"
            f" {max(1, config.batch_size // args.world_size)}"
        )
    return args


class _SftTrainer(Trainer):
    """The stock Trainer with a rate of its own for the new rows, its own order, and checkpoints of what trains."""

    def __init__(self, *, rates: SftConfig, order: Order, **kwargs: Any) -> None:
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
                if parameter.requires_grad:
                    kind = "new" if name.endswith("new_rows") else "decay" if parameter.dim() > 1 else "plain"
                    groups[kind].append(parameter)
            rates = self.rates
            settings = {
                "decay": {"lr": rates.learning_rate, "weight_decay": rates.weight_decay},
                "plain": {"lr": rates.learning_rate, "weight_decay": 0.0},
                "new": {"lr": rates.new_token_learning_rate, "weight_decay": 0.0},
            }
            filled = [{"params": group, **settings[kind]} for kind, group in groups.items() if group]
            self.optimizer = torch.optim.AdamW(filled, fused=True)
        return self.optimizer

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        assert self.model is not None
        if not self.args.should_save:  # the Trainer calls this in every process
            return
        folder = Path(output_dir or str(self.args.output_dir))
        folder.mkdir(parents=True, exist_ok=True)
        save_trainable(self.model, folder / SAFE_WEIGHTS_NAME)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        assert self.model is not None
        load_trainable(self.model, Path(resume_from_checkpoint) / SAFE_WEIGHTS_NAME)


def _fill(
    budget: Budget,
    lm: ExtendedLM,
    examples: Sequence[Example],
    pairs: Sequence[Example],
    levels: int,
    steps: int,
    order: Order,
) -> None:
    """Counts what so many steps saw; targets are the items of `examples`, not those of pairs."""
    new = range(lm.first_id, lm.first_id + len(lm.new_rows))
    budget.steps = steps
    for place, (example, times) in enumerate(zip([*examples, *pairs], order.times_seen(steps).tolist(), strict=True)):
        budget.examples += times
        budget.tokens += times * len(example.ids)
        supervised = [t for t, s in zip(example.ids, example.supervised, strict=True) if s]
        budget.supervised_tokens += times * len(supervised)
        if place < len(examples):
            budget.targets += times * sum(t in new for t in supervised) // levels
