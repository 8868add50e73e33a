"""Next-item examples: what is seen, what is asked, and that nothing of the future is in either."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
import pytest

from gti_pipeline.config import DataConfig
from gti_pipeline.data.split import split
from gti_pipeline.lm.next_item import answered_examples, prompts, training_examples
from gti_pipeline.lm.prompts import NEXT_ITEM
from gti_pipeline.vocab import sid_text

LEVELS, SIZE = 2, 8
ITEMS = [f"i{n:02d}" for n in range(40)]
CODES = {item: [n // SIZE, n % SIZE] for n, item in enumerate(ITEMS)}
MODES = ["last", "all"]


def events_of(users):
    """Interactions of {user: [items]} in order."""
    rows = [(user, item, n) for user, items in sorted(users.items()) for n, item in enumerate(items)]
    events = pd.DataFrame(rows, columns=["user_id", "item_id", "timestamp"])
    return events.assign(source_row=range(len(events)))


def leave_one_out(events):
    """The sequences of the default split."""
    return split(events, DataConfig(min_history=3)).sequences


def make_users(seed=0, distinct=False):
    """Users of 2 to 25 events, repeats among them unless `distinct`."""
    rng = np.random.default_rng(seed)
    return {f"u{n:02d}": rng.choice(ITEMS, size=n, replace=not distinct).tolist() for n in range(2, 26)}


@pytest.fixture
def prompter(make_tiny):
    return make_tiny(LEVELS, SIZE)[1]


def items_in(prompter, ids):
    """The items whose semantic IDs are among token ids, in order."""
    text = prompter.tokenizer.decode([i for i in ids if prompter.is_sid(i)])
    by_text = {sid_text(codes): item for item, codes in CODES.items()}
    tokens = [part + ">" for part in text.split(">")[:-1]]
    assert len(tokens) % LEVELS == 0
    return [by_text["".join(tokens[i : i + LEVELS])] for i in range(0, len(tokens), LEVELS)]


def asked_and_supervised(prompter, example):
    """All items of an example, and those that are supervised; no other token is."""
    supervised = [i for i, s in zip(example.ids, example.supervised, strict=True) if s]
    assert all(map(prompter.is_sid, supervised))
    return items_in(prompter, example.ids), items_in(prompter, supervised)


def train(users, prompter, targets, max_history=5, seed=0):
    sequences = leave_one_out(events_of(users))
    return training_examples(sequences, CODES, prompter, targets=targets, max_history=max_history, seed=seed)


def trained_events(users):
    """The events of each user that training may see."""
    return {user: items[:-2] if len(items) >= 3 else items for user, items in users.items()}


def test_last_supervises_the_answer_alone(prompter):
    examples = train({"a": ["i01", "i02", "i03", "i04", "i30", "i31"]}, prompter, "last", max_history=2)
    seen = [asked_and_supervised(prompter, e) for e in examples]
    assert seen == [
        (["i02", "i03", "i04"], ["i04"]),
        (["i01", "i02", "i03"], ["i03"]),
        (["i01", "i02"], ["i02"]),
    ]
    assert all(e.supervised[-LEVELS:] == [True] * LEVELS and sum(e.supervised) == LEVELS for e in examples)


def test_all_supervises_every_item_but_the_first_of_its_window(prompter):
    examples = train({"a": ["i01", "i02", "i03", "i04", "i05", "i06", "i30", "i31"]}, prompter, "all", max_history=3)
    assert [asked_and_supervised(prompter, e) for e in examples] == [
        (["i03", "i04", "i05", "i06"], ["i04", "i05", "i06"]),
        (["i01", "i02", "i03"], ["i02", "i03"]),
    ]


@pytest.mark.parametrize("max_history", [1, 2, 5, 100])
@pytest.mark.parametrize("targets", MODES)
def test_each_training_event_after_the_first_is_a_target_once(prompter, targets, max_history):
    users = make_users()
    expected = Counter(item for items in trained_events(users).values() for item in items[1:])
    found = Counter(
        item
        for example in train(users, prompter, targets, max_history)
        for item in asked_and_supervised(prompter, example)[1]
    )
    assert found == expected


@pytest.mark.parametrize("targets", MODES)
def test_every_target_follows_exactly_the_events_before_it(prompter, targets):
    users = make_users(distinct=True)
    longest = 4
    found = set()
    for example in train(users, prompter, targets, max_history=longest):
        shown, supervised = asked_and_supervised(prompter, example)
        for target in supervised:
            found.add((tuple(shown[: shown.index(target)]), target))
    for items in trained_events(users).values():
        for end in range(1, len(items)):
            before = [
                past for past, target in found if target == items[end] and past == tuple(items[end - len(past) : end])
            ]
            assert before
            assert all(1 <= len(past) <= longest for past in before)


def test_the_target_event_is_never_in_its_own_prompt(prompter):
    users = make_users(distinct=True)
    sequences = leave_one_out(events_of(users))
    for part in ("test", "valid"):
        rows = sequences[sequences["split"] == part]
        for user, target, ids in zip(
            rows["user_id"], rows["target"], prompts(rows, CODES, prompter, max_history=7), strict=True
        ):
            back = -1 if part == "test" else -2
            assert target == users[user][back]
            assert items_in(prompter, ids) == users[user][:back][-7:]
            assert target not in items_in(prompter, ids)


def test_a_repeat_is_shown_where_the_history_has_it_and_nowhere_else(prompter):
    rows = leave_one_out(events_of({"a": ["i05", "i01", "i02", "i05"]}))
    (ids,) = prompts(rows[rows["split"] == "test"], CODES, prompter, max_history=9)
    assert items_in(prompter, ids) == ["i05", "i01", "i02"]


@pytest.mark.parametrize(("changed", "part"), [(1, "test"), (2, "valid")])
@pytest.mark.parametrize("targets", MODES)
def test_changing_what_is_asked_changes_no_prompt_and_no_training_example(prompter, targets, changed, part):
    users = make_users()
    other = {
        user: [*items[:-changed], "i39" if items[-changed] != "i39" else "i00", *items[len(items) - changed + 1 :]]
        for user, items in users.items()
        if len(items) >= 3
    }
    users = {user: users[user] for user in other}
    before, after = (leave_one_out(events_of(u)) for u in (users, other))
    old, new = (s[s["split"] == part] for s in (before, after))
    assert (old["target"].to_numpy() != new["target"].to_numpy()).all()
    assert prompts(old, CODES, prompter, max_history=5) == prompts(new, CODES, prompter, max_history=5)
    asked = [
        [e.ids[: e.supervised.index(True)] for e in answered_examples(rows, CODES, prompter, max_history=5)]
        for rows in (old, new)
    ]
    assert asked[0] == asked[1]
    assert train(users, prompter, targets) == train(other, prompter, targets)
    if part == "test":
        valid = [s[s["split"] == "valid"] for s in (before, after)]
        assert answered_examples(valid[0], CODES, prompter, max_history=5) == answered_examples(
            valid[1], CODES, prompter, max_history=5
        )


def test_an_answered_example_is_the_prompt_and_its_target(prompter):
    sequences = leave_one_out(events_of(make_users()))
    rows = sequences[sequences["split"] == "valid"]
    examples = answered_examples(rows, CODES, prompter, max_history=5)
    for target, prompt, example in zip(
        rows["target"], prompts(rows, CODES, prompter, max_history=5), examples, strict=True
    ):
        assert example.ids == prompt + prompter.encode(sid_text(CODES[target]))
        assert example.supervised == [False] * len(prompt) + [True] * LEVELS


def test_the_wording_is_drawn_by_seed_and_all_are_used(prompter):
    users = make_users()
    first, same, other = (train(users, prompter, "last", seed=seed) for seed in (0, 0, 1))
    assert first == same
    assert first != other
    openings = [template.split("{history}")[0] for template in NEXT_ITEM]
    texts = [prompter.tokenizer.decode(e.ids) for e in first]
    counts = [sum(opening in text for text in texts) for opening in openings]
    assert sum(counts) == len(first)
    assert min(counts) > len(first) / 5


def test_a_short_context_keeps_the_newest_items_of_every_example(make_tiny):
    _, roomy, _ = make_tiny(LEVELS, SIZE)
    longest = max(len(roomy.next_item([[0, 0]] * 3, wording, LEVELS)) for wording in range(3)) + LEVELS
    _, prompter, _ = make_tiny(LEVELS, SIZE, max_tokens=longest)
    users = make_users(distinct=True)
    rows = leave_one_out(events_of(users))
    rows = rows[rows["split"] == "test"]
    for user, ids in zip(rows["user_id"], prompts(rows, CODES, prompter, max_history=20), strict=True):
        kept = items_in(prompter, ids)
        assert kept == users[user][:-1][-len(kept) :]
        assert len(kept) >= min(3, len(users[user]) - 1)
        assert len(ids) + LEVELS <= longest
    assert all(len(e.ids) <= longest for e in train(users, prompter, "all", max_history=20))
