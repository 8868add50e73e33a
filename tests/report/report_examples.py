"""A small run and a small comparison to report on, with text that would break a careless page."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd

from gti_pipeline.diagnostics.tables import Codes, Moment, cosine_blocks, nearest_words, numbers, spectrum
from gti_pipeline.report import (
    ArmBudget,
    BudgetRow,
    ComparisonInput,
    Diagnostics,
    Difference,
    Example,
    Recommended,
    ReportInput,
    StageRow,
)
from gti_pipeline.schemas import METRICS, SEMANTIC_IDS, STEPS

PARTS = {"all": 300, "repeat": 60, "novel": 240, "warm_item": 290, "cold_item": 10, "history_11_up": 300}
SHARES = {"popularity": 0.01, "repeats": 0.3, "sid_prefix_1": 1.5, "sid_prefix_2": 1.2} | {
    "recall": 1.0, "precision": 0.1, "ndcg": 0.6, "mrr": 0.5, "hit_rate": 1.1
}  # fmt: skip
NASTY = "<script>alert('x')</script> & \"quotes\" | pipe"


def metrics(values: dict[str, float], ks: tuple[int, ...] = (5, 10, 20), width: float = 0.03) -> pd.DataFrame:
    """A METRICS frame whose recall at 10 is the given value for each arm; every other metric is a share of it."""
    rows = []
    for arm, value in values.items():
        for part, users in PARTS.items():
            for metric, share in SHARES.items():
                for k in ks:
                    v = value * share * (k / 10) ** 0.5
                    rows.append((arm, part, metric, k, v, max(0.0, v - width * share), v + width * share, users))
        rows += [(arm, "all", "coverage", k, 0.5 + value / 100, math.nan, math.nan, 300) for k in ks]
    frame = pd.DataFrame(rows, columns=list(METRICS.fields))
    METRICS.check(frame)
    return frame


def steps(names: tuple[str, ...], length: int) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    rows = [
        (step, name, float(9 * np.exp(-step / length * (2 + place)) + 1 + rng.normal() * 0.1))
        for step in range(length)
        for place, name in enumerate(names)
    ]
    return pd.DataFrame(rows, columns=list(STEPS.fields))


def semantic_ids(items: int = 200, levels: int = 4, size: int = 32) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    codes = [np.minimum(rng.geometric(0.1, levels) - 1, size - 1) for _ in range(items)]
    return pd.DataFrame({"item_id": [f"i{n}" for n in range(items)], "codes": codes}, columns=list(SEMANTIC_IDS.fields))


def example(number: int, arms: tuple[str, ...] = ("gti",)) -> Example:
    titles = ("Linen summer dress with a belt", NASTY, "Wool coat, winter, black", "Silk blouse " * 6)
    listed = tuple(
        Recommended(rank, titles[(rank + number) % 4], -1.5 * rank, rank == 2 and number == 0)
        for rank in (1, 2, 3, 4, 5)
    )
    return Example(f"user-{number}", titles, dict.fromkeys(arms, listed), titles[2])


def diagnostics(moments: tuple[str, ...] = ("init", "grounded", "tuned")) -> Diagnostics:
    """Rows that start as one point and come to be like their codebooks; words that would break a careless page."""
    rng = np.random.default_rng(0)
    old, vectors = rng.normal(size=(80, 12)), rng.normal(size=(2, 8, 12))
    codes = Codes(vectors, rng.integers(0, 5, (2, 8)))
    rows = [np.zeros_like(vectors) + old.mean(0), vectors + rng.normal(size=vectors.shape) / 2, vectors]
    made = [Moment(name, values, old) for name, values in zip(moments, rows, strict=False)]
    ordinary = np.arange(80)

    def word(token: int) -> str:
        return NASTY if token % 7 == 0 else f"word{token}"

    return Diagnostics(
        numbers=pd.concat([numbers(moment, codes, ordinary) for moment in made], ignore_index=True),
        cosines=pd.concat([cosine_blocks(moment, ordinary, word) for moment in made], ignore_index=True),
        spectrum=pd.concat([spectrum(moment) for moment in made], ignore_index=True),
        nearest_words=pd.concat([nearest_words(moment, codes, ordinary, word) for moment in made], ignore_index=True),
    )


def run() -> ReportInput:
    """A run with everything a report can show."""
    stages = ("data", "embed", "semantic_ids", "vocab", "ground", "sft", "recommend", "evaluate")
    trained = {"semantic_ids": ("loss", "loss_recon", "used_share"), "ground": ("loss_text_to_sid", "loss_sid_to_text")}
    return ReportInput(
        title="vibrent-standin: gti, seed 0",
        dataset="vibrent-standin",
        arm="gti",
        metrics=metrics({"gti": 0.167, "popular": 0.067}),
        config_yaml=f"seed: 0\ndata:\n  name: vibrent-standin\n  dir: '{NASTY}'\n"
        + "".join(f"  key_{n}: {'value ' * 30}\n" for n in range(5)),
        is_standin=True,
        banner="STAND-IN DATA: generated, not Vibrent.\nNo number below says anything about the real data set.",
        data_summary={
            "items": 300,
            "users": 400,
            "rejected": {"null name": 1, "duplicate": 12},
            "share": 0.00412,
            "x": NASTY,
        },
        stages=tuple(
            StageRow(name, f"{n:x}a" * 8, 12.5 * n, n < 3, "300 items, 400 users, 3,000 interactions, 14 rows rejected")
            for n, name in enumerate(stages)
        ),
        semantic_id_summary={"levels": 4, "collision_rate": 0.0, "used_share": [0.9, 0.8, 1.0, 0.5]},
        semantic_ids=semantic_ids(),
        codebook_size=32,
        budgets=(
            BudgetRow("ground", 56, 3.0, 896, 41234, "step budget", "3.0 of 10 epochs (budget ground.max_steps=56)"),
            BudgetRow("sft", 190, 3.0, 3040, 141234, "as planned", "3.0 of 3 epochs (as planned)"),
        ),
        steps={stage: steps(names, 300) for stage, names in trained.items()} | {"sft": steps(("loss",), 40)},
        differences=(Difference("gti", "popular", "recall", 10, 0.1, 0.05, 0.15, 300),),
        diagnostics=diagnostics(),
        examples=(example(0), example(1)),
        next_steps="Open the tracking pages: make ui\nCompare the methods: make compare",
    )


ARMS = {
    "gti": 0.167, "popular": 0.067, "recent_popular": 0.07, "repeat": 0.05, "popular_repeat": 0.09,
    "content_knn": 0.08, "als": 0.1, "bpr": 0.11, "sasrec": 0.181,
}  # fmt: skip


def crowded_run() -> ReportInput:
    """A run beside eight baselines, one of them better."""
    paired = (
        Difference("gti", "sasrec", "recall", 10, -0.014, -0.05, 0.02, 300),
        Difference("gti", "popular", "recall", 10, 0.1, 0.05, 0.15, 300),
    )
    return replace(
        run(), metrics=metrics(ARMS, ks=(5, 10, 20, 50, 100)), differences=paired, confidence=0.9, diagnostics=None
    )


def comparison() -> ComparisonInput:
    """Three arms, popularity and a stronger baseline."""
    arms = {"mean_sft": 0.04, "lc_rec": 0.12, "gti": 0.167, "popular": 0.067, "content_knn": 0.1}
    names = ("mean_sft", "lc_rec", "gti")
    rows = {name: diagnostics() if name == "gti" else diagnostics(("init", "tuned")) for name in names}
    curves = [
        steps(("valid_loss", "valid_recall_10"), 5).assign(arm=name, seed=seed) for name in names for seed in (0, 1)
    ]
    return ComparisonInput(
        title="vibrent-standin: methods compared",
        dataset="vibrent-standin",
        metrics=metrics(arms, ks=(5, 10, 20, 50, 100)),
        is_standin=True,
        differences=(
            Difference("gti", "mean_sft", "recall", 10, 0.127, 0.08, 0.17, 300),
            Difference("lc_rec", "mean_sft", "recall", 10, 0.02, -0.01, 0.05, 300),
            Difference("gti", "mean_sft", "recall", 20, 0.127, 0.08, 0.17, 300),
            Difference("gti", "content_knn", "recall", 10, 0.067, 0.01, 0.1, 300),
        ),
        arms=names,
        seeds=2,
        budgets=(
            *(
                ArmBudget(name, "sft", 60, 1920, 2000, 9000, 90_000)
                if name == "lc_rec"
                else ArmBudget(name, "sft", 60, 960, 2000, 6000, 60_000)
                for name in names
            ),
            ArmBudget("gti", "ground", 60, 900, 0, 3000, 30_000),
        ),
        curves=pd.concat(curves, ignore_index=True),
        diagnostics=pd.concat([rows[name].numbers.assign(arm=name) for name in names], ignore_index=True),
        spectra=pd.concat([rows[name].spectrum.assign(arm=name) for name in names], ignore_index=True),
        examples=(example(0, names), example(1, names)),
        notes=("All arms share data, embeddings and semantic IDs.", f"One seed. {NASTY}"),
        next_steps="Run more seeds: make compare SEEDS=3",
    )
