"""Tiny random causal LMs and random catalogues: more rows than tokens used, tied head."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

ROWS = 200
KINDS: dict[str, tuple[type, type]] = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
}


def make_model(kind: str = "llama", attention: str = "sdpa", kv_heads: int = 2, seed: int = 0) -> PreTrainedModel:
    """Two layers, hidden size 32, 4 heads, weights large enough that the distributions are far from flat."""
    config_class, model_class = KINDS[kind]
    config: Any = config_class(
        vocab_size=ROWS,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=kv_heads,
        head_dim=8,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
        initializer_range=0.25,
        attn_implementation=attention,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = model_class(config)
    return model.eval()


def make_catalogue(
    num_items: int, levels: int, size: int, seed: int = 0, rows: int = ROWS
) -> tuple[NDArray[np.int64], torch.Tensor]:
    """Distinct codes [num_items, L] in no order, and scattered token ids [L, K] that are not the last rows."""
    rng = np.random.default_rng(seed)
    flat = rng.choice(size**levels, size=num_items, replace=False)
    codes = np.stack(np.unravel_index(flat, (size,) * levels), axis=1).astype(np.int64)
    tokens = rng.permutation(np.arange(40, rows - 20))[: levels * size].reshape(levels, size)
    return codes, torch.from_numpy(tokens)


def make_prompts(lengths: list[int], seed: int = 0, opening: int = 0) -> list[list[int]]:
    """Random prompts of the given lengths, the first `opening` tokens the same in all."""
    rng = np.random.default_rng(seed)
    shared = rng.integers(1, 40, size=opening).tolist()
    return [shared + rng.integers(1, 40, size=length - opening).tolist() for length in lengths]
