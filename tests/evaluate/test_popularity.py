"""The popularity baseline."""

from __future__ import annotations

import pandas as pd
import pytest

from gti_pipeline.errors import GtiError
from gti_pipeline.evaluate import popular
from gti_pipeline.schemas import RECOMMENDATIONS

EVENTS = pd.Series(["c", "b", "c", "a", "b", "c", "d"])


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
