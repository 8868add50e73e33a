"""The data stage: files in, clean tables, rejects and sequences out."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gti_pipeline import columns as c
from gti_pipeline.config import DataConfig
from gti_pipeline.data import limits
from gti_pipeline.data.chunk import STR, is_in
from gti_pipeline.data.clean import clean_interactions, clean_items, to_groups
from gti_pipeline.data.join import join
from gti_pipeline.data.mapping import column_problems, setting_problems, tables, wanted_columns
from gti_pipeline.data.readers import RawTable, concat, read_table
from gti_pipeline.data.source import Source, shards
from gti_pipeline.data.split import TEST, split
from gti_pipeline.data.split_guard import check_no_leak
from gti_pipeline.data.summary import summarize, summary_text
from gti_pipeline.data.verdicts import Verdicts
from gti_pipeline.errors import GtiError, raise_all
from gti_pipeline.schemas import INTERACTIONS, ITEMS, REJECTED, RELEVANT, SEQUENCES

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Cleaned:
    """Clean tables (as in `schemas`), whether timestamps are epoch seconds, and a summary that accounts for every row.

    `shares`: per table, rows rejected, read, and kept by cleaning.
    """

    items: pd.DataFrame
    interactions: pd.DataFrame
    rejected: pd.DataFrame
    dated: bool
    shares: dict[str, tuple[int, int, int]]
    summary: dict[str, Any]


@dataclass(frozen=True)
class Prepared:
    """Clean tables (as in `schemas`) and a JSON summary that accounts for every row read."""

    items: pd.DataFrame
    interactions: pd.DataFrame
    rejected: pd.DataFrame
    sequences: pd.DataFrame
    relevant: pd.DataFrame
    summary: dict[str, Any]


def prepare(config: DataConfig, source: Source) -> Prepared:
    """Reads, cleans, limits and splits a data set.

    Raises:
        GtiError: columns are missing (all are named), too many rows are rejected, or nothing is left to test on.
    """
    cleaned = clean(config, source)
    check_content(config, cleaned)
    return split_cleaned(config, cleaned)


def clean(config: DataConfig, source: Source) -> Cleaned:
    """Reads the files and applies every rule that says which rows count.

    Raises:
        GtiError: settings contradict one another, a file cannot be read, or columns are missing (all are named).
    """
    raise_all(f"data set {config.name!r}: the settings do not fit together:", setting_problems(config))
    raw = read_tables(config, source)
    items, item_verdicts = clean_items(raw.pop("items"), config.items)
    usable = len(items)
    if config.item_level == "group":
        items, levels = to_groups(items, item_verdicts)
    else:
        ids = items[c.ITEM_ID].array
        levels = pd.Series(ids, index=pd.Index(ids), dtype=STR)
    events, event_verdicts, joined, dated = _events(config, raw, levels)
    verdicts = {"items": item_verdicts, "interactions": event_verdicts} | joined
    shares = {"items": _share(item_verdicts, usable), "interactions": _share(event_verdicts, len(events))}
    items, events = _limit(config, items, events, item_verdicts, event_verdicts)
    kept = {"items": items.index.to_numpy(dtype=np.int64), "interactions": events[c.SOURCE_ROW].to_numpy()}
    accounts = {
        file: account
        for name, verdict in verdicts.items()
        for file, account in verdict.account(kept.get(name, np.flatnonzero(verdict.kept))).items()
    }
    rejected = pd.concat([verdict.rejected() for verdict in verdicts.values()], ignore_index=True)
    items = items.reset_index(drop=True)
    return Cleaned(items, events.reset_index(drop=True), rejected, dated, shares, summarize(source, accounts))


def check_content(config: DataConfig, cleaned: Cleaned) -> None:
    """Raises `GtiError` where a table is empty or too large a share of it is rejected; names the counts."""
    problems = share_problems(config, cleaned.shares)
    if not problems and (cleaned.items.empty or cleaned.interactions.empty):
        problems.append(
            f"k_core={config.k_core}, max_items and max_users leave {len(cleaned.items)} items and"
            f" {len(cleaned.interactions)} interactions: relax them"
        )
    if problems:
        raise GtiError(f"data set {config.name!r}: {'; '.join(problems)}\n{summary_text(cleaned.summary)}")


def share_problems(config: DataConfig, shares: dict[str, tuple[int, int, int]]) -> list[str]:
    """A line for each table (rejected, read, kept) that is empty or too much of which is rejected."""
    problems = []
    for name, (rejected, read, kept) in shares.items():
        if not kept:
            problems.append(f"no {name} left of {read} rows")
        elif rejected > config.max_reject_share * read:
            problems.append(
                f"{rejected} of {read} rows of the {name} are rejected ({rejected / read:.1%}), more than"
                f" data.max_reject_share={config.max_reject_share}: mend the files or raise it"
            )
    return problems


def split_cleaned(config: DataConfig, cleaned: Cleaned) -> Prepared:
    """Splits clean tables and adds the facts to the summary.

    Raises:
        GtiError: nothing is left to test on.
    """
    items, events = cleaned.items, cleaned.interactions
    parts = split(events, config, dated=cleaned.dated)
    check_no_leak(parts, events, config)
    summary = cleaned.summary | _facts(items, events, parts.sequences) | {"split": parts.facts}
    if not summary["tested_users"]:
        raise GtiError(
            f"data set {config.name!r}: none of {summary['users']} users has data.min_history={config.min_history}"
            f" interactions, so there is nothing to test on: add data or raise data.max_users and data.max_items\n"
            f"{summary_text(cleaned.summary)}"
        )
    return Prepared(items, events, cleaned.rejected, parts.sequences, parts.relevant, summary)


def write(prepared: Prepared, folder: Path) -> dict[str, Any]:
    """Writes items, interactions, rejected, sequences and relevant as Parquet; returns the summary."""
    ITEMS.write(prepared.items, folder)
    INTERACTIONS.write(prepared.interactions, folder)
    REJECTED.write(prepared.rejected, folder)
    SEQUENCES.write(prepared.sequences, folder)
    RELEVANT.write(prepared.relevant, folder)
    return prepared.summary


def read_tables(config: DataConfig, source: Source) -> dict[str, RawTable]:
    """The files of each table as one; every missing column of all of them in one error."""
    wanted, found, problems = wanted_columns(config), {}, []
    for name, section in tables(config):
        found[name] = [
            read_table(source.files[file], file, section, wanted[name]) for file in shards(source, section.file)
        ]
    for name, section in tables(config):
        joined = found.get("interactions.join", []) if name == "interactions" else []
        problems += column_problems(name, section, found[name], joined)
    raise_all(f"data set {config.name!r}: the columns in {source.folder} are not those configured:", problems)
    return {name: concat(found.pop(name)) for name in list(found)}


def _events(
    config: DataConfig, raw: dict[str, RawTable], levels: pd.Series
) -> tuple[pd.DataFrame, Verdicts, dict[str, Verdicts], bool]:
    """Clean interactions, joined where that is configured; the verdicts on them and on a joined table; if dated."""
    events, unmatched, joined = raw.pop("interactions"), None, {}
    if config.interactions.join:
        other, on = raw.pop("interactions.join"), config.interactions.join.on
        events, unmatched, joined["interactions.join"] = join(events, other, on)
    clean_events, verdicts, dated = clean_interactions(
        events, config.interactions, levels, config.repeat_window_days, unmatched
    )
    return clean_events, verdicts, joined, dated


def _share(verdicts: Verdicts, kept: int) -> tuple[int, int, int]:
    return verdicts.num_rejected, verdicts.num_read, kept


def _limit(
    config: DataConfig, items: pd.DataFrame, events: pd.DataFrame, item_verdicts: Verdicts, event_verdicts: Verdicts
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Applies k-core, then the most frequent items, then a sample of users; rows say by which they are left out."""
    if config.k_core > 1:
        events = limits.k_core(events, config.k_core)
        items = items[is_in(items[c.ITEM_ID], events[c.ITEM_ID])]
        _leave(items, events, item_verdicts, event_verdicts, limits.K_CORE)
    if config.max_items is not None:
        items = limits.most_frequent(items, events, config.max_items)
        events = events[is_in(events[c.ITEM_ID], items[c.ITEM_ID])]
        _leave(items, events, item_verdicts, event_verdicts, limits.MAX_ITEMS)
    if config.max_users is not None:
        events = limits.sampled_users(events, config.max_users, config.seed)
        _leave(items, events, item_verdicts, event_verdicts, limits.MAX_USERS)
    return items, events


def _leave(
    items: pd.DataFrame, events: pd.DataFrame, item_verdicts: Verdicts, event_verdicts: Verdicts, reason: str
) -> None:
    item_verdicts.leave_only(items.index.to_numpy(dtype=np.int64), reason)
    event_verdicts.leave_only(events[c.SOURCE_ROW].to_numpy(dtype=np.int64), reason)


def _facts(items: pd.DataFrame, events: pd.DataFrame, sequences: pd.DataFrame) -> dict[str, Any]:
    test = sequences[sequences[c.SPLIT] == TEST]
    repeats = [target in history for history, target in zip(test[c.HISTORY], test[c.TARGET], strict=True)]
    return {
        "users": int(events[c.USER_ID].nunique()),
        "items": len(items),
        "interactions": len(events),
        "tested_users": len(test),
        "mean_history": round(float(test[c.HISTORY].map(len).mean()), 3) if len(test) else 0.0,
        "repeat_share": round(sum(repeats) / len(test), 4) if len(test) else 0.0,
    }
