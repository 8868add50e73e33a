"""Where each user's events are cut: the three rules of `data.split.method`, on whole columns.

A user's events in order (timestamp, source row) fall into three consecutive parts: training, validation, test.

- leave_one_out: the last event is tested, the one before it validates.
- ratio: the last `test_share` of the user's events are tested, the `valid_share` before them validate, one at least.
- temporal: one cut for everyone; events from `cut` on are tested, those from `valid_cut` on validate.

Users with fewer than `min_history` events are never tested: they train on all events (temporal: all before the
validation cut). Temporal tests no user without an event before the cut, of whom nothing is known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from gti_pipeline import columns as c
from gti_pipeline.config import DataConfig, SplitConfig
from gti_pipeline.errors import GtiError, raise_all

ORDER = [c.USER_ID, c.TIMESTAMP, c.SOURCE_ROW]
ROUNDING = 1e-9  # 0.1 * 30 must be 3 whichever way floats fall

Whole = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Cuts(NamedTuple):
    """The first moment of validation and of test, in the unit of the timestamps."""

    valid: int
    test: int


@dataclass(frozen=True)
class Parts:
    """Where each user's events lie among the ordered interactions; all [num_users], users in order."""

    start: Whole  # position of the first event
    total: Whole  # number of events
    train: Whole  # of them, the first so many train
    seen: Whole  # and so many lie before the test part
    tested: Flags

    @property
    def validated(self) -> Flags:
        """Who has a training event and a validation event."""
        return self.tested & (self.train > 0) & (self.seen > self.train)


def ordered(interactions: pd.DataFrame) -> pd.DataFrame:
    """`schemas.INTERACTIONS` by user, timestamp, source row; not sorted again where they are in order already."""
    if is_ordered(interactions):
        return interactions.reset_index(drop=True)
    return interactions.sort_values(ORDER, ignore_index=True)


def is_ordered(interactions: pd.DataFrame) -> bool:
    """Whether the rows are by user, timestamp, source row."""
    users = _strings(interactions[c.USER_ID])
    same, later = _adjacent(pc.equal, users), _adjacent(pc.less, users)
    time, row = (np.diff(interactions[name].to_numpy(dtype=np.int64)) for name in (c.TIMESTAMP, c.SOURCE_ROW))
    return bool((later | (same & ((time > 0) | ((time == 0) & (row > 0))))).all())


def cut_users(events: pd.DataFrame, config: DataConfig, cuts: Cuts | None) -> Parts:
    """The parts of every user of `ordered` interactions; `cuts` are those of `find_cuts`."""
    first = np.flatnonzero(~_adjacent(pc.equal, _strings(events[c.USER_ID]))) + 1
    start = np.concatenate([np.zeros(min(1, len(events)), dtype=np.int64), first])
    total = np.diff(np.append(start, len(events)))
    tested = total >= config.min_history
    if cuts is not None:
        times = events[c.TIMESTAMP].to_numpy(dtype=np.int64)
        train, seen = (_sum_by_user(times < cut, start) for cut in cuts)
        return Parts(start, total, train, seen, tested & (seen > 0) & (seen < total))
    valid, test = _held_out(total, config.split)
    seen = np.where(tested, total - test, total)
    return Parts(start, total, np.where(tested, seen - valid, total), seen, tested)


def _held_out(total: Whole, split: SplitConfig) -> tuple[Whole, Whole]:
    """How many events validate and are tested, of users with so many; one event at least is left to train on."""
    if split.method == "leave_one_out":
        return np.ones_like(total), np.ones_like(total)
    valid, test = (
        np.maximum(1, np.floor(total * share + ROUNDING).astype(np.int64))
        for share in (split.valid_share, split.test_share)
    )
    valid = np.minimum(valid, total - 2)
    return valid, np.minimum(test, total - 1 - valid)


def find_cuts(times: Whole, config: DataConfig, *, dated: bool) -> Cuts | None:
    """The cuts of a temporal split, None for the others.

    Args:
        times: timestamps of all interactions.
        config: by date, or by shares of all events in time order; events of the cut's own moment are after it.
        dated: whether timestamps are epoch seconds; if not, they only order.

    Raises:
        GtiError: a date for timestamps that are no dates; a part without an event; cuts in the wrong order.
    """
    split = config.split
    if split.method != "temporal" or not len(times):
        return None
    by_date = [f"data.split.{name}" for name in ("cut", "valid_cut") if getattr(split, name) is not None]
    if by_date and not dated:
        raise GtiError(
            f"{' and '.join(by_date)}: a date needs timestamps that are dates, and those of column"
            f" {config.interactions.timestamp!r} are numbers that only order: set data.interactions.time_format to"
            " seconds or milliseconds if that is what they are, or split by data.split.test_share and valid_share"
        )
    zone = config.interactions.time_zone
    times = np.sort(times)
    back = max(1, round(split.test_share * len(times)))
    cut = _epoch(split.cut, zone) if split.cut else int(times[-back])
    before = int(np.searchsorted(times, cut))  # events before the cut
    place = max(0, before - round(split.valid_share * len(times)))
    by_share = int(times[place]) if place < before else cut
    cuts = Cuts(_epoch(split.valid_cut, zone) if split.valid_cut else by_share, cut)
    raise_all("data.split: this data cannot be split at these times:", _cut_problems(cuts, times, dated))
    return cuts


def _cut_problems(cuts: Cuts, times: Whole, dated: bool) -> list[str]:
    first, last, valid, test = (moment(int(time), dated) for time in (times[0], times[-1], *cuts))
    span = f"the events are of {first} to {last}"
    problems = []
    if cuts.test > times[-1]:
        problems.append(f"nothing to test: no event from the cut {test} on; {span}: set an earlier data.split.cut")
    if cuts.valid > cuts.test:
        problems.append(f"the validation cut {valid} is after the cut {test}: set data.split.valid_cut before it")
    if min(cuts) <= times[0]:
        problems.append(
            f"nothing to train on: no event before {moment(min(cuts), dated)}; {span}: set later cuts, or smaller"
            " data.split.test_share and valid_share"
        )
    return problems


def moment(time: int, dated: bool) -> str:
    """A timestamp for a reader: ISO in UTC, or the number where it only orders."""
    return str(pd.Timestamp(time, unit="s", tz="UTC").isoformat()) if dated else str(time)


def _epoch(date: str, zone: str) -> int:
    """Epoch seconds of an ISO date; `zone` for one without an offset."""
    parsed = datetime.fromisoformat(date)
    return int((parsed if parsed.tzinfo else parsed.replace(tzinfo=ZoneInfo(zone))).timestamp())


def _sum_by_user(flags: Flags, start: Whole) -> Whole:
    return np.add.reduceat(flags, start, dtype=np.int64) if len(start) else start


def _strings(values: pd.Series) -> pa.Array:
    return pa.array(values, type=pa.large_string(), from_pandas=True)


def _adjacent(compare: Callable[[pa.Array, pa.Array], Any], values: pa.Array) -> Flags:
    """`compare(values[i], values[i + 1])` for every i."""
    found: Flags = compare(values[:-1], values[1:]).to_numpy(zero_copy_only=False).astype(bool)
    return found
