"""Why a row is not kept: rejected because something is wrong with it, or left out because a rule asks for less."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gti_pipeline import columns as c
from gti_pipeline.data.readers import RawTable
from gti_pipeline.errors import GtiError
from gti_pipeline.schemas import REJECTED

NOT_KEPT_VALUE = "left out by keep"

Mask = NDArray[np.bool_]


class Verdicts:
    """The first reason found against each row of a raw table; rows without one are kept."""

    def __init__(self, raw: RawTable) -> None:
        self._raw = replace(raw, rows=pd.DataFrame())  # the texts are not needed any more
        self._found = np.zeros(len(raw.origin), dtype=np.int8)
        self._reasons = [""]
        self._left_out = [False]
        self._details: dict[int, str] = {}

    @property
    def kept(self) -> Mask:
        """One per row."""
        kept: Mask = self._found == 0
        return kept

    @property
    def num_rejected(self) -> int:
        """Rows with something wrong, unreadable ones included."""
        wrong = [code for code in range(1, len(self._reasons)) if not self._left_out[code]]
        return len(self._raw.rejected) + int(np.isin(self._found, wrong).sum())

    @property
    def num_read(self) -> int:
        """All data rows, those that `keep` leaves out aside."""
        return len(self._raw.rejected) + len(self._found)

    def add(self, rows: Mask, reason: str, *, left_out: bool = False) -> None:
        """Marks rows; those already marked keep their first reason."""
        self._found[rows & self.kept] = len(self._reasons)
        self._reasons.append(reason)
        self._left_out.append(left_out)

    def leave_only(self, positions: NDArray[np.int64], reason: str) -> None:
        """Leaves out every kept row but those at `positions`."""
        others = np.ones(len(self._found), dtype=bool)
        others[positions] = False
        self.add(others, reason, left_out=True)

    def detail(self, position: int, text: str) -> None:
        """Adds to the reason of one rejected row."""
        self._details[position] = text

    def place(self, position: int) -> str:
        """`file, line n` of a row."""
        file = self._raw.files[int(self._raw.origin[c.FILE].to_numpy()[position])]
        return f"{file.name}, line {self.line(position)}"

    def line(self, position: int) -> int:
        """The line of a row."""
        return int(self._raw.origin[c.LINE].to_numpy()[position])

    def rejected(self) -> pd.DataFrame:
        """As `schemas.REJECTED`, the reader's own rejects included, file by file in order of lines."""
        wrong = [code for code in range(1, len(self._reasons)) if not self._left_out[code]]
        positions = np.flatnonzero(np.isin(self._found, wrong))
        origin = self._raw.origin.iloc[positions]
        reasons = np.array(self._reasons, dtype=object)[self._found[positions]]
        for place in np.flatnonzero(np.isin(positions, list(self._details))):
            reasons[place] = f"{reasons[place]}: {self._details[int(positions[place])]}"
        names = np.array([file.name for file in self._raw.files], dtype=object)
        found = {c.FILE: names[origin[c.FILE].to_numpy()], c.LINE: origin[c.LINE].to_numpy(), c.REASON: reasons}
        bad = pd.DataFrame(found | {c.RAW: self._raw.raw(positions)}, columns=list(REJECTED.fields))
        frame = pd.concat([self._raw.rejected, bad], ignore_index=True) if len(self._raw.rejected) else bad
        order = {file.name: place for place, file in enumerate(self._raw.files)}
        keys = frame.assign(**{c.FILE: frame[c.FILE].map(order)})
        return frame.iloc[np.lexsort((keys[c.LINE], keys[c.FILE]))].reset_index(drop=True)

    def account(self, kept: NDArray[np.int64]) -> dict[str, dict[str, Any]]:
        """Per file: rows `read` and `kept`, and `rejected` and `left_out` by reason.

        Args:
            kept: positions of the rows that are in the final table, which must be those without a verdict.

        Raises:
            GtiError: kept, rejected and left out do not add up to what was read.
        """
        files = self._raw.origin[c.FILE].to_numpy()
        kept_per_file = np.bincount(files[kept], minlength=len(self._raw.files))
        accounts = {}
        for place, file in enumerate(self._raw.files):
            counts = np.bincount(self._found[files == place], minlength=len(self._reasons))
            unreadable = self._raw.rejected.loc[self._raw.rejected[c.FILE] == file.name, c.REASON]
            account: dict[str, Any] = {
                "read": self._raw.rows_read[file.name],
                "kept": int(kept_per_file[place]),
                "rejected": {str(reason): int(n) for reason, n in unreadable.value_counts().sort_index().items()},
                "left_out": {},
            }
            if not_asked_for := self._raw.left_out[file.name]:
                account["left_out"][NOT_KEPT_VALUE] = not_asked_for
            for code in np.flatnonzero(counts[1:]) + 1:
                group = account["left_out" if self._left_out[code] else "rejected"]
                group[self._reasons[code]] = group.get(self._reasons[code], 0) + int(counts[code])
            _check_sum(file.name, account)
            accounts[file.name] = account
        return accounts


def _check_sum(file: str, account: dict[str, Any]) -> None:
    rejected, left_out = sum(account["rejected"].values()), sum(account["left_out"].values())
    if account["kept"] + rejected + left_out != account["read"]:
        raise GtiError(
            f"{file}: {account['read']} rows read, but {account['kept']} kept + {rejected} rejected + {left_out} left"
            " out: a bug in this program; nothing was trained on it"
        )
