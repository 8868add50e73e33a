"""The tracker against a real SQLite store, read back through MLflow's own client."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from mlflow.tracking import MlflowClient

from gti_pipeline import tracking
from gti_pipeline.errors import GtiError
from gti_pipeline.schemas import METRICS, STEPS
from gti_pipeline.tracking import Tracker, flatten, headline_metrics, legal_name

TAGS = {"source": "stand-in", "dataset": "vibrent-standin", "method": "gti", "profile": "tiny", "seed": 0}


def metrics_frame() -> pd.DataFrame:
    rows = [
        ("gti", "all", "recall", 10, 0.2, 0.1, 0.3, 40),
        ("gti", "all", "ndcg", 10, 0.1, 0.05, 0.15, 40),
        ("gti", "novel", "recall", 10, 0.15, 0.05, 0.25, 30),
        ("popular", "all", "recall", 10, 0.08, 0.02, 0.12, 40),
    ]
    frame = pd.DataFrame(rows, columns=list(METRICS.fields))
    METRICS.check(frame)
    return frame


# what one process of a user's does: the first to touch a store makes it
RACER = """
import sys
from pathlib import Path
from gti_pipeline.tracking import Tracker
tracker = Tracker(Path(sys.argv[1]), "both")
run_id = tracker.start("racer", sys.argv[2], {"a": 1}, {"seed": 0})
for value in range(20):
    tracker.log_summary(run_id, "stage", {"x": value})
tracker.finish(run_id)
print(run_id)
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """One store for the whole module, made by two processes at once, at a path with a space and a percent sign."""
    home = tmp_path_factory.mktemp("home") / "my data 100%"
    command = [sys.executable, "-c", RACER, str(home)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    processes = {key: subprocess.Popen([*command, key], **pipes) for key in ("first", "second")}
    outputs = {key: process.communicate(timeout=200) for key, process in processes.items()}
    codes = [process.returncode for process in processes.values()]
    tracker = Tracker(home, "vibrent-standin")
    client = MlflowClient(tracking_uri=tracker.uri)
    return SimpleNamespace(home=home, tracker=tracker, client=client, outputs=outputs, codes=codes)


def start(world: SimpleNamespace, key: str = "key", **params: object) -> str:
    return str(world.tracker.start("gti seed 0", key, params, TAGS))


def test_run_is_read_back_with_parameters_tags_and_place(world: SimpleNamespace) -> None:
    run_id = start(world, "k1", sft={"learning_rate": 5e-5, "targets": "all"}, long="x" * 9000)
    run = world.client.get_run(run_id)
    assert run.info.run_name == "gti seed 0"
    assert run.data.params["sft.learning_rate"] == "5e-05"
    assert run.data.params["sft.targets"] == "all"
    assert len(run.data.params["long"]) == tracking.PARAM_LENGTH
    expected = {"gti.source": "stand-in", "gti.seed": "0", "gti.run_key": "k1", "gti.pid": str(os.getpid())}
    assert expected.items() <= run.data.tags.items()
    assert "gti.version.torch" in run.data.tags
    assert len(run.data.tags.get("mlflow.source.git.commit", "0" * 40)) == 40
    assert run.info.artifact_uri.startswith((world.home / "mlflow" / "artifacts").as_uri())
    assert world.client.get_experiment(run.info.experiment_id).name == "vibrent-standin"


def test_more_parameters_than_one_call_takes(world: SimpleNamespace) -> None:
    run_id = start(world, **{f"p{i}": i for i in range(230)})
    assert len(world.client.get_run(run_id).data.params) == 230


def test_find_returns_only_finished_runs_with_the_key(world: SimpleNamespace) -> None:
    assert world.tracker.find("k-find") is None
    run_id = start(world, "k-find")
    assert world.tracker.find("k-find") is None
    world.tracker.finish(run_id, "FAILED")
    assert world.tracker.find("k-find") is None
    second = start(world, "k-find")
    world.tracker.finish(second)
    assert world.tracker.find("k-find") == second
    assert Tracker(world.home, "another").find("k-find") is None


def test_steps_become_curves_in_batches(world: SimpleNamespace) -> None:
    rows = [(step, metric, step / 10) for step in range(600) for metric in ("loss", "collision%@rate(x)")]
    steps = pd.DataFrame([*rows, (600, "loss", float("nan"))], columns=list(STEPS.fields))
    run_id = start(world)
    world.tracker.log_steps(run_id, "sft", steps)
    history = world.client.get_metric_history(run_id, "sft/loss")
    assert [(m.step, m.value) for m in history] == [(step, step / 10) for step in range(600)]
    assert len(world.client.get_metric_history(run_id, "sft/collision_percent_at_rate_x_")) == 600


def test_summary_logs_numeric_leaves_only(world: SimpleNamespace) -> None:
    summary = {
        "items": 12,
        "done": True,
        "name": "text",
        "rate": float("inf"),
        "levels": [1, 2],
        "level": {"1": {"used share": 0.5}},
        "why?": 3,
    }
    run_id = start(world)
    world.tracker.log_summary(run_id, "semantic_ids", summary)
    assert world.client.get_run(run_id).data.metrics == {
        "semantic_ids/items": 12,
        "semantic_ids/level.1.used share": 0.5,
        "semantic_ids/why_": 3,
    }


def test_headline_metrics_are_named_for_comparison(world: SimpleNamespace) -> None:
    run_id = start(world)
    world.tracker.log_metrics(run_id, metrics_frame(), "gti")
    logged = world.client.get_run(run_id).data.metrics
    assert logged == headline_metrics(metrics_frame(), "gti")
    assert logged["eval/recall_at_10"] == 0.2
    assert logged["eval/ndcg_at_10"] == 0.1
    assert logged["eval/num_users"] == 40
    assert logged["eval_novel/recall_at_10"] == 0.15
    assert logged["eval_interval/recall_at_10_low"] == 0.1
    assert logged["baseline_popular/recall_at_10"] == 0.08


def test_dataset_is_an_input_with_its_digest(world: SimpleNamespace) -> None:
    run_id = start(world)
    world.tracker.log_dataset(run_id, "vibrent-standin", "ab" * 32, "generated stand-in", {"items": 300})
    (entry,) = world.client.get_run(run_id).inputs.dataset_inputs
    assert entry.dataset.name == "vibrent-standin"
    assert entry.dataset.digest == ("ab" * 32)[:36]
    assert json.loads(entry.dataset.source)["uri"] == "generated stand-in"
    assert json.loads(entry.dataset.profile) == {"items": 300}
    assert {tag.key: tag.value for tag in entry.tags} == {"mlflow.data.context": "training"}


def test_files_and_texts_are_stored_below_home(world: SimpleNamespace, tmp_path: Path) -> None:
    figure = tmp_path / "loss.png"
    figure.write_bytes(b"png")
    run_id = start(world)
    world.tracker.log_files(run_id, [figure], "figures")
    world.tracker.log_text(run_id, "seed: 0\n", "config.yaml")
    paths = {entry.path for entry in world.client.list_artifacts(run_id)}
    assert paths == {"figures", "config.yaml"}
    copies = list((world.home / "mlflow" / "artifacts").rglob("loss.png"))
    assert [path.read_bytes() for path in copies] == [b"png"]


def test_environment_does_not_redirect_a_run(
    world: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = start(world)
    monkeypatch.setenv("MLFLOW_RUN_ID", first)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "elsewhere")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.chdir(tmp_path)
    tracker = Tracker(world.home, "vibrent-standin")
    second = tracker.start("b", "k2", {"a": 1}, TAGS)
    tracker.log_summary(second, "data", {"items": 3})
    tracker.log_text(second, "text", "note.txt")
    assert second != first
    assert world.client.get_run(first).data.metrics == {}
    assert world.client.get_run(second).data.metrics == {"data/items": 3}
    assert list(tmp_path.iterdir()) == []


def test_sweep_ends_only_runs_of_dead_local_processes(world: SimpleNamespace) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    dead, reused, live, foreign, done = (start(world) for _ in range(5))
    world.client.set_tag(dead, "gti.pid", str(gone.pid))
    world.client.set_tag(reused, "gti.pid_start", "1")
    world.client.set_tag(foreign, "gti.pid", str(gone.pid))
    world.client.set_tag(foreign, "gti.host", "another-machine")
    world.client.set_tag(done, "gti.pid", str(gone.pid))
    world.tracker.finish(done)
    other = Tracker(world.home, "another-data-set")
    abroad = other.start("x", "k", {}, TAGS)
    world.client.set_tag(abroad, "gti.pid", str(gone.pid))
    expected = {dead, abroad} | ({reused} if Path("/proc").is_dir() else set())
    assert set(world.tracker.sweep()) == expected
    status = {run: world.client.get_run(run).info.status for run in (dead, abroad, live, foreign, done)}
    assert list(status.values()) == ["KILLED", "KILLED", "RUNNING", "RUNNING", "FINISHED"]
    assert world.tracker.sweep() == []


def test_deleted_experiment_is_restored(world: SimpleNamespace) -> None:
    Tracker(world.home, "binned").start("x", "k", {}, TAGS)
    world.client.delete_experiment(world.client.get_experiment_by_name("binned").experiment_id)
    run_id = Tracker(world.home, "binned").start("x", "k", {}, TAGS)
    assert world.client.get_run(run_id).info.status == "RUNNING"


def test_two_processes_make_store_and_experiment_at_once(world: SimpleNamespace) -> None:
    assert world.codes == [0, 0], world.outputs
    assert [error for _, error in world.outputs.values()] == ["", ""]  # MLflow's own chatter is quiet
    tracker = Tracker(world.home, "both")
    assert {key: tracker.find(key) for key in world.outputs} == {
        key: output.strip() for key, (output, _) in world.outputs.items()
    }


def test_broken_store_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "mlflow").mkdir()
    (tmp_path / "mlflow" / "mlflow.db").write_text("not a database, but long enough to be read as one" * 50)
    with pytest.raises(GtiError, match=r"mlflow\.db: MLflow cannot use its store"):
        Tracker(tmp_path, "x").sweep()


def test_own_loggers_keep_speaking(world: SimpleNamespace, caplog: pytest.LogCaptureFixture) -> None:
    world.tracker.sweep()
    with caplog.at_level(logging.INFO, logger="gti_pipeline.tracking"):
        logging.getLogger("gti_pipeline.tracking").info("still here")
    assert "still here" in caplog.text


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("eval/recall@10", "eval/recall_at_10"),
        ("used %", "used _percent"),
        ("a//b/", "a/b"),
        ("../etc", "etc"),
        ("/x", "x"),
        ("loss(é)", "loss_é_"),
        ("", "unnamed"),
        ("n" * 300, "n" * 250),
    ],
)
def test_legal_name(name: str, expected: str) -> None:
    assert legal_name(name) == expected


def test_flatten_joins_with_dots() -> None:
    assert flatten({"a": {"b": {"c": 1}, "d": [1]}, "e": None}) == {"a.b.c": 1, "a.d": [1], "e": None}
