"""Some test queries with what each arm finds, as text for the page."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from gti_pipeline import columns as c
from gti_pipeline.report import Example, Recommended
from gti_pipeline.search.split import GOOD

EXAMPLES, SHOWN = 3, 5


def examples(
    items: pd.DataFrame, queries: pd.DataFrame, judgments: pd.DataFrame, found: Mapping[str, pd.DataFrame]
) -> tuple[Example, ...]:
    """The first queries' texts, the head of each arm's list, and the titles of their good items.

    Args:
        items: `schemas.ITEMS`.
        queries: query_id, text.
        judgments: `schemas.JUDGMENTS`.
        found: `schemas.RECOMMENDATIONS` by arm, over the same queries.
    """
    titles: dict[str, str] = dict(zip(items[c.ITEM_ID], items[c.TITLE], strict=True))
    texts: dict[str, str] = dict(zip(queries[c.QUERY_ID], queries[c.TEXT], strict=True))
    good = judgments[judgments[c.GRADE] >= GOOD].groupby(c.QUERY_ID)[c.ITEM_ID].agg(list)
    first = next(iter(found.values()))
    shown = []
    for query in first[c.USER_ID].unique()[:EXAMPLES]:
        wanted = list(good.get(query, []))
        lists = {arm: _head(frame[frame[c.USER_ID] == query], titles, set(wanted)) for arm, frame in found.items()}
        truth = "; ".join(f"{titles[item]} ({item})" for item in wanted[:SHOWN]) + (" ..." if wanted[SHOWN:] else "")
        shown.append(Example(query, (texts[query],), lists, truth, is_query=True))
    return tuple(shown)


def _head(rows: pd.DataFrame, titles: Mapping[str, str], good: set[str]) -> tuple[Recommended, ...]:
    rows = rows.sort_values(c.RANK).head(SHOWN)
    columns = rows[c.RANK].tolist(), rows[c.ITEM_ID].tolist(), rows[c.SCORE].tolist()
    return tuple(
        Recommended(rank, f"{titles[item]} ({item})", score, item in good)
        for rank, item, score in zip(*columns, strict=True)
    )
