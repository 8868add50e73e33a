"""Generates the jobs stand-in: job requirements, candidate profiles, and grades by how many requirements are met.

A job asks for some skills, a seniority and a location. A candidate who meets all but at most one is good, one who
meets at least half, a skill among them, is maybe, any other is not. Of each job the best candidates, others of its
occupation and some of any are judged. All of it is in the texts, so it can be learnt from them; nobody in it exists.
"""

from __future__ import annotations

import csv
import hashlib
import io
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gti_pipeline.data.draws import Draws
from gti_pipeline.data.source import STANDINS
from gti_pipeline.search import standin_words as words

NUM_CANDIDATES, NUM_JOBS = 300, 250
BEST, SAME_TRADE, ANYBODY = 8, 8, 4  # judged candidates of a job
OCCUPATIONS = tuple(words.OCCUPATIONS)

CANDIDATE_HEADER = ("candidate_id", "headline", "skills", "seniority", "location", "summary")
JOB_HEADER = ("job_id", "title", "required_skills", "seniority", "location")
JUDGMENT_HEADER = ("job_id", "candidate_id", "grade")

Row = tuple[str, ...]


@dataclass(frozen=True)
class Candidate:
    """A profile."""

    id: str
    occupation: str
    skills: tuple[str, ...]
    seniority: str
    location: str


@dataclass(frozen=True)
class Job:
    """What an employer asks for."""

    id: str
    occupation: str
    skills: tuple[str, ...]
    seniority: str
    location: str

    def met(self, candidate: Candidate) -> int:
        """How many of the requirements a candidate meets: each skill, the seniority, the location."""
        skills = len(set(self.skills) & set(candidate.skills))
        return skills + (self.seniority == candidate.seniority) + (self.location == candidate.location)

    def grade(self, candidate: Candidate) -> int:
        """2 good, 1 maybe, 0 not."""
        asked, met = len(self.skills) + 2, self.met(candidate)
        if 2 * met < asked or not set(self.skills) & set(candidate.skills):
            return 0
        return 2 if met >= asked - 1 else 1


def generate(seed: int = 0) -> dict[str, str]:
    """The text of each file by name; the same seed gives the same bytes."""
    draw = Draws(seed)
    candidates = [_candidate(draw, number) for number in range(NUM_CANDIDATES)]
    jobs = [_job(draw, number, candidates) for number in range(NUM_JOBS)]
    profiles = [_profile(draw, candidate) for candidate in candidates]
    wanted: list[Row] = [(job.id, job.occupation, ", ".join(job.skills), job.seniority, job.location) for job in jobs]
    judgments = [row for job in jobs for row in _judged(draw, job, candidates)]
    profiles, wanted, judgments, last = _with_hazards(profiles, wanted, judgments)
    return {
        "candidates.csv": _file(CANDIDATE_HEADER, draw.shuffled(profiles)),
        "jobs.csv": _file(JOB_HEADER, draw.shuffled(wanted)),
        "judgments.csv": _file(JUDGMENT_HEADER, [*draw.shuffled(judgments), last]),
    }


def write_standin(folder: Path, seed: int = 0) -> None:
    """Writes the generated files into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in generate(seed).items():
        (folder / name).write_text(text, encoding="utf-8", newline="")


def _file(header: Row, rows: Sequence[Row]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([header, *rows])
    return out.getvalue()


def _identifier(kind: str, number: int) -> str:
    return f"{kind}-{hashlib.sha256(f'{kind} {number}'.encode()).hexdigest()[:8]}"


def _candidate(draw: Draws, number: int) -> Candidate:
    occupation = draw.pick(OCCUPATIONS)
    skills = (*draw.shuffled(words.OCCUPATIONS[occupation])[: draw.whole(4, 6)], draw.pick(words.EXTRAS))
    return Candidate(
        _identifier("candidate", number), occupation, skills, draw.pick(words.SENIORITIES), draw.pick(words.LOCATIONS)
    )


def _job(draw: Draws, number: int, candidates: Sequence[Candidate]) -> Job:
    """Requirements that were written with somebody in mind, so that a good match exists."""
    model = draw.pick(candidates)
    trade = [skill for skill in model.skills if skill not in words.EXTRAS]
    skills = draw.shuffled(trade)[: draw.whole(3, 4)]
    return Job(_identifier("job", number), model.occupation, tuple(skills), model.seniority, model.location)


def _profile(draw: Draws, candidate: Candidate) -> Row:
    summary = draw.pick(words.SUMMARIES).format(
        occupation=candidate.occupation.lower(),
        skills=", ".join(draw.shuffled(candidate.skills)[:3]),
        seniority=candidate.seniority,
        Seniority=candidate.seniority.capitalize(),
        location=candidate.location,
        years=draw.whole(*words.YEARS[candidate.seniority]),
    )
    skills, summary = ", ".join(candidate.skills), summary[0].upper() + summary[1:]
    return candidate.id, candidate.occupation, skills, candidate.seniority, candidate.location, summary


def _judged(draw: Draws, job: Job, candidates: Sequence[Candidate]) -> list[Row]:
    """The judgments of one job: its best candidates, others of the occupation, and anybody."""
    ordered = sorted(draw.shuffled(candidates), key=lambda candidate: -job.met(candidate))
    best, rest = ordered[:BEST], draw.shuffled(ordered[BEST:])
    trade = [candidate for candidate in rest if candidate.occupation == job.occupation][:SAME_TRADE]
    anybody = [candidate for candidate in rest if candidate not in trade][:ANYBODY]
    return [(job.id, candidate.id, str(job.grade(candidate))) for candidate in [*best, *trade, *anybody]]


def _with_hazards(
    profiles: list[Row], jobs: list[Row], judgments: list[Row]
) -> tuple[list[Row], list[Row], list[Row], Row]:
    """Adds rows that must not be kept; no true row is touched. Returns beside them a row that must come last."""
    nameless = [(_identifier("candidate", 9000 + n), "", *profiles[n][2:]) for n in range(2)]
    textless = [(_identifier("job", 9000), "", "", "", "")]
    job, candidate, grade = judgments[7]
    wrong = [
        (judgments[100][0], nameless[0][0], "1"),  # a candidate that is not kept
        (judgments[200][0], _identifier("candidate", 9500), "0"),
        (textless[0][0], judgments[300][1], "2"),  # a job that is not kept
        (job, judgments[4000][1], "good"),
        (judgments[400][0], judgments[400][1], "3"),
        ("", candidate, "2"),
        judgments[500],
        judgments[600],
    ]
    conflicting = (job, candidate, "0" if grade == "2" else "2")  # of two the first is kept, which is the true one
    return [*profiles, *nameless], [*jobs, jobs[3], *textless], [*judgments, *wrong], conflicting


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    write_standin(STANDINS / "jobs")
    logging.getLogger(__name__).info("wrote %s", STANDINS / "jobs")
