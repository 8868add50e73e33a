"""Every YAML of configs/datasets on small files in the layout that is published: exact counts, texts and order."""

import re

import layouts
import pytest
import search_layouts
import yaml

from gti_pipeline.config import DataConfig
from gti_pipeline.data.source import resolve_source
from gti_pipeline.data.stage import prepare
from gti_pipeline.settings import CONFIGS, load_config, names_in

NAMES = sorted(layouts.LAYOUTS)


def load(name, *overrides):
    return load_config(profile="tiny", dataset=name, overrides=overrides).data


def run(config, tmp_path):
    source = resolve_source(config.model_copy(update={"dir": str(tmp_path)}), tmp_path)
    assert not source.is_standin
    return prepare(config, source)


def test_every_data_set_has_a_layout():
    assert sorted([*layouts.LAYOUTS, *search_layouts.LAYOUTS]) == names_in("datasets")


@pytest.mark.parametrize("name", NAMES)
def test_counts_texts_and_order(name, tmp_path):
    expected = layouts.LAYOUTS[name](tmp_path)
    prepared = run(load(name), tmp_path)
    items = prepared.items.set_index("item_id")

    assert set(items.index) == expected.catalogue
    assert {i: tuple(items.loc[i, ["title", "description"]]) for i in expected.texts} == expected.texts
    taken = prepared.interactions.groupby("user_id")["item_id"].agg(list).to_dict()
    assert taken == expected.sequences()
    test = prepared.sequences[prepared.sequences["split"] == "test"]
    found = {row.user_id: [*row.history, row.target] for row in test.itertuples()}
    assert found == expected.sequences()
    assert counts(prepared) == expected.counts


def counts(prepared):
    """Per file (read, rejected by reason, left out by reason), checked to add up."""
    found = {}
    for file, numbers in prepared.summary["files"].items():
        rejected, left_out = numbers["rejected"], numbers["left_out"]
        assert numbers["read"] == numbers["kept"] + sum(rejected.values()) + sum(left_out.values())
        found[file] = (numbers["read"], rejected, left_out)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_the_head_says_what_a_user_needs(name):
    text = (CONFIGS / "datasets" / f"{name}.yaml").read_text(encoding="utf-8")
    head = text[: text.index("data:\n")]
    assert all(line.startswith("#") for line in head.splitlines())
    assert f"DATASET={name}" in head
    for part in ("Prerequisites:", "Command:", "Override:"):
        assert part in head
    files = yaml.safe_load(text)["data"]
    for file in (files["items"]["file"], files["interactions"]["file"]):
        for one in [file] if isinstance(file, str) else file:
            assert one in head


@pytest.mark.parametrize("name", NAMES)
def test_the_override_of_the_head_is_valid(name):
    text = (CONFIGS / "datasets" / f"{name}.yaml").read_text(encoding="utf-8")
    command = " ".join(
        line.removeprefix("#") for line in text[text.index("# Override:") :].splitlines() if line[:1] == "#"
    )
    overrides = re.findall(r"--set '?([^\s']+)", command.split("Choices:")[0])
    assert overrides
    config = load(name, *overrides)
    assert isinstance(config, DataConfig)
    assert config != load(name)


@pytest.mark.parametrize("name", ["movielens_100k", "movielens_1m", "movielens_32m"])
def test_ratings_can_be_restricted(name, tmp_path):
    expected = layouts.LAYOUTS[name](tmp_path)
    prepared = run(load(name, "data.interactions.min_rating=2.5", "data.k_core=0"), tmp_path)
    # a user's ratings go 1, 2, 3, 4, 5, 1 (in 32M half a star less)
    taken = prepared.interactions.groupby("user_id")["item_id"].agg(list).to_dict()
    assert taken == {user: items[2:5] for user, items in expected.sequences().items()}
