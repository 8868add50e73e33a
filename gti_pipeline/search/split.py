"""Queries into training, validation and test, and the guard that no test judgment is trained on."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gti_pipeline import columns as c
from gti_pipeline.config import SplitConfig
from gti_pipeline.data.split import TEST, VALID
from gti_pipeline.errors import raise_all

TRAIN = "train"
GOOD, MAYBE = 2, 1  # the least grade of each threshold


def split_queries(queries: pd.DataFrame, config: SplitConfig, seed: int) -> pd.Series:
    """The split of each query, drawn by `seed`; queries of equal text, case aside, are in the same.

    Args:
        queries: query_id, text.
        config: `test_share` and `valid_share`, of the distinct texts; each takes at least one where it is not 0.
        seed: with it and the same texts, the same split, whatever the order of the rows.

    Returns:
        `train`, `valid` or `test`, with the index of `queries`.
    """
    keys = queries[c.TEXT].map(same_text)
    texts = np.array(sorted(keys.unique()), dtype=object)
    shuffled = np.random.default_rng(seed).permutation(texts)
    tested, validated = (_count(share, len(texts)) for share in (config.test_share, config.valid_share))
    where = dict.fromkeys(shuffled, TRAIN)
    where |= dict.fromkeys(shuffled[:tested], TEST)
    where |= dict.fromkeys(shuffled[tested : tested + validated], VALID)
    return keys.map(where)


def good_matches(queries: pd.DataFrame, judgments: pd.DataFrame, part: str) -> pd.DataFrame:
    """The good items of a split's queries: query_id, item_id, text; in the order of the judgments."""
    chosen = queries.loc[queries[c.SPLIT] == part, [c.QUERY_ID, c.TEXT]]
    good = judgments.loc[judgments[c.GRADE] >= GOOD, [c.QUERY_ID, c.ITEM_ID]]
    return good.merge(chosen, on=c.QUERY_ID, how="inner")


def check_no_leak(matches: pd.DataFrame, queries: pd.DataFrame) -> None:
    """Refuses training matches of a query, or of a query text, that is validated or tested on.

    Args:
        matches: query_id and text of what is trained on.
        queries: `schemas.QUERIES`.

    Raises:
        GtiError: names the first such query of each kind; it would be a bug in this program.
    """
    problems = []
    for part in (VALID, TEST):
        held = queries[queries[c.SPLIT] == part]
        same_id = matches.loc[matches[c.QUERY_ID].isin(held[c.QUERY_ID]), c.QUERY_ID]
        same = matches.loc[matches[c.TEXT].map(same_text).isin(held[c.TEXT].map(same_text)), c.QUERY_ID]
        for found, what in ((same_id, "is itself"), (same, "has the text of one that is")):
            if len(found):
                problems.append(f"query {found.iloc[0]!r} {what} in {part} ({found.nunique()} such)")
    raise_all("held-out queries are trained on: a bug in this program; nothing was trained:", problems)


def same_text(text: str) -> str:
    """Texts that a reader takes for the same have the same."""
    return " ".join(text.casefold().split())


def _count(share: float, total: int) -> int:
    return max(1, round(share * total)) if share else 0
