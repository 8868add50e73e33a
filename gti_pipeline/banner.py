"""The line that nobody can miss when a run is on generated data."""

from __future__ import annotations

from gti_pipeline.data.source import Source


def banner_text(source: Source) -> str:
    """What the source is, where it is not the real one; else empty."""
    if not source.is_standin:
        return ""
    real = source.name.removesuffix("-standin")
    return (
        f"GENERATED DATA. This is {source.name}, a stand-in made by this project, not the {real} data set;"
        f" its numbers say nothing about {real}. To run on the real files put them into data/raw/{real};"
        " REQUIRE_REAL=1 refuses the stand-in."
    )
