"""What became of every row that was read, as JSON for the artifact and as a table for people."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from gti_pipeline.data.source import Source
from gti_pipeline.errors import GtiError
from gti_pipeline.schemas import REJECTED as REJECTED_TABLE

READ, KEPT, REJECTED, LEFT_OUT = "rows read", "rows kept", "rejected", "left out"


def summarize(source: Source, files: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The JSON summary: per file as `Verdicts.account`, and over all files the same sums."""
    return {
        "source": source.name,
        "is_standin": source.is_standin,
        "files": files,
        "rows_read": sum(account["read"] for account in files.values()),
        "rows_kept": sum(account["kept"] for account in files.values()),
        "rejects": _by_reason(files, "rejected"),
        "left_out": _by_reason(files, "left_out"),
    }


def summary_rows(summary: dict[str, Any]) -> list[tuple[str, str, str, int]]:
    """(file, what, reason, count) of all rows: read = kept + rejected + left out in each file."""
    rows = []
    for file, account in summary["files"].items():
        rows += [(file, READ, "", account["read"]), (file, KEPT, "", account["kept"])]
        rows += [(file, REJECTED, reason, count) for reason, count in account["rejected"].items()]
        rows += [(file, LEFT_OUT, reason, count) for reason, count in account["left_out"].items()]
    return rows


def summary_text(summary: dict[str, Any]) -> str:
    """The table as plain text, a line for each count."""
    rows = summary_rows(summary)
    width = max(len(file) for file, *_ in rows)
    return "\n".join(
        f"  {file:<{width}}  {what:<9}  {count:>12,}{f'  {reason}' if reason else ''}"
        for file, what, reason, count in rows
    )


def facts_text(summary: dict[str, Any]) -> str:
    """The sizes of what is left, in one line."""
    names = ("items", "interactions", "users", "tested_users", "mean_history", "repeat_share")
    return ", ".join(f"{summary[name]:,} {name.replace('_', ' ')}" for name in names)


def write_rejects(rejected: pd.DataFrame, path: Path) -> None:
    """Writes `schemas.REJECTED` to a Parquet file of any name; raises `GtiError` where that cannot be done."""
    table = pa.Table.from_pandas(rejected, schema=REJECTED_TABLE.arrow_schema(), preserve_index=False)
    try:
        pq.write_table(table, path)
    except OSError as error:
        raise GtiError(f"{path}: cannot be written ({error.strerror or error})") from error


def _by_reason(files: dict[str, dict[str, Any]], group: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for account in files.values():
        for reason, number in account[group].items():
            counts[reason] = counts.get(reason, 0) + number
    return counts
