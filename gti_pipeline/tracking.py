"""MLflow, and the only file that imports it: one SQLite store below `home`, one experiment per data set.

Runs are made through `MlflowClient` and named by id, never through MLflow's thread-local "active run": several arms may
run in one process, and `MLFLOW_RUN_ID` in the environment must not redirect what is logged.
"""

from __future__ import annotations

import fcntl
import json
import logging
import math
import numbers
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from gti_pipeline import columns as c
from gti_pipeline.errors import GtiError
from gti_pipeline.run_tags import code_tags, is_dead, process_tags

# MLflow's own limits; a call beyond one of them is refused whole
METRICS_PER_CALL = 1000
PARAMS_PER_CALL = 100
PARAM_LENGTH = 6000
TAG_LENGTH = 8000
NAME_LENGTH = 250
DIGEST_LENGTH = 36

OVERALL = "all"  # the slice of all test users

Status = Literal["FINISHED", "FAILED", "KILLED"]

log = logging.getLogger(__name__)


class Tracker:
    """Logs to one experiment (a data set's name) of the store at `<home>/mlflow`."""

    def __init__(self, home: Path, experiment: str) -> None:
        self.folder = home.absolute() / "mlflow"
        self.experiment = experiment
        self.uri = f"sqlite:///{self.folder / 'mlflow.db'}"

    def start(self, run_name: str, run_key: str, params: Mapping[str, Any], tags: Mapping[str, Any]) -> str:
        """Starts a run and returns its id.

        Args:
            run_name: what the UI lists, for example `gti seed 0`.
            run_key: what makes the run's result what it is; `find` looks for it.
            params: settings, nested or with dotted names.
            tags: `source` (real or stand-in), `dataset`, `method`, `profile`, `seed`: each becomes `gti.<name>`.
        """
        own = {"gti.run_key": run_key} | {f"gti.{name}": value for name, value in tags.items()}
        every = process_tags() | code_tags() | own
        cut = {name: str(value)[:TAG_LENGTH] for name, value in every.items()}
        run = self._client.create_run(self._experiment_id, tags=cut, run_name=run_name)
        run_id = str(run.info.run_id)
        self._log_params(run_id, params)
        return run_id

    def find(self, run_key: str) -> str | None:
        """The newest finished run with this key, or None."""
        runs = self._client.search_runs(
            [self._experiment_id],
            filter_string=f"tags.`gti.run_key` = '{run_key}' and attributes.status = 'FINISHED'",
            order_by=["attributes.start_time DESC"],
            max_results=1,
        )
        return str(runs[0].info.run_id) if runs else None

    def finish(self, run_id: str, status: Status = "FINISHED") -> None:
        """Ends a run."""
        self._client.set_terminated(run_id, status=status)

    def sweep(self) -> list[str]:
        """Marks as KILLED the running runs, of any data set, whose process on this machine is gone; returns their ids.

        A process that was killed outright cannot end its own run, which would else show as running for ever.
        """
        experiments = [str(experiment.experiment_id) for experiment in self._client.search_experiments()]
        running = self._client.search_runs(experiments, filter_string="attributes.status = 'RUNNING'")
        dead = [str(run.info.run_id) for run in running if is_dead(run.data.tags)]
        for run_id in dead:
            self.finish(run_id, "KILLED")
        if dead:
            log.info("MLflow: %d run(s) of processes that are gone marked as KILLED", len(dead))
        return dead

    def log_steps(self, run_id: str, stage: str, steps: pd.DataFrame) -> None:
        """Logs a `schemas.STEPS` frame as curves named `<stage>/<metric>`."""
        rows = zip(steps[c.STEP], steps[c.METRIC], steps[c.VALUE], strict=True)
        self._log_metrics(run_id, ((f"{stage}/{name}", value, int(step)) for step, name, value in rows))

    def log_summary(self, run_id: str, stage: str, summary: Mapping[str, Any]) -> None:
        """Logs the numbers of a stage's summary as `<stage>/<name>`, nested names joined with dots."""
        numeric = {name: value for name, value in flatten(summary).items() if _is_number(value)}
        self._log_metrics(run_id, ((f"{stage}/{name}", value, 0) for name, value in numeric.items()))

    def log_metrics(self, run_id: str, metrics: pd.DataFrame, arm: str) -> None:
        """Logs a `schemas.METRICS` frame: the arm under `eval/`, other arms (baselines) under `baseline_<arm>/`.

        The part before the slash is a chart section in MLflow's UI; slices, intervals and user counts have their own.
        """
        self._log_metrics(run_id, ((name, value, 0) for name, value in headline_metrics(metrics, arm).items()))

    def log_dataset(self, run_id: str, name: str, digest: str, source_note: str, profile: Mapping[str, Any]) -> None:
        """Logs the data set as the run's input, with its digest, where it came from and its numbers of rows."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        dataset = Dataset(
            name=name,
            digest=digest[:DIGEST_LENGTH],
            source_type="local",
            source=json.dumps({"uri": source_note}),
            profile=json.dumps(dict(profile), default=str),
        )
        context = InputTag("mlflow.data.context", "training")
        self._client.log_inputs(run_id, [DatasetInput(dataset, [context])])

    def log_files(self, run_id: str, paths: Iterable[Path], folder: str | None = None) -> None:
        """Copies files into the run's artifacts, below `folder`."""
        for path in paths:
            self._client.log_artifact(run_id, str(path), folder)

    def log_text(self, run_id: str, text: str, name: str) -> None:
        """Writes a text artifact, for example `config.yaml`."""
        self._client.log_text(run_id, text, name)

    def _log_params(self, run_id: str, params: Mapping[str, Any]) -> None:
        from mlflow.entities import Param

        named = {legal_name(name): str(value)[:PARAM_LENGTH] for name, value in flatten(params).items()}
        entities = [Param(name, value) for name, value in named.items()]
        for batch in _batches(entities, PARAMS_PER_CALL):
            self._client.log_batch(run_id, params=batch)

    def _log_metrics(self, run_id: str, values: Iterable[tuple[str, Any, int]]) -> None:
        """Logs (name, value, step) in as few calls as MLflow allows; what is not finite is left out."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        finite = [(name, float(value), step) for name, value, step in values if math.isfinite(value)]
        entities = [Metric(legal_name(name), value, now, step) for name, value, step in finite]
        for batch in _batches(entities, METRICS_PER_CALL):
            self._client.log_batch(run_id, metrics=batch)

    @cached_property
    def _client(self) -> Any:
        """The client, its store made or opened under a lock: MLflow's own first use by two processes at once fails."""
        with _locked(self.folder):
            return _open_client(self.uri, self.folder)

    @cached_property
    def _experiment_id(self) -> str:
        """The experiment's id, made with an absolute artifact location that client and UI read alike."""
        client = self._client
        location = (self.folder / "artifacts").as_uri()
        with _locked(self.folder):
            found = client.get_experiment_by_name(self.experiment)
            if found is None:
                return str(client.create_experiment(self.experiment, artifact_location=location))
            if found.lifecycle_stage != "active":
                log.warning("MLflow: experiment %s had been deleted in the UI: restored", self.experiment)
                client.restore_experiment(found.experiment_id)
        if found.artifact_location != location:
            log.warning(
                "MLflow: experiment %s keeps its files at %s, where `home` was when it began",
                *(self.experiment, found.artifact_location),
            )
        return str(found.experiment_id)


def headline_metrics(metrics: pd.DataFrame, arm: str) -> dict[str, float]:
    """A `schemas.METRICS` frame as MLflow's metric names, such as `eval_novel/recall_at_10`."""
    named: dict[str, float] = {}
    for row in metrics.to_dict("records"):
        section = "eval" if row[c.ARM] == arm else f"baseline_{row[c.ARM]}"
        part = "" if row[c.SLICE] == OVERALL else f"_{row[c.SLICE]}"
        name = f"{row[c.METRIC]}_at_{row[c.K]}"
        named[f"{section}{part}/{name}"] = row[c.VALUE]
        named[f"{section}_interval{part}/{name}_low"] = row[c.LOW]
        named[f"{section}_interval{part}/{name}_high"] = row[c.HIGH]
        named[f"{section}{part}/num_users"] = row[c.NUM_USERS]
    return named


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one, its names joined with dots."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        path = f"{prefix}{name}"
        flat |= flatten(value, f"{path}.") if isinstance(value, Mapping) else {path: value}
    return flat


def legal_name(name: str) -> str:
    """A name that MLflow accepts for a parameter or metric: it refuses a whole call for one bad name."""
    spelt = name.replace("@", "_at_").replace("%", "_percent")
    parts = [re.sub(r"[^\w\-. :]", "_", part).strip() for part in spelt.split("/")]
    kept = [part for part in parts if part.strip(".")]  # `a//b`, `./a` and `../a` are refused as paths
    return "/".join(kept)[:NAME_LENGTH].rstrip("/") or "unnamed"


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _batches(values: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (values[start : start + size] for start in range(0, len(values), size))


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Holds the store's lock; the system frees it when the process ends, however it ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / ".lock").open("w")
    except OSError as error:
        raise GtiError(
            f"{folder}: MLflow's store cannot be written ({error.strerror}): choose another `home`"
        ) from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _open_client(uri: str, folder: Path) -> Any:
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read when MLflow is imported
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient
    from sqlalchemy.exc import SQLAlchemyError

    for chatty in ("mlflow", "alembic"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    (folder / "artifacts").mkdir(exist_ok=True)
    try:
        client = MlflowClient(tracking_uri=uri, registry_uri=uri)
        client.search_experiments(max_results=1)  # makes or checks the tables
    except (MlflowException, SQLAlchemyError) as error:
        raise GtiError(
            f"{folder / 'mlflow.db'}: MLflow cannot use its store: {' '.join(str(error).split())[:300]}\n"
            f"Another version's store: `mlflow db upgrade '{uri}'`. A broken one: move it away, and runs start anew."
        ) from error
    return client
