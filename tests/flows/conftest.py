"""A real Prefect server for the session, and runs of the tiny profile on few users."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

QUICK = ("data.max_users=60", "semantic_ids.epochs=30", "ground.max_steps=12", "sft.max_steps=12", "embed.dim=16")
ROOT = Path(__file__).resolve().parents[2]
Gti = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session", autouse=True)
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One temporary server for all flow tests; its address."""
    from flows.environment import configure

    configure(tmp_path_factory.mktemp("prefect-home"))
    from prefect.settings import PREFECT_API_URL
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=180):
        yield str(PREFECT_API_URL.value())


@pytest.fixture(scope="session")
def quick_settings() -> tuple[str, ...]:
    """What makes a tiny run quicker still."""
    return QUICK


@pytest.fixture(scope="session")
def environment(prefect_server: str) -> dict[str, str]:
    """The environment of a `gti` process that uses the test server and needs no network."""
    return os.environ | {"PREFECT_API_URL": prefect_server, "HF_HUB_OFFLINE": "1", "COLUMNS": "200"}


@pytest.fixture(scope="session")
def gti(environment: dict[str, str]) -> Gti:
    """Runs the command as a user does."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "gti_pipeline", *arguments]
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    return run


@dataclass(frozen=True)
class Outcome:
    """A finished run: the flow's result, what it printed, and its Prefect id."""

    result: Any
    printed: str
    flow_run_id: Any


@pytest.fixture(scope="session")
def quick(prefect_server: str) -> Callable[..., Outcome]:
    """`gti run` on the tiny profile and few users, in this process."""
    del prefect_server
    from flows.pipeline import pipeline

    def run(home: Path, *overrides: str, method: str = "gti") -> Outcome:
        out = StringIO()
        settings = (f"home={home}", *QUICK, *overrides)
        with redirect_stdout(out):
            state = pipeline(profile="tiny", method=method, overrides=settings, return_state=True)
        return Outcome(state.result(), out.getvalue(), state.state_details.flow_run_id)

    return run
