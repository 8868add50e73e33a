"""The stage: recommendations of several arms in, metrics with intervals out, by slice of users."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gti_pipeline import columns as c
from gti_pipeline.config import EvaluateConfig
from gti_pipeline.errors import raise_all
from gti_pipeline.evaluate.intervals import mean_intervals
from gti_pipeline.evaluate.lists import COVERAGE, coverage, per_user_lists, prefix_hits
from gti_pipeline.evaluate.metrics import per_user
from gti_pipeline.evaluate.slices import ALL, SLICES, user_slices
from gti_pipeline.schemas import METRICS, USER_METRICS


@dataclass(frozen=True)
class Task:
    """What every arm is held to, and what it is told about."""

    test: pd.DataFrame  # user_id (distinct), history (list, oldest first), target: the rows to test on
    relevant: pd.DataFrame  # user_id, item_id: every item that counts as a hit, for each of these users
    item_ids: Collection[str]  # the whole catalogue
    training_items: pd.Series  # an item id per training event
    codes: Mapping[str, Sequence[int]] | None = None  # semantic ID by item id, for the SID-level rates


@dataclass(frozen=True)
class Evaluation:
    """The stage's tables."""

    metrics: pd.DataFrame  # schemas.METRICS
    user_metrics: pd.DataFrame  # schemas.USER_METRICS
    user_slices: pd.DataFrame  # schemas.USER_SLICES


def evaluate(recommendations: Mapping[str, pd.DataFrame], task: Task, config: EvaluateConfig) -> Evaluation:
    """Metrics of every arm over the same users.

    Slices without a user are left out. A metric that some users have no value for (popularity and repeats of nobody's
    list) is a mean over the others, whose number is told. Coverage is of all users alone: fewer users cover less.

    Args:
        recommendations: `schemas.RECOMMENDATIONS` by arm; users that an arm leaves out score 0.
        task: users, what is relevant to them, catalogue, training events.
        config: cut-offs and bootstrap.

    Raises:
        GtiError: all of what does not fit: an arm's user that is not tested, an item that is not in the catalogue,
            a user tested twice or without a relevant item; nobody to test; see `metrics.per_user`.
    """
    _check(recommendations, task)
    slices = user_slices(task.test, task.training_items)
    values = {arm: _values(frame, task, config.ks) for arm, frame in recommendations.items()}
    wide = pd.concat(values, axis=1, names=[c.ARM, c.METRIC, c.K])  # [users, arms x metrics x cut-offs]
    parts = {ALL: wide.index} | {name: pd.Index(slices.loc[slices[c.SLICE] == name, c.USER_ID]) for name in SLICES}
    tables = [_summary(wide.loc[users], name, config) for name, users in parts.items() if len(users)]
    covered = pd.concat(
        [_coverage(arm, frame, task, config.ks) for arm, frame in recommendations.items()], ignore_index=True
    )
    metrics = pd.concat([*tables, covered], ignore_index=True).astype({c.K: np.int32})
    return Evaluation(metrics[list(METRICS.fields)], _long(values), slices)


def _values(frame: pd.DataFrame, task: Task, ks: Sequence[int]) -> pd.DataFrame:
    """Every metric of every user of one arm: a row per user in the order of the test, a column per (metric, k)."""
    tables = [per_user(frame, task.relevant, ks), per_user_lists(frame, task.test, task.training_items, ks)]
    if task.codes is not None:
        tables.append(prefix_hits(frame, task.relevant, task.codes, ks))
    users = pd.Index(task.test[c.USER_ID])
    return pd.concat([table.reindex(users) for table in tables], axis=1)


def _summary(wide: pd.DataFrame, part: str, config: EvaluateConfig) -> pd.DataFrame:
    """One row per arm, metric and cut-off over the users of one slice; all from the same resamples."""
    values = wide.to_numpy(dtype=np.float64)
    known = np.isfinite(values)
    intervals = np.full((3, values.shape[1]), np.nan)
    for users, columns in _alike(known):
        found = mean_intervals(values[users][:, columns], config.bootstrap, config.confidence)
        intervals[:, columns] = found
    frame = wide.columns.to_frame(index=False).assign(**{c.SLICE: part, c.NUM_USERS: known.sum(axis=0)})
    frame[[c.VALUE, c.LOW, c.HIGH]] = intervals.T
    return frame[frame[c.NUM_USERS] > 0]


def _alike(known: NDArray[np.bool_]) -> list[tuple[NDArray[np.bool_], NDArray[np.int64]]]:
    """(users, columns) of the columns that have a value for the same users, which then share their resamples."""
    patterns, which = np.unique(known, axis=1, return_inverse=True)
    groups = [(patterns[:, n], np.flatnonzero(which == n)) for n in range(patterns.shape[1])]
    return [(users, columns) for users, columns in groups if users.any()]


def _coverage(arm: str, frame: pd.DataFrame, task: Task, ks: Sequence[int]) -> pd.DataFrame:
    """Coverage as rows of the metrics; it is no mean over users, so it has no interval."""
    covered = coverage(frame, task.item_ids, ks)
    rows = [(arm, ALL, COVERAGE, k, value, np.nan, np.nan, len(task.test)) for k, value in covered.items()]
    return pd.DataFrame(rows, columns=list(METRICS.fields))


def _long(values: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """`schemas.USER_METRICS`: arm by arm, user by user; what a user has no value for is left out."""
    frames = []
    for arm, table in values.items():
        names = table.columns.to_frame(index=False)
        frame = names.take(np.tile(np.arange(len(names)), len(table))).reset_index(drop=True)
        frame[c.USER_ID] = table.index.repeat(table.shape[1])
        frame[c.ARM], frame[c.VALUE] = arm, table.to_numpy(dtype=np.float64).reshape(-1)
        frames.append(frame)
    whole = pd.concat(frames, ignore_index=True).dropna(ignore_index=True)
    return whole.astype({c.ARM: "str", c.K: np.int32})[list(USER_METRICS.fields)]


def _check(recommendations: Mapping[str, pd.DataFrame], task: Task) -> None:
    """Refuses, all at once, what the metrics would silently count as a miss."""
    catalogue, tested = set(task.item_ids), set(task.test[c.USER_ID])
    problems = []
    if not recommendations:
        problems.append("no arm to evaluate")
    if not tested:
        problems.append("no user to test")
    if len(tested) < len(task.test):
        problems.append(f"{len(task.test) - len(tested)} users are tested twice")
    answered = set(task.relevant[c.USER_ID])
    problems += _strangers("user", task.test[c.USER_ID], answered, "is tested, but has no relevant item")
    problems += _strangers("user", task.relevant[c.USER_ID], tested, "has a relevant item, but is not tested")
    problems += _strangers("the target", task.relevant[c.ITEM_ID], catalogue, "is not in the catalogue")
    if task.codes is not None:
        problems += _strangers("item", pd.Series(sorted(catalogue)), set(task.codes), "has no semantic ID")
    for arm, frame in recommendations.items():
        problems += _strangers(f"arm {arm}: user", frame[c.USER_ID], tested, "is not among the tested users")
        problems += _strangers(f"arm {arm}: item", frame[c.ITEM_ID], catalogue, "is not in the catalogue")
    raise_all("the recommendations cannot be evaluated", problems)


def _strangers(what: str, values: pd.Series, known: set[str], complaint: str) -> list[str]:
    """A complaint about the values that are not known, if there are any."""
    unknown = [value for value in values.unique() if value not in known]
    return [f"{what} {unknown[0]!r} {complaint} ({len(unknown)} such)"] if unknown else []
