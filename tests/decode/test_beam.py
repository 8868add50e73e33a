"""Constrained beam search against its oracles."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from references import generated, plain_beam
from tiny_models import make_catalogue, make_model, make_prompts
from transformers import GenerationConfig, PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from gti_pipeline.decode.beam import _best, beam_search
from gti_pipeline.decode.exhaustive import score_catalogue
from gti_pipeline.decode.trie import Trie
from gti_pipeline.errors import GtiError

LENGTHS = [5, 9, 30, 21]


@pytest.mark.parametrize(
    ("kind", "attention", "kv_heads"),
    [("llama", "sdpa", 1), ("llama", "eager", 2), ("llama", "sdpa", 4), ("qwen2", "sdpa", 2), ("qwen3", "eager", 2)],
)
def test_enough_beams_rank_the_whole_catalogue(kind: str, attention: str, kv_heads: int) -> None:
    model = make_model(kind, attention, kv_heads)
    codes, tokens = make_catalogue(60, 3, 6)
    prompts = make_prompts(LENGTHS)
    for prompt, (items, scores) in zip(
        prompts, beam_search(model, prompts, Trie.build(codes, tokens), 60), strict=True
    ):
        expected = score_catalogue(model, prompt, codes, tokens)
        assert items.tolist() == np.argsort(-expected, kind="stable").tolist()
        np.testing.assert_allclose(scores, expected[items], atol=1e-4)


@pytest.mark.parametrize("num_beams", [2, 5, 20, 50])
@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_equals_generate_list_for_list(kind: str, num_beams: int) -> None:
    """With 20 and 50 beams the first level has fewer nodes (6) than beams."""
    model = make_model(kind, seed=1)
    codes, tokens = make_catalogue(120, 3, 6, seed=2)
    prompts = make_prompts([7, 18])
    for prompt, (items, scores) in zip(
        prompts, beam_search(model, prompts, Trie.build(codes, tokens), num_beams), strict=True
    ):
        expected_items, expected_scores = generated(model, prompt, codes, tokens, num_beams)
        assert items.tolist() == expected_items
        assert len(items) == num_beams
        np.testing.assert_allclose(scores, expected_scores, atol=1e-4)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.integers(1, 4), st.integers(2, 8), st.integers(1, 12), st.data())
def test_any_ragged_trie_and_any_number_of_beams(
    model: PreTrainedModel, levels: int, size: int, num_beams: int, data: st.DataObject
) -> None:
    num_items = data.draw(st.integers(1, min(size**levels, 30)))
    codes, tokens = make_catalogue(num_items, levels, size, seed=data.draw(st.integers(0, 100)))
    prompts = make_prompts(data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=2)))
    for prompt, (items, scores) in zip(
        prompts, beam_search(model, prompts, Trie.build(codes, tokens), num_beams), strict=True
    ):
        np.testing.assert_allclose(scores, plain_beam(model, prompt, codes, tokens, num_beams), atol=1e-4)
        np.testing.assert_allclose(scores, score_catalogue(model, prompt, codes, tokens)[items], atol=1e-4)
        assert len(set(items.tolist())) == len(items) <= num_beams


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("opening", [0, 4, 20])
def test_a_batch_gives_what_one_by_one_gives(attention: str, opening: int) -> None:
    model = make_model(attention=attention)
    codes, tokens = make_catalogue(200, 3, 8)
    trie = Trie.build(codes, tokens)
    prompts = make_prompts([21, 60, 33, 40, 22], opening=opening)
    for prompt, (items, scores) in zip(prompts, beam_search(model, prompts, trie, 10), strict=True):
        [(alone, alone_scores)] = beam_search(model, [prompt], trie, 10)
        assert items.tolist() == alone.tolist()
        np.testing.assert_allclose(scores, alone_scores, atol=1e-4)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_beams_run_some_at_a_time_give_the_same(attention: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """7 of the 20 beams of 2 users (of 200 rows) fit into a pass."""
    model = make_model(attention=attention)
    codes, tokens = make_catalogue(200, 4, 8)
    prompts, trie = make_prompts([21, 33]), Trie.build(codes, tokens)
    whole = beam_search(model, prompts, trie, 20)
    monkeypatch.setattr("gti_pipeline.decode.beam.MAX_LOGITS", 7 * 2 * 200)
    shapes: list[tuple[int, ...]] = []
    model.register_forward_pre_hook(lambda _, __, kw: shapes.append(tuple(kw["input_ids"].shape)), with_kwargs=True)
    for (items, scores), (expected, expected_scores) in zip(beam_search(model, prompts, trie, 20), whole, strict=True):
        assert items.tolist() == expected.tolist()
        np.testing.assert_allclose(scores, expected_scores, atol=1e-4)
    assert shapes == [(2, 33), (2, 7), (2, 1), *[(2, 7), (2, 7), (2, 6)] * 2]


def test_equal_prompts_share_all_but_their_last_token(model: PreTrainedModel, calls: list[tuple[int, ...]]) -> None:
    codes, tokens = make_catalogue(50, 2, 8)
    [prompt] = make_prompts([30])
    first, second = beam_search(model, [prompt, prompt], Trie.build(codes, tokens), 10)
    assert calls[:2] == [(1, 29), (2, 1)]
    assert first[0].tolist() == second[0].tolist()


def test_one_prefill_per_user_then_one_pass_per_level(model: PreTrainedModel, calls: list[tuple[int, ...]]) -> None:
    """8 nodes on the first level, 10 beams afterwards; the last level's tokens are never run."""
    codes, tokens = make_catalogue(300, 3, 8)
    beam_search(model, make_prompts([25, 40, 31], opening=20), Trie.build(codes, tokens), 10)
    assert calls == [(1, 20), (3, 20), (3, 8), (3, 10)]


def test_one_level(model: PreTrainedModel, calls: list[tuple[int, ...]]) -> None:
    codes, tokens = make_catalogue(7, 1, 8)
    [prompt] = make_prompts([6])
    [(items, scores)] = beam_search(model, [prompt], Trie.build(codes, tokens), 5)
    assert len(calls) == 1
    expected = score_catalogue(model, prompt, codes, tokens)
    assert items.tolist() == np.argsort(-expected)[:5].tolist()
    np.testing.assert_allclose(scores, expected[items], atol=1e-4)


def test_a_single_item_and_more_beams_than_items_give_short_lists(model: PreTrainedModel) -> None:
    [prompt] = make_prompts([6])
    for num_items in (1, 7):
        codes, tokens = make_catalogue(num_items, 3, 4)
        [(items, scores)] = beam_search(model, [prompt], Trie.build(codes, tokens), 20)
        assert sorted(items.tolist()) == list(range(num_items))
        assert (np.diff(scores) <= 0).all()


def test_no_users(model: PreTrainedModel) -> None:
    codes, tokens = make_catalogue(5, 2, 4)
    assert beam_search(model, [], Trie.build(codes, tokens), 3) == []


def test_bfloat16() -> None:
    codes, tokens = make_catalogue(60, 3, 6)
    prompts = make_prompts(LENGTHS[:2])
    exact = make_model()
    found = beam_search(make_model().to(torch.bfloat16), prompts, Trie.build(codes, tokens), 10)
    for prompt, (items, scores) in zip(prompts, found, strict=True):
        assert len(set(items.tolist())) == 10
        assert (np.diff(scores) <= 0).all()
        np.testing.assert_allclose(scores, score_catalogue(exact, prompt, codes, tokens)[items], atol=0.3)


def test_generation_settings_play_no_part() -> None:
    model = make_model()
    codes, tokens = make_catalogue(100, 3, 6)
    trie, prompts = Trie.build(codes, tokens), make_prompts(LENGTHS)
    before = beam_search(model, prompts, trie, 10)
    model.generation_config = GenerationConfig(
        do_sample=True,
        temperature=0.2,
        top_k=3,
        top_p=0.5,
        repetition_penalty=3.0,
        no_repeat_ngram_size=1,
        length_penalty=2.0,
        num_beams=2,
        num_return_sequences=2,
        max_new_tokens=1,
        eos_token_id=int(tokens[0, 0]),
        suppress_tokens=tokens[1].tolist(),
    )
    for (items, scores), (expected_items, expected_scores) in zip(
        beam_search(model, prompts, trie, 10), before, strict=True
    ):
        assert items.tolist() == expected_items.tolist()
        assert scores.tolist() == expected_scores.tolist()


def test_equal_scores_come_in_the_order_of_the_codes() -> None:
    model = make_model()
    torch.nn.init.zeros_(model.base_model.norm.weight)  # every logit is 0
    codes, tokens = make_catalogue(150, 3, 6)
    by_code = sorted(range(150), key=lambda item: codes[item].tolist())
    for num_beams in (1, 4, 40, 150):
        for items, scores in beam_search(model, make_prompts(LENGTHS), Trie.build(codes, tokens), num_beams):
            assert items.tolist() == by_code[:num_beams]
            np.testing.assert_allclose(scores, -3 * np.log(200), rtol=1e-5)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from([-np.inf, -2.0, -1.0, 0.0]), min_size=6, max_size=6), min_size=1),
    st.integers(1, 6),
)
def test_best_is_a_stable_sort(rows: list[list[float]], width: int) -> None:
    totals = torch.tensor(rows)
    expected = totals.sort(dim=1, descending=True, stable=True).indices[:, :width].sort(dim=1).values
    assert _best(totals, width).tolist() == expected.tolist()


def forbid(model: PreTrainedModel, tokens: list[int], value: float) -> Iterator[None]:
    def overwrite(_: object, __: object, output: object) -> None:
        output.logits[..., tokens] = value  # type: ignore[attr-defined]

    handle = model.register_forward_hook(overwrite)
    yield
    handle.remove()


def test_items_without_probability_are_left_out(model: PreTrainedModel) -> None:
    codes, tokens = make_catalogue(60, 3, 5)
    forbidden = forbid(model, tokens[1, [0, 3]].tolist(), -np.inf)
    next(forbidden)
    [(items, scores)] = beam_search(model, make_prompts([8]), Trie.build(codes, tokens), 60)
    next(forbidden, None)
    assert set(items.tolist()) == set(np.flatnonzero(~np.isin(codes[:, 1], [0, 3])).tolist())
    assert np.isfinite(scores).all()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_logits_that_are_no_numbers_are_an_error(model: PreTrainedModel, value: float) -> None:
    codes, tokens = make_catalogue(60, 3, 5)
    broken = forbid(model, [3], value)
    next(broken)
    with pytest.raises(GtiError, match="NaN"):
        beam_search(model, make_prompts([8]), Trie.build(codes, tokens), 10)
    next(broken, None)


def test_refuses(model: PreTrainedModel) -> None:
    codes, tokens = make_catalogue(10, 2, 5)
    trie = Trie.build(codes, tokens)
    with pytest.raises(GtiError, match="empty prompt"):
        beam_search(model, [[1], []], trie, 2)
    with pytest.raises(GtiError, match="at least 1"):
        beam_search(model, [[1]], trie, 0)
    with pytest.raises(GtiError, match="only 200 rows"):
        beam_search(model, [[1]], Trie.build(codes, tokens + 200), 2)
    with pytest.raises(GtiError, match="sdpa or eager"):
        beam_search(make_model(attention="flex_attention"), [[1]], trie, 2)


def test_refuses_sliding_windows() -> None:
    config = Qwen2Config(
        vocab_size=200, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, use_sliding_window=True, sliding_window=4, max_window_layers=1,
    )  # fmt: skip
    codes, tokens = make_catalogue(10, 2, 5)
    with pytest.raises(GtiError, match="whole context"):
        beam_search(Qwen2ForCausalLM(config).eval(), [[1, 2]], Trie.build(codes, tokens), 2)


def test_transformers_has_nothing_to_warn_of(model: PreTrainedModel, caplog: pytest.LogCaptureFixture) -> None:
    codes, tokens = make_catalogue(10, 2, 5)
    logger = logging.getLogger("transformers")
    logger.addHandler(caplog.handler)
    beam_search(model, make_prompts(LENGTHS), Trie.build(codes, tokens), 4)
    logger.removeHandler(caplog.handler)
    assert not caplog.records
