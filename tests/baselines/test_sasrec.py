"""SASRec learns what popularity cannot, repeats itself, and looks neither ahead nor at padding."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
import torch

from gti_pipeline.baselines import sasrec as module
from gti_pipeline.baselines.popularity import popular
from gti_pipeline.baselines.sasrec import sasrec, windows
from gti_pipeline.baselines.sasrec_model import SasRec, padded
from gti_pipeline.baselines.selection import validation_ndcg
from gti_pipeline.config import SasrecConfig
from gti_pipeline.errors import GtiError

Rows = Callable[..., pd.DataFrame]
CPU = torch.device("cpu")
IDS = [f"i{n:02d}" for n in range(30)]
SMALL = SasrecConfig(dim=32, layers=1, heads=2, dropout=0.1, learning_rate=0.01, epochs=12, max_history=8)


def quiet(done: int, total: int) -> None:
    assert 0 < done <= total


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def steps(rows: Rows) -> dict[str, pd.DataFrame]:
    """Users who walk a ring of items: even ones by one, odd ones by three. Only the last two items tell the next."""
    rng = np.random.default_rng(0)
    walks = {}
    for n in range(300):
        start, stride, length = int(rng.integers(30)), (1, 3)[n % 2], int(rng.integers(4, 12))
        walks[f"u{n:03d}"] = [IDS[(start + stride * k) % 30] for k in range(length + 2)]
    cut = {back: {u: walk[: len(walk) - back] for u, walk in walks.items()} for back in (1, 2)}
    target = {back: {u: walk[len(walk) - back] for u, walk in walks.items()} for back in (1, 2)}
    return {"training": rows(cut[2]), "valid": rows(cut[2], target[2]), "test": rows(cut[1], target[1])}


def run(
    steps: dict[str, pd.DataFrame], config: SasrecConfig = SMALL, seed: int = 0
) -> tuple[pd.DataFrame, dict[str, object], pd.DataFrame]:
    users = steps["test"][["user_id", "history"]]
    return sasrec(steps["training"], steps["valid"], users, IDS, 10, config, seed, CPU, quiet)


def hits_at_1(frame: pd.DataFrame, test: pd.DataFrame) -> float:
    first = frame[frame["rank"] == 1].set_index("user_id")["item_id"]
    return float(np.mean([first[user] == target for user, target in zip(test["user_id"], test["target"], strict=True)]))


def test_a_rule_of_the_last_two_items_is_learned(steps: dict[str, pd.DataFrame], listed: Callable[..., dict]) -> None:
    frame, summary, curve = run(steps)
    assert all(len(items) == 10 for items in listed(frame).values())
    assert hits_at_1(frame, steps["test"]) > 0.9
    events = pd.Series([item for history in steps["training"]["history"] for item in history])
    assert hits_at_1(popular(events, steps["test"]["user_id"].tolist(), 10), steps["test"]) < 0.1
    values = curve.loc[curve["metric"] == "valid_ndcg", "value"]
    assert summary["valid_ndcg"] == values.max() > 0.9
    assert curve.loc[curve["metric"] == "loss", "step"].tolist() == list(range(1, int(summary["epochs"]) + 1))


def test_one_seed_one_result_and_the_global_state_is_left_alone(steps: dict[str, pd.DataFrame]) -> None:
    short = SMALL.model_copy(update={"epochs": 2})
    torch.manual_seed(5)
    state = torch.random.get_rng_state()
    first = run(steps, short, seed=3)
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.manual_seed(6)
    again = run(steps, short, seed=3)
    assert first[0].equals(again[0])
    assert first[2].equals(again[2])
    assert not first[0].equals(run(steps, short, seed=4)[0])


def test_the_best_weights_are_kept_and_patience_ends_the_training(
    steps: dict[str, pd.DataFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = iter([0.1, 0.3, 0.2, 0.3, 0.25, 0.9])
    kept: list[SasRec] = []

    def marked(model: SasRec, *_: object) -> float:
        kept.append(model)
        with torch.no_grad():  # a mark in the weights tells which epoch's they are
            model.positions.weight[0, 0] = 100.0 + len(kept)
        return next(marks)

    monkeypatch.setattr(module, "_ndcg", marked)
    _, summary, _ = run(steps, SMALL.model_copy(update={"patience": 3}))
    assert (summary["epochs"], summary["best_epoch"], summary["valid_ndcg"]) == (5, 2, 0.3)
    assert kept[0].positions.weight[0, 0].item() == 102.0


def test_without_validation_all_epochs_are_run(steps: dict[str, pd.DataFrame], none_valid: pd.DataFrame) -> None:
    short = SMALL.model_copy(update={"epochs": 2})
    _, summary, curve = run({**steps, "valid": none_valid}, short)
    assert (summary["epochs"], summary["valid_ndcg"]) == (2, None)
    assert set(curve["metric"]) == {"loss"}


def test_the_number_that_stops_it_is_that_of_its_lists(steps: dict[str, pd.DataFrame]) -> None:
    valid = steps["valid"]
    asked = {**steps, "test": valid}
    frame, summary, _ = run(asked, SMALL.model_copy(update={"epochs": 3}))
    assert 0.01 < validation_ndcg(frame, valid) < 0.99
    assert summary["valid_ndcg"] == pytest.approx(validation_ndcg(frame, valid), abs=1e-6)


def test_states_depend_on_nothing_later_and_not_on_padding() -> None:
    torch.manual_seed(0)
    model = SasRec(20, SasrecConfig(dim=16, layers=2, heads=2, max_history=8)).eval()
    histories = [[3, 5, 7, 9], [4], [1, 2, 3, 4, 5, 6, 7, 8]]
    with torch.no_grad():
        together = model.last(padded(histories, CPU))
        alone = torch.cat([model.last(padded([history], CPU)) for history in histories])
        torch.testing.assert_close(together, alone)
        # another event at place 5 of the same length changes states from there on only
        one, other = (model(torch.tensor([[1, 2, 3, 4, 5, item, 7, 8]]))[0] for item in (6, 19))
    torch.testing.assert_close(one[:5], other[:5])
    assert not torch.allclose(one[5:], other[5:])


def test_the_loss_is_over_the_whole_catalogue_and_real_places_alone() -> None:
    torch.manual_seed(0)
    model = SasRec(6, SasrecConfig(dim=8, layers=1, heads=1, dropout=0.0, max_history=4))
    runs = [[1, 2, 3], [4, 6]]
    expected = []
    for events in runs:
        with torch.no_grad():
            states = model(torch.tensor([events[:-1]]))[0]
        for state, target in zip(states, events[1:], strict=True):
            logits = (model.items.weight[1:] @ state).tolist()
            expected.append(math.log(sum(map(math.exp, logits))) - logits[target - 1])
    still = torch.optim.SGD(model.parameters(), lr=0.0)
    assert module._epoch(model, still, runs, batch_size=2) == pytest.approx(np.mean(expected), rel=1e-5)


def test_each_event_but_the_first_is_a_target_once() -> None:
    for length in range(12):
        events = list(range(length))
        cut = windows([events], max_history=3)
        assert all(2 <= len(run) <= 4 for run in cut)
        assert sorted(target for run in cut for target in run[1:]) == events[1:]
        assert all(run == list(range(run[0], run[-1] + 1)) for run in cut)


def test_nothing_to_learn_from(steps: dict[str, pd.DataFrame], rows: Rows) -> None:
    with pytest.raises(GtiError, match="no user has two training events"):
        run({**steps, "training": rows({"u": ["i00"]})})
