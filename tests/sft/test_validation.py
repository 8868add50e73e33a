"""Validation recall: it is the recall of what is recommended, a kill changes neither it nor what is selected."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from sft_examples import (
    CODES,
    ITEMS,
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

from gti_pipeline.config import LmConfig
from gti_pipeline.decode.exhaustive import score_catalogue
from gti_pipeline.lm.extended import ExtendedLM, as_plain
from gti_pipeline.lm.load import load_model
from gti_pipeline.lm.next_item import prompts
from gti_pipeline.sft.recorder import RECALL
from gti_pipeline.sft.validation import Validation


def scripted(values, seen=None):
    """Recalls by a script, in the order of the checks; `seen` takes the weights at each."""
    rest = iter(values)

    def validate(lm):
        assert not lm.training
        if seen is not None:
            seen.append(weights(lm))
        return next(rest)

    return validate


def best_of(**changes):
    return settings_of(
        **{"epochs": 99, "max_steps": 11, "save_steps": 4, "eval_every": 0.25, "select": "best"} | changes
    )


def validation_of(prompter, ids, lengths=(2, 3, 5, 6, 1)):
    rows = next_item_rows(lengths)
    relevant = rows.rename(columns={"target": "item_id"})[["user_id", "item_id"]]
    others = relevant.assign(user_id="somebody else")
    asked = prompts(rows, CODES, prompter, max_history=20)
    return Validation(list(rows["user_id"]), asked, pd.concat([relevant, others]), CODES, ids, batch_size=2)


@pytest.fixture
def world(tiny_lm, make_tiny):
    """An LM with the model it is made of, its examples and the validation users."""
    made, prompter, ids = make_tiny(LEVELS, SIZE)
    model = load_model(tiny_lm, LmConfig(model="tiny", device="cpu"))
    return model, ExtendedLM(model, made.new_rows, made.first_id), prompter, validation_of(prompter, ids)


@pytest.mark.parametrize("bf16", [False, True])
def test_recall_is_that_of_scoring_every_item(world, monkeypatch, bf16):
    model, lm, _, validation = world
    monkeypatch.setattr("gti_pipeline.sft.validation.K", 3)
    plain = as_plain(model, lm)
    table = np.array(list(CODES.values()))
    truth = dict(zip(validation.relevant["user_id"], validation.relevant["item_id"], strict=True))
    hits = []
    for user, prompt in zip(validation.user_ids, validation.prompts, strict=True):
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            scores = score_catalogue(plain, prompt, table, torch.from_numpy(validation.token_ids))
        hits.append(truth[user] in [ITEMS[i] for i in np.argsort(-scores)[:3]])
    # three beams among three first codes leave nothing out
    assert validation.recall(plain, bf16=bf16) == pytest.approx(np.mean(hits))
    assert 0 < np.mean(hits) < 1


def test_measuring_changes_no_step(world, start, tmp_path):
    lm, examples = start()
    tune(lm, examples, settings_of(epochs=99, max_steps=6), tmp_path / "without")
    expected = weights(lm)
    model, lm, prompter, validation = world
    config = settings_of(epochs=99, max_steps=6, eval_every=0.2)
    tune(
        lm,
        make_examples(prompter),
        config,
        tmp_path / "with",
        validate=lambda lm: validation.recall(as_plain(model, lm), bf16=False),
    )
    for name, value in weights(lm).items():
        assert torch.equal(value, expected[name]), name


@pytest.mark.parametrize(
    ("share", "steps"),
    [(0.5, {6, 11}), (0.25, {3, 6, 9, 11}), (1, {11}), (0.4, {5, 9, 11}), (0.01, set(range(1, 12)))],
)
def test_recall_is_measured_every_share_of_the_steps_and_at_the_end(start, tmp_path, share, steps):
    lm, examples = start()
    result = tune(lm, examples, best_of(eval_every=share, select="last"), tmp_path, validate=scripted([0.1] * 99))
    assert losses(result, RECALL).keys() == steps
    assert result.selected_step is None


@pytest.mark.parametrize(
    ("recalls", "selected"),
    [([0.25, 0.5, 0.5, 0.125], 1), ([0.5, 0.25, 0.25, 0.25], 0), ([0, 0, 0, 0], 0), ([0.1, 0.2, 0.3, 0.4], 3)],
)
def test_the_best_weights_are_selected_of_equal_ones_the_earlier(start, tmp_path, recalls, selected):
    lm, examples = start()
    seen = []
    result = tune(lm, examples, best_of(), tmp_path, validate=scripted(recalls, seen))
    assert losses(result, RECALL) == dict(zip((3, 6, 9, 11), recalls, strict=True))
    assert result.selected_step == (3, 6, 9, None)[selected]
    for name, value in weights(lm).items():
        assert torch.equal(value, seen[selected][name]), name
    moved = (seen[0]["new_rows"] - seen[1]["new_rows"]).abs().max()
    assert moved > 1e-3


@pytest.mark.parametrize("kill", [7, 10])
def test_a_killed_run_selects_what_one_that_was_not_killed_does(start, tmp_path, kill):
    recalls = {3: 0.25, 6: 0.5, 9: 0.5, 11: 0.125}
    lm, examples = start()
    whole = tune(lm, examples, best_of(), tmp_path / "whole", validate=scripted(recalls.values()))
    expected = weights(lm)
    lm, examples = start()
    with pytest.raises(KilledError):
        tune(lm, examples, best_of(), tmp_path / "cut", validate=scripted(recalls.values()), progress=kill_after(kill))
    lm, examples = start()
    left = [value for step, value in recalls.items() if step > kill // 4 * 4]
    again = tune(lm, examples, best_of(), tmp_path / "cut", validate=scripted(left))
    assert again.resumed_from == kill // 4 * 4
    assert again.selected_step == whole.selected_step == 6
    assert losses(again, RECALL) == losses(whole, RECALL) == recalls
    for name, value in weights(lm).items():
        assert torch.allclose(value, expected[name], atol=1e-6), name


def test_weights_that_a_checkpoint_knows_as_the_best_outlast_a_kill_that_found_better_ones(start, tmp_path):
    """Killed after a better check that no checkpoint holds: the rerun may find it no better, and needs the old file."""
    lm, examples = start()
    seen = []
    with pytest.raises(KilledError):
        tune(lm, examples, best_of(), tmp_path, validate=scripted([0.25, 0.5], seen), progress=kill_after(7))
    lm, examples = start()
    again = tune(lm, examples, best_of(), tmp_path, validate=scripted([0.125, 0.125, 0.125]))
    assert (again.resumed_from, again.selected_step) == (4, 3)
    assert torch.equal(lm.new_rows, seen[0]["new_rows"])
