"""Seeded samples of users, the same for every arm and seed."""

from __future__ import annotations

import numpy as np
import pandas as pd

USER_SEED = 0  # of the test users


def sample_rows(rows: pd.DataFrame, most: int | None, seed: int) -> pd.DataFrame:
    """At most so many rows, a seeded sample in the table's order."""
    if most is None or len(rows) <= most:
        return rows
    chosen = np.random.default_rng(seed).permutation(len(rows))[:most]
    return rows.iloc[np.sort(chosen)]
