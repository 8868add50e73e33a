"""The paper's own numbers (GTI, arXiv 2604.02324), to be seen beside ours. They are not ours and not of our data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from gti_pipeline.report.tables import percent

REFERENCE = "mean_sft"
CUTS = (5, 10, 20, 50, 100)


@dataclass(frozen=True)
class PaperTable:
    """Gains over MI + vanilla SFT, as shares, by arm and column (`R@5`)."""

    source: str
    gains: pd.DataFrame


def _columns(*letters: str) -> list[str]:
    return [f"{letter}@{k}" for letter in letters for k in CUTS]


_VIBRENT = {  # absolute values
    "mean_sft": (0.0226, 0.0342, 0.0475, 0.0771, 0.1031, 0.0150, 0.0188, 0.0222, 0.0280, 0.0322),
    "lc_rec": (0.0243, 0.0382, 0.0539, 0.0863, 0.1194, 0.0163, 0.0208, 0.0247, 0.0311, 0.0365),
    "gti": (0.0230, 0.0417, 0.0599, 0.0937, 0.1222, 0.0143, 0.0203, 0.0249, 0.0316, 0.0362),
}
_INDUSTRIAL = {  # gains in per cent
    "lc_rec": (6.38, 5.20, 3.87, 3.00, 3.47, 5.63, 5.35, 2.98, 3.32, 3.05, 6.94, 4.38, 1.94, 1.95, 1.01),
    "gti_multitask": (21.63, 13.59, 8.16, 6.35, 4.25, 15.83, 10.89, 5.74, 5.87, 4.10, 17.88, 12.03, 6.90, 4.99, 2.89),
}


def _of_vibrent() -> PaperTable:
    values = pd.DataFrame.from_dict(_VIBRENT, orient="index", columns=_columns("R", "N"))
    gains = values / values.loc[REFERENCE] - 1
    source = (
        "arXiv 2604.02324, Vibrent, Qwen3-0.6B, leave-one-out, full ranking; gains computed from its absolute values"
    )
    return PaperTable(source, gains.drop(index=REFERENCE))


def _of_industry() -> PaperTable:
    values = pd.DataFrame.from_dict(_INDUSTRIAL, orient="index", columns=_columns("P good", "P good+maybe", "N")) / 100
    source = "arXiv 2604.02324, its industrial task (jobs and candidates, 200 queries with 200 candidates each)"
    return PaperTable(source, values)


NEXT_ITEM, SEARCH = _of_vibrent(), _of_industry()


def beside_paper(gains: pd.DataFrame, paper: PaperTable, arms: Sequence[str]) -> pd.DataFrame:
    """Text: the paper's gains and ours below them, for the arms and columns that both have; empty where there is none.

    Args:
        gains: ours over the same reference, as shares; a row per arm, columns as the paper's.
        paper: the paper's.
        arms: ours that may be shown.
    """
    shared = [name for name in paper.gains.index if name in arms and name in gains.index]
    columns = [name for name in paper.gains.columns if name in gains.columns]
    lines = []
    for arm in shared:
        for whose, table in (("paper", paper.gains), ("ours", gains)):
            lines.append([arm, whose, *(percent(float(table.loc[arm, name])) for name in columns)])
    return pd.DataFrame(lines if columns else [], columns=["arm", "whose", *columns])
