"""Timestamps: ISO dates or plain numbers, decided once per column."""

from __future__ import annotations

import math
import re

import pandas as pd

NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
ISO_DATE = re.compile(r"\s*\d{4}-\d{2}-\d{2}", re.ASCII)
INT64_MAX = 2**63 - 1


def parse_times(text: pd.Series) -> pd.Series:
    """Text or None to whole numbers, `Int64` with NA for what cannot be read; same index.

    A column holds dates or numbers, whichever more of its values are; the others of a mixed column are NA. Dates
    become epoch seconds (UTC unless they carry an offset). Numbers stay as they are, fractions rounded down.
    """
    is_number = text.map(lambda value: value is not None and NUMBER.fullmatch(value) is not None).astype(bool)
    is_date = text.map(lambda value: value is not None and ISO_DATE.match(value) is not None).astype(bool)
    if is_date.sum() > is_number.sum():
        return _parse_dates(text.where(is_date))
    numbers = [_whole_number(value) if ok else None for value, ok in zip(text, is_number, strict=True)]
    return pd.Series(pd.array(numbers, dtype="Int64"), index=text.index)


def _parse_dates(text: pd.Series) -> pd.Series:
    dates = pd.to_datetime(text.str.strip(), format="ISO8601", errors="coerce", utc=True)
    seconds = dates.dt.as_unit("s").astype("int64").astype("Int64")
    return seconds.mask(dates.isna())


def _whole_number(text: str) -> int | None:
    try:
        number = int(text)  # exact beyond 2**53, where floats are not
    except ValueError:
        value = float(text)
        if not math.isfinite(value):
            return None
        number = math.floor(value)
    return number if abs(number) <= INT64_MAX else None
