"""What every page is built with: tables, drawings, templates. A page is one file, nothing in it is fetched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure

from gti_pipeline.artifacts import file_digest, write_text
from gti_pipeline.report.figures import inline_svg, write_png

TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Table:
    """A table of a page: its text, how many columns are aligned left."""

    columns: list[str]
    rows: list[list[str]]
    left: int = 1
    caption: str = ""


@dataclass(frozen=True)
class Drawing:
    """A figure of a page."""

    label: str
    svg: Markup


@dataclass(frozen=True)
class Written:
    """The files of a report."""

    page: Path
    text: Path
    figures: tuple[Path, ...]


def table(frame: pd.DataFrame, left: int = 1, caption: str = "") -> Table:
    """A frame of text for a page."""
    return Table([str(name) for name in frame.columns], frame.astype(str).to_numpy().tolist(), left, caption)


def drawings(figures: Mapping[str, Figure]) -> list[Drawing]:
    """Figures by name, for a page."""
    return [
        Drawing(name.replace("_", " "), Markup(inline_svg(figure, name)))  # noqa: S704  matplotlib escapes its texts
        for name, figure in figures.items()
    ]


def template_digests() -> dict[str, str]:
    """Of every template by name: a page follows from them too."""
    return {path.name: file_digest(path) for path in sorted(TEMPLATES.glob("*.html"))}


def render(template: str, **values: Any) -> str:
    """A page with every value escaped; a name the template lacks is an error."""
    loader = jinja2.FileSystemLoader(TEMPLATES)
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template(template).render(**values)


def write(folder: Path, name: str, page: str, text: str, text_name: str, figures: Mapping[str, Figure]) -> Written:
    """Writes the page, its text in Markdown and the figures as PNG into `folder`."""
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    paths = [write_png(figure, folder / "figures" / f"{key}.png") for key, figure in figures.items()]
    write_text(folder / name, page)
    write_text(folder / text_name, text)
    return Written(folder / name, folder / text_name, tuple(paths))


def banner_lines(banner: str) -> list[str]:
    """The banner in Markdown; nothing where there is none."""
    return [f"> **{' '.join(banner.split())}**\n"] if banner else []
