"""Prompts: item text stays text, limits hold, the newest items and the whole question stay."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import example as case
from hypothesis import strategies as st

from gti_pipeline.config import GroundConfig
from gti_pipeline.errors import GtiError
from gti_pipeline.lm.load import load_tokenizer
from gti_pipeline.lm.pairs import TO_SID, encode_pairs, grounding_pairs
from gti_pipeline.lm.prompts import NEXT_ITEM, Prompter
from gti_pipeline.vocab import extend_tokenizer, sid_text

LEVELS, SIZE = 3, 8
KINDS = ["smollm", "tiny"]
HOSTILE = [
    "<|im_end|>",
    "<|im_start|>system\n",
    "<|endoftext|>",
    "<sid_1_2>",
    "<sid_9_99>",
    "<sid_1_",
    "2>",
    "<|im_",
    "end|>",
    "<<",
    "<|im_<|im_end|>end|>",
    "{title}",
    "{",
    "}",
    "{sid}",
    "{0}",
    "USER-PLACE",
    "dress",
    " ",
    "\n",
    "🙂",
    "漢",
]
hostile = st.lists(st.sampled_from(HOSTILE), min_size=1, max_size=8).map("".join)
relaxed = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def tokenizers(tiny_lm, smollm):
    """Extended tokenizers by kind, with the ids [L, K] of the new tokens."""
    made = {"smollm": load_tokenizer(smollm), "tiny": load_tokenizer(tiny_lm)}
    return {kind: (tokenizer, extend_tokenizer(tokenizer, LEVELS, SIZE)) for kind, tokenizer in made.items()}


@pytest.fixture(scope="module")
def make(tokenizers):
    """A function that makes a prompter."""
    return lambda kind, max_tokens=2048: Prompter(tokenizers[kind][0], "You are a helpful assistant.", max_tokens)


@pytest.fixture(scope="module")
def prompters(make):
    """Prompters with room for everything."""
    return {kind: make(kind) for kind in KINDS}


def specials(prompter, ids):
    """The tokens of the chat template and the semantic IDs among `ids`, in order."""
    added = prompter.tokenizer.added_tokens_decoder
    return [str(added[i]) for i in ids if i in added]


@pytest.mark.parametrize("kind", KINDS)
def test_the_prompt_is_what_the_chat_template_renders(prompters, kind):
    prompter = prompters[kind]
    turns = [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": "Which item is this?"},
    ]
    rendered = prompter.tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    assert prompter.tokenizer.decode(prompter.prompt("Which item is this?")) == rendered
    told = prompter.tokenizer.apply_chat_template([*turns, {"role": "assistant", "content": "A hat"}], tokenize=False)
    example = prompter.example("Which item is this?", "A hat", with_end=True)
    assert prompter.tokenizer.decode(example.ids) == told.rstrip()


@pytest.mark.parametrize("kind", KINDS)
@relaxed
@given(title=hostile, description=hostile)
def test_item_text_cannot_inject_a_token(prompters, kind, title, description):
    prompter = prompters[kind]
    items = pd.DataFrame({"item_id": ["a"], "title": [title], "description": [description]})
    pairs = grounding_pairs(items, {"a": [1, 2, 3]}, GroundConfig(), prompter)
    assert len(pairs) == 6
    sid = ["<sid_1_1>", "<sid_2_2>", "<sid_3_3>"]
    frame = specials(prompter, prompter.prompt("plain"))
    for direction, example in zip(pairs["direction"], encode_pairs(pairs, prompter), strict=True):
        asked = [token for token, answer in zip(example.ids, example.supervised, strict=True) if not answer]
        answer = example.ids[len(asked) :]
        if direction == TO_SID:
            assert specials(prompter, asked) == frame
            assert specials(prompter, answer) == sid
            assert len(answer) == LEVELS
        else:
            turns = specials(prompter, asked)
            assert [t for t in turns if t in sid] == sid
            assert [t for t in turns if t not in sid] == frame
            assert specials(prompter, answer) == ["<|im_end|>"]
            assert answer[-1] == prompter.encode("<|im_end|>")[0]


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_text_is_still_legible(prompters, kind):
    prompter = prompters[kind]
    assert prompter.clean("A {title} for 5 < 6 > 4 <b>bold</b>") == "A {title} for 5 < 6 > 4 <b>bold</b>"
    assert prompter.clean("end<|im_end|>or <sid_1_2>") == "end< |im_end|>or < sid_1_2>"
    items = pd.DataFrame({"item_id": ["a"], "title": ["A {description} {"], "description": ["{title} }"]})
    pairs = grounding_pairs(items, {"a": [1, 2, 3]}, GroundConfig(), prompter)
    assert pairs["prompt"][2] == "Which item is this? Title: A {description} {. Description: {title} }"


@pytest.mark.parametrize("kind", KINDS)
@relaxed
@given(text=st.text(max_size=40) | hostile, limit=st.integers(1, 20))
def test_cut_text_is_a_beginning_within_the_limit(prompters, kind, text, limit):
    prompter = prompters[kind]
    cut = prompter.cut(text, limit)
    assert len(prompter.encode(cut)) <= limit
    assert prompter.clean(text).startswith(cut)
    if len(prompter.encode(prompter.clean(text))) <= limit:
        assert cut == prompter.clean(text)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "text",
    ["🙂" * 30, "🧥👗🧶" * 10, "漢字仮名交じり文" * 5, "فستان سهرة أسود طويل" * 5, "Ж" * 50, "👩\u200d👩\u200d👧" * 9],
    ids=["emoji", "emojis", "Japanese", "Arabic", "Cyrillic", "joined emoji"],
)
def test_text_of_several_tokens_a_character_is_cut_between_characters(prompters, kind, text):
    prompter = prompters[kind]
    for limit in range(1, 30):
        cut = prompter.cut(text, limit)
        size = len(prompter.encode(cut))
        assert size <= limit
        longer = text[: len(cut) + 3]
        assert len(prompter.encode(longer)) > limit or longer == text, "more would have fitted"
        assert "�" not in cut


@pytest.mark.parametrize("kind", KINDS)
def test_plain_text_fills_the_limit(prompters, kind):
    prompter = prompters[kind]
    text = "Linen summer dress, light blue, for the winter season and the office"
    assert [len(prompter.encode(prompter.cut(text, n))) for n in range(1, 9)] == list(range(1, 9))


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_answer_is_supervised(prompters, kind):
    prompter = prompters[kind]
    example = prompter.example("Which item is this? A hat", sid_text([1, 2, 3]), with_end=False)
    prompt = prompter.prompt("Which item is this? A hat")
    assert example.ids[: len(prompt)] == prompt
    assert example.supervised == [False] * len(prompt) + [True] * LEVELS


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_answer_is_cut_at_its_end(make, prompters, kind):
    whole = prompters[kind].example("What is it?", "summer dress " * 50, with_end=True)
    asked = whole.supervised.count(False)
    for limit in (asked + 1, asked + 7, len(whole.ids) - 1):
        example = make(kind, limit).example("What is it?", "summer dress " * 50, with_end=True)
        assert example.ids == whole.ids[:limit]
        assert example.supervised == whole.supervised[:limit]
    assert make(kind, len(whole.ids)).example("What is it?", "summer dress " * 50, with_end=True) == whole


@pytest.mark.parametrize("kind", KINDS)
def test_a_prompt_without_room_for_its_answer_is_an_error(make, prompters, kind):
    size = len(prompters[kind].prompt("What is it?"))
    with pytest.raises(GtiError, match=rf"lm.max_tokens={size}: .*no room for its answer.*raise lm.max_tokens"):
        make(kind, size).example("What is it?", "A dress", with_end=True)


def newest_that_fit(prompter, history, wording, limit):
    """The prompt of the most of the newest items that fit, found by trying all; None where not even one does."""
    for dropped in range(len(history) + (not history)):
        text = NEXT_ITEM[wording].format(history="".join(map(sid_text, history[dropped:])))
        ids = prompter.encode(prompter.opening + text + prompter.closing)
        if len(ids) + LEVELS <= limit:
            return ids
    return None


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    history=st.lists(st.tuples(*[st.integers(0, SIZE - 1)] * LEVELS), max_size=15),
    wording=st.integers(0, len(NEXT_ITEM) - 1),
    extra=st.integers(-2, 60),
)
@case(history=[], wording=0, extra=-1)
@case(history=[], wording=0, extra=0)
def test_the_newest_items_and_the_whole_question_stay(make, prompters, kind, history, wording, extra):
    empty = len(prompters[kind].prompt(NEXT_ITEM[wording].format(history="")))
    limit = empty + LEVELS + extra
    prompter = make(kind, limit)
    expected = newest_that_fit(prompter, history, wording, limit)
    if expected is None:
        with pytest.raises(GtiError, match=f"lm.max_tokens={limit} leaves no room"):
            prompter.next_item(history, wording, LEVELS)
    else:
        assert prompter.next_item(history, wording, LEVELS) == expected


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wording", range(len(NEXT_ITEM)))
def test_the_exact_boundary(make, prompters, kind, wording):
    history = [[i % SIZE, (i + 1) % SIZE, (i + 2) % SIZE] for i in range(6)]
    whole = prompters[kind].next_item(history, wording, LEVELS)
    one_less = prompters[kind].next_item(history[1:], wording, LEVELS)
    assert len(whole) - len(one_less) == LEVELS
    assert make(kind, len(whole) + LEVELS).next_item(history, wording, LEVELS) == whole
    for short in range(1, LEVELS + 1):
        assert make(kind, len(whole) + LEVELS - short).next_item(history, wording, LEVELS) == one_less
    single = prompters[kind].next_item(history[-1:], wording, LEVELS)
    assert make(kind, len(single) + LEVELS).next_item(history, wording, LEVELS) == single
    with pytest.raises(GtiError, match="leaves no room"):
        make(kind, len(single) + LEVELS - 1).next_item(history, wording, LEVELS)


def test_a_template_that_hides_the_message_is_refused(tiny_lm):
    tokenizer = load_tokenizer(tiny_lm)
    tokenizer.chat_template = "{% for message in messages %}{{ message['role'] }}{% endfor %}"
    with pytest.raises(GtiError, match="chat template"):
        Prompter(tokenizer, "", 100)
