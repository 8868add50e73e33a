"""A real Prefect server, a real deployment, and a run that nobody but the schedule started."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

QUICK = ["data.max_users=60", "semantic_ids.epochs=20", "ground.max_steps=5", "sft.max_steps=5"]
ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def running(command: list[str], environment: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is ended, whatever happens; what it says is in `log`."""
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=subprocess.STDOUT)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_for(what: str, condition: Any, seconds: float, logs: list[Path]) -> Any:
    """The condition's first true value."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(1)
    said = "\n".join(f"--- {log.name}\n{log.read_text()[-3000:]}" for log in logs)
    pytest.fail(f"no {what} within {seconds} s\n{said}")


@pytest.mark.timeout(600)
def test_the_schedule_starts_a_run(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    api = f"http://127.0.0.1:{port}/api"
    environment = os.environ | {
        "PREFECT_HOME": str(tmp_path / "prefect"),
        "PREFECT_API_URL": api,
        "DO_NOT_TRACK": "1",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "HF_HUB_OFFLINE": "1",
    }
    (tmp_path / "prefect").mkdir()
    server_log, schedule_log = tmp_path / "server.log", tmp_path / "schedule.log"
    logs = [server_log, schedule_log]
    server = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    schedule = [sys.executable, "-m", "gti_pipeline", "schedule", "--cron", "* * * * *", "--profile", "tiny"]
    schedule += ["--allow-standin", "--set", f"home={tmp_path / 'home'}"]
    for override in QUICK:
        schedule += ["--set", override]

    def healthy() -> bool:
        try:
            return httpx.get(f"{api}/health", timeout=5).is_success
        except httpx.HTTPError:
            return False

    def runs() -> list[dict[str, Any]]:
        return list(httpx.post(f"{api}/flow_runs/filter", json={"sort": "EXPECTED_START_TIME_ASC"}, timeout=30).json())

    def finished() -> list[dict[str, Any]]:
        return [run for run in runs() if run["state_type"] in ("COMPLETED", "FAILED", "CRASHED")]

    with running(server, environment, server_log):
        wait_for("server", healthy, 120, logs)
        with running(schedule, environment, schedule_log):
            first = wait_for("finished run", finished, 300, logs)[0]
            now_running = [run for run in runs() if run["state_type"] == "RUNNING"]
    assert first["state_type"] == "COMPLETED", schedule_log.read_text()[-3000:]
    assert first["auto_scheduled"]
    assert first["parameters"]["profile"] == "tiny"
    assert len(now_running) <= 1
    assert (tmp_path / "home" / "reports" / "vibrent-standin" / "gti-seed0" / "report.html").is_file()
