"""Fetches just the named files of a Kaggle data set, where Kaggle can be reached."""

from __future__ import annotations

import importlib
import logging
import shutil
import threading
import urllib.error
import urllib.request
from collections.abc import Sequence
from functools import cache
from pathlib import Path

WAIT_SECONDS = 6.0

log = logging.getLogger(__name__)


def download(handle: str, names: Sequence[str], folder: Path) -> str | None:
    """Puts `names` of the data set `handle` (owner/name) into `folder`, all or none; returns one line on failure."""
    try:
        kagglehub = importlib.import_module("kagglehub")
    except ImportError:
        return f"Kaggle not tried for {handle}: the optional package kagglehub is not installed"
    if not reachable():
        return f"Kaggle cannot be reached within {WAIT_SECONDS:.0f} s, so {handle} was not downloaded"
    partial = folder.with_name(f".{folder.name}-partial")
    try:
        for name in names:
            log.info("Kaggle: downloading %s of %s", name, handle)
            target = partial / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(kagglehub.dataset_download(handle, path=name), target)
        if folder.is_dir():
            folder.rmdir()  # empty, or the raw files in it would have been used
        partial.rename(folder)
    except Exception as error:  # whatever a foreign client raises, the stand-in is the way on
        text = " ".join(str(error).split())[:200]
        return f"Kaggle download of {handle} failed: {type(error).__name__}: {text}"
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return None


@cache
def reachable() -> bool:
    """Whether kaggle.com answers in time, asked once a process; name resolution knows no time-out, hence the thread."""
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(_answers()), daemon=True)
    thread.start()
    thread.join(WAIT_SECONDS)
    return answers == [True]


def _answers() -> bool:
    try:
        with urllib.request.urlopen("https://www.kaggle.com", timeout=WAIT_SECONDS):
            return True
    except urllib.error.HTTPError:
        return True  # it answered; whether it serves the file is for the download to see
    except (OSError, ValueError):
        return False
