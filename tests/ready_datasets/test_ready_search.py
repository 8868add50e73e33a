"""Every search YAML of configs/datasets on small files in its layout: exact counts, texts and grades."""

import re

import pytest
import search_layouts
import yaml

from gti_pipeline.data.source import resolve_source
from gti_pipeline.search.data import prepare
from gti_pipeline.settings import CONFIGS, load_config

NAMES = sorted(search_layouts.LAYOUTS)


def load(name, *overrides):
    return load_config(profile="tiny", dataset=name, overrides=overrides).data


@pytest.mark.parametrize("name", NAMES)
def test_counts_texts_and_grades(name, tmp_path):
    expected = search_layouts.LAYOUTS[name](tmp_path)
    config = load(name, f"data.dir={tmp_path}")
    source = resolve_source(config, tmp_path)
    assert not source.is_standin
    prepared = prepare(config, source)
    texts = prepared.queries.set_index("query_id")["text"].to_dict()
    assert {query: texts[query] for query in expected.queries} == expected.queries
    titles = prepared.items.set_index("item_id")["title"].to_dict()
    assert {item: titles[item] for item in expected.titles} == expected.titles
    assert len(titles) == search_layouts.ITEMS
    judgments = prepared.judgments.set_index(["query_id", "item_id"])["grade"].to_dict()
    assert judgments == expected.judgments
    found = {}
    for file, numbers in prepared.summary["files"].items():
        rejected, left_out = numbers["rejected"], numbers["left_out"]
        assert numbers["read"] == numbers["kept"] + sum(rejected.values()) + sum(left_out.values())
        found[file] = (numbers["read"], rejected, left_out)
    assert found == expected.counts


@pytest.mark.parametrize("name", NAMES)
def test_the_head_says_what_a_user_needs(name):
    text = (CONFIGS / "datasets" / f"{name}.yaml").read_text(encoding="utf-8")
    head = text[: text.index("data:\n")]
    assert all(line.startswith("#") for line in head.splitlines())
    for part in ("Prerequisites:", "Command:", "Override:", f"DATASET={name}"):
        assert part in head
    tables = yaml.safe_load(text)["data"]
    for table in ("items", "queries", "judgments"):
        assert tables[table]["file"] in head


@pytest.mark.parametrize("name", NAMES)
def test_the_override_of_the_head_is_valid(name):
    text = (CONFIGS / "datasets" / f"{name}.yaml").read_text(encoding="utf-8")
    command = " ".join(
        line.removeprefix("#") for line in text[text.index("# Override:") :].splitlines() if line[:1] == "#"
    )
    overrides = re.findall(r"--set '?([^\s']+)", command.split("Choices:")[0])
    assert overrides
    assert load(name, *overrides) != load(name)
