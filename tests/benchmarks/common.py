"""What the benchmark scripts share: timing by turns, the Markdown table, rows for the suite."""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]
REPO = Path(__file__).resolve().parents[2]
LM = "SmolLM2-135M-Instruct"


def parser(about: str | None) -> argparse.ArgumentParser:
    """A script's arguments; each script takes --rows-file, which the suite reads."""
    found = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--rows-file", type=Path, help="append each row of the table as a line of JSON")
    return found


def device_arguments(found: argparse.ArgumentParser) -> None:
    """Of the scripts that run the LM."""
    found.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    found.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    found.add_argument("--threads", type=int, help="of torch; default: all")


def by_turns(functions: dict[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Seconds of each function, each run once per round: what else the machine does meets all of them alike."""
    import torch

    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            seconds[name].append(time.perf_counter() - start)
    return seconds


def median(values: Sequence[float]) -> float:
    """To four digits."""
    return float(f"{statistics.median(values):.4g}")


def spread(values: Sequence[float]) -> str:
    """Least and greatest."""
    return f"{min(values):.3g} to {max(values):.3g}"


def ratios(reference: Sequence[float], ours: Sequence[float]) -> Row:
    """The median of the rounds' ratios, reference by ours, and their spread."""
    each = [theirs / own for theirs, own in zip(reference, ours, strict=True)]
    return {"ratio": median(each), "ratio from to": spread(each)}


def peak_mb() -> int:
    """Greatest resident memory of this process so far, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def alone(script: str, *arguments: str) -> Row:
    """The JSON object that a script prints last, run in a process of its own (for its peak memory)."""
    done = subprocess.run([sys.executable, script, *arguments], check=True, stdout=subprocess.PIPE, text=True)
    found: Row = json.loads(done.stdout.splitlines()[-1])
    return found


class Table:
    """Prints rows as Markdown as they come, a new head where the columns change, and keeps them for the suite."""

    def __init__(self, rows_file: Path | None) -> None:
        self.rows_file = rows_file
        self.names: list[str] = []

    def add(self, row: Row) -> None:
        """One line."""
        if list(row) != self.names:
            self.names = list(row)
            print("\n| " + " | ".join(self.names) + " |\n|" + "---|" * len(self.names))
        print("| " + " | ".join(map(cell, row.values())) + " |", flush=True)
        if self.rows_file:
            with self.rows_file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


def cell(value: object) -> str:
    """Numbers as people read them."""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
