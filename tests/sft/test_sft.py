"""Fine-tuning: it learns, it resumes to the same weights, and how a batch is split changes nothing."""

from __future__ import annotations

import logging
import sys

import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file
from sft_examples import (
    CODES,
    LEVELS,
    SIZE,
    KilledError,
    kill_after,
    losses,
    make_examples,
    next_item_rows,
    settings_of,
    tune,
    weights,
)

from gti_pipeline.config import Config
from gti_pipeline.errors import GtiError
from gti_pipeline.lm.next_item import answered_examples, training_examples
from gti_pipeline.sft import COMPLETE, collate


def distance(before, after, name):
    return (after[name] - before[name]).abs().max().item()


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
    # each event but a user's first is a target once: as many as the history is long
    assert budget.targets == 2 * (1 + 5 + 2 + 7 + 3 + 3 + 1 + 6 + 4 + 2)
    assert budget.sentence().endswith("136 supervised tokens, 68 items to recommend (as planned)")
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


def test_collate_pads_on_the_right_and_supervises_no_padding():
    batch = collate([{"input_ids": [5, 6, 7], "labels": [-100, 6, 7]}, {"input_ids": [8], "labels": [-100]}])
    assert batch["input_ids"].tolist() == [[5, 6, 7], [8, 0, 0]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch["labels"].tolist() == [[-100, 6, 7], [-100, -100, -100]]


def test_the_fused_optimizer_is_the_plain_one_but_for_rounding(start, tmp_path, monkeypatch):
    ends, plain = [], torch.optim.AdamW
    for fused in (True, False):
        lm, examples = start()
        if not fused:
            monkeypatch.setattr(torch.optim, "AdamW", lambda groups, **_: plain(groups, foreach=False, fused=False))
        tune(lm, examples, settings_of(max_steps=6, epochs=9, weight_decay=0.1), tmp_path / str(fused))
        ends.append(weights(lm))
    for name, value in ends[0].items():
        assert torch.allclose(ends[1][name], value, atol=1e-5), name


def test_extra_steps_come_on_top_of_either_limit(start, tmp_path):
    """Ten examples are three steps an epoch."""
    for limits, steps, limited in (({"epochs": 1}, 5, None), ({"epochs": 9, "max_steps": 4}, 6, "sft.max_steps")):
        lm, examples = start()
        budget = tune(lm, examples, settings_of(extra_steps=2, **limits), tmp_path / str(steps)).budget
        assert (budget.steps, budget.limited_by) == (steps, limited)
        ended = "budget: sft.max_steps=4" if limited else "as planned"
        assert budget.sentence().endswith(f"({ended}, and sft.extra_steps=2)")


def test_a_checkpoint_holds_what_trains_and_nothing_that_needs_unpickling_but_torchs_own(start, tmp_path):
    lm, examples = start()
    with pytest.raises(KilledError):
        tune(lm, examples, settings_of(epochs=9, save_steps=2), tmp_path, progress=kill_after(3))
    names = {path.name for path in (tmp_path / "checkpoint-2").iterdir()}
    assert "training_args.bin" not in names
    saved = load_file(tmp_path / "checkpoint-2" / "model.safetensors")
    assert saved.keys() == dict(lm.named_parameters()).keys()


def test_a_method_that_this_machine_cannot_do_is_refused_with_the_settings(monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    needs = "sft.method={} needs the extra peft: pip install 'gti-pipeline"
    with pytest.raises(ValidationError, match=needs.format("lora")):
        Config(sft={"method": "lora"})
    with pytest.raises(ValidationError) as refused:
        Config(sft={"method": "qlora"})
    for problem in (needs.format("qlora"), "qlora needs a GPU: set sft.method=lora", "qlora needs bitsandbytes"):
        assert problem in str(refused.value)
    assert Config().sft.method == "full"
