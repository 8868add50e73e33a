"""Items whose text is like that of the user's history: no behaviour of anyone else is used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import faiss
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gti_pipeline import columns as c
from gti_pipeline.baselines.ranking import Ranked, recommendations
from gti_pipeline.baselines.selection import choose


class Content(NamedTuple):
    """How the history counts: weight of an event against the one after it, and whether its own items may come back."""

    decay: float
    repeats: bool


SETTINGS = tuple(Content(decay, repeats) for repeats in (True, False) for decay in (1.0, 0.8, 0.5, 0.2))


class _Index(NamedTuple):
    """Distinct vectors in a faiss index, the items of each in order of id, and the vector number of each item."""

    search: faiss.IndexFlatIP
    vectors: NDArray[np.float32]
    items: list[list[str]]
    number: dict[str, int]


def content_knn(
    embeddings: pd.DataFrame, valid: pd.DataFrame, users: pd.DataFrame, num: int
) -> tuple[pd.DataFrame, dict[str, object]]:
    """The items nearest to the user's history by text.

    An item's score is the sum over the history of decay ** (events since) times its cosine to the event's item, over
    the sum of the weights. Because that is linear, it is one inner product with the weighted mean of the history. The
    decay, and whether items of the history may come back, are chosen by NDCG@10 on the validation rows.

    Args:
        embeddings: `schemas.ITEM_EMBEDDINGS`.
        valid: user_id, history, target: the validation rows; where there are none, all events count alike.
        users: user_id and history (item ids, oldest first, never empty).
        num: the most items per user.

    Returns:
        `schemas.RECOMMENDATIONS`, and what was chosen.
    """
    index = _index(embeddings)
    chosen, value = choose(SETTINGS, lambda setting: nearest(index, valid, num, setting), valid)
    summary = {**chosen._asdict(), "valid_ndcg": value}
    return nearest(index, users, num, chosen), summary


def nearest(index: _Index, users: pd.DataFrame, num: int, setting: Content) -> pd.DataFrame:
    """`schemas.RECOMMENDATIONS` under one setting."""
    profiles = np.stack([_profile(index, history, setting.decay) for history in users[c.HISTORY]])
    hidden: list[set[str]] = [set() if setting.repeats else set(history) for history in users[c.HISTORY]]
    # every hidden item may use up a vector
    wanted = min(len(index.vectors), num + max(map(len, hidden)))
    scores, numbers = index.search.search(profiles, wanted)
    lists = [_list(index, *row, num) for row in zip(scores, numbers, hidden, strict=True)]
    return recommendations(users[c.USER_ID], lists)


def _index(embeddings: pd.DataFrame) -> _Index:
    """Equal vectors are one entry: else faiss would break their ties as it likes."""
    ordered = embeddings.sort_values(c.ITEM_ID)
    every = np.stack(ordered[c.EMBEDDING].tolist()).astype(np.float32)
    norms = np.linalg.norm(every, axis=1, keepdims=True)
    unit = np.asarray(every / np.where(norms > 0, norms, 1), dtype=np.float32)
    vectors, number = np.unique(unit, axis=0, return_inverse=True)
    items: list[list[str]] = [[] for _ in vectors]
    ids = ordered[c.ITEM_ID].tolist()
    for item, place in zip(ids, number.reshape(-1).tolist(), strict=True):
        items[place].append(item)
    search = faiss.IndexFlatIP(vectors.shape[1])
    search.add(np.ascontiguousarray(vectors))
    return _Index(search, vectors, items, dict(zip(ids, number.reshape(-1).tolist(), strict=True)))


def _profile(index: _Index, history: Sequence[str], decay: float) -> NDArray[np.float32]:
    """The weighted mean of the history's vectors, [D]."""
    weights = decay ** np.arange(len(history) - 1, -1, -1, dtype=np.float64)
    mean = weights / weights.sum() @ index.vectors[[index.number[item] for item in history]]
    return np.asarray(mean, dtype=np.float32)


def _list(index: _Index, scores: NDArray[np.float32], numbers: NDArray[np.int64], hidden: set[str], num: int) -> Ranked:
    """Vectors to items, best first, ties by item id."""
    pairs = [
        (item, float(score))
        for number, score in zip(numbers, scores, strict=True)
        for item in index.items[number]
        if item not in hidden
    ]
    pairs = sorted(pairs, key=lambda pair: (-pair[1], pair[0]))[:num]
    return [item for item, _ in pairs], [score for _, score in pairs]
