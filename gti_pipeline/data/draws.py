"""Random draws whose stream stays the same in every version of Python, for generated data."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")


@dataclass
class Draws:
    """Draws that depend on `random.Random.random` alone, the one method whose stream Python keeps forever."""

    seed: int
    source: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.source = random.Random(self.seed)  # noqa: S311 - data, not secrets

    def chance(self, probability: float) -> bool:
        """True so often."""
        return self.source.random() < probability

    def whole(self, low: int, high: int) -> int:
        """A whole number, both ends included."""
        return low + int(self.source.random() * (high - low + 1))

    def pick(self, options: Sequence[T]) -> T:
        """One of them, all alike."""
        return options[int(self.source.random() * len(options))]

    def weighted(self, options: Sequence[T], weights: Sequence[float]) -> T:
        """One of them, as often as its weight says."""
        left = self.source.random() * math.fsum(weights)
        for option, weight in zip(options, weights, strict=True):
            left -= weight
            if left < 0:
                return option
        return options[-1]

    def shuffled(self, values: Sequence[T]) -> list[T]:
        """All of them in a random order."""
        return [value for _, value in sorted(((self.source.random(), v) for v in values), key=lambda pair: pair[0])]
