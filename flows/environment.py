"""Prefect's settings; must be set before Prefect is imported, because it reads them then."""

from __future__ import annotations

import logging
import os
from http.client import HTTPConnection, HTTPException
from pathlib import Path

SERVER = ("127.0.0.1", 4200)  # of `make server`
DEFAULTS = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",  # its own 20 s is too short on a busy machine
    "PREFECT_LOGGING_LEVEL": "WARNING",  # our own lines tell the story; Prefect's engine adds only trouble
    "PREFECT_LOGGING_EXTRA_LOGGERS": "gti_pipeline",  # our lines show in Prefect's UI too
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
    "PREFECT_CLI_PROMPT": "false",
}


log = logging.getLogger("gti_pipeline.environment")


def configure(home: Path) -> None:
    """Keeps Prefect's state below `home`; what the user has set stays as it is."""
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    os.environ.setdefault("PREFECT_HOME", str(home.absolute() / "prefect"))
    Path(os.environ["PREFECT_HOME"]).mkdir(parents=True, exist_ok=True)  # Prefect makes no parents


def use_running_server() -> None:
    """Uses the server of `make server` where it runs: no temporary one is started, and the run shows in its UI."""
    if "PREFECT_API_URL" in os.environ or not _answers(*SERVER):
        return
    os.environ["PREFECT_API_URL"] = "http://{}:{}/api".format(*SERVER)
    log.info("Prefect: this run shows in the server at http://%s:%d", *SERVER)


def _answers(host: str, port: int) -> bool:
    """Whether a Prefect server is healthy there; a port that nobody listens on refuses at once."""
    connection = HTTPConnection(host, port, timeout=2)
    try:
        connection.request("GET", "/api/health")
        return connection.getresponse().read() == b"true"
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def show_progress() -> None:
    """Lets our own lines through, also in the process that a schedule starts."""
    logging.getLogger("gti_pipeline").setLevel(logging.INFO)
