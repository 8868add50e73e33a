"""The retrieval probe: whether the tokens mean their items, asked in wordings that nothing was trained on.

From an item's title, at what rank is its semantic ID under the trie; from its semantic ID, is its own title likelier
than others' (by mean log P per token, so that short titles have no advantage).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from gti_pipeline import columns as c
from gti_pipeline.decode.beam import beam_search
from gti_pipeline.decode.trie import Trie
from gti_pipeline.lm.extended import ExtendedLM, merge
from gti_pipeline.lm.pairs import TO_SID, TO_TEXT
from gti_pipeline.lm.prefix import PrefixCache, split_example, tail_nll
from gti_pipeline.lm.prompts import PROBE_TO_SID, PROBE_TO_TEXT, Prompter
from gti_pipeline.vocab import sid_text

BEAMS = 20  # ranks beyond are not told apart
OTHERS = 3  # titles that an item's own is compared with
BATCH = 8
OPENING_BYTES = 2**26  # of the prompts' shared opening
Codes = Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class ProbeSample:
    """Probed items [n], their titles [n], and for each the titles of other items."""

    item_ids: tuple[str, ...]
    titles: tuple[str, ...]
    others: tuple[tuple[str, ...], ...]


def draw_sample(items: pd.DataFrame, size: int, prompter: Prompter, max_text_tokens: int) -> ProbeSample:
    """A sample of items, the same for all arms and seeds; items of the same title are not compared."""
    rng = np.random.default_rng(0)
    titles = items[c.TITLE].tolist()
    chosen = np.sort(rng.permutation(len(titles))[:size]).tolist()
    others = []
    for row in chosen:
        drawn = [titles[i] for i in rng.permutation(len(titles))[: 4 * OTHERS] if titles[i] != titles[row]]
        others.append(tuple(prompter.cut(title, max_text_tokens) for title in drawn[:OTHERS]))
    cut = tuple(prompter.cut(titles[row], max_text_tokens) for row in chosen)
    return ProbeSample(tuple(items[c.ITEM_ID].iloc[chosen]), cut, tuple(others))


def probe(
    model: PreTrainedModel, lm: ExtendedLM, sample: ProbeSample, codes: Codes, token_ids: Tensor, prompter: Prompter
) -> pd.DataFrame:
    """One row per item: item_id, rank (from 1; null beyond the beams), wins (null without other titles).

    Args:
        model: the LM that `lm` extends; its own rows of the new tokens become those of `lm`.
        lm: in eval mode.
        sample: the items.
        codes: [L] of every item of the catalogue.
        token_ids: [L, K].
        prompter: with the extended tokenizer.
    """
    merge(model, lm.new_rows.detach(), lm.first_id)
    return pd.DataFrame(
        {
            c.ITEM_ID: pd.Series(sample.item_ids, dtype="str"),
            c.RANK: pd.array(_ranks(model, sample, codes, token_ids, prompter), dtype="Int32"),
            c.WINS: _wins(lm, sample, codes, prompter),
        }
    )


def _ranks(
    model: PreTrainedModel, sample: ProbeSample, codes: Codes, token_ids: Tensor, prompter: Prompter
) -> list[int | None]:
    """The rank of each item's semantic ID, asked by its title."""
    trie = Trie.build(np.stack(list(codes.values())), token_ids).to(model.device)
    place = {item: i for i, item in enumerate(codes)}
    prompts = [prompter.prompt(PROBE_TO_SID.format(title=title)) for title in sample.titles]
    found = []
    for start in range(0, len(prompts), BATCH):
        found += [items.tolist() for items, _ in beam_search(model, prompts[start : start + BATCH], trie, BEAMS)]
    wanted = [place[item] for item in sample.item_ids]
    return [items.index(item) + 1 if item in items else None for item, items in zip(wanted, found, strict=True)]


@torch.inference_mode()
def _wins(lm: ExtendedLM, sample: ProbeSample, codes: Codes, prompter: Prompter) -> list[float | None]:
    """The share of the other titles that are less likely than the item's own, after its semantic ID."""
    cache = PrefixCache(lm, OPENING_BYTES)
    shares: list[float | None] = []
    for item, title, others in zip(sample.item_ids, sample.titles, sample.others, strict=True):
        question = PROBE_TO_TEXT.format(sid=sid_text(codes[item]))
        examples = [prompter.example(question, text, with_end=True) for text in (title, *others)]
        split = [split_example(e, lm.first_id, len(lm.new_rows)) for e in examples]
        nll, rows = tail_nll(lm, split, cache.get([e.prefix for e in split]))
        means = torch.zeros(len(split), device=nll.device).index_add(0, rows, nll) / rows.bincount()
        shares.append((means[1:] > means[0]).double().mean().item() if others else None)
    return shares


def summarize(before: pd.DataFrame, after: pd.DataFrame, trained: Sequence[str]) -> dict[str, Any]:
    """Numbers for the stage's summary, a sentence, and the trained directions that did not beat their own start.

    Text to ID is judged by the mean reciprocal rank, ID to text by the wins: the mean gain per item must be larger
    than its standard error.
    """
    start, end = _numbers(before), _numbers(after)
    gains = {TO_SID: _reciprocal(after) - _reciprocal(before), TO_TEXT: _wins_of(after) - _wins_of(before)}
    missed = [name for name in trained if not _is_gain(gains[name])]
    sentence = (
        f"probe of {len(after)} items, before -> after: the title finds its ID first {start['top1']:.0%} ->"
        f" {end['top1']:.0%}, in the top 10 {start['top10']:.0%} -> {end['top10']:.0%}; the ID tells its title from"
        f" another's {start['wins']:.0%} -> {end['wins']:.0%}"
    )
    if missed:
        sentence += f". Grounding did NOT beat its own start by more than chance: {', '.join(missed)}"
    return {"items": len(after), "before": start, "after": end, "missed": missed, "sentence": sentence}


def _numbers(frame: pd.DataFrame) -> dict[str, float]:
    reciprocal, wins = _reciprocal(frame), _wins_of(frame)
    wins = wins[~np.isnan(wins)]
    return {
        "top1": round(float((reciprocal >= 1).mean()), 4),
        "top10": round(float((reciprocal >= 1 / 10).mean()), 4),
        "mrr": round(float(reciprocal.mean()), 4),
        "wins": round(float(wins.mean()), 4) if len(wins) else 0.5,  # nothing to compare with: chance
    }


def _reciprocal(frame: pd.DataFrame) -> NDArray[np.float64]:
    """1 / rank, 0 beyond the beams."""
    ranks = frame[c.RANK].astype("Float64").to_numpy(dtype=np.float64, na_value=np.inf)
    return np.asarray(1 / ranks, dtype=np.float64)


def _wins_of(frame: pd.DataFrame) -> NDArray[np.float64]:
    """Wins, NaN where there was no other title."""
    return np.asarray(frame[c.WINS], dtype=np.float64)


def _is_gain(gains: NDArray[np.float64]) -> bool:
    """Whether the mean of the paired differences is positive and above its standard error."""
    known = gains[~np.isnan(gains)]
    return bool(len(known) and known.mean() > known.std() / np.sqrt(len(known)))
