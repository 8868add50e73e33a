"""The search task as a flow: two methods side by side, shared stages once, an MLflow run each, a page."""

from __future__ import annotations

from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

METHODS = ("mean_sft", "lc_rec")
QUICK = (
    "semantic_ids.epochs=20",
    "embed.dim=16",
    "sft.max_steps=4",
    "sft.valid_users=4",
    "decode.max_users=10",
    "search.candidates=50",
    "search.ks=[5, 50]",
)


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from flows.search import search

    home = tmp_path_factory.mktemp("home")

    def run(**given: Any) -> tuple[Path, str]:
        out = StringIO()
        with redirect_stdout(out):
            page = search(dataset="jobs", profile="tiny", overrides=(f"home={home}", *QUICK), **given)
        return Path(page), out.getvalue()

    return home, run(methods=METHODS), run


def test_shared_stages_are_computed_once(searched: Any) -> None:
    root = searched[0] / "artifacts" / "jobs-standin"
    counts = {folder.name: len(list(folder.iterdir())) for folder in root.iterdir()}
    shared = dict.fromkeys(("search_data", "embed", "semantic_ids", "vocab"), 1)
    own = dict.fromkeys(("search_sft", "search_recommend", "search_evaluate", "diagnostics"), 2)
    assert counts == shared | own


def test_tables_and_page_say_what_was_measured(searched: Any) -> None:
    _, (page, printed), _ = searched
    assert page.is_file()
    printed = " ".join(printed.split())  # titles of narrow tables are broken
    for part in ("GENERATED DATA", "Precision, good or maybe, relative to mean_sft", "lc_rec in the paper", "N@50"):
        assert part in printed
    text = page.read_text()
    for part in ("jobs-standin", "P good@5", "a query stands where a user does", "required skills"):
        assert part in text
    for part in ("Some test queries", "<h3>Query ", "lc_rec finds", "Good items:"):
        assert part in text
    for part in ("<h3>User ", "History, oldest first", "Taken next"):
        assert part not in text
    paired = [line for line in (page.parent / "comparison.md").read_text().splitlines() if "lc_rec - mean_sft" in line]
    assert [line.split(" | ")[1] for line in paired] == [
        f"{name}@{k}" for name in ("Precision (good)", "Precision (good or maybe)", "Graded NDCG") for k in (5, 50)
    ]
    metrics = pd.read_parquet(page.parent / "metrics.parquet")
    assert set(metrics["arm"]) == {*METHODS, "popular"}
    assert set(metrics["metric"]) == {"precision_good", "precision_good_maybe", "ndcg_graded"}
    assert metrics["num_users"].eq(10).all()


def test_each_arm_is_an_mlflow_run_once(searched: Any) -> None:
    from mlflow.tracking import MlflowClient

    home, _, run = searched
    _, printed = run(methods=("mean_sft",))  # alone, it is held against popularity; nothing is computed again
    assert "relative to popular" in printed
    assert "already there" in printed
    client = MlflowClient(tracking_uri=f"sqlite:///{home / 'mlflow' / 'mlflow.db'}")
    everything = client.search_runs([client.get_experiment_by_name("jobs-standin").experiment_id])
    runs = [run for run in everything if run.data.tags["gti.method"] != "comparison"]
    assert sorted(run.data.tags["gti.method"] for run in runs) == sorted(METHODS)
    assert all(run.info.status == "FINISHED" for run in runs)
    assert all("search_sft/loss" in run.data.metrics for run in runs)
    _, again = run(methods=METHODS)
    pages = [run for run in everything if run.data.tags["gti.method"] == "comparison"]
    (both,) = [run.info.run_id for run in pages if run.data.params["arms"] == ", ".join(METHODS)]
    assert f"logged before as {both}" in again
    assert len(pages) == 2  # of both methods, and of the one alone
    assert "comparison.html" in {entry.path for entry in client.list_artifacts(both)}


def test_finished_arms_are_found_without_running(searched: Any) -> None:
    from flows.search_arm import finished_arms
    from gti_pipeline.data.source import resolve_source
    from gti_pipeline.settings import load_config

    home, _, _ = searched
    settings = (f"home={home}", *QUICK)
    done = [load_config(profile="tiny", dataset="jobs", method=name, overrides=settings) for name in METHODS]
    arms = finished_arms(done, resolve_source(done[0].data, home))
    assert arms is not None
    assert [arm.config.method for arm in arms] == list(METHODS)
    assert all(artifact.cached for arm in arms for artifact in arm.done.values())
    other = load_config(profile="tiny", dataset="jobs", method="mean_sft", overrides=(*settings, "seed=7"))
    assert finished_arms([*done, other], resolve_source(other.data, home)) is None


@pytest.mark.parametrize("command", [("baselines",), ("schedule",)])
def test_commands_that_do_not_know_the_task_say_so(gti: Any, command: tuple[str, ...], tmp_path: Path) -> None:
    done = gti(*command, "--dataset", "jobs", "--profile", "tiny", "--set", f"home={tmp_path}")
    assert done.returncode == 2
    assert f"which gti {command[0]} does not know" in done.stderr


def test_data_check_counts_a_search_task(gti: Any, tmp_path: Path) -> None:
    done = gti("data", "check", "--dataset", "jobs", "--set", f"home={tmp_path}")
    assert done.returncode == 0, done.stderr
    assert "250 queries, 5,000 judgments" in done.stdout
