from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gti_pipeline import schemas
from gti_pipeline.config import EmbedConfig
from gti_pipeline.embed import embed, item_texts, tfidf_vectors
from gti_pipeline.errors import GtiError

TFIDF = EmbedConfig(model="tfidf", dim=16)
MINILM = Path(__file__).parents[1] / "data" / "models" / "all-MiniLM-L6-v2"
HARD = [
    "",
    "   ",
    "word " * 3000,
    "冬のコート 青い",
    "пальто зимнее синее",
    "معطف شتوي أزرق",
    "👗✨ 👠",
    "a\x00b",
    "blå kåpe",
]


def _items(titles: list[str], descriptions: list[str] | None = None) -> pd.DataFrame:
    ids = [f"i{n}" for n in range(len(titles))]
    return pd.DataFrame(
        {"item_id": ids, "title": titles, "description": descriptions or [""] * len(titles), "group_id": None}
    )


def _quiet(done: int, total: int) -> None: ...


def table(*arguments) -> pd.DataFrame:
    return embed(*arguments).table


def _vectors(frame: pd.DataFrame) -> np.ndarray:
    return np.stack(frame["embedding"])


@pytest.fixture(scope="session")
def minilm() -> Path:
    found = sorted(MINILM.glob("**/modules.json"))
    assert found, f"no model below {MINILM}: run `make test`, which installs it"
    return found[0].parent


def test_text_is_title_then_description() -> None:
    items = _items(["Red dress", " Coat ", "", ""], ["silk, summer", "", "only text", ""])
    assert item_texts(items) == ["Red dress silk, summer", "Coat", "only text", ""]


def test_tfidf_keeps_order_and_count_and_fills_the_schema(tmp_path) -> None:
    items = _items([f"word{n % 7} colour{n % 5} unique{n}" for n in range(40)])
    calls: list[tuple[int, int]] = []
    frame = table(items, TFIDF, None, lambda done, total: calls.append((done, total)))
    schemas.ITEM_EMBEDDINGS.write(frame, tmp_path)
    assert frame["item_id"].tolist() == items["item_id"].tolist()
    assert _vectors(frame).shape == (40, 16)
    assert _vectors(frame).dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(_vectors(frame), axis=1), 1, rtol=1e-5)
    assert calls[-1] == (40, 40)


def test_tfidf_is_deterministic_and_does_not_depend_on_the_order() -> None:
    items = _items([f"word{n % 7} colour{n % 5} unique{n % 30}" for n in range(40)])
    first = table(items, TFIDF, None, _quiet)
    np.testing.assert_array_equal(_vectors(first), _vectors(table(items, TFIDF, None, _quiet)))
    shuffled = table(items.sample(frac=1, random_state=0), TFIDF, None, _quiet)
    np.testing.assert_array_equal(
        _vectors(first), _vectors(shuffled.sort_values("item_id", key=lambda s: s.str[1:].astype(int)))
    )


def test_tfidf_puts_like_texts_together() -> None:
    titles = ["red summer dress", "summer dress in red", "black winter coat", "winter coat black wool"]
    vectors = _vectors(table(_items(titles), TFIDF, None, _quiet))
    cosine = vectors @ vectors.T
    assert cosine[0, 1] > 0.5 > cosine[0, 2]
    assert cosine[2, 3] > 0.5 > cosine[1, 3]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_fewer_items_than_dimensions_are_padded(count: int) -> None:
    vectors = _vectors(table(_items([f"text{n} shared" for n in range(count)]), TFIDF, None, _quiet))
    assert vectors.shape == (count, 16)
    assert (vectors[:, count:] == 0).all()
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)


def test_tfidf_is_finite_for_hard_texts() -> None:
    vectors = _vectors(table(_items(HARD), TFIDF, None, _quiet))
    assert np.isfinite(vectors).all()
    assert (vectors[:2] == 0).all()  # nothing to go by
    np.testing.assert_allclose(np.linalg.norm(vectors[2:], axis=1), 1, rtol=1e-5)


def test_tfidf_of_wordless_texts_alone_is_zero() -> None:
    assert (tfidf_vectors(["", " "], 4) == 0).all()


def test_equal_texts_get_equal_vectors() -> None:
    vectors = _vectors(table(_items(["same text", "other", "same text"]), TFIDF, None, _quiet))
    np.testing.assert_array_equal(vectors[0], vectors[2])


def test_no_items_and_no_model_are_clear_errors(tmp_path) -> None:
    with pytest.raises(GtiError, match="empty"):
        table(_items([]), TFIDF, None, _quiet)
    with pytest.raises(GtiError, match="no sentence-transformers model"):
        table(_items(["a"]), EmbedConfig(model="x"), tmp_path, _quiet)


def test_minilm_on_hard_texts(minilm: Path) -> None:
    items = _items(["red summer dress", *HARD, "a dress for summer, red", "laser printer cartridge"])
    config = EmbedConfig(model="all-MiniLM-L6-v2", batch_size=4)
    calls: list[tuple[int, int]] = []
    frame = table(items, config, minilm, lambda done, total: calls.append((done, total)))
    vectors = _vectors(frame)
    assert frame["item_id"].tolist() == items["item_id"].tolist()
    assert vectors.shape == (len(items), 384)
    assert np.isfinite(vectors).all()
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-4)
    assert vectors[0] @ vectors[-2] > 0.7 > 0.4 > vectors[0] @ vectors[-1]
    again = _vectors(table(items.iloc[::-1], config, minilm, _quiet))[::-1]
    np.testing.assert_array_equal(vectors, again)
    assert calls[-1][0] == calls[-1][1]
