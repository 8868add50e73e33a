"""Artifacts: keyed by content, whole or absent, broken ones found and said."""

from __future__ import annotations

import json
import logging
import os
import threading

import pytest

from gti_pipeline import artifacts
from gti_pipeline.artifacts import MANIFEST, Store, artifact_key, code_digest, digest, file_digest, write_text
from gti_pipeline.errors import GtiError

STAGE = "gti_pipeline.stages.ground"


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "artifacts")


def write(folder):
    (folder / "part").mkdir()
    (folder / "table.txt").write_text("one\ntwo\n")
    (folder / "part" / "weights.bin").write_bytes(bytes(range(256)))
    return {"rows": 2}


@pytest.fixture
def made(store):
    return store.create("vocab", "abc", write, {"settings": {"a": 1}})


def left_over(store):
    """Everything below the store's folder but empty stage folders."""
    return sorted(path.name for path in store.root.rglob("*") if path.is_file() or path.parent != store.root)


def test_a_key_changes_with_everything_that_makes_the_result():
    settings, inputs = {"rate": 0.1, "levels": [1, 2]}, {"data": "d0", "vocab": "v0"}
    base = artifact_key("ground", settings, inputs, STAGE)
    assert len(base) == 16
    others = [
        artifact_key("ground", {"rate": 0.1, "levels": [2, 1]}, inputs, STAGE),
        artifact_key("ground", {"rate": 0.2, "levels": [1, 2]}, inputs, STAGE),
        artifact_key("ground", settings, {"data": "d1", "vocab": "v0"}, STAGE),
        artifact_key("ground", settings, {"data": "v0", "vocab": "d0"}, STAGE),
        artifact_key("sft", settings, inputs, STAGE),
        artifact_key("ground", settings, inputs, "gti_pipeline.stages.sft"),
    ]
    assert len({base, *others}) == 7
    assert artifact_key("ground", dict(reversed(settings.items())), dict(reversed(inputs.items())), STAGE) == base


def test_a_digest_tells_types_apart_and_ignores_the_order_of_keys():
    assert len({digest(value) for value in (1, "1", [1], 1.5, True, None, {"1": 1})}) == 7
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A function that writes a package's modules and gives the code digest of one of them."""
    monkeypatch.setattr(artifacts, "PACKAGE", tmp_path / "pack")

    def look(module, **sources):
        for name, source in sources.items():
            path = tmp_path / "pack" / (name.replace("__", "/") + ".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source)
        return code_digest.__wrapped__(module)

    return look


def test_the_code_digest_covers_what_a_module_imports_however_far(package):
    sources = {
        "stage": "from pack.middle import f\n",
        "middle": "def f():\n    import pack.lm.deep as deep\n",
        "lm__deep": "x = 1\n",
        "other": "y = 1\n",
    }
    base = package("pack.stage", **sources)
    assert package("pack.stage", other="y = 2\n") == base
    assert package("pack.stage", lm__deep="x = 2\n") != base
    assert package("pack.stage", lm__deep="x = 1\n") == base
    assert package("pack.stage", middle="from pack import other\n") != base
    assert package("pack.stage", stage="from pack.middle import f\n\n") != base


def test_modules_that_import_each_other_have_a_digest(package):
    assert package("pack.a", a="import pack.b\n", b="import pack.a\n") != package("pack.a", b="import pack.a  # \n")


@pytest.mark.parametrize(
    ("stage", "covered", "not_covered"),
    [
        ("ground", ["gti_pipeline.lm.prompts", "gti_pipeline.ground", "gti_pipeline.vocab"], ["gti_pipeline.sft"]),
        ("sft", ["gti_pipeline.sft", "gti_pipeline.lm.lora", "gti_pipeline.decode.beam"], ["gti_pipeline.ground"]),
        ("recommend", ["gti_pipeline.decode.beam", "gti_pipeline.decode.trie"], ["gti_pipeline.tracking"]),
        ("evaluate", ["gti_pipeline.evaluate.metrics"], ["gti_pipeline.ground"]),
    ],
)
def test_a_stages_digest_covers_its_own_code(stage, covered, not_covered):
    seen: dict[str, str] = {}
    artifacts._collect_sources(f"gti_pipeline.stages.{stage}", seen)
    assert set(covered) <= set(seen)
    assert not set(not_covered) & set(seen)


def test_an_artifact_is_made_once_and_then_found(store, made):
    found = store.find("vocab", "abc")
    assert (made.cached, found.cached) == (False, True)
    assert found.path == made.path == store.root / "vocab" / "abc"
    assert found.summary == made.summary
    assert found.summary["rows"] == 2
    assert (found.path / "table.txt").read_text() == "one\ntwo\n"
    manifest = json.loads((found.path / MANIFEST).read_text())
    assert manifest["settings"] == {"a": 1}
    assert manifest["files"]["part/weights.bin"] == {
        "bytes": 256,
        "sha256": file_digest(found.path / "part" / "weights.bin"),
    }
    assert store.find("vocab", "other") is None


@pytest.mark.parametrize("error", [RuntimeError("boom"), OSError("disk full"), GtiError("bad"), KeyboardInterrupt()])
def test_an_exception_while_writing_leaves_nothing(store, error):
    def fail(folder):
        write(folder)
        raise error

    with pytest.raises(type(error)):
        store.create("vocab", "abc", fail, {})
    assert left_over(store) == []
    assert store.find("vocab", "abc") is None


def test_nothing_is_published_before_the_manifest_is_written(store, monkeypatch):
    def fail(path, text):
        assert (path.parent / "table.txt").exists()
        assert not (store.root / "vocab" / "abc").exists()
        raise OSError("no space")

    monkeypatch.setattr(artifacts, "write_text", fail)
    with pytest.raises(OSError, match="no space"):
        store.create("vocab", "abc", write, {})
    assert left_over(store) == []


def change_byte(path):
    data = bytearray((path / "part" / "weights.bin").read_bytes())
    data[7] ^= 1
    (path / "part" / "weights.bin").write_bytes(data)


def rewrite_manifest(**changes):
    def change(path):
        manifest = json.loads((path / MANIFEST).read_text())
        (path / MANIFEST).write_text(json.dumps(manifest | changes))

    return change


BREAKAGES = {
    "no manifest": (lambda path: (path / MANIFEST).unlink(), "it has no manifest"),
    "changed byte": (change_byte, "part/weights.bin differs from its recorded digest"),
    "shorter file": (lambda path: (path / "table.txt").write_text("one\n"), "table.txt differs"),
    "missing file": (lambda path: (path / "table.txt").unlink(), "table.txt is missing"),
    "folder for a file": (
        lambda path: (path / "table.txt").unlink() or (path / "table.txt").mkdir(),
        "table.txt is missing",
    ),
    "empty manifest": (lambda path: (path / MANIFEST).write_text(""), "its manifest is not readable"),
    "cut manifest": (lambda path: os.truncate(path / MANIFEST, 60), "its manifest is not readable"),
    "bytes for a manifest": (
        lambda path: (path / MANIFEST).write_bytes(b"\xff\xfe\x00"),
        "its manifest is not readable",
    ),
    "list for a manifest": (lambda path: (path / MANIFEST).write_text("[1]"), "its manifest is not readable"),
    "no files in it": (rewrite_manifest(files=None), "its manifest is not readable"),
    "no digest in it": (rewrite_manifest(files={"table.txt": {}}), "its manifest is not readable"),
    "no summary in it": (rewrite_manifest(summary=None), "its manifest has no summary"),
    "another's manifest": (rewrite_manifest(key="xyz"), "its manifest is another artifact's"),
}


@pytest.mark.parametrize("name", BREAKAGES)
def test_a_broken_artifact_is_said_removed_and_made_again(store, made, caplog, name):
    harm, said = BREAKAGES[name]
    harm(made.path)
    with caplog.at_level(logging.WARNING, logger="gti_pipeline.artifacts"):
        assert store.find("vocab", "abc") is None
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith(f"vocab: artifact abc is broken ({said}")
    assert not made.path.exists()
    again = store.create("vocab", "abc", write, {})
    assert not again.cached
    assert store.find("vocab", "abc") is not None


def test_racing_publishers_end_with_one_whole_artifact(store):
    barrier = threading.Barrier(4)
    results = []

    def publish(name):
        def slow(folder):
            (folder / "who.txt").write_text(name * 1000)
            barrier.wait(timeout=30)  # all have written before any publishes
            return {"who": name}

        results.append(store.create("vocab", "abc", slow, {}))

    threads = [threading.Thread(target=publish, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    found = store.find("vocab", "abc")
    assert (found.path / "who.txt").read_text() == found.summary["who"] * 1000
    assert {result.summary["who"] for result in results} == {found.summary["who"]}
    assert sorted(result.cached for result in results) == [False, True, True, True]
    assert [path.name for path in (store.root / "vocab").iterdir()] == ["abc"]


def test_a_text_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    write_text(path, "old ø")
    assert path.read_text(encoding="utf-8") == "old ø"

    def fail(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(GtiError, match=r"report.html: cannot be written \(No space left on device\)"):
        write_text(path, "new " * 1000)
    assert path.read_text(encoding="utf-8") == "old ø"
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_a_folder_that_is_not_there_is_an_error_that_names_the_file(tmp_path):
    with pytest.raises(GtiError, match=r"missing/a.txt: cannot be written \(No such file or directory\)"):
        write_text(tmp_path / "missing" / "a.txt", "text")
