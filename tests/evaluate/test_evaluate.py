"""The stage: arms, slices, schemas, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from gti_pipeline.config import EvaluateConfig
from gti_pipeline.errors import GtiError
from gti_pipeline.evaluate import evaluate
from gti_pipeline.schemas import METRICS, USER_METRICS

ITEMS = ["a", "b", "c", "d"]
CONFIG = EvaluateConfig(ks=(1, 2), bootstrap=100)
TEST = pd.DataFrame(
    {
        "user_id": ["u3", "u1", "u2"],
        "split": "test",
        "history": [["a", "b"], ["c"], ["a"]],
        "target": ["b", "d", "c"],  # only u3's is in the user's own history
    }
)


def recommended(*rows: tuple[str, int, str]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["user_id", "rank", "item_id"]).assign(score=0.0)


GOOD = recommended(("u3", 1, "b"), ("u1", 1, "a"), ("u1", 2, "d"), ("u2", 1, "a"))
BAD = recommended(("u1", 1, "a"))


def value(metrics: pd.DataFrame, arm: str, part: str, metric: str, k: int) -> float:
    indexed = metrics.set_index(["arm", "slice", "metric", "k"])["value"]
    return float(indexed.loc[(arm, part, metric, k)])


def test_values_by_arm_and_slice(tmp_path: Path) -> None:
    metrics, users = evaluate({"gti": GOOD, "popular": BAD}, TEST, ITEMS, CONFIG)
    assert value(metrics, "gti", "all", "recall", 1) == pytest.approx(1 / 3)
    assert value(metrics, "gti", "all", "recall", 2) == pytest.approx(2 / 3)
    assert value(metrics, "gti", "repeat", "recall", 1) == 1
    assert value(metrics, "gti", "novel", "recall", 2) == pytest.approx(1 / 2)
    assert value(metrics, "gti", "novel", "precision", 2) == pytest.approx(1 / 4)
    assert (metrics[metrics["arm"] == "popular"]["value"] == 0).all()
    counts = metrics.groupby("slice")["num_users"].unique().map(list).to_dict()
    assert counts == {"all": [3], "repeat": [1], "novel": [2]}
    assert (metrics["low"] <= metrics["value"]).all()
    assert (metrics["value"] <= metrics["high"]).all()
    METRICS.write(metrics, tmp_path)
    USER_METRICS.write(users, tmp_path)
    pd.testing.assert_frame_equal(METRICS.read(tmp_path), metrics, check_dtype=True)


def test_the_mean_of_the_users_is_the_value() -> None:
    metrics, users = evaluate({"gti": GOOD, "popular": BAD}, TEST, ITEMS, CONFIG)
    means = users.groupby(["arm", "metric", "k"])["value"].mean()
    overall = metrics[metrics["slice"] == "all"].set_index(["arm", "metric", "k"])["value"]
    pd.testing.assert_series_equal(overall.sort_index(), means.sort_index(), check_index_type=False)
    assert users.drop_duplicates("user_id").set_index("user_id")["slice"].to_dict() == {
        "u3": "repeat",
        "u1": "novel",
        "u2": "novel",
    }


def test_empty_slices_are_left_out() -> None:
    metrics, _ = evaluate({"gti": GOOD.iloc[1:]}, TEST.iloc[1:], ITEMS, CONFIG)
    assert set(metrics["slice"]) == {"all", "novel"}
    assert metrics.notna().all(axis=None)


def test_seeded() -> None:
    first, second = (evaluate({"gti": GOOD}, TEST, ITEMS, CONFIG)[0] for _ in range(2))
    assert first.equals(second)


def test_everything_that_does_not_fit_is_named_at_once() -> None:
    strange = recommended(("nobody", 1, "a"), ("u1", 1, "zzz"))
    with pytest.raises(GtiError) as error:
        evaluate({"gti": strange, "popular": BAD}, TEST, ITEMS[:3], CONFIG)
    message = str(error.value)
    assert "the target 'd' is not in the catalogue" in message
    assert "arm gti: user 'nobody' is not among the tested users" in message
    assert "arm gti: item 'zzz' is not in the catalogue" in message
    assert "popular" not in message


def test_refuses_users_tested_twice_and_nobody_to_test() -> None:
    with pytest.raises(GtiError, match="1 users are tested twice"):
        evaluate({"gti": BAD}, pd.concat([TEST, TEST.head(1)]), ITEMS, CONFIG)
    with pytest.raises(GtiError, match="no user to test"):
        evaluate({"gti": BAD.head(0)}, TEST.head(0), ITEMS, CONFIG)
    with pytest.raises(GtiError, match="no arm"):
        evaluate({}, TEST, ITEMS, CONFIG)
