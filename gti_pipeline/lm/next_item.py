"""Next-item examples: a user's history as semantic IDs, and the item that came next (paper's step 5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from gti_pipeline import columns as c
from gti_pipeline.lm.prompts import NEXT_ITEM, Example, Prompter
from gti_pipeline.vocab import sid_text

Codes = Mapping[str, Sequence[int]]


def training_examples(
    sequences: pd.DataFrame, codes: Codes, prompter: Prompter, *, targets: str, max_history: int, seed: int
) -> list[Example]:
    """Examples from the `train` rows of the sequences; the wording is drawn per example.

    `last`: one example per (user, position), its answer supervised. `all`: one sequence per user and window of
    `max_history` items, every item but the first supervised; each event is a target once.
    """
    rng = np.random.default_rng(seed)
    rows = sequences[sequences[c.SPLIT] == "train"]
    examples = []
    for history, target in zip(rows[c.HISTORY], rows[c.TARGET], strict=True):
        for past, answer in _windows([*history, target], max_history, targets):
            wording = int(rng.integers(len(NEXT_ITEM)))
            examples.append(_example(past, answer, codes, prompter, wording, everything=targets == "all"))
    return examples


def answered_examples(
    rows: pd.DataFrame, codes: Codes, prompter: Prompter, *, max_history: int, wording: int = 0
) -> list[Example]:
    """One example per row, its target supervised (for a validation loss)."""
    return [
        _example(list(history)[-max_history:], target, codes, prompter, wording, everything=False)
        for history, target in zip(rows[c.HISTORY], rows[c.TARGET], strict=True)
    ]


def prompts(rows: pd.DataFrame, codes: Codes, prompter: Prompter, *, max_history: int) -> list[list[int]]:
    """One prompt per row from its history alone; the first wording for everyone."""
    levels = len(next(iter(codes.values())))
    return [
        prompter.next_item([codes[item] for item in list(history)[-max_history:]], 0, levels)
        for history in rows[c.HISTORY]
    ]


def _windows(events: list[str], size: int, targets: str) -> Iterator[tuple[list[str], str]]:
    """(history, target) pairs of a user's training events, newest first."""
    step = size if targets == "all" else 1
    for end in range(len(events) - 1, 0, -step):
        yield events[max(0, end - size) : end], events[end]


def _example(
    past: Sequence[str], answer: str, codes: Codes, prompter: Prompter, wording: int, *, everything: bool
) -> Example:
    """The prompt with its answer; with `everything`, the history's items but the first are supervised too."""
    target = prompter.encode(sid_text(codes[answer]))
    prompt = prompter.next_item([codes[item] for item in past], wording, len(target))
    supervised = [False] * len(prompt)
    if everything:
        at = [i for i, token in enumerate(prompt) if prompter.is_sid(token)]
        for i in at[len(target) :]:
            supervised[i] = True
    return Example(prompt + target, supervised + [True] * len(target))
