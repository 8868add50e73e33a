"""Several arms: shared stages once, one table."""

from __future__ import annotations

from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from gti_pipeline import columns as c
from gti_pipeline import schemas

METHODS = ("mean_sft", "random_sft", "lc_rec", "gti", "gti_multitask")


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory, quick_settings: tuple[str, ...]) -> Any:
    from flows.compare import compare

    home = tmp_path_factory.mktemp("home")
    out = StringIO()
    with redirect_stdout(out):
        page = compare(
            profile="tiny",
            methods=METHODS,
            overrides=(f"home={home}", *quick_settings),
            baselines=("content_knn",),
        )
    return home, Path(page), out.getvalue()


def test_shared_stages_are_computed_once(compared: Any) -> None:
    root = compared[0] / "artifacts" / "vibrent-standin"
    counts = {folder.name: len(list(folder.iterdir())) for folder in root.iterdir()}
    shared = {"data": 1, "embed": 1, "semantic_ids": 1}
    # mean init serves four arms, random init one; one grounding serves both grounded arms
    arms = {"sft": 5, "recommend": 5, "diagnostics": 5, "report": 5}
    # the baseline is evaluated once, for all arms
    assert counts == shared | arms | {"vocab": 2, "ground": 1, "evaluate": 6, "baseline-content_knn": 1}


def test_the_table_holds_every_arm_absolute_and_relative(compared: Any) -> None:
    _, page, printed = compared
    text = (page.parent / "comparison.md").read_text()
    for method in METHODS:
        assert method in printed
        assert method in text
    assert "against mean_sft" in printed
    metrics = pd.read_parquet(page.parent / "metrics.parquet")
    assert list(dict.fromkeys(metrics[c.ARM])) == [*METHODS, "popular", "content_knn"]
    for root in (compared[0] / "artifacts" / "vibrent-standin" / "evaluate").iterdir():
        own = schemas.METRICS.read(root)
        if "model" not in set(own[c.ARM]):
            continue
        recall = own[(own[c.ARM] == "model") & (own[c.SLICE] == "all") & (own[c.METRIC] == "recall")]
        everyone = metrics[(metrics[c.METRIC] == "recall") & (metrics[c.SLICE] == "all")]
        same = everyone.groupby(c.ARM)[c.VALUE].apply(list)
        assert any(values == pytest.approx(recall[c.VALUE].tolist()) for values in same)


def test_the_page_tells_what_each_arm_had_and_became(compared: Any) -> None:
    page = compared[1].read_text()
    for method in METHODS:
        assert f"{method} recommends" in page
    assert "content_knn (baseline)" in page
    assert "popular (baseline)" in page
    text = (compared[1].parent / "comparison.md").read_text()
    assert "Fine-tuning saw the same number of targets (items to recommend) in every arm" in text
    assert "gti had grounding before it" in text
    assert "one seed: how much training runs differ is not in any interval" in text
    assert "Effective rank" in text
    assert "arXiv 2604.02324, Vibrent" in text


def test_each_arm_is_an_mlflow_run(compared: Any) -> None:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{compared[0] / 'mlflow' / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("vibrent-standin")
    runs = client.search_runs([experiment.experiment_id])
    arms = [run for run in runs if run.data.tags["gti.method"] != "comparison"]
    assert {run.data.tags["gti.method"] for run in arms} == set(METHODS)
    assert len(arms) == len(METHODS)


def test_the_comparison_is_an_mlflow_run_with_its_page(compared: Any) -> None:
    from mlflow.artifacts import download_artifacts
    from mlflow.tracking import MlflowClient

    home, page, printed = compared
    uri = f"sqlite:///{home / 'mlflow' / 'mlflow.db'}"
    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("vibrent-standin").experiment_id
    runs = {run.info.run_id: run for run in client.search_runs([experiment])}
    (own,) = [run for run in runs.values() if run.data.tags["gti.method"] == "comparison"]
    assert own.info.status == "FINISHED"
    assert f"logged as {own.info.run_id}" in printed
    assert own.data.params["arms"] == ", ".join(METHODS)
    assert own.data.params["reference"] == "mean_sft"
    for method in METHODS:
        assert runs[own.data.params[f"runs.{method} seed 0"]].data.tags["gti.method"] == method
    found = {entry.path for entry in client.list_artifacts(own.info.run_id)}
    assert found == {"comparison.html", "comparison.md", "metrics.parquet", "figures"}
    copy = download_artifacts(run_id=own.info.run_id, artifact_path="comparison.html", tracking_uri=uri)
    assert Path(copy).read_bytes() == page.read_bytes()
