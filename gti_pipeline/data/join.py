"""Adds columns of a second table to each interaction by a key, as Instacart's orders to its baskets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from gti_pipeline.data.chunk import STR
from gti_pipeline.data.clean import ids
from gti_pipeline.data.readers import RawTable
from gti_pipeline.data.verdicts import Mask, Verdicts

NULL_KEY = "null key to join"
SAME_KEY = "duplicate key to join"


def join(raw: RawTable, other: RawTable, on: str) -> tuple[RawTable, Mask, Verdicts]:
    """Each row of `raw` with the columns that only `other` has, from its first row of the same value of `on`.

    Returns:
        The rows of `raw` in their order, which of them found no row, and the verdicts over the rows of `other`.
    """
    keys, verdicts = ids(other.rows[on]), Verdicts(other)
    verdicts.add(keys.isna().to_numpy(), NULL_KEY)
    verdicts.add(keys.duplicated().to_numpy(), SAME_KEY)
    usable = np.flatnonzero(verdicts.kept)
    place = pc.index_in(pa.array(ids(raw.rows[on])), pa.array(keys.iloc[usable]), skip_nulls=True)
    found = np.asarray(pc.fill_null(place, -1), dtype=np.int64)
    rows = raw.rows.copy(deep=False)
    for name in other.rows.columns.difference(raw.rows.columns, sort=False):
        values = other.rows[name].iloc[usable].array
        rows[name] = pd.Series(values.take(found, allow_fill=True), index=rows.index, dtype=STR)
    return replace(raw, rows=rows), found < 0, verdicts
