"""The user's own history again."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import pytest

from gti_pipeline.baselines.repeat import popular_repeat, repeat

EVENTS = pd.Series(["p"] * 5 + ["q"] * 3 + ["a"] + ["r"])


def test_recency_and_count_by_hand(rows: Callable[..., pd.DataFrame], listed: Callable[..., dict]) -> None:
    users = rows({"u": ["a", "b", "a", "c"], "v": ["x", "y"]})
    frame = repeat(users, 10, decay=0.5)
    # u: c 1; a 1/2 + 1/8; b 1/4
    assert listed(frame) == {"u": ["c", "a", "b"], "v": ["y", "x"]}
    assert frame["score"].tolist() == [1, 0.625, 0.25, 1, 0.5]


def test_without_decay_the_count_decides_and_ties_go_by_id(
    rows: Callable[..., pd.DataFrame], listed: Callable[..., dict]
) -> None:
    assert listed(repeat(rows({"u": ["b", "a", "b", "c"]}), 10, decay=1)) == {"u": ["b", "a", "c"]}


def test_a_short_list(rows: Callable[..., pd.DataFrame], listed: Callable[..., dict]) -> None:
    assert listed(repeat(rows({"u": ["a", "b", "c"]}), 2, decay=0.5)) == {"u": ["c", "b"]}


def test_popular_items_follow_the_repeated_ones(rows: Callable[..., pd.DataFrame], listed: Callable[..., dict]) -> None:
    users = rows({"u": ["q", "z"], "v": ["p"]})
    frame = popular_repeat(EVENTS, users, 4, decay=0.5)
    assert listed(frame) == {"u": ["z", "q", "p", "a"], "v": ["p", "q", "a", "r"]}
    assert frame["score"].tolist() == pytest.approx([2, 1.5, 0.5, 0.1, 2, 0.3, 0.1, 0.1])


def test_a_long_history_fills_the_list(rows: Callable[..., pd.DataFrame], listed: Callable[..., dict]) -> None:
    assert listed(popular_repeat(EVENTS, rows({"u": ["x", "y", "z"]}), 2, decay=0.5)) == {"u": ["z", "y"]}
