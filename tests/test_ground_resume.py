"""Held-out pairs, early stopping, the second phase, and runs that are killed and go on."""

from __future__ import annotations

import copy

import numpy as np
import pandas as pd
import pytest
import torch

from gti_pipeline.config import GroundConfig
from gti_pipeline.ground import ground
from gti_pipeline.lm.pairs import MOST_HELD_OUT, encode_pairs, grounding_pairs, hold_out
from gti_pipeline.lm.prefix import PrefixCache

WORDS = ["linen", "wool", "silk", "denim", "summer", "winter", "office", "evening", "dress", "coat", "shirt", "jacket"]


class Killed(BaseException):
    """In the place of a signal: nothing of ours catches it."""


def quiet(done, total):
    """No progress shown."""


def dies_at(step):
    def progress(done, total):
        if done == step:
            raise Killed

    return progress


@pytest.fixture
def start(make_tiny):
    """(extended LM, training examples, held-out examples) of 12 items; titles of several lengths."""
    lm, prompter, _ = make_tiny(levels=2, size=4)
    with torch.no_grad():  # a context that matters
        for parameter in lm.decoder.parameters():
            parameter.mul_(8 if parameter.dim() > 1 else 1)
        lm.new_rows.mul_(8)
    rng = np.random.default_rng(0)
    titles = [" ".join(rng.choice(WORDS, rng.integers(1, 6))) for _ in range(12)]
    items = pd.DataFrame({"item_id": list("abcdefghijkl"), "title": titles, "description": titles[::-1]})
    codes = {item: [n // 4, n % 4] for n, item in enumerate(items["item_id"])}
    pairs = grounding_pairs(items, codes, GroundConfig(), prompter)
    held = hold_out(pairs, 0.3, seed=0)
    parts = []
    for part in (pairs[~held], pairs[held]):
        examples = {}
        for direction, example in zip(part["direction"], encode_pairs(part, prompter), strict=True):
            examples.setdefault(direction, []).append(example)
        parts.append(examples)
    return lm, *parts


def run(start, config, work=None, progress=quiet):
    """(weights, result) of a run on a copy of the LM."""
    lm, train, valid = start
    lm = copy.deepcopy(lm)
    result = ground(lm, train, config, 0, progress, valid=valid, work=work)
    return {name: value.clone() for name, value in lm.state_dict().items()}, result


def valid_losses(result, name="valid_loss"):
    return {step: value for step, metric, value in result.steps if metric == name}


# 200 kB keep some prefixes (of about 30 kB each), the others are computed again
@pytest.mark.parametrize(
    ("cache_bytes", "killed"),
    [(0, [9]), (200_000, [3]), (200_000, [10, 14]), (200_000, [23]), (2**26, [10, 14]), (2**26, [24])],
)
def test_a_killed_run_ends_in_the_same_bits(start, tmp_path, monkeypatch, cache_bytes, killed):
    monkeypatch.setattr(PrefixCache, "__init__", limited(PrefixCache.__init__, cache_bytes))
    config = GroundConfig(batch_size=5, learning_rate=0.03, max_steps=24, check_steps=4, patience=0)
    whole, expected = run(start, config)
    for step in killed:
        with pytest.raises(Killed):
            run(start, config, tmp_path, dies_at(step))
    seen = []
    weights, result = run(start, config, tmp_path, lambda done, total: seen.append(done))
    assert all(torch.equal(weights[name], whole[name]) for name in whole)
    assert (result.steps, result.budget, result.best_step) == (expected.steps, expected.budget, expected.best_step)
    assert seen == list(range(killed[-1] // 4 * 4 + 1, 25))  # the steps before the checkpoint were not done again


def limited(init, budget):
    return lambda self, lm, _: init(self, lm, budget)


def test_a_half_written_checkpoint_is_never_read(start, tmp_path, caplog):
    config = GroundConfig(batch_size=5, learning_rate=0.03, max_steps=12, check_steps=4)
    whole, _ = run(start, config)
    with pytest.raises(Killed):
        run(start, config, tmp_path, dies_at(6))
    (file,) = tmp_path.iterdir()
    (tmp_path / f".{file.name}.123").write_bytes(file.read_bytes()[:100])  # killed while it was written
    file.write_bytes(file.read_bytes()[:-50])  # damaged on disk
    weights, _ = run(start, config, tmp_path)
    assert all(torch.equal(weights[name], whole[name]) for name in whole)
    assert "cannot be read" in caplog.text


def test_the_rows_with_the_least_held_out_loss_are_kept(start):
    config = GroundConfig(batch_size=8, learning_rate=0.3, max_steps=40, check_steps=5, patience=0)
    weights, result = run(start, config)
    losses = valid_losses(result)
    assert sorted(losses) == list(range(0, 41, 5))
    assert result.best_step == min(losses, key=losses.get)
    assert 0 < result.best_step < 40  # the rate is too high on purpose, so that the last rows are not the best
    short, _ = run(start, config.model_copy(update={"max_steps": result.best_step}))
    assert torch.equal(weights["new_rows"], short["new_rows"])


def test_the_held_out_loss_is_that_of_whole_sequences(start):
    lm, train, valid = start
    config = GroundConfig(batch_size=3, max_steps=1)
    result = ground(copy.deepcopy(lm), train, config, 0, quiet, valid=valid)
    for direction, examples in valid.items():
        nll = []
        for example in examples:
            ids = torch.tensor([example.ids])
            logs = lm.logits(lm.hidden(ids))[0, :-1].log_softmax(-1)
            nll += [-logs[i - 1, example.ids[i]].item() for i in range(1, len(example.ids)) if example.supervised[i]]
        ours = valid_losses(result, f"valid_loss_{direction}")[0]
        assert ours == pytest.approx(sum(nll) / len(nll), abs=1e-4)
    both = [valid_losses(result, f"valid_loss_{direction}")[0] for direction in valid]
    assert valid_losses(result)[0] == pytest.approx(sum(both) / 2)


def test_patience_ends_the_training_and_is_named(start):
    config = GroundConfig(batch_size=8, learning_rate=0.3, max_steps=200, check_steps=5, patience=2)
    _, result = run(start, config)
    losses = valid_losses(result)
    last = max(losses)
    assert last < 200
    assert result.best_step == last - 10
    assert result.budget.steps == last
    assert result.budget.limited_by == "ground.patience"
    assert f"no gain on the held-out pairs since step {result.best_step}" in result.budget.sentence()


def test_a_run_that_ended_early_is_not_gone_on_with(start, tmp_path):
    config = GroundConfig(batch_size=8, learning_rate=0.3, max_steps=200, check_steps=5, patience=2)
    first, one = run(start, config, tmp_path)
    again, two = run(start, config, tmp_path, dies_at(1))
    assert torch.equal(first["new_rows"], again["new_rows"])
    assert one == two


def test_without_held_out_pairs_the_last_rows_stay(start):
    lm, train, _ = start
    config = GroundConfig(batch_size=8, learning_rate=0.3, max_steps=12, check_steps=5, patience=1)
    result = ground(lm, train, config, 0, quiet)
    assert (result.budget.steps, result.best_step) == (12, None)
    assert {name for _, name, _ in result.steps} == {"loss_text_to_sid", "loss_sid_to_text"}


SECOND = GroundConfig(batch_size=6, learning_rate=0.02, max_steps=6, check_steps=3, second_phase_steps=9)


def test_the_second_phase_trains_everything_and_learns(start):
    lm = start[0]
    before = {name: value.clone() for name, value in lm.state_dict().items()}
    config = SECOND.model_copy(update={"second_phase_learning_rate": 1e-3, "second_phase_steps": 40})
    first, _ = run(start, config.model_copy(update={"second_phase_steps": 0}))
    after, result = run(start, config)
    assert {n for n in before if not torch.equal(before[n], first[n])} == {"new_rows"}
    assert all(not torch.equal(before[n], after[n]) for n in before)
    losses = valid_losses(result, "second_phase_valid_loss")
    assert losses[39] < losses[0]
    assert losses[0] == pytest.approx(min(valid_losses(result).values()), abs=1e-4)  # it starts where the first ended
    assert (result.second_phase.steps, result.budget.steps) == (40, 6)


def test_the_second_phase_follows_plain_adam(start):
    """One step by hand: the loss of whole sequences, everything unfrozen, a rate of their own for the new rows."""
    lm, train, _ = start
    config = SECOND.model_copy(update={"max_steps": 1, "second_phase_steps": 1, "batch_size": 1000})
    first = copy.deepcopy(lm)
    ground(first, train, config.model_copy(update={"second_phase_steps": 0}), 0, quiet)
    both = copy.deepcopy(lm)
    result = ground(both, train, config, 0, quiet)
    direction = next(n for _, n, _ in result.steps if n.startswith("second_phase_")).removeprefix("second_phase_loss_")
    first.requires_grad_(True)
    first.zero_grad()
    total, count = 0, 0
    for e in train[direction]:
        ids = torch.tensor([e.ids])
        logs = first.logits(first.hidden(ids))[0, :-1].log_softmax(-1)
        asked = [i for i in range(1, len(e.ids)) if e.supervised[i]]
        total -= sum(logs[i - 1, e.ids[i]] for i in asked)
        count += len(asked)
    loss = total / count
    assert result.steps[-1][2] == pytest.approx(loss.item(), abs=1e-4)
    loss.backward()
    for name, parameter in both.named_parameters():
        old = dict(first.named_parameters())[name]
        rate = config.learning_rate if name == "new_rows" else config.second_phase_learning_rate
        clear = old.grad.abs() > 1e-4  # Adam's first step is the sign of the gradient
        assert torch.allclose((parameter - old)[clear], -rate * old.grad.sign()[clear], atol=rate * 0.05), name


@pytest.mark.parametrize("step", [2, 5, 7])
def test_a_killed_second_phase_ends_in_the_same_bits(start, tmp_path, step):
    whole, expected = run(start, SECOND)
    calls = []

    def progress(done, total):
        calls.append((done, total))
        if total == 9 and done == step:
            raise Killed

    with pytest.raises(Killed):
        run(start, SECOND, tmp_path, progress)
    weights, result = run(start, SECOND, tmp_path)
    assert all(torch.equal(weights[name], whole[name]) for name in whole)
    assert result == expected


def pairs_of(texts):
    """Pairs without prompts: (item, direction) with as many templates as given."""
    rows = [(item, direction, f"t{n}") for item, direction, count in texts for n in range(count)]
    return pd.DataFrame(rows, columns=["item_id", "direction", "template"])


def test_a_held_out_pair_leaves_its_item_another_wording_in_the_direction():
    counts = [(f"i{n}", d, 1 + n % 3) for n in range(40) for d in ("text_to_sid", "sid_to_text")]
    pairs = pairs_of(counts)
    held = hold_out(pairs, 0.5, seed=1)
    left, gone = pairs[~held], pairs[held]
    assert set(zip(left["item_id"], left["direction"], strict=True)) == {(i, d) for i, d, _ in counts}
    assert not gone.duplicated(["item_id", "direction"]).any()
    able = sum(count > 1 for _, d, count in counts if d == "text_to_sid")
    assert gone["direction"].value_counts().to_dict() == {"text_to_sid": able // 2, "sid_to_text": able // 2}
    assert gone["template"].nunique() == 3
    assert (hold_out(pairs, 0.5, seed=1) == held).all()
    assert (hold_out(pairs, 0.5, seed=2) != held).any()


def test_how_many_pairs_are_held_out():
    many = pairs_of([(f"i{n}", "text_to_sid", 2) for n in range(500)])
    assert hold_out(many, 0.0, 0).sum() == 0
    assert hold_out(many, 0.0001, 0).sum() == 1
    assert hold_out(many, 0.1, 0).sum() == 50
    assert hold_out(many, 0.9, 0).sum() == MOST_HELD_OUT
    assert hold_out(pairs_of([("a", "text_to_sid", 1), ("a", "sid_to_text", 1)]), 0.9, 0).sum() == 0
