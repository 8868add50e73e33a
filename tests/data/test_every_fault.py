"""Files with one fault of every kind: one report names each with its line, in the check, its Parquet and the run."""

import sys

import pandas as pd
import pytest

from gti_pipeline import cli

# each line's end says which line it is and what is wrong with it
ITEMS = (
    b"id;name;text;tags;group\n"
    b"1;Blue &amp white;A  shirt;['summer', 'linen'];g1\n"  # 2
    b'2;"Coat; ""warm""\nand long";<p>wool</p>;not a list;g1\n'  # 3 and 4
    b";No id;;;\n"  # 5
    b"3;;no name;;\n"  # 6
    b"4; <br> ;only a tag;;\n"  # 7
    b"5;Torn\n"  # 8
    b"1;Blue &amp white;A shirt;['summer', 'linen'];g1\n"  # 9: identical
    b"2;Coat;another text;;g1\n"  # 10: conflicting
    b'6;"Never closed;x;;\n'  # 11
    b"\n"
    b"7;Hat \x00\xf0\x9f\x98\x80;;;g2\n"  # 13
    + b"8;"
    + b"x" * 140_000
    + b";;;\n"  # 14: a field too long
    + b"9;Scarf;;;\n"
)
EVENTS = (
    b"\xef\xbb\xbfuser;item;start;end;stars;kind\r\n"
    b"u1;1;2020-01-01;2020-01-05;5;rent\r\n"  # 2
    b"u1;2;2020-01-02;;5;rent\r\n"  # 3
    b"u1;7;2020-01-03T10:00:00+02:00;;5;rent\r\n"  # 4
    b";1;2020-01-01;;5;rent\r\n"  # 5
    b"u1;;2020-01-01;;5;rent\r\n"  # 6
    b"u1;1;;;5;rent\r\n"  # 7
    b"u1;1;yesterday;;5;rent\r\n"  # 8
    b"u1;1;2020-02-30;;5;rent\r\n"  # 9
    b"u1;1;03/04/2020;;5;rent\r\n"  # 10
    b"u1;1;2020-05-05;2020-05-01;5;rent\r\n"  # 11
    b"u1;1;2020-05-05;later;5;rent\r\n"  # 12
    b"u1;1;2020-05-05;;many;rent\r\n"  # 13
    b"u1;99;2020-05-05;;5;rent\r\n"  # 14
    b"u1;2;2020-01-02;;5;rent\r\n"  # 15: exact duplicate of 3
    b"u1;1;2020-01-20;2020-01-25;5;rent\r\n"  # 16: repeat of 2
    b"u1;9;2020-06-01;;1;rent\r\n"  # 17: left out, rating
    b"u1;9;2020-06-01;;5;sale\r\n"  # 18: left out, kind
    b"u1;9\r\n"  # 19
    b'u1;"9;2020-06-01;;5;rent\r\n'  # 20
    b"u2;9;2020-06-01;;5;rent\r\n"  # 21
)
FAULTS = [
    ("items.csv", 5, "null item id"),
    ("items.csv", 6, "null name"),
    ("items.csv", 7, "null name"),
    ("items.csv", 8, "wrong number of fields"),
    ("items.csv", 10, "duplicate item id, conflicting: line 10 differs from items.csv, line 3, which is kept"),
    ("items.csv", 11, "unclosed quote"),
    ("items.csv", 14, "field too long"),
    ("events.csv", 5, "null user id"),
    ("events.csv", 6, "null item id"),
    ("events.csv", 7, "null timestamp"),
    ("events.csv", 8, "timestamp not parsable"),
    ("events.csv", 9, "timestamp not parsable"),
    ("events.csv", 10, "timestamp not parsable"),
    ("events.csv", 11, "end before start"),
    ("events.csv", 12, "end not parsable"),
    ("events.csv", 13, "rating not a number"),
    ("events.csv", 14, "item not in catalogue"),
    ("events.csv", 15, "exact duplicate"),
    ("events.csv", 16, "repeat within 30 days"),
    ("events.csv", 19, "wrong number of fields"),
    ("events.csv", 20, "unclosed quote"),
]
YAML = """
data:
  name: faulty
  items: {file: items.csv, delimiter: ";", item_id: id, title: name, description: [text, tags], group_id: group,
          list_text: [tags]}
  interactions: {file: events.csv, delimiter: ";", user_id: user, item_id: item, timestamp: start, end: end,
                 rating: stars, min_rating: 2, keep: {kind: [rent]}}
  repeat_window_days: 30
"""


@pytest.fixture
def check(tmp_path, monkeypatch, capsys):
    """Runs `gti data check` on the files and returns (exit code, output, errors, rejected rows)."""
    (tmp_path / "items.csv").write_bytes(ITEMS)
    (tmp_path / "events.csv").write_bytes(EVENTS)
    (tmp_path / "faulty.yaml").write_text(YAML)

    def run(*more):
        rejects = tmp_path / "rejects.parquet"
        options = ["--dataset", str(tmp_path / "faulty.yaml"), "--data-dir", str(tmp_path), "--rejects", str(rejects)]
        monkeypatch.setattr(sys, "argv", ["gti", "data", "check", *options, *more])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        said = capsys.readouterr()
        return stop.value.code, said.out, said.err, pd.read_parquet(rejects)

    return run


def test_one_report_names_every_fault(check):
    code, said, _, rejected = check("--set", "data.max_reject_share=1")
    assert code == 0
    assert list(rejected[["file", "line", "reason"]].itertuples(index=False, name=None)) == FAULTS
    lines = {"items.csv": ITEMS.split(b"\n"), "events.csv": EVENTS.split(b"\n")}
    for file, line, raw in zip(rejected["file"], rejected["line"], rejected["raw"], strict=True):
        assert raw == lines[file][line - 1].decode().rstrip("\r")
    for _, _, reason in FAULTS:
        assert reason.split(":")[0] in said
    assert "left out by keep" in said
    assert "rating below min_rating" in said
    assert "4 items, 4 interactions, 2 users, 1 tested users" in said


def test_too_many_rejects_show_the_table_and_then_the_error(check):
    code, said, errors, rejected = check()
    assert code == 2
    assert "rows kept" in said
    assert len(rejected) == len(FAULTS)
    assert "7 of 12 rows of the items are rejected (58.3%), more than data.max_reject_share=0.2" in errors
    assert "Traceback" not in errors
