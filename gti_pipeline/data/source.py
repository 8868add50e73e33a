"""Where a data set's raw files are: the folder given, data/raw/<name>, Kaggle, or the committed stand-in."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gti_pipeline.artifacts import file_digest
from gti_pipeline.config import DataConfig
from gti_pipeline.data import kaggle
from gti_pipeline.errors import GtiError

STANDINS = Path(__file__).resolve().parents[2] / "data" / "standin"


@dataclass(frozen=True)
class Source:
    """The raw files of one run. `name` is the data set's name in paths, tables and runs."""

    name: str
    folder: Path
    is_standin: bool
    files: dict[str, Path]  # name in the configuration -> where it is
    note: str  # what was chosen and why


def resolve_source(config: DataConfig, home: Path) -> Source:
    """Finds the files that `config` names, in the order: `dir`, `<home>/raw/<name>`, Kaggle, stand-in.

    Raises:
        GtiError: a folder or file is missing (all missing files are listed), or nothing is there and the stand-in is
            not there or not allowed.
    """
    names = _file_names(config)
    if config.dir:
        folder = Path(config.dir).expanduser()
        return Source(config.name, folder, False, _require(folder, names), f"files of data.dir={config.dir}")
    raw = home / "raw" / config.name
    if _visible(raw):
        return Source(config.name, raw, False, _require(raw, names), f"raw files in {raw}")
    tried = f"no raw files in {raw}"
    if config.kaggle:
        problem = kaggle.download(config.kaggle, names, raw)
        if problem is None:
            note = f"downloaded from Kaggle ({config.kaggle}) to {raw}"
            return Source(config.name, raw, False, _require(raw, names), note)
        tried += f"; {problem}"
    if config.standin == "none" or config.require_real:
        raise GtiError(_instructions(config, raw, names, tried))
    folder = STANDINS / config.standin
    return Source(f"{config.name}-standin", folder, True, _require(folder, names), f"{tried}: generated stand-in used")


def source_digests(source: Source) -> dict[str, str]:
    """sha256 of each file, by its name in the configuration."""
    return {name: file_digest(path) for name, path in source.files.items()}


def _file_names(config: DataConfig) -> list[str]:
    names: list[str] = []
    for setting, value in (("items", config.items.file), ("interactions", config.interactions.file)):
        files = [value] if isinstance(value, str) else list(value)
        if not files:
            raise GtiError(f"data.{setting}.file is empty: name at least one file")
        names += files
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise GtiError(f"data.items.file and data.interactions.file name {twice} more than once: name each file once")
    return names


def _visible(folder: Path) -> list[str]:
    """Names in a folder, hidden ones aside; none where there is no folder."""
    return sorted(p.name for p in folder.iterdir() if not p.name.startswith(".")) if folder.is_dir() else []


def _require(folder: Path, names: Sequence[str]) -> dict[str, Path]:
    """Path of each named file; one error lists all that are missing."""
    if not folder.is_dir():
        raise GtiError(f"{folder}: no such folder; it should hold {list(names)}")
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        present = _visible(folder)
        lines = [f"\n  - {name} is missing{_nearest(name, present)}" for name in missing]
        raise GtiError(f"{folder}: expected {list(names)}, found {present[:20]}{''.join(lines)}")
    return {name: folder / name for name in names}


def _nearest(name: str, present: Sequence[str]) -> str:
    match = difflib.get_close_matches(name, present, n=1)
    return f", nearest: {match[0]}" if match else ""


def _instructions(config: DataConfig, raw: Path, names: Sequence[str], tried: str) -> str:
    lines = [f"data set {config.name!r}: {tried}", f"  - put {', '.join(names)} into {raw}, or set data.dir (DATA_DIR)"]
    if config.kaggle:
        lines.append(f"  - they are Kaggle's {config.kaggle}: with the extra `kaggle` installed they are downloaded")
    if config.standin != "none":
        lines.append(
            f"  - the stand-in {config.standin!r} is refused: unset REQUIRE_REAL (data.require_real) to use it"
        )
    return "\n".join(lines)
