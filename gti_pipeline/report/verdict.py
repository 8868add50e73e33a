"""Plain sentences on what a run's numbers show and what they do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from gti_pipeline import columns as c
from gti_pipeline.report import OVERALL, POPULAR, Difference
from gti_pipeline.report.compare_tables import shown
from gti_pipeline.report.tables import first_names, metric_name, nearest_k, with_interval

SPOKEN = {POPULAR: "popularity"}


@dataclass(frozen=True)
class Verdict:
    """A sentence, and whether it is good news, bad news or neither."""

    tone: str  # good, bad or open
    text: str


def verdicts(metrics: pd.DataFrame, arm: str, differences: Sequence[Difference] = (), k: int = 10) -> list[Verdict]:
    """The arm against the strongest baseline by Recall@K, and against popularity where that is another one."""
    best = strongest(metrics, arm, k)
    if best in (None, POPULAR):
        return [against_popularity(metrics, arm, differences, k)]
    first = against(metrics, arm, str(best), differences, k)
    said = Verdict(first.tone, f"The strongest baseline is {best}. {first.text}")
    weaker = [against_popularity(metrics, arm, differences, k)] if POPULAR in set(metrics[c.ARM]) else []
    return [said, *weaker]


def strongest(metrics: pd.DataFrame, arm: str, k: int = 10) -> str | None:
    """The other arm with the highest Recall@K over all test users, the first of equals; None where there is none."""
    headline = first_names(metrics)[0]
    wanted = (metrics[c.SLICE] == OVERALL) & (metrics[c.METRIC] == headline) & (metrics[c.ARM] != arm)
    rows = metrics[wanted & (metrics[c.K] == nearest_k(metrics, k))]
    return None if rows.empty else str(rows[c.ARM].iloc[int(rows[c.VALUE].argmax())])


def against_popularity(metrics: pd.DataFrame, arm: str, differences: Sequence[Difference] = (), k: int = 10) -> Verdict:
    """Whether the arm's Recall@K is above popularity's on the same users, with both numbers."""
    return against(metrics, arm, POPULAR, differences, k)


def against(
    metrics: pd.DataFrame, arm: str, reference: str, differences: Sequence[Difference] = (), k: int = 10
) -> Verdict:
    """Whether the arm's Recall@K is above the reference's on the same users, with both numbers."""
    k = nearest_k(metrics, k)
    headline = first_names(metrics)[0]
    own, other = (_headline(metrics, name, k) for name in (arm, reference))
    name, they = metric_name(headline, k), SPOKEN.get(reference, reference)
    if own is None or other is None:
        lacking = arm if own is None else reference
        return Verdict("open", f"{name} of {lacking} was not measured: nothing can be said against {they}.")
    both = f"{arm} {_interval(own)}, {they} {_interval(other)}, on the same {int(own[c.NUM_USERS]):,} test users"
    certain, reason = _certainty(own, other, _paired(differences, arm, reference, headline, k))
    if own[c.VALUE] <= other[c.VALUE]:
        relation = "equal to" if own[c.VALUE] == other[c.VALUE] else "below"
        return Verdict("bad", f"{name} is NOT above {they}'s: it is {relation} it ({both}). {reason}")
    if certain:
        return Verdict("good", f"{name} is above {they}'s: {both}. {reason}")
    return Verdict("open", f"{name} is higher than {they}'s, but not shown to be beyond chance: {both}. {reason}")


def between_arms(
    differences: Sequence[Difference], arms: Sequence[str], reference: str, k: int | None = None
) -> list[str]:
    """A sentence per arm and metric on what its difference to the reference shows at this size; at one K, if given."""
    if reference not in arms:
        return [f"The reference arm {reference} was not run: no gain can be stated."]
    sentences = []
    for arm in arms:
        paired = [d for d in differences if (d.arm, d.reference) == (arm, reference) and k in (None, d.k)]
        sentences += [_difference_sentence(d) for d in paired]
        if not paired and arm not in (reference, POPULAR):
            sentences.append(f"{arm}: no paired difference to {reference} was computed, so its gain is a number only.")
    return sentences


def at_this_size(differences: Sequence[Difference], seeds: int, k: int) -> list[str]:
    """What the size of a comparison allows to be seen at all, and what it leaves open."""
    same = [d for d in differences if d.k == k and d.metric == differences[0].metric]
    if not same:
        return []
    widest = max((d.high - d.low) / 2 for d in same)
    name, users = metric_name(same[0].metric, k), same[0].num_users
    runs = (
        "one seed: how much training runs differ is not in any interval"
        if seeds == 1
        else f"{seeds} seeds: the intervals hold the chance of users and of training runs, the latter roughly"
    )
    return [
        f"At this size ({users:,} test users, {runs}) a difference in {name} below about {widest:.4f} cannot be told"
        " from none.",
        "Each interval stands for itself: of many comparisons some exclude zero by chance alone.",
    ]


def _difference_sentence(difference: Difference) -> str:
    d = difference
    name = metric_name(d.metric, d.k)
    interval = f"{d.value:+.4f} over {d.num_users:,} users, its interval [{d.low:+.4f}, {d.high:+.4f}]"
    if shown(d) == "not shown":
        return f"{d.arm}: a difference to {d.reference} in {name} is not shown at this size ({interval} holds zero)."
    return f"{d.arm}: {name} is {shown(d)} than {d.reference}'s ({interval} excludes zero)."


def _certainty(own: pd.Series, other: pd.Series, paired: Difference | None) -> tuple[bool, str]:
    """Whether two numbers are told apart, and by what."""
    if paired is not None:
        apart = shown(paired) != "not shown"
        holds = "excludes" if apart else "holds"
        return apart, (
            f"The paired difference is {paired.value:+.4f}, its interval"
            f" [{paired.low:+.4f}, {paired.high:+.4f}] {holds} zero."
        )
    apart = bool(own[c.LOW] > other[c.HIGH] or own[c.HIGH] < other[c.LOW])
    return apart, f"The two intervals {'do not overlap' if apart else 'overlap'}."


def _headline(metrics: pd.DataFrame, arm: str, k: int) -> pd.Series | None:
    wanted = (metrics[c.ARM] == arm) & (metrics[c.SLICE] == OVERALL) & (metrics[c.METRIC] == first_names(metrics)[0])
    rows = metrics[wanted & (metrics[c.K] == k)]
    return None if rows.empty else rows.iloc[0]


def _interval(row: pd.Series) -> str:
    return with_interval(float(row[c.VALUE]), float(row[c.LOW]), float(row[c.HIGH]))


def _paired(differences: Sequence[Difference], arm: str, reference: str, metric: str, k: int) -> Difference | None:
    wanted = (arm, reference, metric, k)
    return next((d for d in differences if (d.arm, d.reference, d.metric, d.k) == wanted), None)
