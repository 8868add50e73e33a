"""Fixtures that several folders share; heavy imports wait until a fixture is used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ["GTI_KAGGLE_URL"] = "http://127.0.0.1:9"  # where the network is, tests must not fetch the real data
REPO = Path(__file__).resolve().parent.parent
TEXTS = [
    "Linen summer dress, light blue",
    "Warm woollen coat for the winter season",
    "Black evening dress with a deep back",
    "Casual denim jacket, size M, light wash",
    "Festkjole i silke, grønn, med lange ermer",
    "Striped cotton shirt for the office",
] * 4


@pytest.fixture(scope="session")
def tiny_lm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a random two-layer LM with a small byte-level tokenizer."""
    import torch

    from gti_pipeline.lm.tiny import save_tiny

    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("tiny_lm")
    save_tiny(TEXTS, folder)
    return folder


@pytest.fixture(scope="session")
def smollm() -> Path:
    """The folder of the real SmolLM2-135M-Instruct, which `make test` installs."""
    from gti_pipeline.models import resolve

    return resolve("SmolLM2-135M-Instruct", home=REPO / "data").path


@pytest.fixture
def make_tiny(tiny_lm: Path):
    """A function that makes (extended LM, prompter, token ids [L, K]), always the same for the same arguments."""
    import torch

    from gti_pipeline.config import LmConfig
    from gti_pipeline.lm.extended import ExtendedLM, embedding_rows
    from gti_pipeline.lm.load import load_model, load_tokenizer
    from gti_pipeline.lm.prompts import Prompter
    from gti_pipeline.vocab import extend_tokenizer, initial_rows

    def make(levels=2, size=4, *, spare_rows=0, max_tokens=256, seed=1):
        tokenizer = load_tokenizer(tiny_lm)
        ids = extend_tokenizer(tokenizer, levels, size)
        model = load_model(tiny_lm, LmConfig(model="tiny", device="cpu"))
        if spare_rows:  # more rows than the tokenizer has tokens
            with torch.random.fork_rng():
                torch.manual_seed(7)
                model.resize_token_embeddings(len(tokenizer) + spare_rows, mean_resizing=False)
        rows = initial_rows(embedding_rows(model)[: int(ids.min())], ids.size, "random", seed)
        return ExtendedLM(model, rows, int(ids.min())), Prompter(tokenizer, "Be helpful.", max_tokens), ids

    return make
