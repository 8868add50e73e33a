"""Raw rows to queries and graded judgments; every row that is not kept says why."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from gti_pipeline import columns as c
from gti_pipeline.config import JudgmentsConfig, QueriesConfig
from gti_pipeline.data.chunk import STR, is_in
from gti_pipeline.data.clean import NULL_ITEM, UNKNOWN_ITEM, ids
from gti_pipeline.data.mapping import as_names
from gti_pipeline.data.readers import RawTable
from gti_pipeline.data.text import list_text, plain_text
from gti_pipeline.data.verdicts import Verdicts

NULL_QUERY = "null query id"
NO_TEXT = "query without text"
SAME_QUERY = "duplicate query, identical: merged"
OTHER_QUERY = "duplicate query id, conflicting"
UNKNOWN_QUERY = "query not among the queries"
BAD_GRADE = "grade not among data.judgments.grades"
SAME_JUDGMENT = "duplicate judgment, identical: merged"
OTHER_JUDGMENT = "duplicate judgment, conflicting"


def clean_queries(raw: RawTable, config: QueriesConfig) -> tuple[pd.DataFrame, Verdicts]:
    """Returns queries (query_id, text; the index is the row's position in `raw`) and the verdicts over all rows."""
    rows, verdicts = raw.rows, Verdicts(raw)
    queries = pd.DataFrame({c.QUERY_ID: ids(rows[config.query_id]), c.TEXT: _query_texts(rows, config)})
    verdicts.add(queries[c.QUERY_ID].isna().to_numpy(), NULL_QUERY)
    verdicts.add((queries[c.TEXT] == "").to_numpy(), NO_TEXT)
    _judge_duplicates(queries, [c.QUERY_ID], verdicts, SAME_QUERY, OTHER_QUERY)
    return queries[verdicts.kept], verdicts


def clean_judgments(
    raw: RawTable, config: JudgmentsConfig, item_ids: pd.Series, query_ids: pd.Series
) -> tuple[pd.DataFrame, Verdicts]:
    """Returns judgments (`schemas.JUDGMENTS`, indexed by the row's position in `raw`) and the verdicts over all rows.

    Args:
        raw: the mapped columns.
        config: the column map, and what each grade of the file means.
        item_ids: the catalogue.
        query_ids: the queries that are kept.
    """
    rows, verdicts = raw.rows, Verdicts(raw)
    grades = ids(rows[config.grade]).map(config.grades)
    judgments = pd.DataFrame({c.QUERY_ID: ids(rows[config.query_id]), c.ITEM_ID: ids(rows[config.item_id])})
    judgments[c.GRADE] = grades.fillna(-1).astype(np.int32)
    verdicts.add(judgments[c.QUERY_ID].isna().to_numpy(), NULL_QUERY)
    verdicts.add(judgments[c.ITEM_ID].isna().to_numpy(), NULL_ITEM)
    verdicts.add(grades.isna().to_numpy(), BAD_GRADE)
    verdicts.add(~is_in(judgments[c.QUERY_ID], query_ids), UNKNOWN_QUERY)
    verdicts.add(~is_in(judgments[c.ITEM_ID], item_ids), UNKNOWN_ITEM)
    _judge_duplicates(judgments, [c.QUERY_ID, c.ITEM_ID], verdicts, SAME_JUDGMENT, OTHER_JUDGMENT)
    return judgments[verdicts.kept], verdicts


def _query_texts(rows: pd.DataFrame, config: QueriesConfig) -> pd.Series:
    """The columns of the text as one: `title: Cook; required skills: baking`; one column alone is not named."""
    names = as_names(config.text)
    columns = [[_clean(value, name in config.list_text) for value in rows[name].to_list()] for name in names]
    labels = [f"{name.replace('_', ' ')}: " if len(names) > 1 else "" for name in names]
    texts = ["; ".join(label + value for label, value in zip(labels, values, strict=True) if value) for values in
             zip(*columns, strict=True)]  # fmt: skip
    return pd.Series(texts, index=rows.index, dtype=STR)


def _clean(value: object, is_list: bool) -> str:
    if not isinstance(value, str):
        return ""
    return plain_text(list_text(value) if is_list else value)


def _judge_duplicates(frame: pd.DataFrame, key: Sequence[str], verdicts: Verdicts, same: str, other: str) -> None:
    """A later row of a key is left out where it says the same as the first, else rejected with both lines."""
    usable = frame[verdicts.kept]
    again = usable[usable.duplicated(list(key), keep=False)]
    if again.empty:
        return
    numbers = again.groupby(list(key), sort=False).ngroup().to_numpy()  # by first appearance
    _, starts = np.unique(numbers, return_index=True)
    first = starts[numbers]
    equal = (again.to_numpy(dtype=object) == again.to_numpy(dtype=object)[first]).all(axis=1)
    later = np.arange(len(again)) != first
    position = again.index.to_numpy(dtype=np.int64)
    for rows, reason, left_out in ((later & equal, same, True), (later & ~equal, other, False)):
        mask = np.zeros(len(frame), dtype=bool)
        mask[position[rows]] = True
        verdicts.add(mask, reason, left_out=left_out)
    for place in np.flatnonzero(later & ~equal):
        this, earlier = int(position[place]), int(position[first[place]])
        verdicts.detail(this, f"line {verdicts.line(this)} differs from {verdicts.place(earlier)}, which is kept")
