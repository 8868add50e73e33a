"""Arms over the same queries: means, gains over a reference, the floor, and the tables in the paper's layout."""

import numpy as np
import pandas as pd
import pytest

from gti_pipeline.config import EvaluateConfig
from gti_pipeline.errors import GtiError
from gti_pipeline.search.evaluate import evaluate, gains, popular, summarise
from gti_pipeline.search.tables import absolute_frame, relative_frame, sentences

CONFIG = EvaluateConfig(bootstrap=200)
ITEMS = [f"i{n}" for n in range(10)]


def ranked(firsts):
    rows = [(q, 1, item) for q, item in firsts.items()]
    return pd.DataFrame(rows, columns=["user_id", "rank", "item_id"]).assign(score=0.0)


@pytest.fixture(scope="module")
def judgments():
    rows = [(f"q{n}", "i0", 2) for n in range(8)] + [(f"q{n}", "i1", 1) for n in range(8)]
    return pd.DataFrame(rows, columns=["query_id", "item_id", "grade"])


@pytest.fixture(scope="module")
def evaluation(judgments):
    arms = {
        "mean_sft": ranked({f"q{n}": "i0" if n < 2 else "i5" for n in range(8)}),  # 2 of 8 good
        "gti": ranked({f"q{n}": "i0" if n < 5 else "i1" for n in range(8)}),  # 5 of 8 good, 8 of 8 good or maybe
        "lc_rec": ranked({f"q{n}": "i0" for n in (0, 2)}),  # as many good as mean_sft; the others are left out
    }
    return evaluate(arms, judgments, ITEMS, [1, 5], CONFIG)


def value(metrics, arm, metric, k):
    (row,) = metrics[(metrics["arm"] == arm) & (metrics["metric"] == metric) & (metrics["k"] == k)].itertuples()
    return row


def test_means_are_over_all_queries(evaluation):
    assert value(evaluation.metrics, "mean_sft", "precision_good", 1).value == pytest.approx(2 / 8)
    assert value(evaluation.metrics, "gti", "precision_good", 5).value == pytest.approx(5 / 8 / 5)
    assert value(evaluation.metrics, "gti", "precision_good_maybe", 1).value == 1
    lacking = value(evaluation.metrics, "lc_rec", "precision_good", 1)
    assert (lacking.value, lacking.num_users) == (pytest.approx(2 / 8), 8)
    assert lacking.low <= lacking.value <= lacking.high


def test_gains_are_relative_to_the_reference_and_paired(evaluation):
    found = gains(evaluation.user_metrics, "mean_sft", CONFIG)
    assert set(found["arm"]) == {"gti", "lc_rec"}
    gti = value(found, "gti", "precision_good", 1)
    assert (gti.relative, gti.difference) == (pytest.approx(1.5), pytest.approx(3 / 8))
    same = value(found, "lc_rec", "precision_good", 1)
    assert same.difference == 0
    assert same.low < 0 < same.high


def test_seeds_count_alike_and_widen_the_interval(evaluation):
    users = evaluation.user_metrics
    two = pd.concat([users.assign(seed=0), users.assign(seed=1, value=0.0)])
    once, halved = summarise(users, CONFIG), summarise(two, CONFIG)
    assert halved["num_users"].eq(8).all()
    assert np.allclose(halved["value"] * 2, once["value"])
    assert (halved["low"] <= once["low"] / 2).all()
    same = pd.concat([users.assign(seed=0), users.assign(seed=1)])
    assert np.allclose(gains(same, "mean_sft", CONFIG)["difference"], gains(users, "mean_sft", CONFIG)["difference"])


def test_a_reference_without_a_hit_has_no_relative_gain(judgments):
    arms = {"mean_sft": ranked({"q0": "i9"}), "gti": ranked({"q0": "i0"})}
    users = evaluate(arms, judgments, ITEMS, [1], CONFIG).user_metrics
    found = gains(users, "mean_sft", CONFIG)
    assert found["relative"].isna().all()
    assert relative_frame(found, "precision_good").loc["gti", "P@1"] == "n/a"


def test_tables_in_the_papers_layout(evaluation):
    found = gains(evaluation.user_metrics, "mean_sft", CONFIG)
    absolute = absolute_frame(evaluation.metrics, "precision_good")
    assert absolute.loc["mean_sft"].to_dict() == {"P@1": "0.2500", "P@5": "0.0500"}
    relative = relative_frame(found, "precision_good")
    assert relative.index.tolist() == ["gti", "lc_rec", "lc_rec in the paper"]
    assert relative.loc["gti", "P@1"].startswith("+150.00 %")
    assert relative.loc["lc_rec", "P@1"] == "+0.00 %"
    assert relative.loc["lc_rec in the paper"].to_dict() == {"P@1": "", "P@5": "+6.38 %"}


def test_sentences_say_what_is_not_shown(evaluation):
    said = sentences(gains(evaluation.user_metrics, "mean_sft", CONFIG), "mean_sft", 2)
    (good,) = [line for line in said if "lc_rec" in line and "Precision, good at 1" in line]
    assert good.startswith("No difference shown between lc_rec and mean_sft")
    (maybe,) = [line for line in said if "gti is better" in line and "good or maybe" in line]
    assert "difference +0.7500" in maybe


def test_popular_is_one_list_for_all():
    matches = pd.DataFrame({"item_id": ["b", "a", "b", "c", "a", "b"]})
    found = popular(matches, ["q1", "q2"], 2)
    assert found.values.tolist() == [["q1", 1, "b", 3.0], ["q1", 2, "a", 2.0], ["q2", 1, "b", 3.0], ["q2", 2, "a", 2.0]]


def test_strangers_are_all_named(judgments):
    with pytest.raises(GtiError) as error:
        evaluate({"gti": ranked({"q0": "nowhere", "q99": "i0"})}, judgments, ITEMS, [1], CONFIG)
    assert "'q99' is not among the tested queries" in str(error.value)
    assert "'nowhere' is not in the catalogue" in str(error.value)
