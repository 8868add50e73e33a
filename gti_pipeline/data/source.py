"""Where a data set's raw files are: the folder given, data/raw/<name>, Kaggle, or the committed stand-in."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gti_pipeline.artifacts import file_digest
from gti_pipeline.config import DataConfig
from gti_pipeline.data import kaggle
from gti_pipeline.data.mapping import as_names, tables
from gti_pipeline.data.readers import FORMATS, suffix
from gti_pipeline.errors import GtiError

STANDINS = Path(__file__).resolve().parents[2] / "data" / "standin"


@dataclass(frozen=True)
class Source:
    """The raw files of one run. `name` is the data set's name in paths, tables and runs."""

    name: str
    folder: Path
    is_standin: bool
    files: dict[str, Path]  # name in the configuration, of a shard folder/name -> where it is
    note: str  # what was chosen and why


def resolve_source(config: DataConfig, home: Path) -> Source:
    """Finds the files that `config` names, in the order: `dir`, `<home>/raw/<name>`, Kaggle, stand-in.

    Raises:
        GtiError: a folder or file is missing (all missing files are listed), a downloaded file differs from its
            record, or nothing is there and the stand-in is not there or not allowed.
    """
    names = _file_names(config)
    if config.dir:
        folder = Path(config.dir).expanduser()
        return Source(config.name, folder, False, _require(folder, names), f"files of data.dir={config.dir}")
    raw = home / "raw" / config.name
    if _visible(raw):
        kaggle.verify(raw, names)
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


def shards(source: Source, file: str | tuple[str, ...]) -> list[str]:
    """The names in `source.files` of a setting that names a file, several, or folders of shards, in order."""
    names = [file] if isinstance(file, str) else list(file)
    return [known for name in names for known in source.files if known == name or known.startswith(f"{name}/")]


def _file_names(config: DataConfig) -> list[str]:
    names: list[str] = []
    for setting, section in tables(config):
        files = as_names(section.file)
        if not files:
            raise GtiError(f"data.{setting}.file is empty: name at least one file")
        names += [name.rstrip("/") for name in files]
    both = {*as_names(config.queries.file)} & {*as_names(config.judgments.file)} if config.task == "search" else set()
    twice = sorted({name for name in names if names.count(name) > 1 + (name in both)})
    if twice:
        raise GtiError(f"the `file` settings of data name {twice} more than once: name each file once")
    return list(dict.fromkeys(names))


def _visible(folder: Path) -> list[str]:
    """Names in a folder, hidden ones aside; none where there is no folder."""
    return sorted(p.name for p in folder.iterdir() if not p.name.startswith(".")) if folder.is_dir() else []


def _require(folder: Path, names: Sequence[str]) -> dict[str, Path]:
    """Path of each named file and of each file in a named folder; one error lists all that are missing."""
    if not folder.is_dir():
        raise GtiError(f"{folder}: no such folder; it should hold {list(names)}")
    present, missing, found = _visible(folder), [], {}
    for name in names:
        files = _in_folder(folder / name) if (folder / name).is_dir() else []
        if (folder / name).is_file():
            found[name] = folder / name
        elif files:
            found |= {f"{name}/{path.name}": path for path in files}
        elif (folder / name).is_dir():
            missing.append(f"\n  - {name} is a folder without a file that can be read ({', '.join(FORMATS)})")
        else:
            missing.append(f"\n  - {name} is missing{_nearest(name, present)}")
    if missing:
        raise GtiError(f"{folder}: expected {list(names)}, found {present[:20]}{''.join(missing)}")
    return found


def _in_folder(folder: Path) -> list[Path]:
    """The files of a folder of shards that can be read, in order of name; not those that writers leave as marks."""
    return sorted(p for p in folder.iterdir() if p.is_file() and p.name[0] not in "._" and suffix(p) in FORMATS)


def _nearest(name: str, present: Sequence[str]) -> str:
    match = difflib.get_close_matches(name, present, n=1)
    return f", nearest: {match[0]}" if match else ""


def _instructions(config: DataConfig, raw: Path, names: Sequence[str], tried: str) -> str:
    lines = [f"data set {config.name!r}: {tried}", f"  - put {', '.join(names)} into {raw}, or set data.dir (DATA_DIR)"]
    if config.kaggle:
        lines.append(f"  - they are Kaggle's {config.kaggle}: where Kaggle can be reached they are downloaded")
    if config.standin != "none":
        lines.append(
            f"  - the stand-in {config.standin!r} is refused: unset REQUIRE_REAL (data.require_real) to use it"
        )
    return "\n".join(lines)
