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
        page = compare(profile="tiny", methods=METHODS, overrides=(f"home={home}", *quick_settings))
    return home, Path(page), out.getvalue()


def test_shared_stages_are_computed_once(compared: Any) -> None:
    root = compared[0] / "artifacts" / "vibrent-standin"
    counts = {folder.name: len(list(folder.iterdir())) for folder in root.iterdir()}
    shared = {"data": 1, "embed": 1, "semantic_ids": 1}
    # mean init serves four arms, random init one; one grounding serves both grounded arms
    assert counts == shared | {"vocab": 2, "ground": 1, "sft": 5, "recommend": 5, "evaluate": 5, "report": 5}


def test_the_table_holds_every_arm_absolute_and_relative(compared: Any) -> None:
    _, page, printed = compared
    text = (page.parent / "comparison.md").read_text()
    for method in METHODS:
        assert method in printed
        assert method in text
    assert "against mean_sft" in printed
    metrics = pd.read_parquet(page.parent / "metrics.parquet")
    assert set(metrics[c.ARM]) == {*METHODS, "popular"}
    for root in (compared[0] / "artifacts" / "vibrent-standin" / "evaluate").iterdir():
        own = schemas.METRICS.read(root)
        recall = own[(own[c.ARM] == "model") & (own[c.SLICE] == "all") & (own[c.METRIC] == "recall")]
        same = metrics[metrics[c.METRIC] == "recall"].groupby(c.ARM)[c.VALUE].apply(list)
        assert any(values == pytest.approx(recall[c.VALUE].tolist()) for values in same)


def test_each_arm_is_an_mlflow_run(compared: Any) -> None:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{compared[0] / 'mlflow' / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("vibrent-standin")
    runs = client.search_runs([experiment.experiment_id])
    assert {run.data.tags["gti.method"] for run in runs} == set(METHODS)
    assert len(runs) == len(METHODS)
