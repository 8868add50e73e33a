"""LoRA on an extended LM (arXiv 2106.09685): small matrices train beside the frozen weights, and so do the new rows."""

from __future__ import annotations

import difflib

import torch
from peft import LoraConfig, LoraModel
from torch import nn

from gti_pipeline.config import SftConfig
from gti_pipeline.errors import GtiError
from gti_pipeline.lm.extended import ExtendedLM, freeze_old

ADAPTER = "default"


def add_lora(lm: ExtendedLM, config: SftConfig, seed: int = 0) -> LoraModel:
    """Puts LoRA matrices into the decoder of `lm`, in place; they and `new_rows` are all that trains then.

    The matrices start so that nothing changes, by the seed alone: torch's own generator has no say. `merge_and_unload`
    of what comes back makes the decoder plain again.

    Raises:
        GtiError: `lora_targets` that the decoder does not have.
    """
    freeze_old(lm)
    names = linear_layers(lm.decoder)
    unknown = [name for name in config.lora_targets if name not in names]
    if unknown:
        near = {match for name in unknown for match in difflib.get_close_matches(name, names, n=1)}
        meant = f" (did you mean {', '.join(sorted(near))}?)" if near else ""
        raise GtiError(
            f"sft.lora_targets: {', '.join(unknown)}: the model has no linear layers of that name{meant};"
            f" it has {', '.join(names)}"
        )
    settings = LoraConfig(
        r=config.lora_rank,
        lora_alpha=config.lora_alpha,
        lora_dropout=config.lora_dropout,
        target_modules=list(config.lora_targets or names),
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return LoraModel(lm.decoder, settings, ADAPTER)


def linear_layers(decoder: nn.Module) -> list[str]:
    """The last names of all linear layers, 4-bit ones too: those of SmolLM2 are q_proj, k_proj, and so on."""
    return sorted({name.rsplit(".", 1)[-1] for name, m in decoder.named_modules() if isinstance(m, nn.Linear)})
