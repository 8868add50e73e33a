"""Users whose behaviour is known, as the tables that baselines take."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pandas as pd
import pytest

Rows = Callable[..., pd.DataFrame]


@pytest.fixture(scope="session")
def rows() -> Rows:
    """A function that makes a table of user_id, history and, where targets are given, target."""

    def make(histories: Mapping[str, Sequence[str]], targets: Mapping[str, str] | None = None) -> pd.DataFrame:
        frame = pd.DataFrame({"user_id": list(histories), "history": [list(h) for h in histories.values()]})
        return frame if targets is None else frame.assign(target=[targets[user] for user in histories])

    return make


@pytest.fixture(scope="session")
def none_valid(rows: Rows) -> pd.DataFrame:
    """No validation rows."""
    return rows({}, {})


@pytest.fixture(scope="session")
def listed() -> Callable[[pd.DataFrame], dict[str, list[str]]]:
    """A function from `schemas.RECOMMENDATIONS` to item ids by user, after checking what holds for every baseline."""

    def by_user(frame: pd.DataFrame) -> dict[str, list[str]]:
        from gti_pipeline.schemas import RECOMMENDATIONS

        RECOMMENDATIONS.check(frame)
        lists = {}
        for user, group in frame.groupby("user_id", sort=False):
            assert group["rank"].tolist() == list(range(1, len(group) + 1))
            assert group["item_id"].is_unique
            pairs = list(zip(-group["score"], group["item_id"], strict=True))
            assert pairs == sorted(pairs), "best first, ties by item id"
            lists[str(user)] = group["item_id"].tolist()
        return lists

    return by_user


def ring(num_items: int) -> list[str]:
    """Item ids i00, i01, ..."""
    return [f"i{n:02d}" for n in range(num_items)]
