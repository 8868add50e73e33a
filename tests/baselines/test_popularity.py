"""Popularity of all training events and of the newest."""

from __future__ import annotations

import pandas as pd
import pytest

from gti_pipeline.baselines.popularity import popular, recent_popular
from gti_pipeline.errors import GtiError
from gti_pipeline.schemas import RECOMMENDATIONS

EVENTS = pd.Series(["c", "b", "c", "a", "b", "c", "d"])


def timed(*pairs: tuple[str, int]) -> pd.DataFrame:
    return pd.DataFrame(pairs, columns=["item_id", "timestamp"]).assign(user_id="u", source_row=range(len(pairs)))


def test_most_events_first_ties_by_id_the_same_for_everyone() -> None:
    frame = popular(EVENTS, ["v", "u"], 3)
    RECOMMENDATIONS.check(frame)
    assert frame["user_id"].tolist() == ["v"] * 3 + ["u"] * 3
    assert frame["item_id"].tolist() == ["c", "b", "a"] * 2
    assert frame["rank"].tolist() == [1, 2, 3] * 2
    assert frame["score"].tolist() == [3.0, 2.0, 1.0] * 2


def test_the_order_of_the_events_plays_no_part() -> None:
    assert popular(EVENTS[::-1], ["u"], 4).equals(popular(EVENTS, ["u"], 4))


def test_short_where_fewer_items_were_seen() -> None:
    assert len(popular(EVENTS, ["u"], 100)) == 4


def test_no_events() -> None:
    with pytest.raises(GtiError, match="no training events"):
        popular(EVENTS.head(0), ["u"], 3)


def test_recent_counts_the_newest_share_only() -> None:
    old = [("old", day) for day in range(15)]
    new = [("b", 16), ("a", 17), ("b", 18), ("c", 19), ("c", 20)]
    frame = recent_popular(timed(*new, *old), ["u"], 10, share=0.25)  # 5 of 20 events
    assert list(zip(frame["item_id"], frame["score"], strict=True)) == [("b", 2), ("c", 2), ("a", 1)]


def test_the_window_holds_all_events_as_old_as_its_oldest() -> None:
    events = timed(("a", 1), ("b", 2), ("c", 2), ("d", 2), ("e", 3))
    for order in (events, events[::-1]):
        assert recent_popular(order, ["u"], 10, share=0.4)["item_id"].tolist() == ["b", "c", "d", "e"]


def test_a_share_of_one_is_popularity() -> None:
    events = timed(*((item, day) for day, item in enumerate(EVENTS)))
    assert recent_popular(events, ["u", "v"], 3, share=1).equals(popular(EVENTS, ["u", "v"], 3))


@pytest.mark.parametrize("share", [0, -0.1, 1.5])
def test_no_share(share: float) -> None:
    with pytest.raises(GtiError, match="recent_share"):
        recent_popular(timed(("a", 1)), ["u"], 3, share)
