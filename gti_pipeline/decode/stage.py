"""The stage: prompts in, the table of recommendations out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from gti_pipeline import columns as c
from gti_pipeline.decode.beam import beam_search
from gti_pipeline.decode.trie import Trie
from gti_pipeline.errors import GtiError

Ranked = tuple[NDArray[np.int64], NDArray[np.float32]]


def recommend(
    model: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    user_ids: Sequence[str],
    item_ids: Sequence[str],
    codes: NDArray[np.integer],
    token_ids: Tensor,
    num_beams: int,
    batch_size: int,
    progress: Callable[[int, int], None],
) -> pd.DataFrame:
    """The best `num_beams` items of every user.

    Args:
        model: a causal LM; it is put into eval mode.
        prompts: [num_users] lists of token ids.
        user_ids: [num_users], distinct.
        item_ids: [num_items].
        codes: [num_items, L], rows distinct.
        token_ids: [L, K], the model's row of each code.
        num_beams: the most items per user; fewer where the catalogue has fewer.
        batch_size: users at a time.
        progress: called with (users done, users in all) after each batch.

    Returns:
        `schemas.RECOMMENDATIONS`, users in the order given, ranks from 1.

    Raises:
        GtiError: see `Trie.build` and `beam_search`; lists of unequal length, a repeated user.
    """
    if len(prompts) != len(user_ids) or len(item_ids) != len(codes):
        raise GtiError(
            f"{len(prompts)} prompts for {len(user_ids)} users, {len(codes)} semantic IDs for {len(item_ids)} items"
        )
    if len(set(user_ids)) < len(user_ids):
        raise GtiError(f"a user is listed more than once among the {len(user_ids)} to recommend to")
    model.eval()
    trie = Trie.build(codes, token_ids).to(model.device)
    found: dict[int, Ranked] = {}
    for batch in _batches(prompts, batch_size):
        found.update(zip(batch, beam_search(model, [prompts[i] for i in batch], trie, num_beams), strict=True))
        progress(len(found), len(prompts))
    return _frame([found[i] for i in range(len(prompts))], user_ids, item_ids)


def _batches(prompts: Sequence[Sequence[int]], batch_size: int) -> list[list[int]]:
    """Indices in batches of like length, the longest first: little padding, and too little memory shows at once."""
    order = sorted(range(len(prompts)), key=lambda i: -len(prompts[i]))
    return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]


def _frame(found: Sequence[Ranked], user_ids: Sequence[str], item_ids: Sequence[str]) -> pd.DataFrame:
    """One row per user and item found."""
    counts = [len(items) for items, _ in found]
    nothing = np.empty(0, dtype=np.int64)  # keeps the columns where there is no user
    items = np.concatenate([nothing, *(items for items, _ in found)])
    ranks = np.concatenate([nothing, *(np.arange(1, count + 1) for count in counts)])
    scores = np.concatenate([np.empty(0), *(scores for _, scores in found)])
    return pd.DataFrame(
        {
            c.USER_ID: pd.Series(np.repeat(np.asarray(user_ids, dtype=object), counts), dtype="str"),
            c.RANK: ranks.astype(np.int32),
            c.ITEM_ID: pd.Series(np.asarray(item_ids, dtype=object)[items], dtype="str"),
            c.SCORE: scores,
        }
    )
