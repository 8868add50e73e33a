"""Search prompts as token ids: an instruction with the query's text, answered by the semantic ID of a good match."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from gti_pipeline import columns as c
from gti_pipeline.errors import GtiError
from gti_pipeline.lm.prompts import Example, Prompter
from gti_pipeline.vocab import sid_text

SEARCH = (
    "Which item is a good match for this request? {query}",
    "Find the item that this search is for: {query}",
    "Request: {query}\nRecommend an item that meets it.",
)

Codes = Mapping[str, Sequence[int]]


def match_examples(
    matches: pd.DataFrame, codes: Codes, prompter: Prompter, max_query_tokens: int, seed: int | None
) -> list[Example]:
    """One example per row, the item's semantic ID supervised.

    Args:
        matches: text (of the query), item_id.
        codes: semantic ID [L] by item id.
        prompter: with the extended tokenizer.
        max_query_tokens: a longer query is cut at its end.
        seed: draws the wording of each; None takes the first for all, as `prompts` does.
    """
    rng = np.random.default_rng(seed)
    wordings = rng.integers(len(SEARCH), size=len(matches)) if seed is not None else np.zeros(len(matches), dtype=int)
    levels = _levels(codes)
    examples = []
    for text, item, wording in zip(matches[c.TEXT], matches[c.ITEM_ID], wordings, strict=True):
        prompt = search_prompt(text, prompter, max_query_tokens, levels, int(wording))
        target = prompter.encode(sid_text(codes[item]))
        examples.append(Example(prompt + target, [False] * len(prompt) + [True] * len(target)))
    return examples


def prompts(queries: pd.DataFrame, codes: Codes, prompter: Prompter, max_query_tokens: int) -> list[list[int]]:
    """One prompt per query from its text alone; the first wording for every one."""
    levels = _levels(codes)
    return [search_prompt(text, prompter, max_query_tokens, levels, 0) for text in queries[c.TEXT]]


def search_prompt(text: str, prompter: Prompter, max_query_tokens: int, answer_tokens: int, wording: int) -> list[int]:
    """The prompt of one query, whose text is cut to the budget and to what the context has room for.

    Whatever in the text looks like a token of the template or a semantic ID is broken up and read as text.

    Raises:
        GtiError: not one token of the query fits.
    """
    template = SEARCH[wording]
    room = prompter.max_tokens - answer_tokens - len(prompter.prompt(template.format(query="")))
    for budget in range(min(max_query_tokens, room), 0, -1):
        ids = prompter.prompt(template.format(query=prompter.cut(text, budget)))
        if len(ids) + answer_tokens <= prompter.max_tokens:  # tokens at the seams may be split otherwise
            return ids
    raise GtiError(f"lm.max_tokens={prompter.max_tokens} leaves no room for a query's text: raise it")


def _levels(codes: Codes) -> int:
    return len(next(iter(codes.values())))
