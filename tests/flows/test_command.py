"""The `gti` command: own data in three formats, and one clear error for whatever is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

WORDS = ["red", "blue", "green", "tall", "small", "wooden", "soft", "round", "square", "lamp", "chair", "desk", "shelf"]


@pytest.fixture(scope="module")
def tables() -> tuple[pd.DataFrame, pd.DataFrame]:
    """A small catalogue and small histories."""
    rng = np.random.default_rng(0)
    items = pd.DataFrame(
        {"sku": [f"i{n}" for n in range(40)], "name": [" ".join(rng.choice(WORDS, 3)) for _ in range(40)]}
    )
    rows = [(f"u{user}", f"i{item}", step) for user in range(12) for step, item in enumerate(rng.permutation(40)[:6])]
    return items, pd.DataFrame(rows, columns=["who", "sku", "when"])


def write_dataset(folder: Path, items: pd.DataFrame, events: pd.DataFrame, ending: str = "csv") -> Path:
    """The two files and a YAML of ten lines that maps them; returns the YAML's path."""
    writers: dict[str, Any] = {
        "csv": lambda frame, path: frame.to_csv(path, index=False, sep="|"),
        "parquet": lambda frame, path: frame.to_parquet(path),
        "jsonl": lambda frame, path: frame.to_json(path, orient="records", lines=True),
    }
    writers[ending](items, folder / f"products.{ending}")
    writers[ending](events, folder / f"events.{ending}")
    yaml = folder / "shop.yaml"
    yaml.write_text(
        f"""data:
  name: shop
  dir: {folder}
  items: {{file: products.{ending}, delimiter: "|", item_id: sku, title: name}}
  interactions: {{file: events.{ending}, delimiter: "|", user_id: who, item_id: sku, timestamp: when}}
"""
    )
    return yaml


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
def test_data_check_counts_own_data_in_every_format(gti: Any, tables: Any, tmp_path: Path, ending: str) -> None:
    yaml = write_dataset(tmp_path, *tables, ending)
    done = gti("data", "check", "--dataset", str(yaml))
    assert done.returncode == 0, done.stderr
    assert "40 items" in done.stdout
    assert "72 interactions" in done.stdout
    assert "GENERATED" not in done.stdout


def test_a_run_on_own_data(gti: Any, tables: Any, tmp_path: Path, quick_settings: tuple[str, ...]) -> None:
    yaml = write_dataset(tmp_path, *tables)
    sets = [part for s in (f"home={tmp_path / 'home'}", *quick_settings) for part in ("--set", s)]
    done = gti("run", "--dataset", str(yaml), "--profile", "tiny", *sets)
    assert done.returncode == 0, done.stderr
    assert "Recall@10" in done.stdout
    assert "popular" in done.stdout
    assert "GENERATED" not in done.stdout
    assert (tmp_path / "home" / "reports" / "shop" / "gti-seed0" / "report.html").is_file()


def error_of(done: Any) -> str:
    """The message of a command that failed as it should."""
    assert done.returncode == 2, (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stdout + done.stderr
    assert done.stderr.count("error: ") == 1, done.stderr
    return str(done.stderr.split("error: ", 1)[1])


def test_unknown_column(gti: Any, tables: Any, tmp_path: Path) -> None:
    items, events = tables
    yaml = write_dataset(tmp_path, items.rename(columns={"name": "nome"}), events.rename(columns={"when": "wen"}))
    message = error_of(gti("run", "--dataset", str(yaml), "--profile", "tiny", "--set", f"home={tmp_path / 'h'}"))
    for part in ("products.csv", "name", "nome", "events.csv", "when", "wen"):
        assert part in message


def test_missing_file(gti: Any, tables: Any, tmp_path: Path) -> None:
    yaml = write_dataset(tmp_path, *tables)
    (tmp_path / "events.csv").rename(tmp_path / "event.csv")
    message = error_of(gti("run", "--dataset", str(yaml), "--profile", "tiny", "--set", f"home={tmp_path / 'h'}"))
    assert "events.csv is missing" in message
    assert "event.csv" in message


def test_empty_catalogue(gti: Any, tables: Any, tmp_path: Path) -> None:
    items, events = tables
    yaml = write_dataset(tmp_path, items.head(0), events)
    message = error_of(gti("run", "--dataset", str(yaml), "--profile", "tiny", "--set", f"home={tmp_path / 'h'}"))
    assert "no items left of 0 rows" in message


def test_all_configuration_errors_at_once(gti: Any) -> None:
    done = gti("run", "--set", "sft.lerning_rate=1", "--set", "ground.epochs=many", "--set", "vocab.init=meen")
    message = error_of(done)
    assert "sft.lerning_rate" in message
    assert "sft.learning_rate" in message
    assert "ground.epochs='many'" in message
    assert "vocab.init='meen'" in message


def test_real_data_required_but_absent(gti: Any, tmp_path: Path) -> None:
    message = error_of(gti("run", "--require-real", "--profile", "tiny", "--set", f"home={tmp_path}"))
    assert "outfits.csv" in message
    assert "REQUIRE_REAL" in message


def test_schedule_without_a_server_says_what_to_start(
    gti: Any, tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(environment, "PREFECT_API_URL", "http://127.0.0.1:9/api")
    message = error_of(gti("schedule", "--allow-standin", "--profile", "tiny", "--set", f"home={tmp_path}"))
    assert "make server" in message


def test_show_prints_what_validate_accepts(gti: Any, tmp_path: Path) -> None:
    shown = gti("config", "show", "--profile", "paper", "--method", "lc_rec", "--seed", "3")
    assert shown.returncode == 0
    assert "seed: 3" in shown.stdout
    assert "Qwen/Qwen3-0.6B" in shown.stdout
    checked = gti("config", "validate", "--profile", "paper", "--method", "lc_rec")
    assert checked.returncode == 0
    assert "valid" in checked.stdout
