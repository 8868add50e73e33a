"""What a training run leaves behind while it runs: its curves, its checkpoints, its best weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from gti_pipeline.budget import Budget
from gti_pipeline.errors import GtiError
from gti_pipeline.lm.extended import ExtendedLM
from gti_pipeline.sft.weights import Best, load_trainable, save_trainable

Progress = Callable[[int, int], None]
Validate = Callable[[ExtendedLM], float]
COMPLETE = "complete"  # a file that marks a checkpoint as wholly written
RECALL = "valid_recall_10"
NAMES = {"loss": "loss", "eval_loss": "valid_loss", "learning_rate": "learning_rate", RECALL: RECALL}


@dataclass
class SftResult:
    """What fine-tuning did; the weights are those of the model that was passed.

    `selected_step` is the step that they are of, where that is not the last one.
    """

    budget: Budget
    steps: list[tuple[int, str, float]] = field(default_factory=list)
    resumed_from: int = 0
    selected_step: int | None = None


class Recorder(TrainerCallback):
    """Keeps the step metrics, shows progress, marks whole checkpoints, stops on a loss that is not finite.

    With `validate`, it measures recall at the steps `check_at`; with `best`, it keeps the best weights.
    """

    def __init__(
        self,
        lm: ExtendedLM,
        result: SftResult,
        steps: int,
        progress: Progress,
        validate: Validate | None,
        check_at: Collection[int],
        best: Best | None,
    ) -> None:
        self.lm = lm
        self.result = result
        self.total = steps
        self.progress = progress
        self.validate = validate
        self.check_at = check_at
        self.best = best

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Takes the metrics of the steps before a resumption from the checkpoint's own log."""
        for entry in state.log_history:
            self._record(int(entry["step"]), entry)
            if self.best and RECALL in entry:
                self.best.see(int(entry["step"]), float(entry[RECALL]))

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: Any = None, **_: Any
    ) -> None:
        """One entry of the log."""
        self._record(state.global_step, logs or {})

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Progress, and the validation recall where it is due."""
        if self.validate and state.global_step in self.check_at:
            self._check(self.validate, state)
        self.progress(state.global_step, self.total)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Marks the checkpoint that was just written as whole."""
        if state.is_world_process_zero:
            (Path(str(args.output_dir)) / f"checkpoint-{state.global_step}" / COMPLETE).touch()
            if self.best:
                self.best.sweep()

    def take_best(self) -> None:
        """Puts the best weights into the model; those of the last step are there already."""
        if self.best and self.best.step not in (None, self.total):
            load_trainable(self.lm, self.best.path(self.best.step))
            self.result.selected_step = self.best.step

    def _check(self, validate: Validate, state: TrainerState) -> None:
        step, training = state.global_step, self.lm.training
        value = validate(self.lm.eval())
        self.lm.train(training)
        # the log is part of each checkpoint: so a resumed run knows the whole curve
        state.log_history.append({"step": step, RECALL: value})
        self._record(step, {RECALL: value})
        is_best = self.best is not None and self.best.see(step, value)
        if self.best and is_best and step < self.total and state.is_world_process_zero:
            save_trainable(self.lm, self.best.path(step))

    def _record(self, step: int, entry: dict[str, Any]) -> None:
        for name, ours in NAMES.items():
            if name in entry:
                value = float(entry[name])
                if ours == "loss" and not math.isfinite(value):
                    raise GtiError(f"sft: the loss is {value} at step {step}: lower sft.learning_rate")
                self.result.steps.append((step, ours, value))


def newest_checkpoint(work: Path) -> Path | None:
    """The newest checkpoint that was wholly written; a half-written one is never resumed from."""
    whole = [path.parent for path in work.glob(f"checkpoint-*/{COMPLETE}")]
    return max(whole, key=lambda path: int(path.name.rsplit("-", 1)[1]), default=None)
