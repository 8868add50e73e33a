"""Loading a causal LM and its tokenizer from a folder."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from gti_pipeline.config import LmConfig
from gti_pipeline.errors import GtiError

transformers_logging.disable_progress_bar()  # bars of a second's work between our own lines


def device_of(config: LmConfig) -> torch.device:
    """`auto` is a GPU where there is one."""
    if config.device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if config.device == "cuda" and not torch.cuda.is_available():
        raise GtiError("lm.device=cuda: torch sees no GPU here; use --profile cpu or --set lm.device=auto")
    return torch.device(config.device)


def load_model(path: Path, config: LmConfig) -> PreTrainedModel:
    """The model in its configured dtype and on its device, dropout off."""
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(str(path), dtype=getattr(torch, config.dtype))
    model.to(device_of(config))  # type: ignore[arg-type]
    model.eval()
    return model


def load_tokenizer(path: Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a folder."""
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(str(path))
    return tokenizer
