"""Text cleaning and timestamps against hand-made values."""

import math
from datetime import UTC

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gti_pipeline.data.text import list_text, plain_text
from gti_pipeline.data.times import parse_times
from gti_pipeline.errors import GtiError


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("  two \n\t words ", "two words"),
        ("HP 74 &amp; 75 &eacute;", "HP 74 & 75 é"),
        ("a<br>b<p>c</p>d", "a b c d"),
        ("<b>bo</b>ld <i>x</i>", "bold x"),
        ("x<!-- .css {a: b} -->y", "xy"),
        ("<style>p {}</style>a<script>if (1 < 2) {}</script>b", "a b"),
        ("3 < 4 and 5 > 2", "3 < 4 and 5 > 2"),
        ("5 <3", "5 <3"),
        ("nul\x00byte 😀", "nul byte 😀"),
        ("&lt;b&gt;", "<b>"),
        ("<br/>", ""),
    ],
)
def test_plain_text(raw, clean):
    assert plain_text(raw) == clean


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("['summer', 'linen']", "summer, linen"),
        (" ('a', None, 2) ", "a, 2"),
        ("[]", ""),
        ("summer, linen", "summer, linen"),
        ("['torn", "['torn"),
        ("__import__('os').getcwd()", "__import__('os').getcwd()"),
        ("[" * 5000, "[" * 5000),
        ("{'a': 1}", "{'a': 1}"),
        ("[['A', 'B'], ['C', '']]", "A, B, C"),
        ('["a", null, true]', "a, True"),
    ],
)
def test_list_text(raw, text):
    assert list_text(raw) == text


def times(*values, **settings):
    parsed = parse_times(pd.Series(values, dtype="str"), **settings).values
    return [None if pd.isna(value) else int(value) for value in parsed]


def is_dated(*values, **settings):
    return parse_times(pd.Series(values, dtype="str"), **settings).dated


def test_dates_are_epoch_seconds():
    assert times("1970-01-02", "1970-01-01 00:01:00", "1970-01-01T01:00:00+01:00", "1969-12-31") == [
        86400,
        60,
        0,
        -86400,
    ]


def test_numbers_stay_exact_and_fractions_round_down():
    assert times("5", " -1 ", "2.9", "-0.5", "1e3", str(2**62 + 1)) == [5, -1, 2, -1, 1000, 2**62 + 1]


def test_what_cannot_be_read_is_missing():
    assert times("3", "4", "x", None, "nan", "1e400", str(2**70), "1_0") == [3, 4, None, None, None, None, None, None]
    assert times("2020-01-01", "2020-13-01", "soon", None, "2020-02-30") == [1577836800, None, None, None, None]


def test_a_mixed_column_is_what_most_of_it_is():
    assert times("2020-01-01", "2020-01-02", "7") == [1577836800, 1577923200, None]
    assert times("2020-01-01", "6", "7") == [None, 6, 7]


def test_dates_with_slashes_are_never_guessed():
    for value in ("03/04/2021", "3.4.2021 15:30", "03-04-2021", "13/04/21"):
        with pytest.raises(GtiError, match=r"data\.x.*day_first or time_format=month_first"):
            times("7", value, value, what="data.x")
    assert times("2021-04-03", "2021-04-03", "03/04/2021") == [1617408000, 1617408000, None]
    assert times("2021/04/03", " 2021.4.3 ") == [1617408000, 1617408000]


def test_day_first_and_month_first():
    values = (
        "03/04/2021",
        "3.4.2021 15:30",
        "3-4-2021 3:30 PM",
        "03/04/2021T15:30:00.7",
        "31/12/2020",
        "03/04/21",
        "2021-04-03",
    )
    day, month = 1617408000, 1614816000
    afternoon = 15 * 3600 + 1800
    expected = [day, day + afternoon, day + afternoon, day + afternoon, 1609372800, None, None]
    assert times(*values, time_format="day_first") == expected
    expected = [month, month + afternoon, month + afternoon, month + afternoon, None, None, None]
    assert times(*values, time_format="month_first") == expected


def test_seconds_and_milliseconds():
    assert times("1609459200", "1609459200000", "x", "1.6e9", time_format="seconds") == [
        1609459200,
        None,
        None,
        1600000000,
    ]
    assert times("1609459200999", "-1", time_format="milliseconds") == [1609459200, -1]
    assert times("2020-01-01", "5", time_format="order") == [None, 5]
    assert times("2020-01-01", "5", "6", time_format="iso") == [1577836800, None, None]


def test_what_is_dated():
    assert is_dated("2020-01-01")
    assert not is_dated("5")
    assert not is_dated("5", time_format="order")
    for time_format in ("iso", "seconds", "milliseconds", "day_first"):
        assert is_dated("5", time_format=time_format)


def test_time_zone_is_of_dates_without_an_offset():
    oslo = {"time_zone": "Europe/Oslo"}
    assert times("2021-07-01", "2021-07-01T00:00Z", "2021-07-01 00:00+05:00", **oslo) == [
        1625090400,
        1625097600,
        1625079600,
    ]
    # 02:30 came twice on 31 October, taken as summer time; on 28 March it did not come, and counts as 03:00
    assert times("2021-10-31 02:30", "2021-03-28 02:30", **oslo) == [1635640200, 1616893200]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.datetimes(min_value=pd.Timestamp(1700, 1, 1).to_pydatetime()), min_size=1, max_size=5), st.booleans()
)
def test_dates_against_the_standard_library(moments, with_fault):
    values = [moment.isoformat(sep=" ") for moment in moments] + ["torn"] * with_fault
    expected = [math.floor(moment.replace(tzinfo=UTC, microsecond=0).timestamp()) for moment in moments]
    assert times(*values, time_format="iso") == expected + [None] * with_fault
