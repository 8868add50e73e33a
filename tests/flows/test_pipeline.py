"""One arm from raw files to report, run, run again, changed, broken and killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gti_pipeline import columns as c
from gti_pipeline import schemas
from gti_pipeline.artifacts import MANIFEST

ALL = ["data", "embed", "semantic_ids", "vocab", "ground", "sft", "recommend", "evaluate", "diagnostics", "report"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def first(home: Path, quick: Any) -> Any:
    return quick(home)


def test_every_stage_leaves_a_whole_artifact(first: Any) -> None:
    assert list(first.result.done) == ALL
    for stage, artifact in first.result.done.items():
        assert not artifact.cached
        manifest = json.loads((artifact.path / MANIFEST).read_text())
        assert (manifest["stage"], manifest["key"]) == (stage, artifact.key)
        assert manifest["files"]
    assert {p.name for p in first.result.workspace.store.root.iterdir()} == set(ALL)


def test_every_row_is_kept_or_rejected(first: Any) -> None:
    summary = first.result.done["data"].summary
    rejected = schemas.REJECTED.read(first.result.done["data"].path)
    assert summary["rows_read"] == summary["rows_kept"] + len(rejected) + sum(summary["left_out"].values())
    assert len(rejected) == sum(summary["rejects"].values()) > 0


def test_recommendations_are_items_and_distinct(first: Any) -> None:
    found = schemas.RECOMMENDATIONS.read(first.result.done["recommend"].path)
    items = set(schemas.ITEMS.read(first.result.done["data"].path)[c.ITEM_ID])
    assert set(found[c.ITEM_ID]) <= items
    assert not found.duplicated([c.USER_ID, c.ITEM_ID]).any()
    assert (found.groupby(c.USER_ID)[c.RANK].max() == 20).all()


def test_the_name_of_the_stand_in_is_everywhere(first: Any, home: Path) -> None:
    assert first.result.workspace.dataset == "vibrent-standin"
    assert (home / "artifacts" / "vibrent-standin").is_dir()
    page = (home / "reports" / "vibrent-standin" / "gti-seed0" / "report.html").read_text()
    assert "vibrent-standin" in page
    assert "GENERATED DATA" in page
    assert "GENERATED DATA" in first.printed


def test_the_report_says_how_many_epochs_were_done(first: Any, home: Path) -> None:
    page = (home / "reports" / "vibrent-standin" / "gti-seed0" / "report.html").read_text()
    for stage in ("ground", "sft"):
        budget = first.result.done[stage].summary["budget"]
        assert budget["steps"] == 12
        assert budget["limited_by"] == f"{stage}.max_steps"
        assert budget["sentence"] in page
        assert budget["sentence"][:30] in " ".join(first.printed.split())


def test_the_run_is_in_mlflow(first: Any, home: Path) -> None:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{home / 'mlflow' / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("vibrent-standin")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.tags["gti.source"] == "stand-in"
    assert run.data.tags["gti.method"] == "gti"
    metrics = schemas.METRICS.read(first.result.done["evaluate"].path)
    values = metrics.set_index([c.ARM, c.SLICE, c.METRIC, c.K])[c.VALUE]
    assert run.data.metrics["eval/recall_at_10"] == pytest.approx(values["model", "all", "recall", 10])
    assert run.data.params["sft.max_steps"] == "12"
    assert len(client.get_metric_history(run.info.run_id, "sft/loss")) == 12
    assert {"report.html", "config.yaml", "figures", "diagnostics"} <= {
        f.path for f in client.list_artifacts(run.info.run_id)
    }
    assert run.inputs.dataset_inputs[0].dataset.name == "vibrent-standin"


def test_the_rows_are_measured_at_every_moment(first: Any, home: Path) -> None:
    artifact = first.result.done["diagnostics"]
    found = schemas.DIAGNOSTICS.read(artifact.path).set_index([c.STAGE, c.LEVEL, c.METRIC])[c.VALUE]
    assert found["init", 0, "effective_rank"] == pytest.approx(1, abs=1e-3)  # the mean of the vocabulary, 48 times
    assert pd.isna(found["init", 0, "rsa_pearson"])
    assert found["grounded", 0, "effective_rank"] > found["init", 0, "effective_rank"]
    assert found["tuned", 0, "effective_rank"] != found["grounded", 0, "effective_rank"]
    merged = _rows_of_model(first.result.done["sft"].path / "model", first.result.done["vocab"].path)
    shares = np.linalg.svd(merged, compute_uv=False)
    shares = shares / shares.sum()
    assert found["tuned", 0, "effective_rank"] == pytest.approx(np.exp(-(shares * np.log(shares)).sum()), rel=1e-4)
    assert artifact.summary["tuned"]["effective_rank"] == pytest.approx(found["tuned", 0, "effective_rank"], abs=1e-5)
    assert "Effective rank" in (home / "reports" / "vibrent-standin" / "gti-seed0" / "report.html").read_text()


def _rows_of_model(model: Path, vocab: Path) -> Any:
    """What transformers alone reads from the folder at the new tokens' ids."""
    from transformers import AutoModelForCausalLM

    from gti_pipeline.vocab import load_rows

    rows = AutoModelForCausalLM.from_pretrained(model).get_input_embeddings().weight.detach().numpy()
    return rows[load_rows(vocab)[1].reshape(-1)].astype(np.float64)


def test_the_run_graph_shows_the_stages_and_their_order(first: Any) -> None:
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId

    with get_client(sync_client=True) as client:
        chosen = FlowRunFilter(id=FlowRunFilterId(any_=[first.flow_run_id]))
        tasks = {run.name.rsplit("-", 1)[0]: run for run in client.read_task_runs(flow_run_filter=chosen, limit=50)}
    assert set(tasks) == set(ALL)
    upstream = {
        name: {str(i.id) for group in run.task_inputs.values() for i in group if hasattr(i, "id")}
        for name, run in tasks.items()
    }
    ids = {name: str(run.id) for name, run in tasks.items()}
    assert ids["data"] in upstream["embed"]
    assert ids["embed"] in upstream["semantic_ids"]
    assert {ids["data"], ids["semantic_ids"], ids["vocab"]} <= upstream["ground"]
    assert ids["ground"] in upstream["sft"]
    assert ids["sft"] in upstream["recommend"]
    assert ids["recommend"] in upstream["evaluate"]
    assert ids["evaluate"] in upstream["report"]
    assert {ids["vocab"], ids["ground"], ids["sft"]} <= upstream["diagnostics"]


def test_a_second_run_does_no_work_and_says_so(first: Any, home: Path, quick: Any) -> None:
    again = quick(home)
    assert all(artifact.cached for artifact in again.result.done.values())
    assert "Nothing to do" in again.printed
    assert again.result.run_id == first.result.run_id
    assert again.result.logged_before


def test_a_second_run_of_the_command_starts_no_prefect(
    first: Any, home: Path, gti: Any, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, quick_settings: Any
) -> None:
    monkeypatch.setitem(environment, "PREFECT_API_URL", "http://127.0.0.1:9/api")  # a flow would fail on it
    sets = [part for setting in (f"home={home}", *quick_settings) for part in ("--set", setting)]
    done = gti("run", "--profile", "tiny", *sets)
    assert done.returncode == 0, done.stderr
    assert "Nothing to do" in done.stdout
    assert f"logged before as {first.result.run_id}" in done.stdout
    assert "GENERATED DATA" in done.stdout


def test_another_sft_learning_rate_runs_sft_and_what_follows(first: Any, home: Path, quick: Any) -> None:
    changed = quick(home, "sft.learning_rate=0.001")
    fresh = [stage for stage, artifact in changed.result.done.items() if not artifact.cached]
    assert fresh == ["sft", "recommend", "evaluate", "diagnostics", "report"]
    assert changed.result.run_id != first.result.run_id


def test_a_corrupt_artifact_is_said_and_made_again(
    first: Any, home: Path, quick: Any, caplog: pytest.LogCaptureFixture
) -> None:
    before = schemas.SEMANTIC_IDS.read(first.result.done["semantic_ids"].path)
    file = first.result.done["semantic_ids"].path / "semantic_ids.parquet"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    file.write_bytes(content)
    with caplog.at_level("WARNING", logger="gti_pipeline"):
        mended = quick(home)
    assert [stage for stage, artifact in mended.result.done.items() if not artifact.cached] == ["semantic_ids"]
    assert "semantic_ids.parquet differs from its recorded digest" in caplog.text
    pd.testing.assert_frame_equal(schemas.SEMANTIC_IDS.read(mended.result.done["semantic_ids"].path), before)


def test_a_run_killed_in_sft_resumes_where_it_was(
    first: Any, home: Path, environment: dict[str, str], quick_settings: tuple[str, ...]
) -> None:
    command = [sys.executable, "-m", "gti_pipeline", "run", "--profile", "tiny", "--set", f"home={home}"]
    for override in (*quick_settings, "sft.max_steps=400", "sft.save_steps=5"):
        command += ["--set", override]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list((home / "work").glob("sft-*/checkpoint-*/complete")):
        assert process.poll() is None, "it ended before its first checkpoint"
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "sft: resumes after step" in done.stderr
    assert "ground: already done" in done.stderr
    assert not list((home / "work").glob("sft-*"))
    assert _statuses(home) == {"FINISHED", "KILLED"}


def _statuses(home: Path) -> set[str]:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{home / 'mlflow' / 'mlflow.db'}")
    experiments = [e.experiment_id for e in client.search_experiments()]
    return {run.info.status for run in client.search_runs(experiments)}
