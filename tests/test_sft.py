"""Fine-tuning: it learns, it resumes to the same weights, and how a batch is split changes nothing."""

from __future__ import annotations

import logging

import numpy as np
import pandas as pd
import pytest
import torch

from gti_pipeline.config import SftConfig
from gti_pipeline.errors import GtiError
from gti_pipeline.lm.next_item import answered_examples, training_examples
from gti_pipeline.lm.prompts import Example
from gti_pipeline.sft import COMPLETE, collate, fine_tune, mix

LEVELS, SIZE = 2, 3
ITEMS = [f"i{n}" for n in range(8)]
CODES = {item: [n // SIZE, n % SIZE] for n, item in enumerate(ITEMS)}


class KilledError(Exception):
    """Stands for a process that ends in the middle of a step."""


def quiet(done, total):
    """No progress shown."""


def kill_after(step):
    def progress(done, total):
        if done == step:
            raise KilledError

    return progress


def next_item_rows(lengths):
    """Train rows in which each item is followed by the next one, round and round."""
    histories = [[ITEMS[(start + n) % 8] for n in range(length)] for start, length in enumerate(lengths)]
    targets = [ITEMS[(start + length) % 8] for start, length in enumerate(lengths)]
    users = [f"u{n}" for n in range(len(histories))]
    return pd.DataFrame({"user_id": users, "split": "train", "history": histories, "target": targets})


def make_examples(prompter, lengths=(1, 5, 2, 7, 3, 3, 1, 6, 4, 2)):
    """Ten examples with different lengths and different counts of supervised tokens."""
    rows = next_item_rows(lengths)
    return training_examples(rows, CODES, prompter, targets="all", max_history=20, seed=0)


def settings_of(**changes):
    steady = {"batch_size": 4, "micro_batch_size": 4, "learning_rate": 1e-3, "new_token_learning_rate": 1e-2}
    return SftConfig(**steady | changes)


def tune(lm, examples, config, work, *, valid=(), seed=0, progress=quiet, bf16=False):
    return fine_tune(lm, examples, valid, config, seed=seed, work=work, bf16=bf16, progress=progress)


def losses(result, name="loss"):
    return {step: value for step, metric, value in result.steps if metric == name}


def weights(lm):
    return {name: value.clone() for name, value in lm.state_dict().items()}


def distance(before, after, name):
    return (after[name] - before[name]).abs().max().item()


@pytest.fixture
def start(make_tiny):
    """A function that gives the same fresh LM each time, and examples."""

    def fresh():
        lm, prompter, _ = make_tiny(LEVELS, SIZE)
        return lm, make_examples(prompter)

    return fresh


def test_it_learns_a_deterministic_next_item_by_heart(make_tiny, tmp_path):
    lm, prompter, _ = make_tiny(LEVELS, SIZE)
    rows = next_item_rows([1, 2] * 4)
    examples = training_examples(rows, CODES, prompter, targets="last", max_history=20, seed=0)
    rates = {"learning_rate": 3e-3, "new_token_learning_rate": 3e-3}
    config = settings_of(epochs=999, max_steps=100, batch_size=12, micro_batch_size=12, save_steps=999, **rates)
    found = losses(tune(lm, examples, config, tmp_path))
    assert found[100] < 0.1 < 1 < found[1]
    lm.eval()
    for example in examples:
        ids = example.ids[:-LEVELS]
        for _ in range(LEVELS):
            with torch.no_grad():
                ids.append(lm.logits(lm.hidden(torch.tensor([ids]))[:, -1]).argmax().item())
        assert ids == example.ids


def test_a_killed_run_resumes_to_the_weights_of_one_that_was_not(start, tmp_path, caplog):
    config = settings_of(epochs=99, max_steps=11, save_steps=4)  # three steps an epoch: the checkpoint lies inside one
    lm, examples = start()
    whole = tune(lm, examples, config, tmp_path / "whole")
    expected = weights(lm)

    lm, examples = start()
    with pytest.raises(KilledError):
        tune(lm, examples, config, tmp_path / "killed", progress=kill_after(6))
    lm, examples = start()
    torch.manual_seed(99)
    with caplog.at_level(logging.INFO, logger="gti_pipeline.sft"):
        resumed = tune(lm, examples, config, tmp_path / "killed")
    assert resumed.resumed_from == 4
    assert "resumes after step 4 of 11" in caplog.text
    assert losses(resumed).keys() == losses(whole).keys() == set(range(1, 12))
    assert losses(resumed) == pytest.approx(losses(whole), rel=1e-5)
    assert losses(resumed, "learning_rate") == pytest.approx(losses(whole, "learning_rate"))
    for name, value in weights(lm).items():
        assert torch.allclose(value, expected[name], atol=1e-6), name
    assert resumed.budget == whole.budget


def test_a_half_written_checkpoint_is_not_resumed_from(start, tmp_path):
    config = settings_of(epochs=99, max_steps=5, save_steps=2)
    lm, examples = start()
    whole = tune(lm, examples, config, tmp_path / "whole")

    lm, examples = start()
    with pytest.raises(KilledError):
        tune(lm, examples, config, tmp_path / "killed", progress=kill_after(3))
    (checkpoint,) = (tmp_path / "killed").glob("checkpoint-*")
    (checkpoint / COMPLETE).unlink()
    (checkpoint / "model.safetensors").write_bytes(b"half")
    lm, examples = start()
    again = tune(lm, examples, config, tmp_path / "killed")
    assert again.resumed_from == 0
    assert losses(again) == pytest.approx(losses(whole), rel=1e-5)


def test_the_newest_whole_checkpoint_is_taken_over_a_newer_half_written_one(start, tmp_path):
    config = settings_of(epochs=99, max_steps=5, save_steps=2)
    lm, examples = start()
    with pytest.raises(KilledError):
        tune(lm, examples, config, tmp_path, progress=kill_after(3))
    (tmp_path / "checkpoint-4").mkdir()
    lm, examples = start()
    assert tune(lm, examples, config, tmp_path).resumed_from == 2


@pytest.mark.parametrize("micro", [1, 2])
def test_micro_batches_equal_one_big_batch(start, tmp_path, micro):
    results, ends = [], []
    for size in (4, micro):
        lm, examples = start()
        config = settings_of(epochs=99, max_steps=7, micro_batch_size=size)
        results.append(losses(tune(lm, examples, config, tmp_path / str(size))))
        ends.append(weights(lm))
    assert results[1] == pytest.approx(results[0], rel=1e-5)
    for name, value in ends[0].items():
        assert torch.allclose(ends[1][name], value, atol=2e-5), name


def test_the_first_loss_is_the_mean_over_the_batchs_supervised_tokens(start, tmp_path):
    lm, examples = start()
    rows = [
        {"input_ids": e.ids, "labels": [t if s else -100 for t, s in zip(e.ids, e.supervised, strict=True)]}
        for e in examples
    ]
    with torch.no_grad():
        expected = lm(**collate(rows))["loss"].item()
    result = tune(lm, examples, settings_of(batch_size=10, micro_batch_size=5, max_steps=1), tmp_path)
    assert losses(result) == pytest.approx({1: expected}, rel=1e-5)


def test_the_new_rows_have_a_rate_of_their_own(start, tmp_path):
    moved = {}
    for name, rates in {
        "new": {"learning_rate": 1e-12, "new_token_learning_rate": 1e-2},
        "old": {"learning_rate": 1e-2, "new_token_learning_rate": 1e-12},
    }.items():
        lm, examples = start()
        before = weights(lm)
        tune(lm, examples, settings_of(max_steps=4, warmup_share=0, **rates), tmp_path / name)
        after = weights(lm)
        moved[name] = {key: distance(before, after, key) for key in before}
    assert moved["new"].pop("new_rows") > 5e-3
    assert max(moved["new"].values()) < 1e-9
    assert moved["old"].pop("new_rows") < 1e-9
    assert min(moved["old"].values()) > 1e-3


def test_new_rows_and_norms_do_not_decay(start, tmp_path):
    """Each group's first step from a rate of almost nothing but for decay: rate x decay = 0.5 halves what decays."""
    lm, examples = start()
    before = weights(lm)
    tune(
        lm,
        examples,
        settings_of(max_steps=1, warmup_share=0, learning_rate=1e-9, new_token_learning_rate=1e-9, weight_decay=5e8),
        tmp_path,
    )
    after = weights(lm)
    for name, value in before.items():
        expected = value if name == "new_rows" or value.dim() == 1 else value / 2
        assert torch.allclose(after[name], expected, atol=1e-6), name


def test_the_budget_counts_what_was_seen(start, tmp_path):
    lm, examples = start()
    budget = tune(lm, examples, settings_of(epochs=2), tmp_path / "whole").budget
    # ten examples are three steps (4, 4, 2) an epoch
    assert (budget.steps, budget.examples, budget.epochs) == (6, 20, 2)
    assert budget.tokens == 2 * sum(len(e.ids) for e in examples)
    assert budget.supervised_tokens == 2 * sum(sum(e.supervised) for e in examples)
    assert budget.sentence().endswith("(as planned)")
    lm, examples = start()
    seen = []
    lm.register_forward_pre_hook(
        lambda _, __, batch: seen.append(
            (len(batch["labels"]), batch["attention_mask"].sum().item(), (batch["labels"] >= 0).sum().item())
        ),
        with_kwargs=True,
    )
    budget = tune(lm, examples, settings_of(epochs=9, max_steps=5), tmp_path / "cut").budget
    assert (budget.steps, budget.examples) == (5, 18)  # 4 + 4 + 2, 4 + 4
    assert (budget.examples, budget.tokens, budget.supervised_tokens) == tuple(map(sum, zip(*seen, strict=True)))
    assert budget.limited_by == "sft.max_steps"
    assert "5 steps, 1.80 of 9 epochs of 10 examples" in budget.sentence()
    assert budget.sentence().endswith("(budget: sft.max_steps=5)")


def test_validation_is_reported_every_epoch_and_is_the_mean_loss_of_the_answers(make_tiny, tmp_path):
    lm, prompter, _ = make_tiny(LEVELS, SIZE)
    examples = make_examples(prompter)
    valid = answered_examples(next_item_rows([2, 3, 5, 6, 1]), CODES, prompter, max_history=20)
    result = tune(lm, examples, settings_of(epochs=2), tmp_path, valid=valid)
    lm.eval()
    rows = [
        {"input_ids": e.ids, "labels": [t if s else -100 for t, s in zip(e.ids, e.supervised, strict=True)]}
        for e in valid
    ]
    with torch.no_grad():
        expected = lm(**collate(rows))["loss"].item()
    found = losses(result, "valid_loss")
    assert found.keys() == {3, 6}
    assert found[6] == pytest.approx(expected, rel=1e-5)


def test_equal_seeds_give_equal_weights_and_others_do_not(start, tmp_path):
    ends = []
    for n, seed in enumerate((0, 0, 1)):
        lm, examples = start()
        tune(lm, examples, settings_of(max_steps=4, save_steps=99), tmp_path / str(n), seed=seed)
        ends.append(lm.new_rows.detach())
    assert torch.equal(ends[0], ends[1])
    assert not torch.equal(ends[0], ends[2])


def test_no_examples_is_an_error(start, tmp_path):
    lm, _ = start()
    with pytest.raises(GtiError, match="sft: no training example"):
        tune(lm, [], settings_of(), tmp_path)


def test_a_loss_that_is_not_finite_is_an_error(start, tmp_path):
    lm, examples = start()
    with torch.no_grad():
        lm.new_rows[:] = float("nan")
    with pytest.raises(GtiError, match=r"sft: the loss is nan at step 1: lower sft.learning_rate"):
        tune(lm, examples, settings_of(max_steps=3), tmp_path)


def make_kinds(next_item, pairs):
    return [Example([n], [True]) for n in range(next_item)], [Example([1000 + n], [True]) for n in range(pairs)]


@pytest.mark.parametrize(
    ("share", "next_item", "pairs", "drawn"),
    [
        (0.5, 60, 500, 60),
        (0.25, 60, 500, 20),
        (0.75, 60, 500, 180),
        (0, 60, 500, 0),
        (1, 60, 500, 500),
        (0.5, 60, 7, 7),
    ],
)
def test_mix_makes_pairs_the_asked_share(share, next_item, pairs, drawn):
    items, texts = make_kinds(next_item, pairs)
    mixed = mix(items, texts, share, seed=0)
    assert mixed[:next_item] == items
    chosen = [e.ids[0] for e in mixed[next_item:]]
    assert len(chosen) == len(set(chosen)) == drawn
    assert set(chosen) <= {e.ids[0] for e in texts}


def test_mix_draws_by_seed():
    items, texts = make_kinds(20, 200)
    assert mix(items, texts, 0.5, 0) == mix(items, texts, 0.5, 0)
    assert mix(items, texts, 0.5, 0) != mix(items, texts, 0.5, 1)
    drawn = [e.ids[0] - 1000 for e in mix(items, texts, 0.5, 0)[20:]]
    assert np.ptp(drawn) > 100  # from all over, not the first ones


def test_collate_pads_on_the_right_and_supervises_no_padding():
    batch = collate([{"input_ids": [5, 6, 7], "labels": [-100, 6, 7]}, {"input_ids": [8], "labels": [-100]}])
    assert batch["input_ids"].tolist() == [[5, 6, 7], [8, 0, 0]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch["labels"].tolist() == [[-100, 6, 7], [-100, -100, -100]]
