"""Readers against hand-made files: exact values, line numbers, rejects and accounting."""

import gzip
import json
import random

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gti_pipeline.config import TableConfig
from gti_pipeline.data.readers import concat, read_table
from gti_pipeline.errors import GtiError


def read(tmp_path, content, name="t.csv", delimiter=",", **settings):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_table(path, name, TableConfig(delimiter=delimiter, **settings))


def rows(table):
    return table.rows.astype(object).where(table.rows.notna(), None).values.tolist()


def raws(table):
    return table.raw(np.arange(len(table.rows)))


def files(table):
    return [table.files[place].name for place in table.origin["file"]]


def lines(table):
    return table.origin["line"].tolist()


def rejects(table):
    return table.rejected[["line", "reason", "raw"]].values.tolist()


def test_plain_csv_values_are_text_and_empty_is_none(tmp_path):
    table = read(tmp_path, "a,b\n1,\n02,x y\n")
    assert rows(table) == [["1", None], ["02", "x y"]]
    assert lines(table) == [2, 3]
    assert raws(table) == ["1,", "02,x y"]
    assert table.rows_read == {"t.csv": 2}


def test_bom_crlf_blank_lines_and_no_final_newline(tmp_path):
    table = read(tmp_path, b"\xef\xbb\xbfa;b\r\n\r\n1;2\r\n\r\n3;4", delimiter=";")
    assert table.rows.columns.tolist() == ["a", "b"]
    assert rows(table) == [["1", "2"], ["3", "4"]]
    assert lines(table) == [3, 5]


def test_quotes_delimiters_and_newlines_inside_fields(tmp_path):
    table = read(tmp_path, 'a,b\n1,"x, ""y""\nz"\n2,w\n3,"p\n\nq"\n4,"Foo" bar\n')
    assert rows(table) == [["1", 'x, "y"\nz'], ["2", "w"], ["3", "p\n\nq"], ["4", "Foo bar"]]
    assert lines(table) == [2, 4, 5, 8]


def test_wrong_number_of_fields_is_a_reject_with_its_line(tmp_path):
    table = read(tmp_path, 'a,b\n1,2\n1,2,3\nonly\n"x\ny",2,3\n5,6\n')
    assert rows(table) == [["1", "2"], ["5", "6"]]
    assert lines(table) == [2, 7]
    assert rejects(table) == [
        [3, "wrong number of fields", "1,2,3"],
        [4, "wrong number of fields", "only"],
        [5, "wrong number of fields", '"x\ny",2,3'],
    ]


def test_a_stray_quote_costs_one_line_only(tmp_path):
    table = read(tmp_path, 'a,b\n1,"torn\n2,ok\n3,"also torn\n4,ok\n5,"last')
    assert rows(table) == [["2", "ok"], ["4", "ok"]]
    assert rejects(table) == [
        [2, "unclosed quote", '1,"torn'],
        [4, "unclosed quote", '3,"also torn'],
        [6, "unclosed quote", '5,"last'],
    ]
    assert table.rows_read == {"t.csv": 5}


def test_random_bytes_never_stop_it_and_always_add_up(tmp_path):
    rng = random.Random(1)
    for number in range(200):
        body = "".join(rng.choice("ab,\"\n\r'\x00 ") for _ in range(60))
        table = read(tmp_path, "a,b\n" + body, name=f"{number}.csv")
        assert len(table.rows) + len(table.rejected) == table.rows_read[f"{number}.csv"]
        text = ("a,b\n" + body).replace("\r\n", "\n").replace("\r", "\n").split("\n")
        for line, raw in zip(table.origin["line"], raws(table), strict=True):
            assert text[line - 1] == raw.replace("\r\n", "\n").replace("\r", "\n").split("\n")[0]


def test_field_beyond_the_limit_is_a_reject(tmp_path):
    table = read(tmp_path, "a,b\n1," + "x" * 140_000 + "\n2,y\n")
    assert rows(table) == [["2", "y"]]
    assert table.rejected["reason"].tolist() == ["field too long"]


def test_formats_agree(tmp_path):
    frame = pd.DataFrame({"id": ["1", "02"], "n": [5, 7], "tags": [["a", "b"], None], "t": ["é; \n", None]})
    csv_table = read(tmp_path, "id;n;tags;t\n1;5;['a', 'b'];\"é; \n\"\n02;7;;\n", "t.csv", ";")
    text = "\n".join(json.dumps(row) for row in frame.astype(object).where(frame.notna(), None).to_dict("records"))
    json_table = read(tmp_path, text, "t.jsonl")
    zipped = read(tmp_path, gzip.compress(text.encode(), mtime=0), "t.jsonl.gz")
    pq.write_table(pa.Table.from_pandas(frame), tmp_path / "t.parquet")
    parquet = read_table(tmp_path / "t.parquet", "t.parquet")
    for table in (json_table, zipped, parquet):
        pd.testing.assert_frame_equal(table.rows, csv_table.rows)
    assert lines(parquet) == [1, 2]
    assert lines(csv_table) == [2, 4]


def test_json_lines_rejects_and_numbers_as_written(tmp_path):
    table = read(
        tmp_path, '{"a": 1.50, "b": 12345678901234567890}\n\n[1]\n{"a": NaN}\n{"a": tru}\n{"a": ""}\n', "t.json"
    )
    assert rows(table) == [["1.50", "12345678901234567890"], [None, None], [None, None]]
    assert lines(table) == [1, 4, 6]
    assert rejects(table) == [[3, "not a JSON object", "[1]"], [5, "not a JSON object", '{"a": tru}']]


def test_parquet_dates_and_nan(tmp_path):
    frame = pd.DataFrame({"d": pd.to_datetime(["2020-01-02", None]), "f": [float("nan"), 2.5], "b": [True, False]})
    pq.write_table(pa.Table.from_pandas(frame), tmp_path / "t.parquet")
    table = read_table(tmp_path / "t.parquet", "t.parquet")
    assert rows(table) == [["2020-01-02T00:00:00", None, "True"], [None, "2.5", "False"]]


def test_concat_fills_absent_columns_with_none(tmp_path):
    table = concat([read(tmp_path, "a,b\n1,2\n", "x.csv"), read(tmp_path, "b,c\n3,\n4,5,6\n", "y.csv")])
    assert rows(table) == [["1", "2", None], [None, "3", None]]
    assert table.rows.isna().values.tolist() == [[False, False, True], [True, False, True]]
    assert files(table) == ["x.csv", "y.csv"]
    assert table.rejected["file"].tolist() == ["y.csv"]
    assert table.rows_read == {"x.csv": 1, "y.csv": 2}


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("t.csv", b"", "line 1 has no column names"),
        ("t.csv", b"a,b,a\n", r"\['a'\] more than once"),
        ("t.csv", b"a,b\n1,caf\xe9\n", "byte 0xe9 at offset 9 is not UTF-8"),
        ("t.csv", b"\xef\xbb\xbfa\n\xff\n", "offset 5 "),
        ("t.csv.gz", b"no gzip", "cannot be read"),
        ("t.parquet", b"no parquet", "cannot be read as Parquet"),
        ("t.json", b'\n [{"a": 1}]', "one object per line"),
        ("t.csv", b"a::b\n1::\xe9\n", "offset 8 is not UTF-8: set encoding: windows-1252"),
        ("t.csv.gz", gzip.compress(b"a\n\xe9\n", mtime=0), "offset 2 of the unpacked file is not UTF-8"),
        ("t.csv.gz", gzip.compress(b"a\n" * 99, mtime=0)[:-9], "cannot be read"),
        ("t.xlsx", b"", "unknown format '.xlsx'"),
    ],
)
def test_unusable_files_say_why(tmp_path, name, content, said):
    with pytest.raises(GtiError, match=said):
        read(tmp_path, content, name)


def test_a_delimiter_of_several_characters(tmp_path):
    table = read(tmp_path, 'a::b\n1::Say "hi": 5\n2::x::y\n3:::z\n', delimiter="::")
    assert rows(table) == [["1", 'Say "hi": 5'], ["3", ":z"]]
    assert rejects(table) == [[3, "wrong number of fields", "2::x::y"]]


def test_tsv_is_split_at_tabs(tmp_path):
    assert rows(read(tmp_path, "a\tb\n1,5\t2\n", "t.tsv")) == [["1,5", "2"]]
    assert rows(read(tmp_path, "a;b\n1,5;2\n", "t.tsv", ";")) == [["1,5", "2"]]


def test_a_file_without_header(tmp_path):
    table = read(tmp_path, "1,2\n3\n", header=("a", "b"))
    assert table.rows.to_dict("records") == [{"a": "1", "b": "2"}]
    assert rejects(table) == [[2, "wrong number of fields", "3"]]


def test_keep_leaves_out_rows_of_another_kind(tmp_path):
    table = read(tmp_path, "id,kind\n1,E\n2,S\n3\n4, E \n5,\n", keep={"kind": ("E",)})
    assert rows(table) == [["1", "E"], ["4", " E "]]
    assert (table.rows_read, table.left_out, len(table.rejected)) == ({"t.csv": 5}, {"t.csv": 2}, 1)
    lines_file = read(tmp_path, '{"id": 1}\n{"id": 2, "kind": "E"}\n', "t.jsonl", keep={"kind": ("E",)})
    assert rows(lines_file) == [["2", "E"]]
    assert lines_file.left_out == {"t.jsonl": 1}


def test_encodings(tmp_path):
    text = "a;b\ncafé;“x”\n"
    for encoding in ("windows-1252", "utf-16", "utf-8-sig", "utf-8"):
        table = read(tmp_path, text.encode(encoding), delimiter=";", encoding=encoding)
        assert rows(table) == [["café", "“x”"]]
        assert raws(table) == ["café;“x”"]
    with pytest.raises(GtiError, match="byte 0x81 at offset 4 is not windows-1252: set another"):
        read(tmp_path, b"a;b\n\x81;1\n", encoding="windows-1252")


def test_ids_of_mixed_types_are_one(tmp_path):
    assert rows(read(tmp_path, '{"a": 1}\n{"a": "1"}\n', "t.jsonl")) == [["1"], ["1"]]
    frame = pd.DataFrame({"i": [1, 2], "f": [1.0, None], "g": [1e17, 0.1], "b": [b"x", None]})
    frame["c"] = pd.Categorical(["u", None])
    frame.to_parquet(tmp_path / "t.parquet")
    table = read_table(tmp_path / "t.parquet", "t")
    assert rows(table) == [["1", "1", "1e+17", "x", "u"], ["2", None, "0.1", None, None]]


def test_parquet_times_are_iso_text(tmp_path):
    moments = pd.to_datetime(["2020-01-02 03:04:05.5", None])
    frame = pd.DataFrame({"n": moments, "z": moments.tz_localize("Europe/Oslo"), "s": moments.floor("s")})
    pq.write_table(pa.Table.from_pandas(frame.assign(d=frame["s"].dt.date)), tmp_path / "t.parquet")
    (first, second) = rows(read_table(tmp_path / "t.parquet", "t"))
    assert [pd.Timestamp(text) for text in first[:3]] == [frame["n"][0], frame["z"][0], frame["s"][0]]
    assert first[2:] == ["2020-01-02T03:04:05", "2020-01-02"]
    assert second == [None] * 4


def test_python_style_lines_are_data(tmp_path):
    table = read(tmp_path, "{'asin': 'B1', 'title': \"It's\", 'price': 1.5, 'c': [['A', 'B']]}\n{'a': f()}\n", "t.json")
    assert rows(table) == [["B1", "It's", "1.5", "[['A', 'B']]"]]
    assert [line for line, *_ in rejects(table)] == [2]
