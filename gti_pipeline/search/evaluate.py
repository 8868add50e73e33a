"""Recommendations of several arms in, metrics with intervals over queries out, and what one arm gains on another.

In these tables a query stands where a user does: `user_id` holds its id, `num_users` the number of tested queries.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gti_pipeline import columns as c
from gti_pipeline.config import EvaluateConfig
from gti_pipeline.errors import raise_all
from gti_pipeline.evaluate.seeds import seed_intervals
from gti_pipeline.evaluate.slices import ALL
from gti_pipeline.schemas import METRICS, RECOMMENDATIONS, USER_METRICS
from gti_pipeline.search.metrics import Values, per_query

SEED = "seed"
RELATIVE, DIFFERENCE = "relative", "difference"


@dataclass(frozen=True)
class Evaluation:
    """The stage's tables."""

    metrics: pd.DataFrame  # schemas.METRICS
    user_metrics: pd.DataFrame  # schemas.USER_METRICS


def evaluate(
    recommendations: Mapping[str, pd.DataFrame],
    judgments: pd.DataFrame,
    item_ids: Collection[str],
    ks: Sequence[int],
    config: EvaluateConfig,
) -> Evaluation:
    """Metrics of every arm over the same queries.

    Args:
        recommendations: `schemas.RECOMMENDATIONS` by arm; queries that an arm leaves out score 0.
        judgments: `schemas.JUDGMENTS` of the tested queries alone.
        item_ids: the catalogue.
        ks: cut-offs.
        config: the bootstrap.

    Raises:
        GtiError: all of what does not fit: an arm's query that is not tested, an item that is not in the catalogue;
            see `metrics.per_query`.
    """
    _check(recommendations, judgments, item_ids)
    frames = [_long(arm, per_query(frame, judgments, ks)) for arm, frame in recommendations.items()]
    users = pd.concat(frames, ignore_index=True)
    return Evaluation(summarise(users, config), users)


def summarise(users: pd.DataFrame, config: EvaluateConfig) -> pd.DataFrame:
    """`schemas.METRICS` of values by query, with a bootstrap over queries and seeds.

    Args:
        users: as `schemas.USER_METRICS`, and a column `seed` where there are several; every arm with the same ones.
        config: the bootstrap.
    """
    arms, values = _cube(users)
    mean, low, high = seed_intervals(values, config.bootstrap, config.confidence)
    frame = arms.to_frame(index=False)
    frame[c.SLICE], frame[c.NUM_USERS] = ALL, values.shape[1]
    frame[c.VALUE], frame[c.LOW], frame[c.HIGH] = mean, low, high
    return frame.astype({c.K: np.int32})[list(METRICS.fields)]


def gains(users: pd.DataFrame, reference: str, config: EvaluateConfig) -> pd.DataFrame:
    """Each arm against the reference, paired by query and seed: arm, metric, k, relative, difference, low, high.

    `relative` is the difference over the reference's mean (NaN where that is 0); `low` and `high` bound the difference.
    `users` is as in `summarise`.
    """
    arms, values = _cube(users)
    names = arms.get_level_values(c.ARM)
    base = values[:, :, names == reference]
    means = base.mean(axis=(0, 1))
    tables = []
    for arm in [name for name in names.unique() if name != reference]:
        paired = values[:, :, names == arm] - base
        mean, low, high = seed_intervals(paired, config.bootstrap, config.confidence)
        frame = arms[names == arm].to_frame(index=False)
        frame[RELATIVE] = np.divide(mean, means, out=np.full(len(mean), np.nan), where=means > 0)
        frame[DIFFERENCE], frame[c.LOW], frame[c.HIGH] = mean, low, high
        tables.append(frame)
    columns = [c.ARM, c.METRIC, c.K, RELATIVE, DIFFERENCE, c.LOW, c.HIGH]
    return pd.concat(tables, ignore_index=True)[columns] if tables else pd.DataFrame(columns=columns)


def popular(matches: pd.DataFrame, query_ids: Sequence[str], count: int) -> pd.DataFrame:
    """The items that are most often a good match in training, the same for every query: the floor of a search.

    Args:
        matches: item_id of each good match of a training query.
        query_ids: whom to recommend to.
        count: items for each, fewer where fewer were ever a good match.

    Returns:
        `schemas.RECOMMENDATIONS`; equal counts in order of item id.
    """
    counts = matches[c.ITEM_ID].value_counts().rename_axis(c.ITEM_ID).reset_index(name=c.SCORE)
    top = counts.sort_values([c.SCORE, c.ITEM_ID], ascending=[False, True]).head(count).copy()
    top[c.RANK], top[c.SCORE] = np.arange(1, len(top) + 1, dtype=np.int32), top[c.SCORE].astype(np.float64)
    return pd.DataFrame({c.USER_ID: list(query_ids)}).merge(top, how="cross")[list(RECOMMENDATIONS.fields)]


def _cube(users: pd.DataFrame) -> tuple[pd.MultiIndex, Values]:
    """(arm, metric, k) of M columns in order of appearance, all arms' metrics alike, and values [seeds, queries, M]."""
    rows = users if SEED in users else users.assign(seed=0)
    keys = [c.ARM, c.METRIC, c.K]
    wide = rows.set_index([SEED, c.USER_ID, *keys])[c.VALUE].unstack(keys)
    columns = pd.MultiIndex.from_frame(rows[keys].drop_duplicates())
    assert isinstance(wide, pd.DataFrame)
    seeds = wide.index.get_level_values(SEED).nunique()
    values = wide[columns].to_numpy(dtype=np.float64).reshape(seeds, -1, len(columns))
    return columns, values


def _long(arm: str, table: pd.DataFrame) -> pd.DataFrame:
    """`schemas.USER_METRICS` of one arm."""
    frame = table.melt(ignore_index=False, value_name=c.VALUE).reset_index()
    frame[c.ARM] = arm
    return frame.astype({c.K: np.int32})[list(USER_METRICS.fields)]


def _check(recommendations: Mapping[str, pd.DataFrame], judgments: pd.DataFrame, item_ids: Collection[str]) -> None:
    """Refuses, all at once, what the metrics would silently count as a miss."""
    known = {c.USER_ID: set(judgments[c.QUERY_ID]), c.ITEM_ID: set(item_ids)}
    complaints = {c.USER_ID: "is not among the tested queries", c.ITEM_ID: "is not in the catalogue"}
    problems = [] if recommendations else ["no arm to evaluate"]
    for arm, frame in recommendations.items():
        for name, values in known.items():
            unknown = [value for value in frame[name].unique() if value not in values]
            if unknown:
                problems.append(f"arm {arm}: {unknown[0]!r} {complaints[name]} ({len(unknown)} such)")
    raise_all("the recommendations cannot be evaluated", problems)
