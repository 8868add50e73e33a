"""The data stage: files in, clean tables, rejects and sequences out."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from gti_pipeline import columns as c
from gti_pipeline.config import DataConfig, InteractionsConfig, ItemsConfig
from gti_pipeline.data.clean import apply_limits, as_names, clean_interactions, clean_items, column_problems
from gti_pipeline.data.readers import RawTable, concat, read_table
from gti_pipeline.data.source import Source
from gti_pipeline.data.split import TEST, check_no_leak, leave_one_out
from gti_pipeline.errors import GtiError, raise_all
from gti_pipeline.schemas import INTERACTIONS, ITEMS, REJECTED, SEQUENCES

ROWS_READ, ROWS_KEPT, LEFT_OUT = "rows read", "rows kept", "left out by limits"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Prepared:
    """Clean tables (as in `schemas`) and a JSON summary that accounts for every row read."""

    items: pd.DataFrame
    interactions: pd.DataFrame
    rejected: pd.DataFrame
    sequences: pd.DataFrame
    summary: dict[str, Any]


def prepare(config: DataConfig, source: Source) -> Prepared:
    """Reads, cleans, limits and splits a data set.

    Raises:
        GtiError: columns are missing (all are named), too many rows are rejected, or nothing is left to test on.
    """
    raw_items, raw_events = _read(config, source)
    items, bad_items = clean_items(raw_items, config.items)
    events, bad_events = clean_interactions(
        raw_events, config.interactions, items[c.ITEM_ID], config.repeat_window_days
    )
    files = _account(raw_items, items, bad_items) | _account(raw_events, events, bad_events)
    _check_content(config, files, {"items": (items, bad_items), "interactions": (events, bad_events)})
    few_items, few_events = apply_limits(items, events, config)
    sequences = leave_one_out(few_events, config.min_history)
    check_no_leak(sequences, few_events, config.min_history)
    limits = {"items": len(items) - len(few_items), "interactions": len(events) - len(few_events)}
    summary = _summary(source, files, limits) | _facts(few_items, few_events, sequences)
    if not summary["tested_users"]:
        raise GtiError(
            f"data set {config.name!r}: none of {summary['users']} users has data.min_history={config.min_history}"
            f" interactions, so there is nothing to test on: add data or raise data.max_users and data.max_items"
            f"{_lines(files)}"
        )
    log.info("%s: %d items, %d interactions", source.name, summary["items"], summary["interactions"])
    rejected = pd.concat([bad_items, bad_events], ignore_index=True)
    return Prepared(few_items, few_events, rejected, sequences, summary)


def write(prepared: Prepared, folder: Path) -> dict[str, Any]:
    """Writes items, interactions, rejected and sequences as Parquet; returns the summary."""
    ITEMS.write(prepared.items, folder)
    INTERACTIONS.write(prepared.interactions, folder)
    REJECTED.write(prepared.rejected, folder)
    SEQUENCES.write(prepared.sequences, folder)
    return prepared.summary


def check_report(prepared: Prepared) -> list[tuple[str, str, int]]:
    """(file, what, count) of all rows: read, kept, and rejected by reason; read = kept + rejected in each file.

    Rows left out by limits are counted per table, under `items` and `interactions`.
    """
    report = []
    for file, counts in prepared.summary["files"].items():
        report += [(file, ROWS_READ, counts["read"]), (file, ROWS_KEPT, counts["kept"])]
        report += [(file, reason, count) for reason, count in counts["rejected"].items()]
    return report + [(table, LEFT_OUT, count) for table, count in prepared.summary["left_out_by_limits"].items()]


def _read(config: DataConfig, source: Source) -> tuple[RawTable, RawTable]:
    """All item files and all interaction files; every missing column of all of them in one error."""
    sections: tuple[ItemsConfig | InteractionsConfig, ...] = (config.items, config.interactions)
    tables: list[Sequence[RawTable]] = []
    problems: list[str] = []
    for section in sections:
        names = as_names(section.file)
        tables.append([read_table(source.files[name], name, section.delimiter) for name in names])
        problems += column_problems(tables[-1], section)
    raise_all(f"data set {config.name!r}: the columns in {source.folder} are not those configured:", problems)
    return concat(tables[0]), concat(tables[1])


def _account(raw: RawTable, kept: pd.DataFrame, rejected: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Rows read, kept and rejected by reason, per file. Raises where kept and rejected do not add up to read."""
    read = sum(raw.rows_read.values())
    if len(kept) + len(rejected) != read:
        raise GtiError(f"{list(raw.rows_read)}: {read} rows read, {len(kept)} kept + {len(rejected)} rejected: a bug")
    files = {}
    for file, count in raw.rows_read.items():
        reasons = rejected.loc[rejected[c.FILE] == file, c.REASON].value_counts().sort_index()
        by_reason = {str(reason): int(number) for reason, number in reasons.items()}
        files[file] = {"read": count, "kept": count - sum(by_reason.values()), "rejected": by_reason}
    return files


def _check_content(
    config: DataConfig, files: dict[str, dict[str, Any]], tables: dict[str, tuple[pd.DataFrame, pd.DataFrame]]
) -> None:
    problems = []
    for name, (kept, rejected) in tables.items():
        total = len(kept) + len(rejected)
        if kept.empty:
            problems.append(f"no {name} left of {total} rows")
        elif len(rejected) > config.max_reject_share * total:
            problems.append(
                f"{len(rejected)} of {total} rows of the {name} are rejected ({len(rejected) / total:.1%}), more than"
                f" data.max_reject_share={config.max_reject_share}: mend the files or raise it"
            )
    if problems:
        raise GtiError(f"data set {config.name!r}: {'; '.join(problems)}{_lines(files)}")


def _lines(files: dict[str, dict[str, Any]]) -> str:
    lines = [f"{file}: {counts['read']} rows read, {counts['kept']} kept" for file, counts in files.items()]
    for index, counts in enumerate(files.values()):
        lines[index] += "".join(f", {number} {reason}" for reason, number in counts["rejected"].items())
    return "".join(f"\n  - {line}" for line in lines)


def _summary(source: Source, files: dict[str, dict[str, Any]], limits: dict[str, int]) -> dict[str, Any]:
    rejects: dict[str, int] = {}
    for counts in files.values():
        for reason, number in counts["rejected"].items():
            rejects[reason] = rejects.get(reason, 0) + number
    return {
        "source": source.name,
        "is_standin": source.is_standin,
        "files": files,
        "rows_read": sum(counts["read"] for counts in files.values()),
        "rows_kept": sum(counts["kept"] for counts in files.values()),
        "rejects": rejects,
        "left_out_by_limits": limits,
    }


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
