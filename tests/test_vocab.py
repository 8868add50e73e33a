"""New tokens are one token in any context, and their rows start where they should."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers, trainers
from tokenizers import models as token_models
from transformers import PreTrainedTokenizerFast

from gti_pipeline.config import LmConfig, VocabConfig
from gti_pipeline.errors import GtiError
from gti_pipeline.lm.extended import embedding_rows
from gti_pipeline.lm.load import load_model, load_tokenizer
from gti_pipeline.vocab import (
    build_rows,
    extend_tokenizer,
    initial_rows,
    keyword_rows,
    load_rows,
    save_rows,
    sid_text,
    sid_token,
)

LEVELS, SIZE = 3, 12
CONTEXTS = [
    "",
    "a",
    "Word",
    " ",
    "  ",
    "\n",
    "\t",
    ".",
    "<",
    ">",
    "_",
    "sid_1_2",
    "7",
    "0",
    "é",
    "Ж",
    "漢字",
    "عربي",
    "🙂",
]
KINDS = ["smollm", "tiny", "lowercasing"]
anything = st.text(st.characters(codec="utf-8"), max_size=12)


def lowercasing_tokenizer():
    """BPE behind a normalizer that lowercases and composes, with a prefix space, as sentencepiece models have."""
    tokenizer = Tokenizer(token_models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    trainer = trainers.BpeTrainer(vocab_size=200, special_tokens=["<unk>"], show_progress=False)
    tokenizer.train_from_iterator(["a <sid_1_2> is one of sid_1_1 and sid_2_2"] * 9, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")


@pytest.fixture(scope="module")
def tokenizers(tiny_lm, smollm):
    """(tokenizer, ids [L, K], tokens known before) by kind."""
    made = {}
    for kind in KINDS:
        tokenizer = (
            lowercasing_tokenizer() if kind == "lowercasing" else load_tokenizer({"tiny": tiny_lm}.get(kind, smollm))
        )
        known = len(tokenizer)
        made[kind] = (tokenizer, extend_tokenizer(tokenizer, LEVELS, SIZE), known)
    return made


def encode(tokenizer, text):
    return tokenizer(text, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_the_tokenizers_own_in_order_of_level_and_code(tokenizers, kind):
    tokenizer, ids, known = tokenizers[kind]
    assert ids.shape == (LEVELS, SIZE)
    assert ids.ravel().tolist() == list(range(known, known + LEVELS * SIZE))
    vocabulary = tokenizer.get_vocab()
    assert all(
        ids[level - 1, code] == vocabulary[sid_token(level, code)] for level in (1, 2, 3) for code in range(SIZE)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_every_token_is_one_token_between_every_pair_of_neighbours(tokenizers, kind):
    tokenizer, ids, _ = tokenizers[kind]
    alone = {text: encode(tokenizer, text) for text in CONTEXTS}
    tokens = [(level, code) for level in range(1, LEVELS + 1) for code in range(SIZE)]
    pairs = [(before, after) for before in CONTEXTS for after in CONTEXTS]
    texts = [before + sid_token(*tokens[i % len(tokens)]) + after for i, (before, after) in enumerate(pairs)]
    for i, ((before, after), got) in enumerate(zip(pairs, encode(tokenizer, texts), strict=True)):
        level, code = tokens[i % len(tokens)]
        assert got == [*alone[before], ids[level - 1, code], *alone[after]], texts[i]
    for level, code in tokens:
        for context in CONTEXTS:
            got = encode(tokenizer, context + sid_token(level, code) + context)
            assert got.count(ids[level - 1, code]) == 1


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=anything, after=anything, codes=st.lists(st.integers(0, SIZE - 1), min_size=LEVELS, max_size=LEVELS))
def test_an_items_tokens_change_nothing_around_them(tokenizers, kind, before, after, codes):
    tokenizer, ids, _ = tokenizers[kind]
    expected = [ids[level, code] for level, code in enumerate(codes)]
    got = encode(tokenizer, before + sid_text(codes) + after)
    assert got == [*encode(tokenizer, before), *expected, *encode(tokenizer, after)]


@pytest.mark.parametrize("kind", ["smollm", "tiny"])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=anything, after=anything)
def test_text_and_tokens_decode_to_what_they_were(tokenizers, kind, before, after):
    tokenizer, _, _ = tokenizers[kind]
    # SmolLM2 has no token for some rare bytes, with or without new tokens
    assume(all(tokenizer.decode(encode(tokenizer, text)) == text for text in (before, after)))
    text = before + sid_text([3, 11, 0]) + " " + sid_text([3, 1, 2]) + after
    assert tokenizer.decode(encode(tokenizer, text)) == text
    assert tokenizer.decode(encode(tokenizer, sid_text([3, 11, 0]))) == sid_text([3, 11, 0])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", ["<SID_1_2>", "<Sid_1_2>", "＜sid_1_2＞", "<sid_１_2>", "<sid_1_ 2>", "< sid_1_2>"])
def test_what_only_resembles_a_token_is_text(tokenizers, kind, text):
    """Whatever the tokenizer's normalizer would make of it."""
    tokenizer, ids, _ = tokenizers[kind]
    assert not set(encode(tokenizer, f"a {text} b")) & set(ids.ravel().tolist())


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_tokenizer_comes_back_the_same(tokenizers, kind, tmp_path):
    tokenizer, ids, _ = tokenizers[kind]
    tokenizer.save_pretrained(tmp_path)
    again = load_tokenizer(tmp_path)
    text = "In a " + sid_text([1, 2, 3]) + "row " + sid_text([11, 10, 9])
    assert encode(again, text) == encode(tokenizer, text)
    assert np.array_equal(again.convert_tokens_to_ids([sid_token(1, c) for c in range(SIZE)]), ids[0])


def test_a_tokenizer_that_is_already_extended_is_refused(tiny_lm):
    tokenizer = load_tokenizer(tiny_lm)
    extend_tokenizer(tokenizer, 1, 4)
    with pytest.raises(GtiError, match="already knows <sid_1_0>"):
        extend_tokenizer(tokenizer, 2, 4)


def test_mean_init_is_the_mean_of_the_real_models_rows(smollm, tokenizers):
    _, ids, known = tokenizers["smollm"]
    with safe_open(smollm / "model.safetensors", "pt") as file:
        old = file.get_tensor("model.embed_tokens.weight")
    assert len(old) == known
    rows = build_rows(old, ids, VocabConfig(init="mean"), seed=0)
    oracle = old.double().mean(0)
    assert rows.shape == (LEVELS * SIZE, old.shape[1])
    assert torch.allclose(rows.double(), oracle.expand_as(rows), atol=1e-7, rtol=1e-5)
    assert (rows == rows[0]).all()


@pytest.mark.parametrize("init", ["mean", "random"])
def test_rows_beyond_the_tokenizers_tokens_do_not_count(tiny_lm, init):
    tokenizer = load_tokenizer(tiny_lm)
    known = len(tokenizer)
    ids = extend_tokenizer(tokenizer, 2, 8)
    model = load_model(tiny_lm, LmConfig(device="cpu"))
    before = embedding_rows(model).detach().clone()
    model.resize_token_embeddings(known + 100, mean_resizing=False)
    with torch.no_grad():
        embedding_rows(model)[known:] = 1e6
    config = VocabConfig(init=init)
    assert ids.min() == known
    assert torch.equal(
        build_rows(embedding_rows(model), ids, config, seed=3), initial_rows(before, ids.size, init, seed=3)
    )


def test_random_init_has_each_dimensions_mean_and_spread():
    generator = torch.Generator().manual_seed(0)
    scale, shift = torch.linspace(0.1, 3, 16), torch.linspace(-2, 2, 16)
    old = torch.randn(5000, 16, generator=generator) * scale + shift
    new = initial_rows(old, 20000, "random", seed=4)
    assert torch.allclose(new.mean(0), old.mean(0), atol=0.1)  # 5 standard errors of the widest dimension
    assert torch.allclose(new.std(0) / old.std(0), torch.ones(16), atol=0.03)


def test_random_init_is_seeded_and_leaves_torchs_own_generator_alone():
    old = torch.arange(12.0).reshape(4, 3)
    state = torch.random.get_rng_state()
    first, same, other = (initial_rows(old, 5, "random", seed) for seed in (1, 1, 2))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    assert len(torch.unique(first, dim=0)) == 5
    assert torch.equal(state, torch.random.get_rng_state())


def test_saved_rows_come_back_bit_for_bit(tmp_path):
    ids = np.arange(10, 16).reshape(2, 3)
    rows = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    save_rows(tmp_path, rows, ids)
    loaded, loaded_ids = load_rows(tmp_path)
    assert torch.equal(loaded, rows)
    assert np.array_equal(loaded_ids, ids)


def test_keyword_rows_by_hand():
    """Items: 0 "a b", 1 "a c c", 2 "a d"; codes of level 1: 0, 0, 1 (2 is empty); of level 2: 1, 1, 1."""
    old = torch.eye(4)
    a, b, c, d = range(4)
    rows = keyword_rows(old, [[a, b], [a, c, c], [a, d]], np.array([[0, 1], [0, 1], [1, 1]]), codebook_size=3)
    mean = [0.25] * 4
    expected = [
        [0, 1 / 3, 2 / 3, 0],  # a is in every title and weighs nothing; b, c and d have the same idf, c occurs twice
        [0, 0, 0, 1],
        mean,  # no item
        mean,
        [0, 1 / 4, 2 / 4, 1 / 4],
        mean,
    ]
    assert torch.allclose(rows, torch.tensor(expected))


def test_keyword_rows_weigh_words_by_idf():
    """b is in 2 of 4 titles, c and d in one each: idf log 2, log 4, log 4; under the code b occurs three times."""
    b, c, d = 1, 2, 3
    words = [[b, b, c], [b], [d], []]
    rows = keyword_rows(torch.eye(4), words, np.array([[0], [0], [1], [1]]), codebook_size=2)
    weights = np.array([0, 3 * np.log(2), np.log(4), 0])
    assert torch.allclose(rows[0].double(), torch.from_numpy(weights / weights.sum()))
    assert rows[1].tolist() == [0, 0, 0, 1]


def test_keyword_rows_against_a_plain_loop():
    rng = np.random.default_rng(0)
    old = torch.from_numpy(rng.standard_normal((30, 5))).float()
    words = [rng.integers(0, 30, rng.integers(0, 8)).tolist() for _ in range(40)]
    codes = rng.integers(0, 6, (40, 3))
    rows = keyword_rows(old, words, codes, codebook_size=7)
    for level in range(3):
        for code in range(7):
            total, weight = np.zeros(5), 0.0
            for title, own in zip(words, codes, strict=True):
                for token in title if own[level] == code else []:
                    idf = np.log(40 / sum(token in other for other in words))
                    total, weight = total + idf * old[token].numpy(), weight + idf
            expected = total / weight if weight else old.mean(0).numpy()
            assert np.allclose(rows[level * 7 + code], expected, atol=1e-5)


def test_keyword_rows_without_a_word_that_tells_are_the_mean():
    rows = keyword_rows(torch.eye(3), [[0, 1], [1, 0]], np.array([[0], [1]]), codebook_size=2)
    assert torch.allclose(rows, torch.full((2, 3), 1 / 3))
