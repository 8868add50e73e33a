"""Grounding: only the new rows move, for as long as planned; test_ground_reference tells how they move."""

from __future__ import annotations

import copy

import numpy as np
import pandas as pd
import pytest
import torch

from gti_pipeline.config import GroundConfig
from gti_pipeline.errors import GtiError
from gti_pipeline.ground import batches, ground
from gti_pipeline.lm.pairs import encode_pairs, grounding_pairs
from gti_pipeline.lm.prefix import split_example
from gti_pipeline.lm.prompts import Example

WORDS = ["linen", "wool", "silk", "denim", "summer", "winter", "office", "evening", "dress", "coat", "shirt", "jacket"]


def quiet(done, total):
    """No progress shown."""


@pytest.fixture
def corpus(make_tiny):
    """(extended LM, examples by direction) of 8 items with titles of different lengths."""
    lm, prompter, _ = make_tiny(levels=2, size=4)
    with torch.no_grad():  # a context that matters, so that the rows' inputs have gradients worth comparing
        for parameter in lm.decoder.parameters():
            parameter.mul_(8 if parameter.dim() > 1 else 1)
        lm.new_rows.mul_(8)
    rng = np.random.default_rng(0)
    titles = [" ".join(rng.choice(WORDS, rng.integers(1, 6))) for _ in range(8)]
    items = pd.DataFrame({"item_id": list("abcdefgh"), "title": titles, "description": [""] * 4 + titles[:4]})
    codes = {item: [n // 4, n % 4] for n, item in enumerate(items["item_id"])}
    pairs = grounding_pairs(items, codes, GroundConfig(), prompter)
    examples: dict[str, list[Example]] = {}
    for direction, example in zip(pairs["direction"], encode_pairs(pairs, prompter), strict=True):
        examples.setdefault(direction, []).append(example)
    return lm, examples


def weights(lm):
    return {name: value.clone() for name, value in lm.state_dict().items()}


def test_old_rows_and_the_decoder_stay_bit_for_bit(corpus):
    lm, examples = corpus
    before = weights(lm)
    ground(lm, examples, GroundConfig(batch_size=4, learning_rate=0.1, max_steps=12), 0, quiet)
    after = weights(lm)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"new_rows"}
    assert all(parameter.grad is None for parameter in lm.decoder.parameters())  # nor was any work done for them
    assert (before["new_rows"] != after["new_rows"]).any(dim=1).all()


def test_the_same_holds_for_a_bfloat16_model(corpus):
    lm, examples = corpus
    lm.decoder.to(torch.bfloat16)
    before = weights(lm)
    result = ground(lm, examples, GroundConfig(batch_size=4, learning_rate=0.001, max_steps=12), 0, quiet)
    after = weights(lm)
    assert {name for name in before if not torch.equal(before[name], after[name])} == {"new_rows"}
    assert after["new_rows"].dtype == torch.float32
    assert result.budget.steps == 12


def test_equal_seeds_give_equal_rows_and_others_do_not(corpus):
    lm, examples = corpus
    config = GroundConfig(batch_size=4, learning_rate=0.01, max_steps=8)
    runs = []
    for seed in (0, 0, 1):
        copied = copy.deepcopy(lm)
        torch.manual_seed(len(runs))  # torch's own generator has no say
        result = ground(copied, examples, config, seed, quiet)
        runs.append((copied.new_rows.detach(), result.steps))
    assert torch.equal(runs[0][0], runs[1][0])
    assert runs[0][1] == runs[1][1]
    assert not torch.equal(runs[0][0], runs[2][0])


def test_the_loss_falls_in_both_directions(corpus):
    lm, examples = corpus
    result = ground(lm, examples, GroundConfig(batch_size=8, learning_rate=0.1, epochs=60), 0, quiet)
    for direction in examples:
        values = [value for _, name, value in result.steps if name == f"loss_{direction}"]
        assert sum(values[-9:]) / 9 < 0.8 * sum(values[:9]) / 9


def by_hand():
    """Five text_to_sid examples with tails of 2, and three sid_to_text ones: tails of 4, 5, 6, supervised 2, 3, 4."""
    to_sid = [Example([5, 6, 7, "s", "t"], [False] * 3 + [True] * 2) for _ in range(5)]
    to_text = [Example([5, "s", "t", *range(8, 10 + n)], [False] * 3 + [True] * (2 + n)) for n in range(3)]
    return {"text_to_sid": to_sid, "sid_to_text": to_text}


@pytest.fixture
def counted(make_tiny):
    lm, _, ids = make_tiny(levels=2, size=4)
    place = {"s": int(ids[0, 1]), "t": int(ids[1, 2])}
    return lm, {
        name: [Example([place.get(i, i) for i in e.ids], e.supervised) for e in group]
        for name, group in by_hand().items()
    }


def test_the_budget_of_whole_epochs(counted):
    lm, examples = counted
    seen = []
    result = ground(
        lm, examples, GroundConfig(batch_size=2, epochs=2), 0, lambda done, total: seen.append((done, total))
    )
    budget = result.budget
    # an epoch: three batches of the five (2, 2, 1) and two of the three (2, 1)
    assert budget.steps == 10
    assert budget.examples == 16
    assert budget.tokens == 2 * (5 * 2 + 4 + 5 + 6)
    assert budget.supervised_tokens == 2 * (5 * 2 + 2 + 3 + 4)
    assert budget.epochs == 2
    assert budget.limited_by is None
    assert budget.sentence() == "10 steps, 2.00 of 2 epochs of 8 examples, 38 supervised tokens (as planned)"
    assert seen == [(n, 10) for n in range(1, 11)]
    assert [step for step, _, _ in result.steps] == list(range(1, 11))


def test_a_budget_that_ends_early_names_its_setting(counted):
    lm, examples = counted
    budget = ground(lm, examples, GroundConfig(batch_size=8, epochs=10, max_steps=3), 0, quiet).budget
    # an epoch is one batch of five and one of three; after three steps one of them was seen twice
    assert budget.steps == 3
    assert budget.examples in (8 + 5, 8 + 3)
    assert budget.limited_by == "ground.max_steps"
    assert f"{budget.examples / 8:.2f} of 10 epochs" in budget.sentence()
    assert budget.sentence().endswith("(budget: ground.max_steps=3)")


@pytest.mark.parametrize(("epochs", "max_steps"), [(1, 5), (1, 6), (1, None)])
def test_a_limit_that_does_not_bind_is_not_named(counted, epochs, max_steps):
    lm, examples = counted
    budget = ground(lm, examples, GroundConfig(batch_size=2, epochs=epochs, max_steps=max_steps), 0, quiet).budget
    assert (budget.steps, budget.limited_by) == (5, None)


def test_each_epoch_sees_every_example_once_in_a_new_order(counted):
    lm, examples = counted
    split = {name: [split_example(e, lm.first_id, len(lm.new_rows)) for e in group] for name, group in examples.items()}
    order = batches(split, 2, seed=0)
    epochs = [[next(order) for _ in range(5)] for _ in range(6)]
    for epoch in epochs:
        for name, group in split.items():
            seen = [id(e) for direction, batch in epoch if direction == name for e in batch]
            assert sorted(seen) == sorted(map(id, group))
    assert len({tuple(direction for direction, _ in epoch) for epoch in epochs}) > 1


def test_a_loss_that_is_not_finite_is_an_error(corpus):
    lm, examples = corpus
    with torch.no_grad():
        lm.new_rows[0] = float("nan")
    with pytest.raises(GtiError, match=r"ground: the loss is nan at step \d+: lower ground.learning_rate"):
        ground(lm, examples, GroundConfig(batch_size=64, max_steps=4), 0, quiet)


@pytest.mark.parametrize("examples", [{}, {"text_to_sid": []}])
def test_an_empty_corpus_is_an_error(make_tiny, examples):
    lm, _, _ = make_tiny()
    with pytest.raises(GtiError, match="ground: no pair"):
        ground(lm, examples, GroundConfig(), 0, quiet)
