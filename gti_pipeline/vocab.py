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
    known = sorted(set(tokens) & set(tokenizer.get_vocab()))
    if known:
        raise GtiError(f"lm.model: its tokenizer already knows {known[0]}: use a model that is not yet extended")
    tokenizer.add_tokens(
        [AddedToken(t, normalized=False, lstrip=False, rstrip=False, single_word=False) for t in tokens]
    )
    ids = np.asarray(tokenizer.convert_tokens_to_ids(tokens), dtype=np.int64)
    if not np.array_equal(ids, np.arange(ids[0], ids[0] + len(ids))):
        raise GtiError("lm.model: its tokenizer does not give new tokens consecutive ids")
    return ids.reshape(num_levels, codebook_size)


def initial_rows(old_rows: Tensor, num_new: int, init: str, seed: int) -> Tensor:
    """[old tokens, d] -> [num_new, d].

    `mean`: each the mean of the old rows (MI). `random`: normal, with each dimension's mean and standard deviation
    over the old rows, so at the vocabulary's own scale (RI).
    """
    old = old_rows.detach().float().cpu()
    mean = old.mean(0)
    if init == "mean":
        return mean.expand(num_new, -1).clone()
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(num_new, old.shape[1], generator=generator)
    return mean + noise * old.std(0)


def build_rows(old_rows: Tensor, token_ids: NDArray[np.int64], config: VocabConfig, seed: int) -> Tensor:
    """Initial rows [L*K, d] from the rows of the tokens that the tokenizer knew before (not from unused rows)."""
    first = int(token_ids.min())
    return initial_rows(old_rows[:first], token_ids.size, config.init, seed)


def save_rows(folder: Path, rows: Tensor, token_ids: NDArray[np.int64]) -> None:
    """Writes the rows [L*K, d] and their token ids [L, K]."""
    tensors = {"rows": rows.detach().float().cpu().contiguous(), "token_ids": torch.from_numpy(token_ids)}
    save_file(tensors, folder / ROWS_FILE)


def load_rows(folder: Path) -> tuple[Tensor, NDArray[np.int64]]:
    """The rows [L*K, d] and token ids [L, K] of `save_rows`."""
    tensors = load_file(folder / ROWS_FILE)
    return tensors["rows"], tensors["token_ids"].numpy()
