"""Item text to vectors: a frozen sentence encoder, or hashed TF-IDF with SVD where there is no model."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gti_pipeline import columns as c
from gti_pipeline.config import EmbedConfig
from gti_pipeline.embed.shards import Shards
from gti_pipeline.embed.vectors import Joined, join_vectors
from gti_pipeline.errors import GtiError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

log = logging.getLogger(__name__)

Floats = NDArray[np.float32]
TFIDF, NO_TEXT = "tfidf", "none"
HASH_FEATURES = 2**16
WORD = r"\w+|[^\w\s]"


@dataclass(frozen=True)
class Embedded:
    """`schemas.ITEM_EMBEDDINGS` in the order of the items, and how many items each brought file lacks."""

    table: pd.DataFrame
    lacking: dict[str, int]


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
    scratch: Path | None = None,
) -> Embedded:
    """One vector per item.

    Equal texts get bitwise equal vectors, computed once. The texts are worked on in an order of their own, so a
    vector does not depend on its item's row.

    Args:
        items: `schemas.ITEMS`.
        config: the `embed` section; `model` is `tfidf`, `none` (only brought vectors) or a sentence-transformers model.
        model_path: the model's folder; None takes `config.model` as a folder or hub name. Unused by `tfidf`.
        progress: called with (distinct texts done, distinct texts).
        scratch: where finished shards lie until all are; a rerun goes on from them. None keeps none.

    Returns:
        float32 vectors of length D: the text's, of norm 1 (`tfidf` gives a text without words the zero vector), then
        those that the user brought, each of norm `weight` (zero where an item has none).

    Raises:
        GtiError: no items, a model that cannot be loaded, vectors that are not finite, or brought files that are
            not as they should be.
    """
    if items.empty:
        raise GtiError("embed: the table of items is empty")
    if config.model == NO_TEXT and not config.vectors:
        raise GtiError("embed.model=none needs embed.vectors: at least one Parquet of item_id and embedding")
    parts = [] if config.model == NO_TEXT else [_text_vectors(items, config, model_path, progress, scratch)]
    joined: list[Joined] = [join_vectors(items[c.ITEM_ID], brought) for brought in config.vectors]
    rows = np.concatenate([*parts, *(join.vectors for join in joined)], axis=1)
    table = pd.DataFrame({c.ITEM_ID: items[c.ITEM_ID].to_numpy(), c.EMBEDDING: list(rows)})
    return Embedded(table, {join.file: join.lacking for join in joined})


def _text_vectors(
    items: pd.DataFrame,
    config: EmbedConfig,
    model_path: Path | str | None,
    progress: Callable[[int, int], None],
    scratch: Path | None,
) -> Floats:
    """Unit vectors [N, D] of the items' texts."""
    texts = item_texts(items)
    distinct = sorted(set(texts), key=lambda text: (-len(text), text))  # longest first: batches of like length
    if config.model == TFIDF:
        vectors = tfidf_vectors(distinct, config.dim)
        progress(len(distinct), len(distinct))
    else:
        vectors = _encode(_load(config, model_path), distinct, config, progress, Shards(scratch))
    bad = int((~np.isfinite(vectors)).any(axis=1).sum())
    if bad:
        raise GtiError(f"{config.model}: {bad} of {len(distinct)} texts got NaN or infinity; try embed.dtype=float32")
    place = {text: row for row, text in enumerate(distinct)}
    return _unit(vectors)[[place[text] for text in texts]]


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
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    source = str(model_path or config.model)
    local = Path(source).is_dir()
    options: dict[str, Any] = {"dtype": config.dtype}
    try:
        if config.pooling == "model":
            model = SentenceTransformer(source, local_files_only=local, model_kwargs=options)
        else:
            # said outright, because a tokenizer with a chat template would be taken to want messages
            plain = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}
            words = Transformer(
                source,
                model_kwargs=options | {"local_files_only": local},
                modality_config=plain,
                module_output_name="token_embeddings",
            )
            if words.tokenizer.pad_token is None:  # causal LMs often have none; padding is masked, so any token does
                words.tokenizer.pad_token = words.tokenizer.eos_token
            mode = "lasttoken" if config.pooling == "last_token" else "mean"
            model = SentenceTransformer(modules=[words, Pooling(words.get_word_embedding_dimension(), mode)])
    except (OSError, ValueError) as error:
        raise GtiError(f"embed.model={config.model}: no sentence-transformers model at {source}: {error}") from error
    model.max_seq_length = min(config.max_tokens, model.max_seq_length or config.max_tokens)
    return model


def _encode(
    model: SentenceTransformer,
    texts: list[str],
    config: EmbedConfig,
    progress: Callable[[int, int], None],
    shards: Shards,
) -> Floats:
    """Vectors [N, D] of texts sorted by length, shard by shard."""

    def compute(part: list[str]) -> Floats:
        vectors = model.encode(
            part,
            batch_size=config.batch_size,
            prompt=f"Instruct: {config.instruction}\nQuery:" if config.instruction else None,
            normalize_embeddings=True,
            show_progress_bar=False,
            convert_to_numpy=True,
        )
        return np.asarray(vectors, dtype=np.float32)

    return shards.map(texts, config.batch_size, compute, progress)


def _unit(vectors: Floats) -> Floats:
    """Rows of norm 1 in float32, also where the model worked in bfloat16; zero rows stay zero."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(norms > 1e-12, norms, 1), dtype=np.float32)
