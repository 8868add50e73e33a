"""Grounding against the reference of its benchmark, the paper's Algorithm 1 as written: the same losses, both ways."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from gti_pipeline.config import GroundConfig, LmConfig
from gti_pipeline.ground import ground
from gti_pipeline.lm.extended import embedding_rows, merge
from gti_pipeline.lm.load import load_model
from gti_pipeline.lm.pairs import encode_pairs, grounding_pairs

WORDS = ["linen", "wool", "silk", "denim", "summer", "winter", "office", "evening", "dress", "coat"]
LM = LmConfig(model="tiny", device="cpu")


@pytest.fixture
def algorithm_1(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "benchmarks"))
    return importlib.import_module("ground").algorithm_1


@pytest.fixture
def corpus(make_tiny):
    """(extended LM, examples by direction) of 9 items; in the sharpened LM the context matters."""
    lm, prompter, _ = make_tiny(levels=2, size=4)
    with torch.no_grad():
        for parameter in lm.parameters():
            parameter.mul_(8 if parameter.dim() > 1 else 1)
    rng = np.random.default_rng(5)
    titles, descriptions = ([" ".join(rng.choice(WORDS, rng.integers(1, n))) for _ in range(9)] for n in (5, 9))
    items = pd.DataFrame({"item_id": list("abcdefghi"), "title": titles, "description": descriptions})
    codes = {item: [n // 4, n % 4] for n, item in enumerate(items["item_id"])}
    pairs = grounding_pairs(items, codes, GroundConfig(), prompter)
    examples = {}
    for direction, example in zip(pairs["direction"], encode_pairs(pairs, prompter), strict=True):
        examples.setdefault(direction, []).append(example)
    return lm, examples


@pytest.mark.parametrize("cache_mb", [0, 64])
def test_twenty_losses_and_the_rows_are_those_of_algorithm_1(algorithm_1, corpus, tiny_lm, cache_mb):
    lm, examples = corpus
    plain = load_model(tiny_lm, LM)
    plain.base_model.load_state_dict(lm.decoder.state_dict())
    merge(plain, lm.new_rows.detach(), lm.first_id)
    config = GroundConfig(batch_size=5, learning_rate=0.01, epochs=99, max_steps=20, cache_mb=cache_mb)
    reference = algorithm_1(plain, lm.first_id, len(lm.new_rows), examples, config, 2)
    expected = [next(reference) for _ in range(20)]
    steps = [step for step in ground(lm, examples, config, 2, lambda *_: None).steps if "valid" not in step[1]]
    assert {name for _, name, _ in steps} == {"loss_text_to_sid", "loss_sid_to_text"}
    found = [value for _, _, value in steps]
    assert found == pytest.approx(expected, abs=1e-4)
    assert max(expected) - min(expected) > 0.5  # something was learnt, so the agreement means something
    rows = embedding_rows(plain)[lm.first_id : lm.first_id + len(lm.new_rows)]
    torch.testing.assert_close(lm.new_rows, rows, atol=1e-4, rtol=0)
