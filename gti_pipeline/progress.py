"""Progress with an ETA, as log lines: they read well in a terminal, in a file and in Prefect's UI."""

from __future__ import annotations

import logging
import time

log = logging.getLogger(__name__)
EVERY = 10.0  # seconds between lines


class Progress:
    """Call with (done, total); says how far a stage is, at most every ten seconds, and at its end."""

    def __init__(self, stage: str, unit: str) -> None:
        self.stage = stage
        self.unit = unit
        self.start = self.said = time.monotonic()
        self.ended = False
        self.first = 0  # what was done before this process began, when resumed

    def __call__(self, done: int, total: int) -> None:
        """Reports that `done` of `total` units are finished."""
        now = time.monotonic()
        self.first = self.first or done
        if self.ended or (now - self.said < EVERY and done < total):
            return
        self.ended = done >= total
        self.said = now
        spent = now - self.start
        left = spent / max(1, done - self.first + 1) * (total - done)
        eta = f", about {clock(left)} left" if done < total else ""
        log.info("%s: %d of %d %s in %s%s", self.stage, done, total, self.unit, clock(spent), eta)


def clock(seconds: float) -> str:
    """75 -> `1:15`."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"
