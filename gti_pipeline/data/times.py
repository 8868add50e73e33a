"""Timestamps: dates as epoch seconds, or plain numbers; nothing is guessed that could be read in two ways."""

from __future__ import annotations

import math
import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
import pyarrow as pa

from gti_pipeline.errors import GtiError

TimeFormat = Literal["auto", "iso", "day_first", "month_first", "seconds", "milliseconds", "order"]

WHOLE = r"[+-]?\d{1,18}"
NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
ISO_DATE = r"\d{4}([-/.])\d{1,2}[-/.]\d{1,2}(?:$|[T ,].*)"
SLASHED = r"\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}(?:$|[T ,].*)"  # 03/04/2021: the third of April, or the fourth of March
CLOCKS = ("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", " %I:%M %p", " %I:%M:%S %p")
ORDERS = {"day_first": "%d/%m/%Y", "month_first": "%m/%d/%Y"}

INT64_MAX = 2**63 - 1
FIRST_SECOND, LAST_SECOND = -62_135_596_800, 253_402_300_799  # of the years 1 and 9999


@dataclass(frozen=True)
class Times:
    """`values`: whole numbers, `Int64` with NA for what cannot be read. `dated`: they are epoch seconds."""

    values: pd.Series
    dated: bool


def parse_times(text: pd.Series, time_format: TimeFormat = "auto", time_zone: str = "UTC", what: str = "") -> Times:
    """Reads a column of text; the index is kept.

    Dates become epoch seconds, rounded down; those without an offset are of `time_zone`, where an hour that a clock
    change repeats is taken for its first and one that it skips moves on to its end. Numbers of `seconds` and
    `milliseconds` become epoch seconds of the years 1 to 9999. Under `auto` a column holds ISO dates or numbers,
    whichever more of its values are, the others being NA; its numbers only order, as those of `order` do, and stay as
    they are, fractions rounded down.

    Raises:
        GtiError: under `auto`, most values are dates like 03/04/2021; names `what`.
    """
    stripped = text.str.strip()
    if time_format == "auto":
        time_format = _found_format(stripped, what)
    if time_format == "iso":
        return Times(_by_value(stripped, lambda values: _iso(values, time_zone)), True)
    if time_format in ORDERS:
        order = ORDERS[time_format]
        return Times(_by_value(stripped, lambda values: _ordered(values, order, time_zone)), True)
    numbers = _numbers(stripped)
    if time_format == "order":
        return Times(numbers, False)
    seconds = numbers // 1000 if time_format == "milliseconds" else numbers
    return Times(seconds.mask((seconds < FIRST_SECOND) | (seconds > LAST_SECOND)), True)


def zone_problem(time_zone: str) -> str | None:
    """What is wrong with the name of a time zone, or None."""
    try:
        zoneinfo.ZoneInfo(time_zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return f"{time_zone!r} is no time zone: for example UTC or Europe/Oslo"
    return None


def _found_format(text: pd.Series, what: str) -> TimeFormat:
    """`iso` or `order`, by what most values are."""
    numbers, dates, slashed = (int(_matches(text, pattern).sum()) for pattern in (NUMBER, ISO_DATE, SLASHED))
    if slashed > max(numbers, dates):
        example = text[_matches(text, SLASHED)].iloc[0]
        raise GtiError(
            f"{what}: {example!r} can be read in two ways: set time_format=day_first or time_format=month_first there"
        )
    return "iso" if dates > numbers else "order"


def _matches(text: pd.Series, pattern: str) -> pd.Series:
    return text.str.fullmatch(pattern).fillna(False).astype(bool)


def _by_value(text: pd.Series, parse: Callable[[pd.Series], pd.Series]) -> pd.Series:
    """`parse` over each distinct value once."""
    codes, values = pd.factorize(text)
    parsed = parse(pd.Series(values, dtype=text.dtype)).array
    taken = parsed.take(codes, allow_fill=True)
    return pd.Series(taken, index=text.index)


# -------------------------------------------------------------------------------------------------------------- dates


def _iso(text: pd.Series, zone: str) -> pd.Series:
    """ISO dates, also with slashes or dots, to seconds."""
    odd = _matches(text, r"\d{4}[/.].*")
    if odd.any():
        dashes = text.str.replace(r"^(\d{4})[/.](\d{1,2})[/.]", r"\1-\2-", regex=True)
        text = text.mask(odd, dashes)
    text = text.where(_matches(text, ISO_DATE))
    quick = _quick_iso(text, zone)
    if quick is not None:
        return quick
    has_offset = text.str.contains(r"(?:[Zz]|[+-]\d{2}:?(?:\d{2})?)$", regex=True).fillna(False).astype(bool)
    has_offset &= text.str.contains(":", regex=False).fillna(False).astype(bool)
    absolute = pd.to_datetime(text.where(has_offset), format="ISO8601", errors="coerce", utc=True)
    local = pd.to_datetime(text.mask(has_offset), format="ISO8601", errors="coerce")
    return _seconds(absolute).fillna(_seconds(_localized(local, zone)))


def _quick_iso(text: pd.Series, zone: str) -> pd.Series | None:
    """Arrow's parser, for a column of UTC dates without offsets and without faults."""
    if zone != "UTC":
        return None
    try:
        moments = pa.array(text).cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        return None
    micro = moments.cast(pa.int64()).to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
    return pd.Series((micro // 1_000_000).array)


def _ordered(text: pd.Series, order: str, zone: str) -> pd.Series:
    """Dates like 3/4/2021, 03.04.2021 15:30 or 3-4-2021 3:30 PM, in the order of `order`, to seconds."""
    plain = text.str.replace(r"^(\d{1,2})[-/.](\d{1,2})[-/.](\d{4})", r"\1/\2/\3", regex=True)
    plain = plain.str.replace(r"^([\d/]+)[T ,]+", r"\1 ", regex=True)
    found = pd.Series(pd.NaT, index=text.index, dtype="datetime64[us]")
    for clock in CLOCKS:
        left = found.isna() & plain.notna()
        if not left.any():
            break
        moments = pd.to_datetime(plain[left], format=order + clock, errors="coerce")
        found[left] = moments.astype("datetime64[us]")
    return _seconds(_localized(found, zone))


def _localized(moments: pd.Series, zone: str) -> pd.Series:
    first = np.ones(len(moments), dtype=bool)  # of the two readings of a repeated hour: summer time
    local = moments.dt.tz_localize(zone, ambiguous=first, nonexistent="shift_forward")
    absolute: pd.Series = local.dt.tz_convert("UTC")
    return absolute


def _seconds(moments: pd.Series) -> pd.Series:
    seconds: pd.Series = moments.dt.as_unit("s").astype("int64").astype("Int64")
    return seconds.mask(moments.isna())


# ------------------------------------------------------------------------------------------------------------ numbers


def _numbers(text: pd.Series) -> pd.Series:
    """Whole numbers, exact; fractions rounded down, NA for what is none or does not fit into 64 bits."""
    plain = _matches(text, WHOLE)
    digits = text.where(plain).str.removeprefix("+")
    array = pa.array(digits).cast(pa.int64())
    numbers = pd.Series(array.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get).array, index=text.index)
    others = _matches(text, NUMBER) & ~plain
    if others.any():
        numbers[others] = pd.array([_whole_number(value) for value in text[others]], dtype="Int64")
    return numbers


def _whole_number(text: str) -> int | None:
    try:
        number = int(text)  # exact beyond 2**53, where floats are not
    except ValueError:
        value = float(text)
        if not math.isfinite(value):
            return None
        number = math.floor(value)
    return number if abs(number) <= INT64_MAX else None
