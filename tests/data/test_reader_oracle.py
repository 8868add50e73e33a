"""The quick CSV path and the blocks against the csv module over the whole text: same rows, lines, texts and rejects."""

import csv
import gzip
import io
import json

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gti_pipeline.config import TableConfig
from gti_pipeline.data import blocks, csv_rows
from gti_pipeline.data.readers import read_table


def everything(table):
    rows = table.rows.astype(object).where(table.rows.notna(), None).values.tolist()
    raws = table.raw(np.arange(len(rows)))
    rejected = table.rejected[["line", "reason", "raw"]].values.tolist()
    return table.rows.columns.tolist(), rows, table.origin["line"].tolist(), raws, rejected, table.rows_read


def read(path, config, block=1 << 24, slow=False):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_BYTES", block)
        if slow:
            patch.setattr(csv_rows, "_parse_plain", lambda text, layout: None)
        return everything(read_table(path, "t", config))


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("oracle") / "t.csv"


dirty = st.text('ab,,;"\n\n\r\x00\x1fé€😀 ', max_size=80)
plain = st.text("ab,,\n\x00é ", max_size=80)


@settings(max_examples=80, deadline=None)
@given(st.one_of(dirty, plain), st.integers(5, 40), st.sampled_from([",", ";", "é", "::", ",,"]))
@example("1,\r\n\r\n2,3\r\n4,5", 6, ",")
@example('1,"x\n\n2,"y"\n3,4\n', 7, ",")
@example("a::b\n:::\nx\x1fy::z\n", 8, "::")
def test_any_text_gives_the_same_in_blocks_and_by_either_parser(path, body, block, delimiter):
    path.write_bytes(f"a{delimiter}b\n{body}".encode())
    config = TableConfig(delimiter=delimiter)
    expected = read(path, config, slow=True)
    assert read(path, config) == expected
    assert read(path, config, block) == expected
    assert read(path, config, block, slow=True) == expected


fields = st.lists(st.text('xy,"\n\ré😀 ', max_size=6), min_size=3, max_size=3)


@settings(max_examples=40, deadline=None)
@given(st.lists(fields, max_size=12), st.integers(8, 64))
def test_what_the_csv_module_writes_is_read_back(path, table, block):
    text = io.StringIO(newline="")
    csv.writer(text).writerows([["a", "b", "c"], *table])
    path.write_bytes(text.getvalue().encode())
    _, rows, lines, raws, rejected, rows_read = read(path, TableConfig(), block)
    assert rows == [[value or None for value in row] for row in table]
    assert rejected == []
    assert rows_read == {"t": len(table)}
    assert [next(csv.reader(io.StringIO(raw, newline=""))) for raw in raws] == table
    assert lines == sorted(set(lines))


@settings(max_examples=30, deadline=None)
@given(dirty, st.integers(5, 40), st.sampled_from(["utf-16", "utf-8"]), st.booleans())
def test_encoding_and_gzip_change_nothing(tmp_path_factory, body, block, encoding, zipped):
    folder = tmp_path_factory.getbasetemp()
    content = ("a,b\n" + body).encode(encoding)
    path = folder / ("zipped.csv.gz" if zipped else "unzipped.csv")
    path.write_bytes(gzip.compress(content) if zipped else content)
    (folder / "reference.csv").write_bytes(("a,b\n" + body).encode())
    found = read(path, TableConfig(encoding=encoding), block)
    assert found == read(folder / "reference.csv", TableConfig(), slow=True)


json_line = st.one_of(
    st.dictionaries(st.sampled_from("abc"), st.one_of(st.integers(), st.text("xé\n", max_size=4), st.none())).map(
        json.dumps
    ),
    st.sampled_from(["", "  ", "[1]", "{", '{"a": [1, 2.50]}', "{'a': 'x', 'b': None}"]),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(json_line, max_size=10), st.integers(3, 40))
def test_json_lines_in_blocks(tmp_path_factory, lines, block):
    path = tmp_path_factory.getbasetemp() / "t.jsonl"
    path.write_text("{}\n" + "\n".join(lines))
    whole = read(path, TableConfig())
    assert read(path, TableConfig(), block) == whole
    assert whole[5] == {"t": 1 + sum(bool(line.strip()) for line in lines)}


def test_parquet_of_several_row_groups(tmp_path, monkeypatch):
    frame = pd.DataFrame({"n": range(50), "t": [f"é{n}" if n % 3 else None for n in range(50)]})
    frame.to_parquet(tmp_path / "t.parquet", row_group_size=7)
    assert pq.ParquetFile(tmp_path / "t.parquet").num_row_groups == 8
    table = read_table(tmp_path / "t.parquet", "t")
    assert table.rows["n"].tolist() == [str(n) for n in range(50)]
    assert table.origin["line"].tolist() == list(range(1, 51))
    assert table.raw(np.array([3, 13, 49])) == ['["3", null]', '["13", "é13"]', '["49", "é49"]']


def test_whole_rows_are_read_once_more_from_every_format(tmp_path):
    frame = pd.DataFrame({"a": ["1", "2", "3"], "b": ["x;y", None, 'q"'], "c": ["é", "f", None]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_json(tmp_path / "t.jsonl", orient="records", lines=True)
    frame.to_parquet(tmp_path / "t.parquet")
    for name in ("t.csv", "t.jsonl", "t.parquet"):
        table = read_table(tmp_path / name, name, wanted=["a"])
        assert table.rows.columns.tolist() == ["a"]
        assert table.columns == {name: ("a", "b", "c")}
        assert list(table.whole(np.array([0, 2]))) == [{"a": "1", "b": "x;y", "c": "é"}, {"a": "3", "b": 'q"'}]
