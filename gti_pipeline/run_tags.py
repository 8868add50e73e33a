"""What a run says about the process and the code that made it, as tags; and whether that process is still there."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("gti-pipeline", "torch", "transformers", "accelerate", "mlflow", "prefect", "numpy", "pandas")


def process_tags() -> dict[str, str]:
    """Which process a run belongs to, for `Tracker.sweep`."""
    pid = os.getpid()
    return {"gti.pid": str(pid), "gti.pid_start": _process_start(pid), "gti.host": socket.gethostname()}


def code_tags() -> dict[str, str]:
    """Git commit and the versions of Python and the packages that matter."""
    tags = {"mlflow.source.name": "gti", "mlflow.source.type": "LOCAL", "gti.version.python": platform.python_version()}
    for package in PACKAGES:
        try:
            tags[f"gti.version.{package}"] = version(package)
        except PackageNotFoundError:  # an optional one
            continue
    commit = _git("rev-parse", "HEAD")
    if commit:
        tags["mlflow.source.git.commit"] = commit
        tags["gti.git_dirty"] = str(bool(_git("status", "--porcelain"))).lower()
    return tags


def _git(*arguments: str) -> str:
    """What git says about this package's checkout; empty where there is none."""
    git = shutil.which("git")
    if git is None:
        return ""
    command = [git, "-C", str(Path(__file__).resolve().parent), *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return answer.stdout.strip() if answer.returncode == 0 else ""


def is_dead(tags: Mapping[str, str]) -> bool:
    """Whether a run's process was on this machine and is gone; what cannot be told counts as alive."""
    if tags.get("gti.host") != socket.gethostname() or not tags.get("gti.pid", "").isdecimal():
        return False
    pid = int(tags["gti.pid"])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    # the number may have been given to another process since
    then, now = tags.get("gti.pid_start", ""), _process_start(pid)
    return bool(then and now) and then != now


def _process_start(pid: int) -> str:
    """When a process started, in ticks since boot (Linux), or empty."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[19]
