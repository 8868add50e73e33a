"""The stage: recommendations of several arms in, metrics with intervals out, by slice of users."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import pandas as pd

from gti_pipeline import columns as c
from gti_pipeline.config import EvaluateConfig
from gti_pipeline.errors import raise_all
from gti_pipeline.evaluate.intervals import mean_intervals
from gti_pipeline.evaluate.metrics import per_user

ALL = "all"
REPEAT = "repeat"  # the target is in the user's own history
NOVEL = "novel"


def evaluate(
    recommendations: Mapping[str, pd.DataFrame],
    test: pd.DataFrame,
    item_ids: Collection[str],
    config: EvaluateConfig,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Metrics of every arm over the same users.

    Args:
        recommendations: `schemas.RECOMMENDATIONS` by arm; users of `test` that an arm leaves out score 0.
        test: user_id (distinct), history (list, oldest first), target: the rows to test on.
        item_ids: the whole catalogue.
        config: cut-offs and bootstrap.

    Returns:
        `schemas.METRICS` (slices `all`, `repeat`, `novel`, the empty ones left out) and `schemas.USER_METRICS`
        (slice: the user's own, `repeat` or `novel`).

    Raises:
        GtiError: all of what does not fit: an arm's user that is not tested, an item that is not in the catalogue,
            a user tested twice; nobody to test; see `metrics.per_user`.
    """
    _check(recommendations, test, item_ids)
    slices = _slices(test)
    users, rows = [], []
    for arm, frame in recommendations.items():
        values = per_user(frame, test[[c.USER_ID, c.TARGET]], config.ks)
        values.insert(0, c.ARM, arm)
        values.insert(2, c.SLICE, values[c.USER_ID].map(slices))
        users.append(values)
        parts = {ALL: values, **{name: values[values[c.SLICE] == name] for name in (REPEAT, NOVEL)}}
        rows += [_summary(part, name, config) for name, part in parts.items() if len(part)]
    return pd.concat(rows, ignore_index=True), pd.concat(users, ignore_index=True)


def _slices(test: pd.DataFrame) -> pd.Series[str]:
    """`repeat` or `novel` by user id."""
    again = [target in set(history) for history, target in zip(test[c.HISTORY], test[c.TARGET], strict=True)]
    return pd.Series(np.where(again, REPEAT, NOVEL), index=pd.Index(test[c.USER_ID]), dtype="str")


def _summary(values: pd.DataFrame, part: str, config: EvaluateConfig) -> pd.DataFrame:
    """One row per metric and cut-off of one arm's `per_user` frame, in its order."""
    num_users = values[c.USER_ID].nunique()
    frame = values.head(len(values) // num_users)[[c.ARM, c.SLICE, c.METRIC, c.K]].reset_index(drop=True)
    table = values[c.VALUE].to_numpy(dtype=np.float64).reshape(num_users, -1)  # [users, metrics and cut-offs]
    frame[c.SLICE] = part
    frame[[c.VALUE, c.LOW, c.HIGH]] = mean_intervals(table, config.bootstrap, config.confidence).T
    frame[c.NUM_USERS] = num_users
    return frame


def _check(recommendations: Mapping[str, pd.DataFrame], test: pd.DataFrame, item_ids: Collection[str]) -> None:
    """Refuses, all at once, what the metrics would silently count as a miss."""
    catalogue, tested = set(item_ids), set(test[c.USER_ID])
    problems = []
    if not recommendations:
        problems.append("no arm to evaluate")
    if not tested:
        problems.append("no user to test")
    if len(tested) < len(test):
        problems.append(f"{len(test) - len(tested)} users are tested twice")
    problems += _strangers("the target", test[c.TARGET], catalogue, "is not in the catalogue")
    for arm, frame in recommendations.items():
        problems += _strangers(f"arm {arm}: user", frame[c.USER_ID], tested, "is not among the tested users")
        problems += _strangers(f"arm {arm}: item", frame[c.ITEM_ID], catalogue, "is not in the catalogue")
    raise_all("the recommendations cannot be evaluated", problems)


def _strangers(what: str, values: pd.Series[str], known: set[str], complaint: str) -> list[str]:
    """A complaint about the values that are not known, if there are any."""
    unknown = [value for value in values.unique() if value not in known]
    return [f"{what} {unknown[0]!r} {complaint} ({len(unknown)} such)"] if unknown else []
