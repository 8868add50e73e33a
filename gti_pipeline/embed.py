"""Item text to vectors: a frozen sentence encoder, or hashed TF-IDF with SVD where there is no model."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gti_pipeline import columns as c
from gti_pipeline.config import EmbedConfig
from gti_pipeline.errors import GtiError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

log = logging.getLogger(__name__)

Floats = NDArray[np.float32]
TFIDF = "tfidf"
HASH_FEATURES = 2**16
WORD = r"\w+|[^\w\s]"
BATCHES_PER_REPORT = 4


def item_texts(items: pd.DataFrame) -> list[str]:
    """`title description` of each item (arXiv 2604.02324, step 1), in the rows' order; no space for an empty part.

    Args:
        items: `schemas.ITEMS`.
    """
    pairs = zip(items[c.TITLE], items[c.DESCRIPTION], strict=True)
    return [" ".join(part for part in (title.strip(), description.strip()) if part) for title, description in pairs]


def embed(
    items: pd.DataFrame,
    config: EmbedConfig,
    model_path: Path | str | None,
    progress: Callable[[int, int], None],
) -> pd.DataFrame:
    """One vector per item.

    Equal texts get bitwise equal vectors, computed once. The texts are worked on in an order of their own, so a
    vector does not depend on its item's row.

    Args:
        items: `schemas.ITEMS`.
        config: the `embed` section; `model` is `tfidf` or a sentence-transformers model.
        model_path: the model's folder; None takes `config.model` as a folder or hub name. Unused by `tfidf`.
        progress: called with (distinct texts done, distinct texts).

    Returns:
        `schemas.ITEM_EMBEDDINGS` in the order of `items`: float32 of length D, of norm 1 (`tfidf` gives a text
        without words the zero vector).

    Raises:
        GtiError: no items, a model that cannot be loaded, or vectors that are not finite.
    """
    if items.empty:
        raise GtiError("embed: the table of items is empty")
    texts = item_texts(items)
    distinct = sorted(set(texts), key=lambda text: (-len(text), text))  # longest first: batches of like length
    if config.model == TFIDF:
        vectors = tfidf_vectors(distinct, config.dim)
        progress(len(distinct), len(distinct))
    else:
        vectors = _encode(_load(config, model_path), distinct, config.batch_size, progress)
    bad = int((~np.isfinite(vectors)).any(axis=1).sum())
    if bad:
        raise GtiError(f"{config.model}: {bad} of {len(distinct)} texts got NaN or infinity; try embed.dtype=float32")
    place = {text: row for row, text in enumerate(distinct)}
    rows = _unit(vectors)[[place[text] for text in texts]]
    return pd.DataFrame({c.ITEM_ID: items[c.ITEM_ID].to_numpy(), c.EMBEDDING: list(rows)})


def tfidf_vectors(texts: list[str], dim: int) -> Floats:
    """Hashed words, weighted by TF-IDF, reduced by SVD; [N] texts to [N, dim].

    Words are runs of letters and digits in any script; every other sign, emoji too, is a word of its own. Where texts
    or words are fewer than `dim`, the last columns are zero.
    """
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer

    hashing = HashingVectorizer(n_features=HASH_FEATURES, token_pattern=WORD, alternate_sign=False, norm=None)
    counts = hashing.transform(texts)
    vectors = np.zeros((len(texts), dim), dtype=np.float32)
    if counts.nnz == 0:
        return vectors
    weights = TfidfTransformer(sublinear_tf=True).fit_transform(counts)
    used = np.unique(weights.indices)  # without the empty columns the SVD is small
    rank = min(dim, len(texts), len(used))
    with np.errstate(invalid="ignore", divide="ignore"):  # the share of explained variance of a single text
        vectors[:, :rank] = TruncatedSVD(rank, random_state=0).fit_transform(weights[:, used])
    return vectors


def _load(config: EmbedConfig, model_path: Path | str | None) -> SentenceTransformer:
    from sentence_transformers import SentenceTransformer

    source = str(model_path or config.model)
    try:
        model = SentenceTransformer(
            source, local_files_only=Path(source).is_dir(), model_kwargs={"dtype": config.dtype}
        )
    except (OSError, ValueError) as error:
        raise GtiError(f"embed.model={config.model}: no sentence-transformers model at {source}: {error}") from error
    model.max_seq_length = min(config.max_tokens, model.max_seq_length or config.max_tokens)
    return model


def _encode(
    model: SentenceTransformer, texts: list[str], batch_size: int, progress: Callable[[int, int], None]
) -> Floats:
    """Vectors [N, D] of texts sorted by length."""
    parts: list[Any] = []
    step = batch_size * BATCHES_PER_REPORT
    for start in range(0, len(texts), step):
        parts.append(
            model.encode(
                texts[start : start + step],
                batch_size=batch_size,
                normalize_embeddings=True,
                show_progress_bar=False,
                convert_to_numpy=True,
            )
        )
        progress(min(start + step, len(texts)), len(texts))
    return np.concatenate(parts).astype(np.float32)


def _unit(vectors: Floats) -> Floats:
    """Rows of norm 1 in float32, also where the model worked in bfloat16; zero rows stay zero."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(norms > 1e-12, norms, 1), dtype=np.float32)
