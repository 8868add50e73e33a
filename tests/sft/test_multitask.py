"""Multi-task steps: the next-item examples of the other arms, and pairs on top."""

from __future__ import annotations

from collections import Counter
from itertools import chain, cycle, islice

import numpy as np
import pytest
import torch
from sft_examples import (
    LEVELS,
    SIZE,
    KilledError,
    kill_after,
    losses,
    make_examples,
    make_pairs,
    settings_of,
    tune,
    weights,
)

from gti_pipeline.sft.batches import FILLER, Order, collate, pairs_beside

RNG = np.random.default_rng(5)
LENGTHS = RNG.integers(5, 90, 61).tolist()
PAIR_LENGTHS = RNG.integers(5, 60, 45).tolist()


def steps_of(order, epoch):
    """The rows of each step of an epoch as (examples, pairs, fillers), cut where the Trainer cuts them."""
    order.set_epoch(epoch)
    rows = list(order)
    assert len(rows) == len(order)
    size = order.micro_batches * order.at_a_time
    own, beside = len(order.lengths), len(order.pair_lengths)
    for first in range(0, len(rows), size):
        step = rows[first : first + size]
        yield (
            [i for i in step if i < own],
            [i - own for i in step if own <= i < own + beside],
            [i for i in step if i == own + beside],
        )


@pytest.mark.parametrize("share", [0.1, 0.25, 0.3, 0.5, 0.75])
@pytest.mark.parametrize("at_a_time", [1, 2, 4, 8])
def test_a_step_holds_the_examples_that_it_holds_without_pairs_and_pairs_for_the_share(share, at_a_time):
    alone = Order(LENGTHS, 8, 3)
    mixed = Order(LENGTHS, 8, 3, at_a_time, PAIR_LENGTHS, share)
    assert mixed.steps == alone.steps == 8  # seven of eight examples and one of five
    for epoch in (0, 1, 2, 9):
        steps = list(steps_of(mixed, epoch))
        assert [own for own, _, _ in steps] == [own for own, _, _ in steps_of(alone, epoch)]
        assert sorted(i for own, _, _ in steps for i in own) == list(range(61))
        for own, pairs, fillers in steps:
            assert len(pairs) / (len(own) + len(pairs)) == pytest.approx(share, abs=0.5 / (len(own) + len(pairs) - 0.5))
            assert len(fillers) < at_a_time
            assert (len(own) + len(pairs) + len(fillers)) % at_a_time == 0


def test_pairs_come_again_only_when_all_had_their_turn_and_in_another_order():
    order = Order(LENGTHS, 8, 3, 4, PAIR_LENGTHS, 0.5)
    steps = [pairs for epoch in range(4) for _, pairs, _ in steps_of(order, epoch)]
    counted = Counter(dict.fromkeys(range(45), 0))
    for pairs in steps:
        counted.update(pairs)
        assert max(counted.values()) - min(counted.values()) <= 1
    assert counted.total() == 4 * 61
    drawn = [i for pairs in steps for i in pairs]
    assert drawn[:45] != drawn[45:90]
    other = [i for _, pairs, _ in steps_of(Order(LENGTHS, 8, 4, 4, PAIR_LENGTHS, 0.5), 0) for i in pairs]
    assert other != drawn[:61]


def test_an_epoch_follows_from_its_number_alone():
    order = Order(LENGTHS, 8, 3, 4, PAIR_LENGTHS, 0.5)
    forwards = [list(steps_of(order, epoch)) for epoch in range(3)]
    for epoch in (2, 0, 1):
        assert list(steps_of(Order(LENGTHS, 8, 3, 4, PAIR_LENGTHS, 0.5), epoch)) == forwards[epoch]


@pytest.mark.parametrize("steps", [0, 3, 8, 21, 40])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.5])
def test_how_often_each_is_seen_is_what_a_run_counts(steps, share):
    order = Order(LENGTHS, 8, 3, 4, PAIR_LENGTHS, share)
    counted = Counter()
    walked = [step for epoch in range(6) for step in steps_of(order, epoch)][:steps]
    for own, pairs, _ in walked:
        counted.update(own)
        counted.update(len(LENGTHS) + i for i in pairs)
    assert order.times_seen(steps).tolist() == [counted[i] for i in range(61 + 45)]


def test_pairs_in_a_step_are_of_like_lengths():
    lengths = RNG.integers(5, 200, 2000).tolist()
    order = Order(LENGTHS * 20, 8, 3, 8, lengths, 0.5)
    spreads = [np.ptp([lengths[i] for i in pairs]) for _, pairs, _ in steps_of(order, 0)]
    assert np.median(spreads) < 20
    firsts = [pairs for _, pairs, _ in steps_of(order, 0)]
    assert all(np.diff([lengths[i] for i in pairs]).max(initial=0) <= 0 for pairs in firsts)


def test_pairs_beside_examples():
    assert [pairs_beside(16, share) for share in (0, 0.25, 0.3, 0.5, 0.75)] == [0, 5, 7, 16, 48]


def test_fillers_take_no_place_beside_rows_that_teach():
    row = {"input_ids": [5, 6, 7], "labels": [-100, 6, 7]}
    assert collate([row, FILLER, FILLER])["input_ids"].tolist() == [[5, 6, 7]]
    assert collate([FILLER, FILLER])["labels"].tolist() == [[-100, -100]]


def watched(lm):
    """Takes the supervised rows of each micro-batch, as tuples of ids."""
    seen = []

    def look(_, __, batch):
        rows = zip(batch["input_ids"], batch["attention_mask"], batch["labels"], strict=True)
        seen.append([tuple(ids[mask.bool()].tolist()) for ids, mask, labels in rows if (labels >= 0).any()])

    lm.register_forward_pre_hook(look, with_kwargs=True)
    return seen


def by_step(seen, epoch):
    """The rows of each optimizer step; `epoch` says of how many micro-batches the steps of an epoch are."""
    left = iter(seen)
    return [list(chain.from_iterable(islice(left, count))) for count, _ in zip(cycle(epoch), range(7), strict=False)]


def test_a_multitask_run_learns_from_the_same_examples_in_each_step(make_tiny, tmp_path):
    rows = {}
    for share in (0.0, 0.5):
        lm, prompter, _ = make_tiny(LEVELS, SIZE)
        examples, pairs = make_examples(prompter), make_pairs(prompter)
        seen = watched(lm)
        config = settings_of(epochs=99, max_steps=7, pairs_share=share, micro_batch_size=4)
        budget = tune(lm, examples, config, tmp_path / str(share), pairs=pairs).budget
        # ten examples are two steps of four and one of two, with as many pairs beside them
        rows[share] = (by_step(seen, [1, 1, 1] if share == 0 else [2, 2, 1]), budget)
        assert len(seen) == (7 if share == 0 else 12)
        own = {tuple(e.ids) for e in examples}
    alone, mixed = rows[0.0][0], rows[0.5][0]
    for without, beside in zip(alone, mixed, strict=True):
        assert sorted(row for row in beside if row in own) == sorted(without)
        assert len(beside) == 2 * len(without)
    assert rows[0.0][1].targets == rows[0.5][1].targets


def test_the_budget_counts_pairs_but_not_as_targets(make_tiny, tmp_path):
    lm, prompter, ids = make_tiny(LEVELS, SIZE)
    examples, pairs = make_examples(prompter), make_pairs(prompter)
    batches = []
    lm.register_forward_pre_hook(lambda _, __, batch: batches.append(batch), with_kwargs=True)
    config = settings_of(epochs=9, max_steps=5, pairs_share=0.3, micro_batch_size=2)
    budget = tune(lm, examples, config, tmp_path, pairs=pairs).budget
    # 4 + 2, 4 + 2, 2 + 1, and two steps more
    assert (budget.steps, budget.examples) == (5, 18 + 9) == (5, sum(len(b["labels"]) for b in batches))
    assert budget.tokens == sum(int(b["attention_mask"].sum()) for b in batches)
    assert budget.supervised_tokens == sum(int((b["labels"] >= 0).sum()) for b in batches)
    own = {tuple(e.ids) for e in examples}
    new, targets, everywhere = torch.from_numpy(ids.ravel()), 0, 0
    for b in batches:
        for row, mask, labels in zip(b["input_ids"], b["attention_mask"], b["labels"], strict=True):
            found = int(torch.isin(labels, new).sum()) // LEVELS
            everywhere += found
            targets += found if tuple(row[mask.bool()].tolist()) in own else 0
    assert budget.targets == targets < everywhere
    assert "5 steps, 1.80 of 9 epochs of 15 examples" in budget.sentence()


@pytest.mark.parametrize("micro", [1, 2, 4])
def test_a_killed_multitask_run_resumes_to_the_weights_of_one_that_was_not(make_tiny, tmp_path, micro):
    """Steps of four and two examples, their pairs (two and one) and fillers; the checkpoint lies inside an epoch."""
    whole_config = settings_of(epochs=99, max_steps=7, save_steps=4, pairs_share=0.3)
    lm, prompter, _ = make_tiny(LEVELS, SIZE)
    examples, pairs = make_examples(prompter), make_pairs(prompter)
    whole = tune(lm, examples, whole_config, tmp_path / "whole", pairs=pairs)
    expected = weights(lm)

    config = whole_config.model_copy(update={"micro_batch_size": micro})
    with pytest.raises(KilledError):
        tune(make_tiny(LEVELS, SIZE)[0], examples, config, tmp_path / "cut", pairs=pairs, progress=kill_after(6))
    lm, _, _ = make_tiny(LEVELS, SIZE)
    again = tune(lm, examples, config, tmp_path / "cut", pairs=pairs)
    assert again.resumed_from == 4
    assert losses(again) == pytest.approx(losses(whole), rel=1e-4)
    for name, value in weights(lm).items():
        assert torch.allclose(value, expected[name], atol=5e-5), name
    assert again.budget == whole.budget


def test_the_first_loss_is_the_mean_over_the_supervised_tokens_of_examples_and_pairs(make_tiny, tmp_path):
    lm, prompter, _ = make_tiny(LEVELS, SIZE)
    examples, pairs = make_examples(prompter), make_pairs(prompter)[:10]
    rows = [
        {"input_ids": e.ids, "labels": [t if s else -100 for t, s in zip(e.ids, e.supervised, strict=True)]}
        for e in [*examples, *pairs]
    ]
    with torch.no_grad():
        expected = lm(**collate(rows))["loss"].item()
    config = settings_of(batch_size=10, micro_batch_size=5, max_steps=1)
    assert losses(tune(lm, examples, config, tmp_path, pairs=pairs)) == pytest.approx({1: expected}, rel=1e-5)


def test_without_pairs_the_share_means_nothing():
    assert list(Order(LENGTHS, 8, 3, 1, (), 0.5)) == list(Order(LENGTHS, 8, 3))
