"""Fetches just the named files of a Kaggle data set, where Kaggle can be reached, and records what was fetched.

A download is published whole: until every file is there they lie in `.<folder>-partial` beside the folder, where the
next run goes on. `downloads.json` among the files says where each came from and what its bytes were.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import shutil
import threading
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path, PurePosixPath
from urllib.parse import quote

import httpx

from gti_pipeline.artifacts import file_digest, write_text
from gti_pipeline.data.http_file import CONNECT_SECONDS, FetchError, fetch
from gti_pipeline.errors import GtiError, raise_all

KAGGLE = "https://www.kaggle.com"  # another address: the environment variable GTI_KAGGLE_URL
RECORD = "downloads.json"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Download:
    """One file as it was fetched; `bytes` and `sha256` are those of the file itself, unzipped; `time` is ISO, UTC."""

    handle: str
    url: str
    file: str
    bytes: int
    sha256: str
    time: str


def download(handle: str, names: Sequence[str], folder: Path) -> str | None:
    """Puts `names` of the data set `handle` (owner/name) into `folder`, all or none; returns one line on failure.

    Files that are there stay as they are. A file recorded in the folder must come with its recorded digest.
    """
    base = (os.environ.get("GTI_KAGGLE_URL") or KAGGLE).rstrip("/")
    problem = unreachable(base)
    if problem:
        return f"Kaggle cannot be reached ({base}: {problem}), so {handle} was not downloaded"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _alone(folder.with_name(f".{folder.name}.lock")):
            _fetch_all(base, handle, names, folder)
    except FetchError as error:
        return f"Kaggle download of {handle} failed: {error}{_advice(error)}"
    except OSError as error:
        return f"Kaggle download of {handle} failed: {error.filename or folder}: {error.strerror or error}"
    return None


def verify(folder: Path, names: Sequence[str]) -> None:
    """Checks downloaded files against their record; one that is gone is fetched again. No record, nothing to check.

    Raises:
        GtiError: names every file that differs from its record, or says why a lost one could not be fetched.
    """
    known = _read_record(folder)
    lost = [name for name in names if name in known and not (folder / name).is_file()]
    if lost:
        problem = download(known[lost[0]].handle, lost, folder)
        if problem:
            raise GtiError(f"{folder}: {lost} of {RECORD} are missing, and could not be fetched again: {problem}")
    raise_all(
        f"{folder}: files differ from their download:",
        [
            f"{name}: sha256 is not the one in {RECORD}: delete the file and it is fetched again, or delete {RECORD}"
            " if the change is yours"
            for name in names
            if name in known and not _matches(folder / name, known[name])
        ],
    )


@cache
def unreachable(base: str) -> str | None:
    """Why `base` does not answer in time, or None; asked once a process.

    Name resolution knows no time-out, hence the thread.
    """
    answers: list[str | None] = []
    thread = threading.Thread(target=lambda: answers.append(_no_answer(base)), daemon=True)
    thread.start()
    thread.join(CONNECT_SECONDS)
    return answers[0] if answers else f"no answer within {CONNECT_SECONDS:g} s"


def _no_answer(base: str) -> str | None:
    try:
        httpx.head(base, timeout=CONNECT_SECONDS)  # any status will do: whether it has the file is seen later
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError, ImportError) as error:
        return " ".join(str(error).split()) or type(error).__name__
    return None


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """One download of a folder at a time; a second process waits, then finds the files there."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch_all(base: str, handle: str, names: Sequence[str], folder: Path) -> None:
    known = _read_record(folder)
    partial = folder.with_name(f".{folder.name}-partial")
    done = _read_record(partial, strict=False)
    wanted = [name for name in names if not (folder / name).is_file()]
    for name in wanted:
        target = partial / name
        if name not in done or not _matches(target, done[name]):
            log.info("Kaggle: downloading %s of %s", name, handle)
            target.parent.mkdir(parents=True, exist_ok=True)
            done[name] = _fetch_one(base, handle, name, target)
            _write_record(partial, done)
        if name in known and done[name].sha256 != known[name].sha256:
            target.unlink()
            raise FetchError(
                f"{name}: sha256 {done[name].sha256} is not the {known[name].sha256} of {folder / RECORD}:"
                " delete that record to take the new file"
            )
    if wanted:
        _publish(partial, folder, known, {name: done[name] for name in wanted})


def _fetch_one(base: str, handle: str, name: str, target: Path) -> Download:
    url = f"{base}/api/v1/datasets/download/{handle}/{quote(name, safe='')}"
    fetch(url, target, _credentials())
    _unzip(target)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Download(handle, url, name, target.stat().st_size, file_digest(target), now)


def _unzip(path: Path) -> None:
    """Replaces a zip by the one file in it: Kaggle zips large files on the way."""
    if path.suffix == ".zip" or not zipfile.is_zipfile(path):
        return
    unzipped = path.with_name(f"{path.name}.unzipped")
    try:
        with zipfile.ZipFile(path) as archive:
            members = [member for member in archive.namelist() if PurePosixPath(member).name == path.name]
            if len(members) != 1:
                raise FetchError(f"{path.name}: came in a zip that holds {archive.namelist()[:5]}")
            with archive.open(members[0]) as source, unzipped.open("wb") as sink:
                shutil.copyfileobj(source, sink)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        path.unlink()
        raise FetchError(f"{path.name}: came in a damaged zip ({error}): run again") from error
    unzipped.replace(path)


def _publish(partial: Path, folder: Path, known: Mapping[str, Download], new: Mapping[str, Download]) -> None:
    """Moves the files of `new` into the folder; a folder that is not there yet appears in one rename."""
    if not folder.exists():
        for path in [path for path in partial.rglob("*") if path.is_file()]:
            if path.relative_to(partial).as_posix() not in new:
                path.unlink()  # left by an earlier run that wanted other files
        _write_record(partial, new)
        partial.rename(folder)
        return
    _write_record(folder, {**known, **new})  # first: a file that a crash leaves behind is then known to be missing
    for name in new:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (partial / name).replace(folder / name)
    shutil.rmtree(partial)


def _matches(path: Path, record: Download) -> bool:
    return path.is_file() and path.stat().st_size == record.bytes and file_digest(path) == record.sha256


def _read_record(folder: Path, strict: bool = True) -> dict[str, Download]:
    """The downloads recorded in a folder, by file name; where not `strict`, an unreadable record counts as none."""
    path = folder / RECORD
    try:
        entries = [Download(**entry) for entry in json.loads(path.read_text(encoding="utf-8"))]
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError) as error:
        if not strict:
            return {}
        raise GtiError(f"{path}: not readable as a record of downloads ({error}): delete it") from error
    return {entry.file: entry for entry in entries}


def _write_record(folder: Path, record: Mapping[str, Download]) -> None:
    write_text(folder / RECORD, json.dumps([asdict(entry) for entry in record.values()], indent=2) + "\n")


def _credentials() -> tuple[str, str] | None:
    """(user, key) of KAGGLE_USERNAME and KAGGLE_KEY, else of ~/.kaggle/kaggle.json; public files need none."""
    user, key = os.environ.get("KAGGLE_USERNAME"), os.environ.get("KAGGLE_KEY")
    if user and key:
        return user, key
    path = Path("~/.kaggle/kaggle.json").expanduser()
    try:
        entry = json.loads(path.read_text(encoding="utf-8"))
        return str(entry["username"]), str(entry["key"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise FetchError(f"{path}: not a JSON object with username and key: mend or remove it") from error


def _advice(error: FetchError) -> str:
    if error.status in (401, 403):
        return (
            ": Kaggle refuses access. Set KAGGLE_USERNAME and KAGGLE_KEY (or ~/.kaggle/kaggle.json) to a token of an"
            " account that has accepted the data set's terms"
        )
    return ": the data set has no such file" if error.status == 404 else ""
