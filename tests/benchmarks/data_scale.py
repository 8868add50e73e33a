"""How fast and how large the data stage is: rows per second and peak memory, each size in a process of its own.

    .venv/bin/python tests/benchmarks/data_scale.py --rows 100000 1000000 10000000

A size is its number of interactions; there is a tenth as many items and users. The files are CSV, written to a
temporary folder: items with a title and a description, one in a hundred quoted; interactions with a rating that is not
mapped, one in a thousand a duplicate, one in a thousand with a user, item or time that is missing or bad.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import common
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

SHARE = 10  # interactions per item and per user
PART = 1_000_000
WORDS = np.array(
    [
        "linen",
        "cotton",
        "silk",
        "wool",
        "dress",
        "coat",
        "jacket",
        "shirt",
        "summer",
        "winter",
        "blue",
        "green",
        "red",
        "black",
        "slim",
        "wide",
    ]
)


def generate(folder: Path, rows: int) -> None:
    """Writes items.csv and interactions.csv."""
    rng = np.random.default_rng(0)
    things = max(rows // SHARE, 10)
    with (folder / "items.csv").open("wb") as file:
        file.write(b"item_id,title,description\n")
        for start in range(0, things, PART):
            file.write(_items(rng, np.arange(start, min(start + PART, things))))
    with (folder / "interactions.csv").open("wb") as file:
        file.write(b"user_id,item_id,timestamp,rating\n")
        for start in range(0, rows, PART):
            file.write(_events(rng, min(PART, rows - start), things))


def _items(rng: np.random.Generator, numbers: np.ndarray) -> bytes:
    words = [WORDS[rng.integers(0, len(WORDS), len(numbers))] for _ in range(12)]
    text = pc.binary_join_element_wise(*(pa.array(column.astype(object)) for column in words), " ")
    quoted = pc.if_else(pa.array(numbers % 100 == 0), pc.binary_join_element_wise('"', text, ', ""new""\n"', ""), text)
    title = pc.binary_join_element_wise(*(pa.array(column.astype(object)) for column in words[:4]), " ")
    return _lines(_numbered("i", numbers), title, quoted)


def _events(rng: np.random.Generator, rows: int, things: int) -> bytes:
    users, items = rng.integers(0, things, rows), (things * rng.random(rows) ** 3).astype(np.int64)
    seconds = rng.integers(1_500_000_000, 1_600_000_000, rows)
    rating = rng.integers(1, 6, rows)
    again = np.arange(1, rows, 1000)
    for column in (users, items, seconds, rating):
        column[again] = column[again - 1]
    user, item, moment = _numbered("u", users), _numbered("i", items), pc.cast(pa.array(seconds), pa.string())
    bad = np.arange(rows) % 3000
    user = pc.if_else(pa.array(bad == 500), "", user)
    item = pc.if_else(pa.array(bad == 1500), "unknown", item)
    moment = pc.if_else(pa.array(bad == 2500), "soon", moment)
    return _lines(user, item, moment, pc.cast(pa.array(rating), pa.string()))


def _numbered(letter: str, numbers: np.ndarray) -> pa.Array:
    return pc.binary_join_element_wise(letter, pc.cast(pa.array(numbers), pa.string()), "")


def _lines(*columns: pa.Array) -> bytes:
    lines = pc.binary_join_element_wise(*columns, ",")
    return ("\n".join(lines.to_pylist()) + "\n").encode()


def measure(folder: Path, until: str) -> dict[str, float]:
    """Seconds and peak memory of cleaning, or of the whole stage with the split and the written tables."""
    from gti_pipeline.config import DataConfig
    from gti_pipeline.data.source import resolve_source
    from gti_pipeline.data.stage import check_content, clean, split_cleaned, write

    settings = {"title": "title", "description": "description"}
    events = {"time_format": "seconds"}
    config = DataConfig.model_validate({"dir": str(folder), "items": settings, "interactions": events, "k_core": 2})
    start, cpu_start = time.perf_counter(), time.process_time()
    cleaned = clean(config, resolve_source(config, folder))
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    clean_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if until == "write":
        check_content(config, cleaned)
        (folder / "tables").mkdir()
        write(split_cleaned(config, cleaned), folder / "tables")
    return {
        "read": cleaned.summary["rows_read"],
        "rejected": sum(cleaned.summary["rejects"].values()),
        "clean_seconds": seconds,
        "clean_cpu_seconds": cpu_seconds,
        "clean_mb": clean_mb,
        "seconds": time.perf_counter() - start,
        "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> None:
    """Prints a Markdown table, a line per size."""
    parser = common.parser(__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000], help="interactions per size")
    parser.add_argument("--until", choices=["clean", "write"], default="write", help="how much of the stage to run")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)  # of the process that measures
    arguments = parser.parse_args()
    if arguments.folder:
        print(json.dumps(measure(arguments.folder, arguments.until)))
        return
    table = common.Table(arguments.rows_file)
    for rows in arguments.rows:
        with tempfile.TemporaryDirectory() as folder:
            generate(Path(folder), rows)
            command = [sys.executable, __file__, "--folder", folder, "--until", arguments.until]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        found = json.loads(done.stdout)
        table.add(
            {
                "interactions": rows,
                "rows read": found["read"],
                "rejected": found["rejected"],
                "cleaned in s": round(found["clean_seconds"], 1),
                "CPU s": round(found["clean_cpu_seconds"], 1),
                "rows/s": round(found["read"] / found["clean_seconds"]),
                "peak MiB": round(found["clean_mb"]),
                "whole stage s": round(found["seconds"], 1),
                "whole stage peak MiB": round(found["mb"]),
            }
        )


if __name__ == "__main__":
    main()
