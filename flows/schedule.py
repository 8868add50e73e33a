"""The pipeline as a Prefect deployment on a cron schedule, served by this process."""

from __future__ import annotations

import os

from flows.pipeline import pipeline
from gti_pipeline.errors import GtiError


def serve(*, dataset: str, profile: str, method: str, overrides: tuple[str, ...], cron: str) -> None:
    """Serves until stopped; one run at a time, a run that is due meanwhile waits.

    Raises:
        GtiError: no Prefect server is configured or reachable, or the cron line is not one.
    """
    _check_server()
    try:
        pipeline.serve(
            name=f"{dataset}-{method}",
            cron=cron,
            parameters={"dataset": dataset, "profile": profile, "method": method, "overrides": list(overrides)},
            limit=1,
            print_starting_message=False,
        )
    except ValueError as error:
        raise GtiError(f"--cron {cron!r}: {str(error).splitlines()[-1]}; five fields, such as '0 3 * * 0'") from error


def _check_server() -> None:
    import httpx

    url = os.environ.get("PREFECT_API_URL", "")
    try:
        httpx.get(f"{url}/health", timeout=5).raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise GtiError(
            f"no Prefect server answers at PREFECT_API_URL={url or '(not set)'} ({type(error).__name__}):"
            " start one with `make server` in another terminal"
        ) from error
