"""Loading a causal LM and its tokenizer from a folder."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BitsAndBytesConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging as transformers_logging

from gti_pipeline.config import LmConfig
from gti_pipeline.errors import GtiError

transformers_logging.disable_progress_bar()  # bars of a second's work between our own lines


def device_of(config: LmConfig) -> torch.device:
    """`auto` is a GPU where there is one; of several processes (torch's launchers set LOCAL_RANK) each has its own."""
    if config.device == "cuda" and not torch.cuda.is_available():
        raise GtiError("lm.device=cuda: torch sees no GPU here; use --profile cpu or --set lm.device=auto")
    if config.device == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


def load_model(path: Path, config: LmConfig) -> PreTrainedModel:
    """The model in its configured dtype and on its device, dropout off."""
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(str(path), dtype=getattr(torch, config.dtype))
    model.to(device_of(config))  # type: ignore[arg-type]
    model.eval()
    return model


def load_4bit(path: Path, config: LmConfig) -> PreTrainedModel:
    """The model for QLoRA (arXiv 2305.14314): linear layers in 4-bit NormalFloat, the rest in bfloat16; a GPU only."""
    quantized = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        str(path), quantization_config=quantized, dtype=torch.bfloat16, device_map={"": device_of(config)}
    )
    model.eval()
    return model


def load_tokenizer(path: Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a folder."""
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(str(path))
    return tokenizer
