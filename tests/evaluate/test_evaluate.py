"""The stage: arms, slices, schemas, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gti_pipeline.config import EvaluateConfig
from gti_pipeline.errors import GtiError
from gti_pipeline.evaluate import Task, evaluate, mean_interval
from gti_pipeline.schemas import METRICS, USER_METRICS, USER_SLICES

ITEMS = ["a", "b", "c", "d"]
CONFIG = EvaluateConfig(ks=(1, 2), bootstrap=100)
TEST = pd.DataFrame(
    {
        "user_id": ["u3", "u1", "u2"],
        "split": "test",
        "history": [["a", "b"], list("cccccc"), list("aaa") * 4],
        "target": ["b", "d", "c"],  # only u3's is in the user's own history
    }
)
RELEVANT = pd.DataFrame({"user_id": ["u3", "u1", "u1", "u2"], "item_id": ["b", "d", "a", "c"]})
TRAINING = pd.Series(["a", "a", "a", "b", "c"], name="item_id", dtype="str")  # d has none
TASK = Task(TEST, RELEVANT, ITEMS, TRAINING)


def recommended(*rows: tuple[str, int, str]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["user_id", "rank", "item_id"]).assign(score=0.0)


GOOD = recommended(("u3", 1, "b"), ("u1", 1, "c"), ("u1", 2, "d"), ("u2", 1, "a"))
BAD = recommended(("u1", 1, "c"))


def value(metrics: pd.DataFrame, arm: str, part: str, metric: str, k: int, column: str = "value") -> float:
    indexed = metrics.set_index(["arm", "slice", "metric", "k"])[column]
    return float(indexed.loc[(arm, part, metric, k)])


def test_values_by_arm_and_slice(tmp_path: Path) -> None:
    found = evaluate({"gti": GOOD, "popular": BAD}, TASK, CONFIG)
    metrics = found.metrics
    assert value(metrics, "gti", "all", "recall", 1) == pytest.approx(1 / 3)
    assert value(metrics, "gti", "all", "recall", 2) == pytest.approx((1 + 1 / 2 + 0) / 3)  # u1 has two relevant items
    assert value(metrics, "gti", "all", "mrr", 2) == pytest.approx((1 + 1 / 2 + 0) / 3)
    assert value(metrics, "gti", "all", "hit_rate", 2) == pytest.approx(2 / 3)
    assert value(metrics, "gti", "repeat", "recall", 1) == 1
    assert value(metrics, "gti", "novel", "precision", 2) == pytest.approx(1 / 4)
    assert value(metrics, "gti", "cold_item", "recall", 2) == pytest.approx(1 / 2)
    assert value(metrics, "gti", "warm_item", "recall", 2) == pytest.approx(1 / 2)
    assert value(metrics, "gti", "all", "coverage", 1) == pytest.approx(3 / 4)
    assert value(metrics, "gti", "all", "popularity", 1) == pytest.approx((0.2 + 0.2 + 0.6) / 3)
    assert value(metrics, "gti", "all", "repeats", 1) == 1
    assert value(metrics, "popular", "all", "recall", 2) == 0
    counts = metrics[metrics["arm"] == "gti"].groupby("slice")["num_users"].unique().map(list).to_dict()
    assert counts == {
        **{"all": [3], "repeat": [1], "novel": [2], "cold_item": [1], "warm_item": [2]},
        **{"history_1_2": [1], "history_6_10": [1], "history_11_up": [1]},
    }
    for table, frame in ((METRICS, metrics), (USER_METRICS, found.user_metrics), (USER_SLICES, found.user_slices)):
        table.write(frame, tmp_path)
        pd.testing.assert_frame_equal(table.read(tmp_path), frame)


def test_intervals_are_those_of_the_users_and_coverage_has_none() -> None:
    metrics = evaluate({"gti": GOOD, "popular": BAD}, TASK, CONFIG).metrics
    expected = mean_interval(np.array([1, 0.5, 0]), CONFIG.bootstrap, CONFIG.confidence)
    row = metrics.set_index(["arm", "slice", "metric", "k"]).loc[("gti", "all", "recall", 2)]
    assert tuple(row[["value", "low", "high"]]) == pytest.approx(tuple(expected))
    covered = metrics[metrics["metric"] == "coverage"]
    assert covered[["low", "high"]].isna().all(axis=None)
    assert set(covered["slice"]) == {"all"}
    others = metrics[metrics["metric"] != "coverage"]
    assert (others["low"] <= others["value"]).all()
    assert (others["value"] <= others["high"]).all()


def test_users_without_a_list_have_no_popularity_but_score_zero() -> None:
    metrics = evaluate({"popular": BAD}, TASK, CONFIG).metrics
    assert value(metrics, "popular", "all", "popularity", 1, "num_users") == 1
    assert value(metrics, "popular", "all", "popularity", 1) == pytest.approx(0.2)
    assert value(metrics, "popular", "all", "recall", 1, "num_users") == 3
    nobody = metrics[(metrics["slice"] == "repeat") & (metrics["metric"] == "repeats")]
    assert nobody.empty  # u3 is the only one of the slice


def test_the_mean_of_the_users_is_the_value_in_every_slice() -> None:
    found = evaluate({"gti": GOOD, "popular": BAD}, TASK, CONFIG)
    everyone = found.user_slices[["user_id"]].drop_duplicates().assign(slice="all")
    joined = found.user_metrics.merge(pd.concat([found.user_slices, everyone]), on="user_id")
    means = joined.groupby(["arm", "slice", "metric", "k"])["value"].mean()
    metrics = found.metrics[found.metrics["metric"] != "coverage"]
    values = metrics.set_index(["arm", "slice", "metric", "k"])["value"]
    pd.testing.assert_series_equal(values.sort_index(), means.sort_index(), check_index_type=False)


def test_a_user_is_in_one_slice_of_each_kind() -> None:
    slices = evaluate({"gti": GOOD}, TASK, CONFIG).user_slices
    assert slices.groupby("user_id")["slice"].apply(list).to_dict() == {
        "u1": ["novel", "cold_item", "history_6_10"],
        "u2": ["novel", "warm_item", "history_11_up"],
        "u3": ["repeat", "warm_item", "history_1_2"],
    }


@pytest.mark.parametrize(
    ("length", "part"),
    [
        (1, "history_1_2"),
        (2, "history_1_2"),
        (3, "history_3_5"),
        (5, "history_3_5"),
        (6, "history_6_10"),
        (10, "history_6_10"),
        (11, "history_11_up"),
        (500, "history_11_up"),
    ],
)
def test_history_buckets(length: int, part: str) -> None:
    task = replace(TASK, test=TEST.assign(history=[["a"] * length] * 3))
    assert part in set(evaluate({"gti": GOOD}, task, CONFIG).metrics["slice"])
    assert set(evaluate({"gti": GOOD}, task, CONFIG).user_slices["slice"]).isdisjoint(
        {"history_1_2", "history_3_5", "history_6_10", "history_11_up"} - {part}
    )


def test_sid_level_rates_only_with_codes() -> None:
    codes = {"a": [0, 0], "b": [0, 1], "c": [1, 0], "d": [1, 1]}
    metrics = evaluate({"gti": GOOD}, replace(TASK, codes=codes), CONFIG).metrics
    assert value(metrics, "gti", "all", "sid_prefix_1", 1) == pytest.approx(2 / 3)  # u3 by b, u1 by c for d
    assert value(metrics, "gti", "all", "sid_prefix_2", 1) == pytest.approx(1 / 3)
    assert not evaluate({"gti": GOOD}, TASK, CONFIG).metrics["metric"].str.startswith("sid").any()


def test_seeded_and_the_same_for_an_arm_alone_or_among_others() -> None:
    together = evaluate({"gti": GOOD, "popular": BAD}, TASK, CONFIG).metrics
    alone = evaluate({"gti": GOOD}, TASK, CONFIG).metrics
    own = together[together["arm"] == "gti"].reset_index(drop=True)
    pd.testing.assert_frame_equal(own, alone)


def test_everything_that_does_not_fit_is_named_at_once() -> None:
    strange = recommended(("nobody", 1, "a"), ("u1", 1, "zzz"))
    task = replace(TASK, item_ids=ITEMS[:3], relevant=RELEVANT.iloc[1:], codes={"a": [0], "b": [1]})
    with pytest.raises(GtiError) as error:
        evaluate({"gti": strange, "popular": BAD}, task, CONFIG)
    message = str(error.value)
    assert "the target 'd' is not in the catalogue" in message
    assert "user 'u3' is tested, but has no relevant item" in message
    assert "item 'c' has no semantic ID" in message
    assert "arm gti: user 'nobody' is not among the tested users" in message
    assert "arm gti: item 'zzz' is not in the catalogue" in message
    assert "popular" not in message


def test_refuses_users_tested_twice_and_nobody_to_test() -> None:
    with pytest.raises(GtiError, match="1 users are tested twice"):
        evaluate({"gti": BAD}, replace(TASK, test=pd.concat([TEST, TEST.head(1)])), CONFIG)
    with pytest.raises(GtiError, match="no user to test"):
        evaluate({"gti": BAD.head(0)}, replace(TASK, test=TEST.head(0)), CONFIG)
    with pytest.raises(GtiError, match="no arm"):
        evaluate({}, TASK, CONFIG)
