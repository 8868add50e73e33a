"""Budgets of several arms side by side, and whether they are equal."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from gti_pipeline.report import ArmBudget

SFT, GROUND = "sft", "ground"
COUNTS = ("steps", "examples", "targets", "supervised_tokens", "tokens")


def budgets_frame(budgets: Sequence[ArmBudget]) -> pd.DataFrame:
    """A row per arm and training stage, as text; grounding has no targets."""
    rows = [[b.arm, b.stage, *(f"{getattr(b, name):,}" for name in COUNTS)] for b in budgets]
    frame = pd.DataFrame(rows, columns=["arm", "stage", *(name.replace("_", " ") for name in COUNTS)])
    frame.loc[frame["stage"] == GROUND, "targets"] = ""
    return frame


def budget_sentences(budgets: Sequence[ArmBudget]) -> list[str]:
    """Whether every arm's fine-tuning saw as much, and what pairs and grounding came on top."""
    tuned = [b for b in budgets if b.stage == SFT]
    if not tuned:
        return []
    same = [_sameness(tuned, "targets", "targets (items to recommend)"), _sameness(tuned, "tokens", "tokens")]
    return [*same, *_pairs_on_top(tuned), *_on_top(budgets)]


def _sameness(tuned: Sequence[ArmBudget], what: str, words: str) -> str:
    counts = {b.arm: int(getattr(b, what)) for b in tuned}
    if len(set(counts.values())) == 1:
        return f"Fine-tuning saw the same number of {words} in every arm: {next(iter(counts.values())):,}."
    said = ", ".join(f"{arm} {count:,}" for arm, count in counts.items())
    return f"Fine-tuning did NOT see the same number of {words} in every arm: {said}."


def _pairs_on_top(tuned: Sequence[ArmBudget]) -> list[str]:
    """Equal targets in more examples: the others are pairs."""
    least = {b.targets: min(o.examples for o in tuned if o.targets == b.targets) for b in tuned}
    return [
        f"{b.arm} had {b.examples - least[b.targets]:,} text <-> ID pairs beside the same targets: its fine-tuning cost"
        " more compute."
        for b in tuned
        if b.examples > least[b.targets]
    ]


def _on_top(budgets: Sequence[ArmBudget]) -> list[str]:
    tuned = {b.arm: b for b in budgets if b.stage == SFT}
    sentences = []
    for ground in budgets:
        own = tuned.get(ground.arm)
        if ground.stage == GROUND and own and own.tokens:
            share = ground.tokens / own.tokens
            sentences.append(
                f"{ground.arm} had grounding before it: {ground.tokens:,} tokens, {share:.2f} times those of its"
                " fine-tuning; arms without grounding had nothing in its place."
            )
    return sentences
