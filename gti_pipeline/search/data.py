"""Files in, clean items, queries, judgments and rejects out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gti_pipeline import columns as c
from gti_pipeline.config import DataConfig
from gti_pipeline.data import limits
from gti_pipeline.data.chunk import is_in
from gti_pipeline.data.clean import clean_items
from gti_pipeline.data.mapping import as_names, setting_problems
from gti_pipeline.data.source import Source
from gti_pipeline.data.split import TEST
from gti_pipeline.data.stage import read_tables, share_problems
from gti_pipeline.data.summary import summarize, summary_text
from gti_pipeline.data.verdicts import Verdicts
from gti_pipeline.errors import GtiError, raise_all
from gti_pipeline.schemas import ITEMS, JUDGMENTS, QUERIES, REJECTED
from gti_pipeline.search.clean import clean_judgments, clean_queries
from gti_pipeline.search.split import MAYBE, TRAIN, check_no_leak, good_matches, split_queries

UNANSWERED = "no good or maybe item"


@dataclass(frozen=True)
class Cleaned:
    """Clean tables (as in `schemas`, queries without their split), and a summary that accounts for every row."""

    items: pd.DataFrame
    queries: pd.DataFrame
    judgments: pd.DataFrame
    rejected: pd.DataFrame
    shares: dict[str, tuple[int, int, int]]
    summary: dict[str, Any]


@dataclass(frozen=True)
class Prepared:
    """Clean tables (as in `schemas`) and a JSON summary that accounts for every row read."""

    items: pd.DataFrame
    queries: pd.DataFrame
    judgments: pd.DataFrame
    rejected: pd.DataFrame
    summary: dict[str, Any]


def prepare(config: DataConfig, source: Source) -> Prepared:
    """Reads, cleans, limits and splits the files of a search task.

    Raises:
        GtiError: settings that do not go with the task, columns that are missing (all are named), too many rejected
            rows, nothing left to train or to test on.
    """
    cleaned = clean(config, source)
    check_content(config, cleaned)
    return split_cleaned(config, cleaned)


def clean(config: DataConfig, source: Source) -> Cleaned:
    """Reads the files and applies every rule that says which rows count.

    Raises:
        GtiError: settings that contradict one another, a file that cannot be read, missing columns.
    """
    problems = [*setting_problems(config), *_misplaced(config)]
    raise_all(f"data set {config.name!r}: the settings do not fit together:", problems)
    raw = read_tables(config, source)
    items, item_verdicts = clean_items(raw.pop("items"), config.items)
    queries, query_verdicts = clean_queries(raw.pop("queries"), config.queries)
    judgments, judgment_verdicts = clean_judgments(
        raw.pop("judgments"), config.judgments, items[c.ITEM_ID], queries[c.QUERY_ID]
    )
    verdicts = {"items": item_verdicts, "queries": query_verdicts, "judgments": judgment_verdicts}
    frames = {"items": items, "queries": queries, "judgments": judgments}
    shares = {name: (v.num_rejected, v.num_read, len(frames[name])) for name, v in verdicts.items()}
    frames = _limit(config, frames, verdicts)
    rejected = pd.concat([verdict.rejected() for verdict in verdicts.values()], ignore_index=True)
    tables = {name: frame.reset_index(drop=True) for name, frame in frames.items()}
    return Cleaned(**tables, rejected=rejected, shares=shares, summary=summarize(source, _accounts(verdicts, frames)))


def check_content(config: DataConfig, cleaned: Cleaned) -> None:
    """Raises `GtiError` where a table is empty or too large a share of it is rejected; names the counts."""
    problems = share_problems(config, cleaned.shares)
    if not problems and cleaned.queries.empty:
        problems.append("no query with a good or maybe item is left: see data.judgments.grades and data.max_items")
    if problems:
        raise GtiError(f"data set {config.name!r}: {'; '.join(problems)}\n{summary_text(cleaned.summary)}")


def split_cleaned(config: DataConfig, cleaned: Cleaned) -> Prepared:
    """Splits the queries and adds the facts to the summary.

    Raises:
        GtiError: nothing is left to train or to test on.
    """
    judgments = cleaned.judgments
    queries = cleaned.queries.assign(**{c.SPLIT: split_queries(cleaned.queries, config.split, config.seed)})
    matches = good_matches(queries, judgments, TRAIN)
    check_no_leak(matches, queries)
    counts = queries[c.SPLIT].value_counts()
    facts = {
        "items": len(cleaned.items),
        "queries": len(queries),
        "judgments": len(judgments),
        "queries_by_split": {str(part): int(count) for part, count in counts.items()},
        "tested_queries": int(counts.get(TEST, 0)),
        "training_matches": len(matches),
        "judgments_by_grade": {str(g): int(n) for g, n in judgments[c.GRADE].value_counts().sort_index().items()},
    }
    if not facts["tested_queries"] or not facts["training_matches"]:
        raise GtiError(
            f"data set {config.name!r}: of {len(queries)} queries {facts['tested_queries']} are for testing, and those"
            f" for training have {len(matches)} good items: both are needed; add data, or change data.split"
        )
    return Prepared(cleaned.items, queries, judgments, cleaned.rejected, cleaned.summary | facts)


def write(prepared: Prepared, folder: Path) -> dict[str, Any]:
    """Writes items, queries, judgments and rejected as Parquet; returns the summary."""
    ITEMS.write(prepared.items, folder)
    QUERIES.write(prepared.queries, folder)
    JUDGMENTS.write(prepared.judgments, folder)
    REJECTED.write(prepared.rejected, folder)
    return prepared.summary


def facts_text(summary: dict[str, Any]) -> str:
    """The sizes of what is left, in one line."""
    names = ("items", "queries", "judgments", "tested_queries", "training_matches")
    return ", ".join(f"{summary[name]:,} {name.replace('_', ' ')}" for name in names)


def _misplaced(config: DataConfig) -> list[str]:
    """Settings that a search task has no use for, and shares that leave no query to train on."""
    problems = []
    for name, value in (("k_core", 0), ("repeat_window_days", 0), ("item_level", "outfit")):
        if getattr(config, name) != value:
            problems.append(f"data.{name}={getattr(config, name)} has no meaning for data.task=search: leave it out")
    if not as_names(config.queries.text):
        problems.append("data.queries.text is empty: name at least one column")
    if not config.judgments.grades or max(config.judgments.grades.values()) < 2:
        problems.append("data.judgments.grades has no value that means 2, good: there would be nothing to train on")
    if config.split.valid_share + config.split.test_share >= 1:
        problems.append(
            f"data.split.valid_share={config.split.valid_share} and test_share={config.split.test_share} leave no query"
            " to train on: together they must be less than 1"
        )
    return problems


def _limit(
    config: DataConfig, frames: dict[str, pd.DataFrame], verdicts: dict[str, Verdicts]
) -> dict[str, pd.DataFrame]:
    """The most judged items, then queries with an answer, then a sample of them; rows say what left them out."""
    items, queries, judgments = frames["items"], frames["queries"], frames["judgments"]
    if config.max_items is not None:
        items = limits.most_frequent(items, judgments, config.max_items)
        judgments = judgments[is_in(judgments[c.ITEM_ID], items[c.ITEM_ID])]
        _leave_only({"items": items, "judgments": judgments}, verdicts, limits.MAX_ITEMS)
    answered = judgments.loc[judgments[c.GRADE] >= MAYBE, c.QUERY_ID]
    queries = queries[is_in(queries[c.QUERY_ID], answered)]
    judgments = judgments[is_in(judgments[c.QUERY_ID], queries[c.QUERY_ID])]
    _leave_only({"queries": queries, "judgments": judgments}, verdicts, UNANSWERED)
    if config.max_users is not None:
        names = np.array(sorted(queries[c.QUERY_ID]), dtype=object)
        chosen = np.random.default_rng(config.seed).permutation(names)[: config.max_users]
        queries = queries[queries[c.QUERY_ID].isin(set(chosen))]
        judgments = judgments[is_in(judgments[c.QUERY_ID], queries[c.QUERY_ID])]
        _leave_only({"queries": queries, "judgments": judgments}, verdicts, limits.MAX_USERS)
    return {"items": items, "queries": queries, "judgments": judgments}


def _leave_only(frames: dict[str, pd.DataFrame], verdicts: dict[str, Verdicts], reason: str) -> None:
    for name, frame in frames.items():
        verdicts[name].leave_only(frame.index.to_numpy(dtype=np.int64), reason)


def _accounts(verdicts: dict[str, Verdicts], frames: dict[str, pd.DataFrame]) -> dict[str, dict[str, Any]]:
    """What became of each file's rows; a file that is two tables is told of twice, as `examples.parquet (queries)`."""
    found = [
        (name, file, account)
        for name, verdict in verdicts.items()
        for file, account in verdict.account(frames[name].index.to_numpy(dtype=np.int64)).items()
    ]
    files = [file for _, file, _ in found]
    return {f"{file} ({name})" if files.count(file) > 1 else file: account for name, file, account in found}
