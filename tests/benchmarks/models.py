"""The LM and the made-up shops of the benchmarks of decoding, grounding and fine-tuning."""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd
import torch
from common import LM, REPO
from numpy.typing import NDArray
from transformers import PreTrainedModel

from gti_pipeline.config import GroundConfig, LmConfig
from gti_pipeline.lm.extended import ExtendedLM, embedding_rows
from gti_pipeline.lm.load import load_model, load_tokenizer
from gti_pipeline.lm.next_item import training_examples
from gti_pipeline.lm.pairs import encode_pairs, grounding_pairs
from gti_pipeline.lm.prompts import Example, Prompter
from gti_pipeline.models import resolve
from gti_pipeline.vocab import extend_tokenizer, initial_rows

LEVELS, CODES = 4, 256
WORDS = ["linen", "cotton", "silk", "wool", "dress", "coat", "jacket", "shirt", "summer", "winter", "blue", "green"]


def load(args: argparse.Namespace) -> tuple[PreTrainedModel, ExtendedLM, Prompter, NDArray[np.int64]]:
    """The bundled LM, itself and extended by random rows, its prompter, and the token ids [L, K]."""
    if args.threads:
        torch.set_num_threads(args.threads)
    path = resolve(LM, REPO / "data").path
    config = LmConfig(device=args.device, dtype=args.dtype)
    tokenizer = load_tokenizer(path)
    ids = extend_tokenizer(tokenizer, LEVELS, CODES)
    model = load_model(path, config)
    rows = initial_rows(embedding_rows(model)[: int(ids.min())], ids.size, "random", 0)
    lm = ExtendedLM(model, rows, int(ids.min())).to(model.device)
    return model, lm, Prompter(tokenizer, config.system, config.max_tokens), ids


def tree_codes(items: int) -> NDArray[np.int64]:
    """Distinct codes [items, L]; some codes are much more frequent, so prefixes have several children."""
    rng = np.random.default_rng(0)
    drawn = (CODES * rng.random((2 * items, LEVELS)) ** 3).astype(np.int64)
    return rng.permutation(np.unique(drawn, axis=0))[:items]


def pairs(items: int, prompter: Prompter) -> dict[str, list[Example]]:
    """Grounding examples by direction: titles of 4 to 8 words, descriptions of 12 to 24."""
    rng = np.random.default_rng(0)
    codes = {str(item): row.tolist() for item, row in enumerate(tree_codes(items))}
    texts = {name: [" ".join(rng.choice(WORDS, rng.integers(n, 2 * n))) for _ in codes] for name, n in SIZES.items()}
    table = grounding_pairs(pd.DataFrame({"item_id": list(codes), **texts}), codes, GroundConfig(), prompter)
    examples: dict[str, list[Example]] = {}
    for direction, example in zip(table["direction"], encode_pairs(table, prompter), strict=True):
        examples.setdefault(direction, []).append(example)
    return examples


SIZES = {"title": 4, "description": 12}


def histories(users: int, items: int, prompter: Prompter, targets: str) -> list[Example]:
    """Next-item examples of users with 8 to 21 events, at most 20 of them in a prompt."""
    rng = np.random.default_rng(0)
    codes = {str(item): row.tolist() for item, row in enumerate(tree_codes(items))}
    events = [rng.choice(list(codes), rng.integers(8, 22)).tolist() for _ in range(users)]
    rows = pd.DataFrame(
        {
            "user_id": [str(user) for user in range(users)],
            "split": "train",
            "history": [each[:-1] for each in events],
            "target": [each[-1] for each in events],
        }
    )
    return training_examples(rows, codes, prompter, targets=targets, max_history=20, seed=0)
