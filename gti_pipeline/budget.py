"""What a training stage was allowed and what it did: shown and logged, never hidden."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass
class Budget:
    """Counts of a training stage; an epoch is every example once."""

    stage: str
    planned_epochs: float
    examples_per_epoch: int
    limited_by: str | None
    steps: int = 0
    examples: int = 0
    tokens: int = 0
    supervised_tokens: int = 0
    targets: int = 0  # items to recommend that were supervised, where the stage counts them
    ended: str = ""  # what ended the stage, where it was neither the plan nor a budget

    @classmethod
    def start(cls, stage: str, planned_epochs: float, examples: int, limited: bool, setting: str) -> Budget:
        """A budget of which nothing is used; `setting` is named where it ends the stage early."""
        return cls(stage, planned_epochs, examples, setting if limited else None)

    def add(self, examples: int, tokens: int, supervised_tokens: int) -> None:
        """One optimizer step over so many examples."""
        self.steps += 1
        self.examples += examples
        self.tokens += tokens
        self.supervised_tokens += supervised_tokens

    @property
    def epochs(self) -> float:
        """How many epochs were done."""
        return self.examples / max(1, self.examples_per_epoch)

    def sentence(self) -> str:
        """For people: how much was done and what ended it."""
        done = (
            f"{self.steps} steps, {self.epochs:.2f} of {self.planned_epochs:g} epochs"
            f" of {self.examples_per_epoch:,} examples, {self.supervised_tokens:,} supervised tokens"
        )
        if self.targets:
            done += f", {self.targets:,} items to recommend"
        if self.ended:
            return f"{done} ({self.ended})"
        return f"{done} (budget: {self.limited_by}={self.steps})" if self.limited_by else f"{done} (as planned)"

    def to_dict(self) -> dict[str, Any]:
        """For a summary in JSON."""
        return asdict(self) | {"epochs": round(self.epochs, 4), "sentence": self.sentence()}
