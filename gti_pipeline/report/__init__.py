"""What a report is made of: plain data, with no knowledge of flows, stores or trackers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from gti_pipeline import columns as c

OVERALL = "all"  # the slice of all test users
POPULAR = "popular"  # the arm every run is held against


def baselines_of(metrics: pd.DataFrame, arm: str) -> tuple[str, ...]:
    """Every arm of a `schemas.METRICS` frame but this one, in its order."""
    return tuple(name for name in dict.fromkeys(metrics[c.ARM]) if name != arm)


@dataclass(frozen=True)
class StageRow:
    """One stage of a run: whether its artifact was there already, and one line on what it did."""

    stage: str
    key: str
    seconds: float
    cached: bool
    note: str = ""


@dataclass(frozen=True)
class BudgetRow:
    """How much of a stage's training was done, and why it stopped there."""

    stage: str
    steps: int
    epochs: float
    examples: int
    tokens: int
    stopped: str
    text: str  # for example "3.0 of 10 epochs (budget ground.max_steps=56)"


@dataclass(frozen=True)
class Recommended:
    """One item of a user's list."""

    rank: int
    title: str
    score: float
    hit: bool


@dataclass(frozen=True)
class Example:
    """A test user: what they had, what each arm recommends, what they took next.

    Of a search task a query: `history` is its text alone, `truth` its good items.
    """

    user_id: str
    history: tuple[str, ...]
    lists: Mapping[str, tuple[Recommended, ...]]  # by arm
    truth: str
    is_query: bool = False


@dataclass(frozen=True)
class Diagnostics:
    """What the new tokens' rows are like at each moment of a run (stage: init, grounded, tuned)."""

    numbers: pd.DataFrame  # schemas.DIAGNOSTICS
    cosines: pd.DataFrame  # schemas.COSINES
    spectrum: pd.DataFrame  # schemas.SPECTRUM
    nearest_words: pd.DataFrame  # schemas.NEAREST_WORDS


@dataclass(frozen=True)
class Difference:
    """A paired difference `arm - reference` over the same users, with its interval."""

    arm: str
    reference: str
    metric: str
    k: int
    value: float
    low: float
    high: float
    num_users: int


@dataclass(frozen=True)
class ReportInput:
    """Everything `report.html.build_report` shows of one run."""

    title: str
    dataset: str
    arm: str  # the method's name: which rows of `metrics` are this run's
    metrics: pd.DataFrame  # schemas.METRICS; other arms are baselines
    config_yaml: str
    is_standin: bool = False
    banner: str = ""
    data_summary: Mapping[str, Any] = field(default_factory=dict)
    stages: tuple[StageRow, ...] = ()
    semantic_id_summary: Mapping[str, Any] = field(default_factory=dict)
    semantic_ids: pd.DataFrame | None = None  # schemas.SEMANTIC_IDS, for the codebook-use figure
    codebook_size: int = 0
    budgets: tuple[BudgetRow, ...] = ()
    steps: Mapping[str, pd.DataFrame] = field(default_factory=dict)  # schemas.STEPS by stage
    differences: tuple[Difference, ...] = ()
    diagnostics: Diagnostics | None = None
    examples: tuple[Example, ...] = ()
    next_steps: str = ""
    headline_k: int = 10
    confidence: float = 0.95

    @property
    def baselines(self) -> tuple[str, ...]:
        """The other arms, in the order of the metrics."""
        return baselines_of(self.metrics, self.arm)


@dataclass(frozen=True)
class ArmBudget:
    """What one arm was trained with in one stage; of several seeds their mean."""

    arm: str
    stage: str  # ground or sft
    steps: int
    examples: int
    targets: int  # items to recommend that were supervised; 0 of grounding
    supervised_tokens: int
    tokens: int


@dataclass(frozen=True)
class ComparisonInput:
    """Everything `report.comparison.build_comparison` shows of several arms."""

    title: str
    dataset: str
    metrics: pd.DataFrame  # schemas.METRICS, a row per arm or baseline (averaged over seeds where there are several)
    arms: tuple[str, ...] = ()  # the methods among them; the others are baselines
    reference: str = "mean_sft"
    is_standin: bool = False
    banner: str = ""
    differences: tuple[Difference, ...] = ()
    seeds: int = 1
    budgets: tuple[ArmBudget, ...] = ()
    curves: pd.DataFrame | None = None  # arm, seed and schemas.STEPS of fine-tuning's validation
    diagnostics: pd.DataFrame | None = None  # arm and schemas.DIAGNOSTICS, averaged over seeds
    spectra: pd.DataFrame | None = None  # arm and schemas.SPECTRUM, averaged over seeds
    examples: tuple[Example, ...] = ()
    notes: tuple[str, ...] = ()  # what the arms share, what was left out
    next_steps: str = ""
    headline_k: int = 10
    confidence: float = 0.95

    @property
    def baselines(self) -> tuple[str, ...]:
        """What is in the metrics and is no arm, in their order."""
        return tuple(name for name in dict.fromkeys(self.metrics[c.ARM]) if name not in self.arms)
