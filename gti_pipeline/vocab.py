"""New tokens for semantic-ID codes, one per (level, code), and how their rows start (paper's step 3).

Shapes: L levels, K codes per level, d hidden size; the new tokens' ids are one block, ordered by level, then code.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from scipy import sparse
from torch import Tensor
from transformers import AddedToken, PreTrainedTokenizerBase

from gti_pipeline.config import VocabConfig
from gti_pipeline.errors import GtiError

ROWS_FILE = "new_rows.safetensors"


def sid_token(level: int, code: int) -> str:
    """The token of a code; level from 1, code from 0."""
    return f"<sid_{level}_{code}>"


def sid_text(codes: Sequence[int]) -> str:
    """An item's semantic ID as text: its L tokens, nothing between them."""
    return "".join(sid_token(level, int(code)) for level, code in enumerate(codes, 1))


def extend_tokenizer(tokenizer: PreTrainedTokenizerBase, num_levels: int, codebook_size: int) -> NDArray[np.int64]:
    """Adds L*K tokens and returns their ids [L, K], as the tokenizer gives them.

    Each is one token in any context: not normalized, no neighbouring space swallowed, split off before any merge.
    """
    tokens = [sid_token(level, code) for level in range(1, num_levels + 1) for code in range(codebook_size)]
    return add_tokens(tokenizer, tokens).reshape(num_levels, codebook_size)


def add_tokens(tokenizer: PreTrainedTokenizerBase, tokens: Sequence[str]) -> NDArray[np.int64]:
    """Adds tokens and returns their ids [n], consecutive; see `extend_tokenizer`.

    Raises:
        GtiError: the tokenizer knows one of them, or does not give consecutive ids.
    """
    known = sorted(set(tokens) & set(tokenizer.get_vocab()))
    if known:
        raise GtiError(f"lm.model: its tokenizer already knows {known[0]}: use a model that is not yet extended")
    tokenizer.add_tokens(
        [AddedToken(t, normalized=False, lstrip=False, rstrip=False, single_word=False) for t in tokens]
    )
    ids = np.asarray(tokenizer.convert_tokens_to_ids(list(tokens)), dtype=np.int64)
    if not np.array_equal(ids, np.arange(ids[0], ids[0] + len(ids))):
        raise GtiError("lm.model: its tokenizer does not give new tokens consecutive ids")
    return ids


def initial_rows(old_rows: Tensor, num_new: int, init: str, seed: int) -> Tensor:
    """[old tokens, d] -> [num_new, d].

    `mean`: each the mean of the old rows (MI). `random`: normal, with each dimension's mean and standard deviation
    over the old rows, so at the vocabulary's own scale (RI).
    """
    old = old_rows.detach().float().cpu()
    mean = old.mean(0)
    if init == "mean":
        return mean.expand(num_new, -1).clone()
    assert init == "random", init
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(num_new, old.shape[1], generator=generator)
    return mean + noise * old.std(0)


def build_rows(old_rows: Tensor, token_ids: NDArray[np.int64], config: VocabConfig, seed: int) -> Tensor:
    """Initial rows [L*K, d] from the rows of the tokens that the tokenizer knew before (not from unused rows)."""
    first = int(token_ids.min())
    return initial_rows(old_rows[:first], token_ids.size, config.init, seed)


def keyword_rows(
    old_rows: Tensor, words: Sequence[Sequence[int]], codes: NDArray[np.integer], codebook_size: int
) -> Tensor:
    """Initial rows [L*K, d] from the words of the items under each code (TS-Rec, arXiv 2602.22632).

    A code's row is the mean of the old rows of its items' words, weighted by how often the word occurs under the code
    and by its idf, log(items / items that have the word): a word of every item says nothing and weighs nothing. A code
    without items, or whose words all weigh nothing, starts at the mean of the old rows.

    Args:
        old_rows: [V, d], of the tokens that the tokenizer knew before.
        words: token ids of each item's title, [N] lists of ids below V.
        codes: [N, L], values 0 .. K - 1.
        codebook_size: K.
    """
    old = old_rows.detach().float().cpu()
    owner = np.repeat(np.arange(len(words)), [len(w) for w in words])
    tokens = np.concatenate([np.empty(0, dtype=np.int64), *(np.asarray(w, dtype=np.int64) for w in words)])
    counts = sparse.csr_array((np.ones(len(tokens)), (owner, tokens)), shape=(len(words), len(old)))  # [N, V]
    having = np.bincount(counts.tocoo().col, minlength=len(old))  # items that have the word
    idf = np.log(len(words) / np.maximum(having, 1))
    vectors = old.double().numpy()
    mean = vectors.mean(axis=0)
    rows = np.tile(mean, (codes.shape[1] * codebook_size, 1))
    for level in range(codes.shape[1]):
        under = sparse.csr_array(
            (np.ones(len(words)), (codes[:, level], np.arange(len(words)))), shape=(codebook_size, len(words))
        )
        weights = (under @ counts).multiply(idf).tocsr()  # [K, V]
        total = np.asarray(weights.sum(axis=1)).ravel()
        some = np.flatnonzero(total > 0)
        rows[level * codebook_size + some] = (weights[some] @ vectors) / total[some, None]
    return torch.from_numpy(rows).float()


def save_rows(folder: Path, rows: Tensor, token_ids: NDArray[np.int64]) -> None:
    """Writes the rows [L*K, d] and their token ids [L, K]."""
    tensors = {"rows": rows.detach().float().cpu().contiguous(), "token_ids": torch.from_numpy(token_ids)}
    save_file(tensors, folder / ROWS_FILE)


def load_rows(folder: Path) -> tuple[Tensor, NDArray[np.int64]]:
    """The rows [L*K, d] and token ids [L, K] of `save_rows`."""
    tensors = load_file(folder / ROWS_FILE)
    return tensors["rows"], tensors["token_ids"].numpy()
