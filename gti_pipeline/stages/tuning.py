"""What the fine-tuning stages of both tasks share: examples in, a whole model and what was done out."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from gti_pipeline import schemas
from gti_pipeline.artifacts import Artifact
from gti_pipeline.config import Config
from gti_pipeline.lm.extended import ExtendedLM, as_plain, merge
from gti_pipeline.lm.load import load_4bit, load_model, load_tokenizer
from gti_pipeline.lm.pairs import encode_pairs, grounding_pairs
from gti_pipeline.lm.prompts import Example, Prompter
from gti_pipeline.progress import Progress
from gti_pipeline.sft import SftResult, fine_tune
from gti_pipeline.sft.recorder import RECALL
from gti_pipeline.sft.validation import Validation
from gti_pipeline.sft.weights import load_trainable, save_trainable
from gti_pipeline.stages.base import Workspace
from gti_pipeline.stages.language_model import MODEL, write_steps
from gti_pipeline.stages.vocab import TOKENIZER, base_path
from gti_pipeline.vocab import load_rows

UNKEYED = {"micro_batch_size", "save_steps"}  # they change memory and safety, not the result
PAIR_SETTINGS = {"text_to_sid", "sid_to_text", "max_text_tokens"}


def pair_settings(config: Config) -> dict[str, Any] | None:
    """The settings of `text_pairs`; None where an arm has none."""
    if config.sft.tasks != "multitask":
        return None
    return config.ground.model_dump(mode="json", include=PAIR_SETTINGS)


def text_pairs(config: Config, data: Artifact, codes: dict[str, list[int]], prompter: Prompter) -> list[Example]:
    """The text<->SID pairs that stand beside a multi-task arm's examples; none for the other arms."""
    if config.sft.tasks != "multitask":
        return []
    pairs = grounding_pairs(schemas.ITEMS.read(data.path), codes, config.ground, prompter)
    return encode_pairs(pairs, prompter)


def tune_and_save(
    config: Config,
    workspace: Workspace,
    vocab: Artifact,
    rows_from: Artifact,
    train: list[Example],
    pairs: list[Example],
    valid: list[Example],
    validation: Validation,
    scratch: Path,
    folder: Path,
) -> dict[str, Any]:
    """Fine-tunes the LM with the rows of `rows_from`; writes model, tokenizer and steps; returns the summary.

    `rows_from` is the vocab or the grounding artifact; where grounding's second phase trained the whole LM, its weights
    are the start. `pairs` (text<->SID, of a multi-task arm) stand beside the examples `train` in each step.
    """
    rows, token_ids = load_rows(rows_from.path)
    own = rows_from.path / MODEL
    base = own if own.is_dir() else base_path(config, workspace, vocab)
    tuned, result = _tune(config, base, rows, int(token_ids.min()), train, pairs, valid, validation, scratch)
    tuned.to(getattr(torch, config.lm.dtype)).save_pretrained(str(folder / MODEL))
    load_tokenizer(vocab.path / TOKENIZER).save_pretrained(str(folder / MODEL))
    write_steps(result.steps, folder)
    shutil.rmtree(scratch, ignore_errors=True)
    return _summary(result)


def _tune(
    config: Config,
    base: Path,
    rows: torch.Tensor,
    first_id: int,
    train: list[Example],
    pairs: list[Example],
    valid: list[Example],
    validation: Validation,
    scratch: Path,
) -> tuple[PreTrainedModel, SftResult]:
    """The fine-tuned model in float32, an ordinary one, and what was done."""
    sft = config.sft
    full = config.lm.model_copy(update={"dtype": "float32"})  # mixed precision keeps float32 weights
    model = load_4bit(base, full) if sft.method == "qlora" else load_model(base, full)
    lm = ExtendedLM(model, rows, first_id).to(model.device)
    bf16 = config.lm.dtype == "bfloat16"
    if sft.method != "full":
        from gti_pipeline.lm.lora import add_lora  # peft is an optional extra

        add_lora(lm, sft, config.seed)
    result = fine_tune(
        lm,
        train,
        valid,
        sft,
        seed=config.seed,
        work=scratch,
        bf16=bf16,
        levels=config.semantic_ids.num_levels,
        progress=Progress("sft", "steps"),
        validate=(lambda lm: validation.recall(as_plain(model, lm), bf16=bf16)) if valid else None,
        pairs=pairs,
    )
    if sft.method == "full":
        return merge(model, lm.new_rows.detach(), first_id), result
    # the adapters go into weights that were never in 4 bits
    save_trainable(lm, scratch / "trained.safetensors")
    fresh = load_model(base, full)
    whole = ExtendedLM(fresh, rows, first_id).to(fresh.device)
    tuner = add_lora(whole, sft)
    load_trainable(whole, scratch / "trained.safetensors")
    tuner.merge_and_unload()
    return merge(fresh, whole.new_rows.detach(), first_id), result


def _summary(result: SftResult) -> dict[str, Any]:
    """What the manifest and MLflow keep of a run."""
    last = {name: round(value, 4) for _, name, value in result.steps}
    recall = {step: value for step, name, value in result.steps if name == RECALL}
    return {
        "budget": result.budget.to_dict(),
        "resumed_from_step": result.resumed_from,
        "loss_last": last["loss"],
        "valid_loss": last.get("valid_loss"),
        RECALL: recall.get(result.selected_step or result.budget.steps),
        "selected_step": result.selected_step or result.budget.steps,
    }
