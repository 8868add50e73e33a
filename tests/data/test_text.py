"""Text cleaning and timestamps against hand-made values."""

import pandas as pd
import pytest

from gti_pipeline.data.text import list_text, plain_text
from gti_pipeline.data.times import parse_times


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
    ],
)
def test_list_text(raw, text):
    assert list_text(raw) == text


def times(*values):
    parsed = parse_times(pd.Series(values, dtype=object))
    return [None if pd.isna(value) else int(value) for value in parsed]


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
