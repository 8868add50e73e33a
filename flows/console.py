"""What a run says in the terminal about its data. Light: a look at the data imports neither torch nor Prefect."""

from __future__ import annotations

import shutil

from rich.console import Console
from rich.panel import Panel

from gti_pipeline.banner import banner_text
from gti_pipeline.data.source import Source


def console() -> Console:
    """Standard output; at least 100 columns, so that a table in a log file stays whole."""
    return Console(width=max(100, shutil.get_terminal_size().columns), soft_wrap=False)


def announce(source: Source) -> None:
    """Says what data is used."""
    show_banner(source)
    console().print(f"data set {source.name}: {source.note}", highlight=False, markup=False, soft_wrap=True)


def show_banner(source: Source) -> None:
    """A stand-in, said in a box that cannot be missed; nothing for real data."""
    if source.is_standin:
        console().print(Panel(banner_text(source), title="STAND-IN DATA", border_style="bold red", style="bold"))
