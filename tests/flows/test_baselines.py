"""`gti baselines`: all in one table, an absent library told, nothing done twice, an MLflow run for each."""

from __future__ import annotations

from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, get_args

import pytest

from gti_pipeline import columns as c
from gti_pipeline import schemas
from gti_pipeline.baselines import factorize
from gti_pipeline.config import BaselineName

QUICK = (
    *("baselines.sasrec.epochs=2", "baselines.sasrec.dim=16", "baselines.bpr.iterations=5"),
    *("semantic_ids.epochs=5", "ground.max_steps=2", "sft.max_steps=2", "decode.max_users=20"),
)


def run(home: Path, *overrides: str, with_arm: str = "") -> tuple[Any, str]:
    from flows.baselines import baselines

    out = StringIO()
    with redirect_stdout(out):
        result = baselines(profile="tiny", with_arm=with_arm, overrides=(f"home={home}", *overrides, *QUICK))
    return result, out.getvalue()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def with_arm(home: Path, quick_settings: tuple[str, ...]) -> tuple[Any, str]:
    return run(home, *quick_settings, with_arm="gti")


def test_all_baselines_and_the_arm_stand_in_one_table(with_arm: tuple[Any, str]) -> None:
    result, printed = with_arm
    names = {*get_args(BaselineName), "gti"}
    metrics = schemas.METRICS.read(result.evaluation.path)
    assert set(metrics[c.ARM]) == names
    everyone = metrics[(metrics[c.SLICE] == "all") & (metrics[c.METRIC] == "recall")]
    assert everyone[c.NUM_USERS].nunique() == 1
    table = printed[printed.index("full ranking") :]
    assert all(f" {name} " in table for name in names)


def test_an_absent_library_is_told_and_the_rest_is_there_already(
    home: Path, quick_settings: tuple[str, ...], with_arm: tuple[Any, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(factorize, "find_spec", lambda name: None)
    result, printed = run(home, *quick_settings)
    assert set(result.left_out) == {"als", "bpr"}
    assert printed.count("SKIPPED") == 2
    assert "gti-pipeline[implicit]" in " ".join(printed.replace("│", " ").split())
    assert all(artifact.cached for artifact in result.done.values())
    assert "sasrec" in result.done
    assert set(schemas.METRICS.read(result.evaluation.path)[c.ARM]) == set(result.done)
    # what was logged is not logged again
    assert result.run_ids == {name: with_arm[0].run_ids[name] for name in result.done}


def test_each_is_an_mlflow_run_with_the_arms_metric_names(home: Path, with_arm: tuple[Any, str]) -> None:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{home / 'mlflow' / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("vibrent-standin")
    runs = {run.data.tags["gti.method"]: run for run in client.search_runs([experiment.experiment_id])}
    assert set(runs) == {*get_args(BaselineName), "gti"}
    assert all(run.info.status == "FINISHED" for run in runs.values())
    metrics = schemas.METRICS.read(with_arm[0].evaluation.path)
    wanted = (metrics[c.SLICE] == "all") & (metrics[c.METRIC] == "ndcg") & (metrics[c.K] == 10)
    values = metrics[wanted].set_index(c.ARM)[c.VALUE]
    for name, run in runs.items():
        assert run.data.metrics["eval/ndcg_at_10"] == pytest.approx(values[name])
    assert "baseline-sasrec/valid_ndcg" in runs["sasrec"].data.metrics
