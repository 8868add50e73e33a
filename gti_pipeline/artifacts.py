"""Content-keyed artifacts: same inputs, settings and code give the same key, and the same key means no work.

An artifact is a folder `<root>/<stage>/<key>/`. It is written beside the store, its manifest last, and published with
one rename; so a folder without a manifest, or with a file that differs from it, is never taken for an artifact.
"""

from __future__ import annotations

import ast
import hashlib
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from gti_pipeline.errors import GtiError

MANIFEST = "manifest.json"
PACKAGE = Path(__file__).resolve().parent
# settings are in the key by value; how artifacts are stored changes no result
UNKEYED = {"gti_pipeline.config", "gti_pipeline.config_data", "gti_pipeline.artifacts"}

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Artifact:
    """A whole, verified artifact; `cached` tells whether it was there already."""

    stage: str
    key: str
    path: Path
    summary: dict[str, Any] = field(default_factory=dict)
    cached: bool = False


def digest(value: Any) -> str:
    """sha256 of a JSON value in canonical form."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def file_digest(path: Path) -> str:
    """sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@cache
def code_digest(module: str) -> str:
    """sha256 over the source of a module of this package and of all it imports from this package."""
    seen: dict[str, str] = {}
    _collect_sources(module, seen)
    return digest(seen)


def _collect_sources(module: str, seen: dict[str, str]) -> None:
    path = _source_path(module)
    if path is None or module in seen or module in UNKEYED:
        return
    source = path.read_bytes()
    seen[module] = hashlib.sha256(source).hexdigest()
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            _collect_sources(name, seen)


def _source_path(module: str) -> Path | None:
    parts = module.split(".")
    if parts[0] != PACKAGE.name:
        return None
    stem = PACKAGE.joinpath(*parts[1:])
    for path in (stem.with_suffix(".py"), stem / "__init__.py"):
        if path.is_file():
            return path
    return None


def artifact_key(stage: str, settings: Any, inputs: Mapping[str, str], module: str) -> str:
    """The content key of a stage's output: 16 hex digits over its settings, its inputs' keys and its code."""
    parts = {"stage": stage, "settings": settings, "inputs": dict(inputs), "code": code_digest(module)}
    return digest(parts)[:16]


class Store:
    """The artifacts below one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()

    def find(self, stage: str, key: str) -> Artifact | None:
        """The artifact, its files checked against the manifest; a broken one is said, removed and None."""
        path = self.root / stage / key
        if not path.exists():
            return None
        problem = _problem(path, stage, key)
        if problem is None:
            manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
            return Artifact(stage, key, path, manifest["summary"], cached=True)
        log.warning("%s: artifact %s is broken (%s): removed, computing it again", stage, key, problem)
        shutil.rmtree(path)
        return None

    def create(self, stage: str, key: str, write: Callable[[Path], dict[str, Any]], about: dict[str, Any]) -> Artifact:
        """Runs `write(folder)`, which returns a JSON summary, and publishes the folder whole or not at all."""
        final = self.root / stage / key
        final.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{key}-", dir=final.parent))
        try:
            start = time.monotonic()
            summary = write(folder) | {"seconds": round(time.monotonic() - start, 2)}
            _write_manifest(folder, {"stage": stage, "key": key, **about, "summary": summary})
            folder.chmod(0o755)  # mkdtemp makes it private
            folder.replace(final)
        except OSError:
            existing = self.find(stage, key)  # another process may have published the same artifact first
            if existing is None:
                raise
            return existing
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return Artifact(stage, key, final, summary)


def _write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    manifest["files"] = {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": file_digest(path)}
        for path in files
    }
    write_text(folder / MANIFEST, json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")


def _problem(path: Path, stage: str, key: str) -> str | None:
    """What is wrong with an artifact's folder, or None."""
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        if (manifest["stage"], manifest["key"]) != (stage, key):
            return "its manifest is another artifact's"
        for name, expected in manifest["files"].items():
            file = path / name
            if not file.is_file():
                return f"{name} is missing"
            if file.stat().st_size != expected["bytes"] or file_digest(file) != expected["sha256"]:
                return f"{name} differs from its recorded digest"
        if not isinstance(manifest["summary"], dict):
            return "its manifest has no summary"
    except FileNotFoundError:
        return "it has no manifest"
    except (ValueError, KeyError, TypeError, AttributeError):
        return "its manifest is not readable"
    return None


def write_text(path: Path, text: str) -> None:
    """Writes a text file so that it is either whole or absent, on disk before the rename."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise GtiError(f"{path}: cannot be written ({error.strerror}): free space or choose another `home`") from error
