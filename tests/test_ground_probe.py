"""The retrieval probe against exhaustive scoring, and how its outcome is told."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from gti_pipeline import schemas
from gti_pipeline.config import GroundConfig, LmConfig
from gti_pipeline.decode.exhaustive import score_catalogue
from gti_pipeline.ground import ground
from gti_pipeline.ground.probe import draw_sample, probe, summarize
from gti_pipeline.lm.extended import ExtendedLM, merge
from gti_pipeline.lm.load import load_model
from gti_pipeline.lm.pairs import encode_pairs, grounding_pairs
from gti_pipeline.lm.prompts import PROBE_TO_SID, PROBE_TO_TEXT
from gti_pipeline.vocab import sid_text

TITLES = [
    "linen summer dress", "woollen coat", "black evening dress", "denim jacket", "silk scarf", "striped shirt",
    "woollen coat", "leather boots", "straw hat", "running shoes",
]  # fmt: skip


@pytest.fixture
def world(make_tiny, tiny_lm):
    """(plain model, its extension, items, codes, token ids, prompter); two items share a title."""
    _, prompter, ids = make_tiny(levels=2, size=5)
    model = load_model(tiny_lm, LmConfig(model="tiny", device="cpu"))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(8 if parameter.dim() > 1 else 1)
    rows = torch.randn(10, 64, generator=torch.Generator().manual_seed(0)) * 0.2
    merge(model, rows, int(ids.min()))
    lm = ExtendedLM(model, rows, int(ids.min()))
    items = pd.DataFrame({"item_id": list("abcdefghij"), "title": TITLES, "description": [""] * 10})
    codes = {item: [n % 5, n // 5] for n, item in enumerate(items["item_id"])}
    return model, lm, items, codes, torch.from_numpy(ids), prompter


def mean_log_p(model, prompter, question, answer):
    example = prompter.example(question, answer, with_end=True)
    with torch.no_grad():
        logs = model(torch.tensor([example.ids])).logits[0, :-1].log_softmax(-1)
    asked = [i for i, supervised in enumerate(example.supervised) if supervised]
    return sum(logs[i - 1, example.ids[i]].item() for i in asked) / len(asked)


def test_ranks_and_wins_are_those_of_exhaustive_scoring(world):
    model, lm, items, codes, token_ids, prompter = world
    sample = draw_sample(items, 8, prompter, 20)
    found = probe(model, lm, sample, codes, token_ids, prompter)
    assert found["item_id"].tolist() == list(sample.item_ids)
    table = np.array(list(codes.values()))
    wins = []
    for number, (item, title) in enumerate(zip(sample.item_ids, sample.titles, strict=True)):
        scores = score_catalogue(model, prompter.prompt(PROBE_TO_SID.format(title=title)), table, token_ids)
        assert found["rank"][number] == 1 + (scores > scores[list(codes).index(item)]).sum()
        question = PROBE_TO_TEXT.format(sid=sid_text(codes[item]))
        own = mean_log_p(model, prompter, question, title)
        others = [mean_log_p(model, prompter, question, other) for other in sample.others[number]]
        wins.append(np.mean([own > other for other in others]))
    assert found["wins"].tolist() == pytest.approx(wins)
    assert len(set(found["rank"])) > 3
    assert len(set(wins)) > 1


def test_the_sample_is_fixed_and_never_compares_a_title_with_itself(world):
    _, _, items, _, _, prompter = world
    sample = draw_sample(items, 99, prompter, 20)
    assert sample == draw_sample(items, 99, prompter, 20)
    assert sample.item_ids == tuple("abcdefghij")
    for title, others in zip(sample.titles, sample.others, strict=True):
        assert len(others) == 3
        assert title not in others
    assert draw_sample(items, 4, prompter, 20).item_ids != draw_sample(items.iloc[::-1], 4, prompter, 20).item_ids
    assert draw_sample(items, 0, prompter, 20).item_ids == ()
    twins = draw_sample(items[items["title"] == "woollen coat"], 2, prompter, 20)
    assert twins.others == ((), ())


def test_grounding_beats_its_start_on_unseen_wordings(world, tmp_path):
    model, lm, items, codes, token_ids, prompter = world
    sample = draw_sample(items, 10, prompter, 20)
    before = probe(model, lm, sample, codes, token_ids, prompter)
    pairs = grounding_pairs(items, codes, GroundConfig(), prompter)
    examples = {}
    for direction, example in zip(pairs["direction"], encode_pairs(pairs, prompter), strict=True):
        examples.setdefault(direction, []).append(example)
    ground(lm, examples, GroundConfig(batch_size=10, learning_rate=0.05, epochs=60), 0, lambda done, total: None)
    after = probe(model, lm, sample, codes, token_ids, prompter)
    told = summarize(before, after, list(examples))
    assert told["after"]["mrr"] > told["before"]["mrr"] + 0.1
    assert told["after"]["wins"] > told["before"]["wins"]
    assert (told["missed"], "NOT" in told["sentence"]) == ([], False)
    both = pd.concat([before.assign(phase="before"), after.assign(phase="after")])
    schemas.PROBE.write(both, tmp_path)
    back = schemas.PROBE.read(tmp_path)
    assert back["rank"].tolist() == both["rank"].tolist()


def frame(ranks, wins):
    ids = [str(n) for n in range(len(ranks))]
    return pd.DataFrame({"item_id": ids, "rank": pd.array(ranks, dtype="Int32"), "wins": wins})


def test_the_numbers_by_hand():
    before = frame([None, None, 20, 10], [0.5, 0.5, None, 0.5])
    after = frame([1, None, 4, 11], [1.0, 0.5, None, 0.0])
    told = summarize(before, after, ["text_to_sid", "sid_to_text"])
    assert told["before"] == {"top1": 0.0, "top10": 0.25, "mrr": 0.0375, "wins": 0.5}
    assert told["after"] == {"top1": 0.25, "top10": 0.5, "mrr": 0.3352, "wins": 0.5}
    assert told["missed"] == ["sid_to_text"]
    assert told["sentence"].endswith("Grounding did NOT beat its own start by more than chance: sid_to_text")
    assert summarize(before, after, ["text_to_sid"])["missed"] == []
    assert summarize(after, before, ["text_to_sid"])["missed"] == ["text_to_sid"]


def test_a_gain_within_its_standard_error_is_none():
    """Reciprocal ranks rise by 1 and fall by 1/2: mean 1/4, standard error 0.75 / sqrt(2) = 0.53."""
    before, after = frame([None, 1], [0.5, 0.5]), frame([1, 2], [0.5, 0.5])
    assert summarize(before, after, ["text_to_sid"])["missed"] == ["text_to_sid"]
    assert summarize(before, frame([1, 1], [0.5, 0.5]), ["text_to_sid"])["missed"] == []  # mean 0.5, error 0.35
