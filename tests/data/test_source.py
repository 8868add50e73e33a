"""Where files come from: the folder given, raw, Kaggle (here unreachable), the stand-in, or an error."""

import hashlib

import pytest

from gti_pipeline.config import DataConfig
from gti_pipeline.data import kaggle
from gti_pipeline.data.source import resolve_source, source_digests
from gti_pipeline.errors import GtiError


def fill(folder, *names):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text(f"{name}\n")


def vibrent(**changes):
    files = {"items": {"file": "outfits.csv"}}
    events = {"interactions": {"file": ("original_orders.csv", "user_activity_triplets.csv")}}
    return DataConfig.model_validate({"name": "vibrent", "standin": "vibrent"} | files | events | changes)


@pytest.fixture
def no_network(monkeypatch):
    monkeypatch.setattr(kaggle, "unreachable", lambda base: "no network")


def test_the_folder_given_wins(tmp_path):
    fill(tmp_path / "raw" / "mine", "items.csv", "interactions.csv")
    fill(tmp_path / "given", "items.csv", "interactions.csv")
    source = resolve_source(DataConfig(name="mine", dir=str(tmp_path / "given")), tmp_path)
    assert (source.name, source.is_standin, source.folder) == ("mine", False, tmp_path / "given")
    assert source_digests(source)["items.csv"] == hashlib.sha256(b"items.csv\n").hexdigest()


def test_raw_folder_before_the_standin(tmp_path):
    fill(tmp_path / "raw" / "vibrent", "outfits.csv", "original_orders.csv", "user_activity_triplets.csv")
    source = resolve_source(vibrent(), tmp_path)
    assert (source.name, source.is_standin) == ("vibrent", False)
    assert list(source.files) == ["outfits.csv", "original_orders.csv", "user_activity_triplets.csv"]


def test_a_partial_raw_folder_is_an_error_and_no_silent_fall_back(tmp_path):
    fill(tmp_path / "raw" / "vibrent", "outfit.csv", "original_orders.csv")
    with pytest.raises(GtiError) as error:
        resolve_source(vibrent(), tmp_path)
    assert "outfits.csv is missing, nearest: outfit.csv" in str(error.value)
    assert "user_activity_triplets.csv is missing" in str(error.value)


def test_missing_folder_and_file_are_named(tmp_path):
    with pytest.raises(GtiError, match=r"nowhere: no such folder; it should hold \['items.csv', 'interactions.csv'\]"):
        resolve_source(DataConfig(dir=str(tmp_path / "nowhere")), tmp_path)
    fill(tmp_path / "given", "items.csv")
    with pytest.raises(GtiError, match=r"found \['items.csv'\]\n  - interactions.csv is missing"):
        resolve_source(DataConfig(dir=str(tmp_path / "given")), tmp_path)


def test_the_standin_bears_its_name(tmp_path, no_network):
    (tmp_path / "raw" / "vibrent").mkdir(parents=True)  # an empty folder counts as none
    source = resolve_source(vibrent(kaggle="owner/name"), tmp_path)
    assert (source.name, source.is_standin) == ("vibrent-standin", True)
    assert "stand-in" in source.note
    assert "\n" not in source.note


def test_require_real_refuses_the_standin_with_instructions(tmp_path, no_network):
    with pytest.raises(GtiError) as error:
        resolve_source(vibrent(kaggle="owner/name", require_real=True), tmp_path)
    for said in ("outfits.csv", str(tmp_path / "raw" / "vibrent"), "owner/name", "REQUIRE_REAL"):
        assert said in str(error.value)


def test_nothing_anywhere(tmp_path):
    with pytest.raises(GtiError, match=r"put items\.csv, interactions\.csv into"):
        resolve_source(DataConfig(name="mine"), tmp_path)


def test_a_file_named_twice_is_refused(tmp_path):
    with pytest.raises(GtiError, match=r"\['items.csv'\] more than once"):
        resolve_source(DataConfig.model_validate({"interactions": {"file": "items.csv"}}), tmp_path)
