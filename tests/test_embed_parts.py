"""Vectors that users bring, shards that survive a stop, causal encoders."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from gti_pipeline.config import EmbedConfig, VectorsConfig
from gti_pipeline.embed import embed
from gti_pipeline.embed.shards import Shards
from gti_pipeline.errors import GtiError

LM = Path(__file__).parents[1] / "data" / "models" / "SmolLM2-135M-Instruct"


def _items(count: int) -> pd.DataFrame:
    titles = [f"title {n}" for n in range(count)]
    return pd.DataFrame(
        {"item_id": [f"i{n}" for n in range(count)], "title": titles, "description": "", "group_id": None}
    )


def _quiet(done: int, total: int) -> None: ...


def _bring(path: Path, ids: list[str], rows: list[list[float]]) -> str:
    pd.DataFrame({"item_id": ids, "embedding": rows}).to_parquet(path)
    return str(path)


def test_brought_vectors_are_joined_by_id_and_weight(tmp_path: Path) -> None:
    file = _bring(tmp_path / "images.parquet", ["i2", "other", "i0"], [[0.0, 5.0], [1.0, 1.0], [3.0, 4.0]])
    config = EmbedConfig(model="tfidf", dim=4, vectors=(VectorsConfig(file=file, weight=0.5),))
    made = embed(_items(3), config, None, _quiet)
    text = np.stack(embed(_items(3), EmbedConfig(model="tfidf", dim=4), None, _quiet).table["embedding"])
    rows = np.stack(made.table["embedding"])
    np.testing.assert_array_equal(rows[:, :4], text)
    np.testing.assert_allclose(rows[:, 4:], [[0.3, 0.4], [0, 0], [0, 0.5]], rtol=1e-6)
    assert made.lacking == {file: 1}


def test_brought_vectors_alone(tmp_path: Path) -> None:
    file = _bring(tmp_path / "v.parquet", ["i0", "i1"], [[2.0, 0.0], [0.0, 3.0]])
    made = embed(_items(2), EmbedConfig(model="none", vectors=(VectorsConfig(file=file),)), None, _quiet)
    np.testing.assert_array_equal(np.stack(made.table["embedding"]), np.eye(2, dtype=np.float32))
    with pytest.raises(GtiError, match=r"needs embed\.vectors"):
        embed(_items(2), EmbedConfig(model="none"), None, _quiet)


@pytest.mark.parametrize(
    ("ids", "rows", "message"),
    [
        (["i0", "i0"], [[1.0], [2.0]], "1 item ids occur twice: .*i0"),
        (["i0", "i1"], [[1.0], [2.0, 3.0]], r"differ in length \(1 first, otherwise for \['i1'\]\)"),
        (["i0", "i1"], [[1.0], [float("nan")]], r"1 vectors hold NaN or infinity, of items \['i1'\]"),
        (["x", "y"], [[1.0], [2.0]], "none of the 2 items is in it; its ids look like .*'x'"),
    ],
)
def test_bad_brought_vectors_are_one_clear_error(tmp_path: Path, ids: list, rows: list, message: str) -> None:
    config = EmbedConfig(model="none", vectors=(VectorsConfig(file=_bring(tmp_path / "v.parquet", ids, rows)),))
    with pytest.raises(GtiError, match=message):
        embed(_items(2), config, None, _quiet)


def test_files_that_are_no_vectors(tmp_path: Path) -> None:
    def run(file: Path) -> None:
        embed(_items(2), EmbedConfig(model="none", vectors=(VectorsConfig(file=str(file)),)), None, _quiet)

    pd.DataFrame({"id": ["i0"], "embedding": [[1.0]]}).to_parquet(tmp_path / "columns.parquet")
    with pytest.raises(GtiError, match=r"no column \['item_id'\]; columns there: \['id', 'embedding'\]"):
        run(tmp_path / "columns.parquet")
    (tmp_path / "text.parquet").write_text("item_id,embedding\n")
    with pytest.raises(GtiError, match="cannot be read as Parquet"):
        run(tmp_path / "text.parquet")


class _Counting:
    """Computes [n, 2] vectors from the texts and breaks after so many calls."""

    def __init__(self, calls: int) -> None:
        self.left = calls
        self.seen: list[str] = []

    def __call__(self, part: list[str]) -> np.ndarray:
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        self.seen += part
        return np.array([[len(text), float(text.split()[1])] for text in part], dtype=np.float32)


def test_an_interrupted_run_goes_on_and_gives_the_same(tmp_path: Path) -> None:
    texts = [f"text {n}" for n in range(50)]
    whole = Shards(None).map(texts, 2, _Counting(99), _quiet)
    with pytest.raises(KeyboardInterrupt):
        Shards(tmp_path).map(texts, 2, _Counting(3), _quiet)
    rest = _Counting(99)
    np.testing.assert_array_equal(Shards(tmp_path).map(texts, 2, rest, _quiet), whole)
    assert rest.seen == texts[24:]  # three shards of eight were kept
    done: list[tuple[int, int]] = []
    Shards(tmp_path).map(texts, 2, _Counting(0), lambda *step: done.append(step))
    assert done[-1] == (50, 50)


def test_a_damaged_or_foreign_shard_is_computed_again(tmp_path: Path) -> None:
    texts = [f"text {n}" for n in range(16)]
    whole = Shards(tmp_path).map(texts, 2, _Counting(9), _quiet)
    first, second = sorted(tmp_path.glob("*.npy"))
    first.write_bytes(first.read_bytes()[:40])
    np.save(second, np.ones((3, 2), dtype=np.float32))
    again = _Counting(9)
    np.testing.assert_array_equal(Shards(tmp_path).map(texts, 2, again, _quiet), whole)
    assert again.seen == texts
    other = _Counting(9)
    Shards(tmp_path).map([f"other {n}" for n in range(16)], 2, other, _quiet)
    assert len(other.seen) == 16


def test_a_causal_encoder_takes_the_last_real_token() -> None:
    from transformers import AutoModel, AutoTokenizer

    (folder,) = {path.parent for path in LM.glob("*/config.json")}
    config = EmbedConfig(model="x", pooling="last_token", instruction="Find the item", max_tokens=64)
    items = _items(2).assign(title=["short", "a somewhat longer title"])
    rows = np.stack(embed(items, config, folder, _quiet).table["embedding"])
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    for row, title in zip(rows, items["title"], strict=True):
        ids = tokenizer(f"Instruct: Find the item\nQuery:{title}", return_tensors="pt")
        with torch.no_grad():
            last = model(**ids).last_hidden_state[0, -1].numpy()
        np.testing.assert_allclose(row, last / np.linalg.norm(last), atol=1e-5)
