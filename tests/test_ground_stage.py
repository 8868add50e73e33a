"""The vocab and ground stages on a small catalogue: what they write, say, resume and hand on."""

from __future__ import annotations

import logging

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from gti_pipeline import schemas
from gti_pipeline.artifacts import Artifact
from gti_pipeline.config import Config, GroundConfig, LmConfig, SemanticIdsConfig, VocabConfig
from gti_pipeline.lm.extended import embedding_rows
from gti_pipeline.stages import ground, vocab
from gti_pipeline.stages.base import Workspace
from gti_pipeline.vocab import keyword_rows, load_rows

TITLES = ["linen dress", "wool coat", "silk dress", "denim jacket", "wool scarf <sid_1_0>", "linen shirt"] * 2


class Killed(BaseException):
    """In the place of a signal."""


@pytest.fixture
def inputs(tmp_path):
    """(data, semantic_ids) of 12 items, half of them with a description."""
    folders = {name: tmp_path / name for name in ("data", "semantic_ids")}
    for folder in folders.values():
        folder.mkdir()
    ids = [f"i{n}" for n in range(12)]
    descriptions = [f"{title}, number {n}" if n % 2 else "" for n, title in enumerate(TITLES)]
    items = pd.DataFrame({"item_id": ids, "title": TITLES, "description": descriptions, "group_id": [None] * 12})
    schemas.ITEMS.write(items, folders["data"])
    codes = [[n // 4, n % 4] for n in range(12)]
    schemas.SEMANTIC_IDS.write(pd.DataFrame({"item_id": ids, "codes": codes}), folders["semantic_ids"])
    return [Artifact(name, "0", folder) for name, folder in folders.items()]


def settings(tmp_path, init="mean", **changes):
    grounding = {"batch_size": 8, "learning_rate": 0.03, "max_steps": 12, "check_steps": 4, "probe_items": 6}
    return Config(
        home=str(tmp_path),
        lm=LmConfig(model="tiny", device="cpu", max_tokens=256),
        semantic_ids=SemanticIdsConfig(num_levels=2, codebook_size=4),
        vocab=VocabConfig(init=init),
        ground=GroundConfig(**{**grounding, **changes}),
    )


def run(tmp_path, inputs, home="home", **changes):
    """(vocab artifact, ground artifact)."""
    config, workspace = settings(tmp_path, **changes), Workspace(tmp_path / home, "small")
    words = vocab.run(config, workspace, *inputs)
    return words, ground.run(config, workspace, *inputs, words)


def test_tables_and_summary(tmp_path, inputs, caplog):
    with caplog.at_level(logging.INFO):
        words, made = run(tmp_path, inputs, valid_share=0.5)
    pairs = schemas.GROUNDING_PAIRS.read(made.path)
    # six items have one wording in each direction, six have three; half of those hold one out
    assert (len(pairs), (pairs["split"] == "valid").sum()) == (6 * 2 + 6 * 6, 6)
    assert (made.summary["pairs"], made.summary["held_out_pairs"]) == (48, 6)
    assert made.summary["budget"]["examples_per_epoch"] == 42
    steps = schemas.STEPS.read(made.path)
    assert steps.loc[steps["metric"] == "valid_loss", "step"].tolist() == [0, 4, 8, 12]
    assert made.summary["valid_loss_last"] < made.summary["valid_loss_first"]
    probed = schemas.PROBE.read(made.path)
    assert probed["phase"].value_counts().to_dict() == {"before": 6, "after": 6}
    assert made.summary["sentence"].startswith(made.summary["budget"]["sentence"])
    assert made.summary["probe"]["sentence"] in caplog.text
    level = logging.WARNING if made.summary["probe"]["missed"] else logging.INFO
    assert {r.levelno for r in caplog.records if "probe of 6 items" in r.message} == {level}
    rows, ids = load_rows(made.path)
    start, same = load_rows(words.path)
    assert np.array_equal(ids, same)
    assert not torch.equal(rows, start)
    assert not (made.path / "model").exists()


def test_grounding_that_gains_nothing_is_said(tmp_path, inputs, caplog):
    _, made = run(tmp_path, inputs, learning_rate=1e-12, max_steps=1)
    assert made.summary["probe"]["missed"] == ["text_to_sid", "sid_to_text"]
    assert "Grounding did NOT beat its own start by more than chance: text_to_sid, sid_to_text" in caplog.text
    assert "did NOT beat its own start" in made.summary["sentence"]


def test_no_probe_and_nothing_to_hold_out(tmp_path, inputs, caplog):
    _, made = run(tmp_path, inputs, probe_items=0, text_to_sid=("title",), sid_to_text=("title",))
    assert "probe" not in made.summary
    assert not (made.path / "probe.parquet").exists()
    assert made.summary["held_out_pairs"] == 0
    assert "no item has two wordings" in caplog.text


def test_a_killed_stage_goes_on_and_gives_the_same_rows(tmp_path, inputs, monkeypatch):
    done = []

    class Dies:
        def __init__(self, stage, unit):
            pass

        def __call__(self, step, total):
            done.append(step)
            if done == list(range(1, 11)):
                raise Killed

    _, whole = run(tmp_path, inputs, home="whole")
    monkeypatch.setattr(ground, "Progress", Dies)
    with pytest.raises(Killed):
        run(tmp_path, inputs)
    _, made = run(tmp_path, inputs)
    assert done == [*range(1, 11), *range(9, 13)]
    assert torch.equal(load_rows(made.path)[0], load_rows(whole.path)[0])
    assert schemas.STEPS.read(made.path).equals(schemas.STEPS.read(whole.path))
    assert list((tmp_path / "home" / "work").iterdir()) == []


def test_the_second_phase_leaves_a_whole_model(tmp_path, inputs):
    words, made = run(tmp_path, inputs, second_phase_steps=3)
    model = AutoModelForCausalLM.from_pretrained(made.path / "model")
    base = AutoModelForCausalLM.from_pretrained(words.path / "base")
    rows, ids = load_rows(made.path)
    table = embedding_rows(model)
    assert torch.equal(table[ids.ravel()], rows)
    known = int(ids.min())
    assert not torch.equal(table[:known], embedding_rows(base)[:known])
    assert len(AutoTokenizer.from_pretrained(made.path / "model")) == len(table)
    assert made.summary["second_phase"]["steps"] == 3
    assert "then everything unfrozen: 3 steps" in made.summary["sentence"]


def test_keyword_rows_come_from_the_titles(tmp_path, inputs):
    config, workspace = settings(tmp_path, init="keyword"), Workspace(tmp_path / "home", "small")
    made = vocab.run(config, workspace, *inputs)
    tokenizer = AutoTokenizer.from_pretrained(made.path / "base")
    model = AutoModelForCausalLM.from_pretrained(made.path / "base")
    texts = [f" {title.removesuffix('<sid_1_0>')}" for title in TITLES]  # a new token in a title does not count
    words = tokenizer(texts, add_special_tokens=False)["input_ids"]
    codes = np.array([[n // 4, n % 4] for n in range(12)])
    rows, _ = load_rows(made.path)
    expected = keyword_rows(embedding_rows(model)[: len(tokenizer)], words, codes, 4)
    assert len(torch.unique(rows, dim=0)) > 4
    assert torch.allclose(rows, expected)
    assert made.summary["init"] == "keyword"
