"""What a comparison gathers: pairing by user and seed, baselines of one seed, values that some users lack."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from gti_pipeline.artifacts import Artifact
from gti_pipeline.config import EvaluateConfig
from gti_pipeline.evaluate.intervals import paired_interval
from gti_pipeline.schemas import METRICS
from gti_pipeline.stages.comparison import Trained, budgets, differences, summarise

CONFIG = EvaluateConfig(ks=(5, 10), bootstrap=300)


def values(arm: str, seed: int, level: float, users: int = 40, lacking: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng([seed, len(arm)])
    rows: list[tuple[Any, ...]] = []
    for user in rng.permutation(users):
        for metric in ("recall", "ndcg", "repeats"):
            for k in (5, 10):
                if metric != "repeats" or user >= lacking:
                    rows.append((arm, seed, f"u{user}", metric, k, float(rng.random() < level)))
    return pd.DataFrame(rows, columns=["arm", "seed", "user_id", "metric", "k", "value"])


@pytest.fixture
def users() -> pd.DataFrame:
    frames = [values(arm, seed, level) for arm, level in (("mean_sft", 0.2), ("gti", 0.5)) for seed in (0, 1)]
    return pd.concat([*frames, values("popular", 0, 0.1, lacking=3)], ignore_index=True)


def test_means_are_over_users_and_seeds(users: pd.DataFrame) -> None:
    metrics = summarise(users, CONFIG)
    METRICS.check(metrics)
    found = metrics.set_index(["arm", "metric", "k"])
    means = users.groupby(["arm", "metric", "k"])["value"].mean()
    assert found["value"].to_dict() == pytest.approx(means.to_dict())
    assert ((found["low"] <= found["value"]) & (found["value"] <= found["high"])).all()
    assert found.loc[("popular", "repeats", 5), "num_users"] == 37
    assert found.loc[("popular", "recall", 5), "num_users"] == 40


def test_differences_are_paired_by_user_and_seed(users: pd.DataFrame) -> None:
    found = differences(users, summarise(users, CONFIG), ("mean_sft", "gti"), "mean_sft", CONFIG)
    told = {(d.arm, d.reference, d.metric, d.k): d for d in found}
    assert set(told) == {
        *(("gti", "mean_sft", metric, k) for metric in ("recall", "ndcg") for k in (5, 10)),
        *((arm, "popular", "recall", 10) for arm in ("mean_sft", "gti")),
    }
    wide = users[(users["metric"] == "ndcg") & (users["k"] == 5)].pivot(
        index=["seed", "user_id"], columns="arm", values="value"
    )
    assert told["gti", "mean_sft", "ndcg", 5].value == pytest.approx((wide["gti"] - wide["mean_sft"]).mean())
    assert told["gti", "popular", "recall", 10].num_users == 40


def test_search_arms_differ_in_every_metric_of_the_table(users: pd.DataFrame) -> None:
    names = {"recall": "precision_good", "ndcg": "ndcg_graded", "repeats": "precision_good_maybe"}
    asked = users[users["arm"] != "popular"].replace({"metric": names})
    found = differences(asked, summarise(asked, CONFIG), ("mean_sft", "gti"), "mean_sft", CONFIG)
    assert [(d.metric, d.k) for d in found] == [
        (metric, k) for metric in ("precision_good", "precision_good_maybe", "ndcg_graded") for k in (5, 10)
    ]
    means = asked.groupby(["metric", "k", "arm"])["value"].mean().unstack()
    assert {(d.metric, d.k): d.value for d in found} == pytest.approx((means["gti"] - means["mean_sft"]).to_dict())


def test_one_seed_is_the_paired_bootstrap_over_users(users: pd.DataFrame) -> None:
    one = users[users["seed"] == 0]
    (found,) = [
        d
        for d in differences(one, summarise(one, CONFIG), ("gti",), "popular", CONFIG)
        if (d.arm, d.reference, d.metric, d.k) == ("gti", "popular", "recall", 10)
    ]
    wide = one[(one["metric"] == "recall") & (one["k"] == 10)].pivot(index="user_id", columns="arm", values="value")
    wide = wide.sort_index()
    wanted = paired_interval(wide["gti"].to_numpy(), wide["popular"].to_numpy(), CONFIG.bootstrap, CONFIG.confidence)
    assert (found.value, found.low, found.high) == pytest.approx(tuple(wanted))


def test_without_arms_every_row_is_held_against_the_reference(users: pd.DataFrame) -> None:
    one = users[users["seed"] == 0]
    found = differences(one, summarise(one, CONFIG), (), "popular", CONFIG)
    assert {(d.arm, d.reference) for d in found} == {("mean_sft", "popular"), ("gti", "popular")}


def test_budgets_are_means_over_seeds(tmp_path: Any) -> None:
    def run(seed: int, tokens: int) -> Trained:
        spent = {"steps": 5, "examples": 80, "targets": 90, "supervised_tokens": 240, "tokens": tokens}
        return Trained("gti", seed, {"sft": Artifact("sft", "k", tmp_path, {"budget": spent})})

    (row,) = budgets([run(0, 1000), run(1, 1100)])
    assert (row.arm, row.stage, row.steps, row.targets) == ("gti", "sft", 5, 90)
    assert (row.examples, row.supervised_tokens, row.tokens) == (80, 240, 1050)
