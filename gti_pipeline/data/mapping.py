"""The column map: which columns are wanted, and what is wrong with it before and after the files are seen."""

from __future__ import annotations

import csv
import difflib
from collections.abc import Iterator

from gti_pipeline.config import (
    DataConfig,
    InteractionsConfig,
    ItemsConfig,
    JudgmentsConfig,
    QueriesConfig,
    TableConfig,
)
from gti_pipeline.data.blocks import encoding_problem
from gti_pipeline.data.readers import RawTable
from gti_pipeline.data.times import zone_problem

OTHER_DELIMITERS = (";", "\t", "|", "::", ",")


def as_names(value: str | tuple[str, ...]) -> tuple[str, ...]:
    """A setting that takes one name or several."""
    return (value,) if isinstance(value, str) else value


def wanted_columns(config: DataConfig) -> dict[str, list[str]]:
    """The columns to take from the files of each table of `tables`."""
    if config.task == "search":
        return {name: [column for _, column in _mapped(section)] for name, section in tables(config)}
    events = [name for _, name in _mapped(config.interactions)]
    on = [config.interactions.join.on] if config.interactions.join else []
    items = [name for _, name in _mapped(config.items)]
    return {"items": items, "interactions": [*events, *on], "interactions.join": [*events, *on]}


def tables(config: DataConfig) -> Iterator[tuple[str, TableConfig]]:
    """(setting, section) of every table that is read."""
    yield "items", config.items
    if config.task == "search":
        yield "queries", config.queries
        yield "judgments", config.judgments
        return
    yield "interactions", config.interactions
    if config.interactions.join:
        yield "interactions.join", config.interactions.join


def setting_problems(config: DataConfig) -> list[str]:
    """What can be said against the settings before any file is read."""
    problems = []
    for name, section in tables(config):
        if problem := encoding_problem(section.encoding):
            problems.append(f"data.{name}.encoding={problem}")
        if problem := _delimiter_problem(section.delimiter):
            problems.append(f"data.{name}.delimiter={problem}")
        twice = sorted({column for column in section.header if section.header.count(column) > 1})
        if twice:
            problems.append(f"data.{name}.header names {twice} more than once")
    events = config.interactions
    if problem := zone_problem(events.time_zone):
        problems.append(f"data.interactions.time_zone={problem}")
    if events.min_rating is not None and events.rating is None:
        problems.append(f"data.interactions.min_rating={events.min_rating} needs data.interactions.rating, a column")
    if config.item_level == "group" and config.items.group_id is None:
        problems.append("data.item_level=group needs data.items.group_id, the column that holds an item's group")
    return problems


def column_problems(name: str, section: TableConfig, files: list[RawTable], joined: list[RawTable]) -> list[str]:
    """One line for each configured column that a file lacks: file, column, setting, nearest name, what is there.

    A column of the interactions may be in the joined table instead.
    """
    elsewhere = {column for table in joined for columns in table.columns.values() for column in columns}
    problems = []
    for table in files:
        ((file, columns),) = table.columns.items()
        for setting, column in _mapped(section):
            where = {*columns, *elsewhere} if setting.split(".")[-1] not in ("keep", "on") else {*columns}
            if column not in where:
                problems.append(f"{file}: no column {column!r} (data.{setting}){_hint(column, columns, name)}")
    return problems


def _mapped(section: TableConfig) -> list[tuple[str, str]]:
    """(setting, column) of every configured column."""
    settings: tuple[str, ...]
    if isinstance(section, ItemsConfig):
        name, settings = "items", ("item_id", "title", "description", "group_id", "list_text")
    elif isinstance(section, InteractionsConfig):
        name, settings = "interactions", ("user_id", "item_id", "timestamp", "end", "rating")
    elif isinstance(section, QueriesConfig):
        name, settings = "queries", ("query_id", "text", "list_text")
    elif isinstance(section, JudgmentsConfig):
        name, settings = "judgments", ("query_id", "item_id", "grade")
    else:
        name, settings = "interactions.join", ("on",)
    values = [(f"{name}.{setting}", getattr(section, setting)) for setting in settings]
    pairs = [(setting, column) for setting, columns in values if columns for column in as_names(columns)]
    if isinstance(section, InteractionsConfig) and section.join:
        pairs.append(("interactions.join.on", section.join.on))
    return pairs + [(f"{name}.keep", column) for column in section.keep]


def _hint(column: str, present: tuple[str, ...], name: str) -> str:
    nearest = difflib.get_close_matches(column, present, n=1, cutoff=0.5)
    hint = f", nearest: {nearest[0]!r}" if nearest else ""
    if len(present) == 1 and (other := next((d for d in OTHER_DELIMITERS if d in present[0]), None)):
        hint = f": the file may be split at {other!r} (data.{name}.delimiter)"
    return f"{hint}; columns there: {list(present)}"


def _delimiter_problem(delimiter: str) -> str | None:
    if any(character in delimiter for character in '\r\n"'):
        return f"{delimiter!r}: a delimiter holds neither line ends nor quotes"
    try:
        csv.reader([], delimiter=delimiter[0])
    except (TypeError, ValueError):
        return f"{delimiter!r} is no delimiter"
    return None
