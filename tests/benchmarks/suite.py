"""All benchmarks, or one, at sizes that two quiet cores manage in under 20 minutes; what `make bench` runs.

Run:  .venv/bin/python tests/benchmarks/suite.py
      .venv/bin/python tests/benchmarks/suite.py --only decode

Each script runs in a process of its own, prints its table, and stays runnable alone at other sizes. The tables are
written to data/benchmarks/<suite or name>.md, and as .parquet in long form: a row per value, with the machine and the
versions beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from itertools import groupby
from pathlib import Path

import pandas as pd
from common import REPO, Row, cell

HERE = Path(__file__).resolve().parent
SUITE: dict[str, list[str]] = {
    "trie": ["--items", "1000", "10000", "100000", "1000000", "10000000", "--dict-up-to", "1000000"],
    "decode": ["--beams", "20", "50", "100", "--prompt-tokens", "40", "200", "--repeats", "2"],
    "ground": [],
    "sft": [],
    "semantic_ids": ["--items", "1000", "4000", "--limit", "60"],
    "data_scale": ["--rows", "100000", "300000"],
}
PACKAGES = ("torch", "transformers", "numpy", "pyarrow", "pandas", "scikit-learn", "faiss-cpu")


def about() -> dict[str, str]:
    """The machine, the versions, and how busy the machine is: timings of a busy one mean little."""
    found = {
        "machine": f"{_processor()}, {os.cpu_count()} cores, {platform.system()}",
        "python": platform.python_version(),
        "load before": f"{os.getloadavg()[0]:.1f}",
    }
    return found | {name: version(name) for name in PACKAGES}


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def run(name: str, options: list[str]) -> list[Row]:
    """The rows of one script, whose table is shown meanwhile."""
    print(f"\n## {name}", flush=True)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.jsonl"
        rows.touch()
        command = [sys.executable, str(HERE / f"{name}.py"), *options, "--rows-file", str(rows)]
        subprocess.run(command, check=True)
        found = [json.loads(line) for line in rows.read_text(encoding="utf-8").splitlines()]
    print(f"\n{name}: {time.monotonic() - start:.0f} s", flush=True)
    return found


def long_form(tables: dict[str, list[Row]], machine: dict[str, str]) -> pd.DataFrame:
    """benchmark, row, column, text, number (NaN where it is none), and the machine's columns."""
    values = [
        (name, index, column, cell(value), float(value) if isinstance(value, int | float) else None)
        for name, rows in tables.items()
        for index, row in enumerate(rows)
        for column, value in row.items()
    ]
    frame = pd.DataFrame(values, columns=["benchmark", "row", "column", "text", "number"])
    return frame.astype({"number": float}).assign(**machine)


def markdown(tables: dict[str, list[Row]], machine: dict[str, str]) -> str:
    """The machine, then a heading and one or more tables per benchmark."""
    lines = [f"{name}: {value}  " for name, value in machine.items()]
    for name, rows in tables.items():
        lines += ["", f"## {name}"]
        for columns, group in groupby(rows, key=list):
            lines += ["", f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
            lines += [f"| {' | '.join(map(cell, row.values()))} |" for row in group]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Runs them and writes the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(SUITE), help="one benchmark")
    parser.add_argument("--out", type=Path, default=REPO / "data" / "benchmarks")
    args = parser.parse_args()
    machine, tables = about(), {}
    for name in [args.only] if args.only else SUITE:
        tables[name] = run(name, SUITE[name])
        stem = args.out / (args.only or "suite")
        args.out.mkdir(parents=True, exist_ok=True)  # written after each: a stopped suite keeps what it has
        stem.with_suffix(".md").write_text(markdown(tables, machine), encoding="utf-8")
        long_form(tables, machine).to_parquet(stem.with_suffix(".parquet"), index=False)
    print(f"\nwritten: {stem}.md and {stem}.parquet")


if __name__ == "__main__":
    main()
