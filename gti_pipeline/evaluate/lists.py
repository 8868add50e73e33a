"""What is in the lists, whether it hits or not: popularity, repeats, coverage; and hits of semantic-ID prefixes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pandas as pd

from gti_pipeline import columns as c

POPULARITY = "popularity"  # mean share of the training events that the recommended items have
REPEATS = "repeats"  # share of the recommended items that are in the user's history
COVERAGE = "coverage"  # share of the catalogue that is recommended to anyone
SID_PREFIX = "sid_prefix_"  # + number of codes; SID-level: the codes agree, the item may be another
PREFIXES = (1, 2)


def per_user_lists(
    recommendations: pd.DataFrame, test: pd.DataFrame, training_items: pd.Series, ks: Sequence[int]
) -> pd.DataFrame:
    """Popularity and repeats of each user's first K items, as many as came back.

    Args:
        recommendations: user_id, rank, item_id.
        test: user_id, history.
        training_items: an item id per training event.
        ks: cut-offs.

    Returns:
        A row per user of `test`, a column per (metric, k); NaN where nothing was recommended.
    """
    shares = training_items.value_counts(normalize=True)
    histories = test[[c.USER_ID, c.HISTORY]].explode(c.HISTORY).rename(columns={c.HISTORY: c.ITEM_ID}).drop_duplicates()
    known = pd.MultiIndex.from_frame(histories)
    slots = recommendations[[c.USER_ID, c.RANK]].assign(
        **{
            POPULARITY: recommendations[c.ITEM_ID].map(shares).fillna(0.0).to_numpy(dtype=np.float64),
            REPEATS: pd.MultiIndex.from_frame(recommendations[[c.USER_ID, c.ITEM_ID]]).isin(known).astype(np.float64),
        }
    )
    means = {k: slots[slots[c.RANK] <= k].groupby(c.USER_ID)[[POPULARITY, REPEATS]].mean() for k in sorted(set(ks))}
    columns = {(name, k): means[k][name].reindex(test[c.USER_ID]) for name in (POPULARITY, REPEATS) for k in means}
    return pd.DataFrame(columns, index=pd.Index(test[c.USER_ID])).rename_axis(columns=[c.METRIC, c.K])


def coverage(recommendations: pd.DataFrame, item_ids: Collection[str], ks: Sequence[int]) -> dict[int, float]:
    """The share of the catalogue that is among anyone's first K items, by K."""
    first = recommendations.groupby(c.ITEM_ID)[c.RANK].min()  # the best rank an item has with anyone
    return {k: float((first <= k).sum()) / len(set(item_ids)) for k in sorted(set(ks))}


def prefix_hits(
    recommendations: pd.DataFrame, relevant: pd.DataFrame, codes: Mapping[str, Sequence[int]], ks: Sequence[int]
) -> pd.DataFrame:
    """Whether the first code, or the first two, of any relevant item lead any of the first K items.

    Args:
        recommendations: user_id, rank, item_id.
        relevant: user_id, item_id.
        codes: semantic ID by item id; all of one length, which bounds the prefixes.
        ks: cut-offs.

    Returns:
        0 or 1: a row per user of `relevant`, a column per (metric, k).
    """
    users = pd.Index(relevant[c.USER_ID].unique(), name=c.USER_ID)
    levels = len(next(iter(codes.values())))
    columns: dict[tuple[str, int], pd.Series] = {}
    for length in [n for n in PREFIXES if n <= levels]:
        numbers = _prefix_numbers(codes, length)
        wanted = relevant[[c.USER_ID]].assign(prefix=relevant[c.ITEM_ID].map(numbers)).drop_duplicates()
        listed = recommendations[[c.USER_ID, c.RANK]].assign(prefix=recommendations[c.ITEM_ID].map(numbers))
        first = listed.merge(wanted, on=[c.USER_ID, "prefix"]).groupby(c.USER_ID)[c.RANK].min().reindex(users)
        columns |= {(f"{SID_PREFIX}{length}", k): (first <= k).astype(np.float64) for k in sorted(set(ks))}
    return pd.DataFrame(columns, index=users).rename_axis(columns=[c.METRIC, c.K])


def _prefix_numbers(codes: Mapping[str, Sequence[int]], length: int) -> dict[str, int]:
    """A number per distinct prefix, by item id."""
    seen: dict[tuple[int, ...], int] = {}
    return {item: seen.setdefault(tuple(map(int, code[:length])), len(seen)) for item, code in codes.items()}
