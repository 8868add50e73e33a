"""Cached prefixes against the naive forward pass of whole sequences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import MistralConfig, MistralForCausalLM, Qwen3Config, Qwen3ForCausalLM

from gti_pipeline.lm.extended import ExtendedLM, freeze_old
from gti_pipeline.lm.prefix import PrefixCache, split_example, tail_loss
from gti_pipeline.lm.prompts import Example
from gti_pipeline.sft import collate

LEVELS, SIZE, FIRST = 3, 5, 60
KINDS = {
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, {}),
    "sliding": (MistralConfig, MistralForCausalLM, {"sliding_window": 4}),
}


def make_lm(kind="qwen3", attention="sdpa", dtype=torch.float64):
    config_class, model_class, extra = KINDS[kind]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = config_class(
            vocab_size=FIRST,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            tie_word_embeddings=True,
            initializer_range=0.25,
            pad_token_id=0,
            bos_token_id=None,
            eos_token_id=None,
            attn_implementation=attention,
            **extra,
        )
        model = model_class(config).to(dtype).eval()
        lm = ExtendedLM(model, torch.randn(LEVELS * SIZE, 32, dtype=dtype) * 0.25, FIRST)
    freeze_old(lm)
    return lm


def make_examples(direction, count, seed):
    """Ragged prefixes (1 to 12 old tokens, some alike), a semantic ID, and for text answers 1 to 9 old tokens."""
    rng = np.random.default_rng(seed)
    examples = []
    for _ in range(count):
        prefix = rng.integers(1, FIRST, rng.integers(1, 13)).tolist()
        sid = (FIRST + np.arange(LEVELS) * SIZE + rng.integers(0, SIZE, LEVELS)).tolist()
        text = rng.integers(1, FIRST, rng.integers(2, 11)).tolist() if direction == "sid_to_text" else []
        asked = len(prefix) + (len(sid) + 1 if text else 0)  # the question ends with one old token
        ids = prefix + sid + text
        examples.append(Example(ids, [False] * asked + [True] * (len(ids) - asked)))
    return [*examples, examples[0]]


def naive(lm, examples):
    """Loss and gradient of the new rows from whole sequences."""
    rows = [
        {"input_ids": e.ids, "labels": [t if s else -100 for t, s in zip(e.ids, e.supervised, strict=True)]}
        for e in examples
    ]
    lm.zero_grad()
    loss = lm(**collate(rows))["loss"]
    loss.backward()
    return loss.item(), lm.new_rows.grad.clone()


def cached(lm, examples, cache):
    split = [split_example(e, FIRST, LEVELS * SIZE) for e in examples]
    lm.zero_grad()
    loss = tail_loss(lm, split, cache.get([e.prefix for e in split]))
    loss.backward()
    return loss.item(), lm.new_rows.grad.clone()


@pytest.mark.parametrize("direction", ["text_to_sid", "sid_to_text"])
@pytest.mark.parametrize(("kind", "attention"), [("qwen3", "sdpa"), ("qwen3", "eager"), ("sliding", "sdpa")])
def test_loss_and_gradient_are_those_of_whole_sequences(direction, kind, attention):
    lm = make_lm(kind, attention)
    for seed in range(3):
        examples = make_examples(direction, 6, seed)
        loss, gradient = naive(lm, examples)
        ours, our_gradient = cached(lm, examples, PrefixCache(lm, 2**20))
        assert ours == pytest.approx(loss, rel=1e-6)  # logits are float32 even here
        assert torch.allclose(our_gradient, gradient, atol=1e-6 * gradient.abs().max())
        assert gradient.abs().max() > 1e-2


def test_float32_agrees_as_well():
    lm = make_lm(dtype=torch.float32)
    examples = make_examples("sid_to_text", 6, 0)
    loss, gradient = naive(lm, examples)
    ours, our_gradient = cached(lm, examples, PrefixCache(lm, 2**20))
    assert ours == pytest.approx(loss, rel=1e-5)
    assert torch.allclose(our_gradient, gradient, atol=1e-5 * gradient.abs().max())


@pytest.mark.parametrize("budget", [0, 3000, 2**20])
def test_the_budget_changes_memory_and_not_the_result(budget):
    lm = make_lm()
    examples = make_examples("text_to_sid", 6, 1)
    loss, gradient = naive(lm, examples)
    cache = PrefixCache(lm, budget)
    for _ in range(2):  # the second time from what was kept
        ours, our_gradient = cached(lm, examples, cache)
        assert ours == pytest.approx(loss, rel=1e-6)
        assert torch.allclose(our_gradient, gradient, atol=1e-6 * gradient.abs().max())
    assert cache.used <= budget
    assert (cache.used > 0) == (budget > 0)


def test_a_prefix_is_computed_once_and_only_once():
    lm = make_lm()
    cache = PrefixCache(lm, 2**20)
    computed = []
    compute = cache._compute
    cache._compute = lambda prefixes: computed.extend(prefixes) or compute(prefixes)
    cache.get([(1, 2), (3,), (1, 2)])
    cache.get([(3,), (4, 5, 6), (1, 2)])
    assert computed == [(1, 2), (3,), (4, 5, 6)]
    sizes = [2 * 2 * 2 * 8 * 8 * length for length in (2, 1, 3)]  # layers, k and v, heads, head size, bytes
    assert cache.used == sum(sizes)


def test_an_example_is_cut_before_its_first_new_token():
    example = Example([5, 6, FIRST + 1, 7, FIRST], [False, False, False, True, True])
    split = split_example(example, FIRST, 3)
    assert (split.prefix, split.tail, split.supervised) == ((5, 6), [FIRST + 1, 7, FIRST], [False, True, True])
