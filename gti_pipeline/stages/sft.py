"""Supervised fine-tuning: the extended LM learns to recommend, and becomes an ordinary transformers model."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from gti_pipeline import columns as c
from gti_pipeline import schemas
from gti_pipeline.artifacts import Artifact
from gti_pipeline.config import Config
from gti_pipeline.lm.extended import ExtendedLM, merge
from gti_pipeline.lm.load import load_model, load_tokenizer
from gti_pipeline.lm.next_item import answered_examples, training_examples
from gti_pipeline.lm.pairs import encode_pairs, grounding_pairs
from gti_pipeline.lm.prompts import Example, Prompter
from gti_pipeline.progress import Progress
from gti_pipeline.sft import fine_tune, mix
from gti_pipeline.stages.base import Workspace, run_stage
from gti_pipeline.stages.language_model import (
    lm_settings,
    load_codes,
    load_prompter,
    write_steps,
)
from gti_pipeline.stages.vocab import TOKENIZER, base_path
from gti_pipeline.vocab import load_rows

MODEL = "model"
VALID_USERS = 64  # enough for a curve; the validation loss selects nothing
UNKEYED = {"micro_batch_size", "save_steps"}  # they change memory and safety, not the result
PAIR_SETTINGS = {"text_to_sid", "sid_to_text", "max_text_tokens"}


def run(
    config: Config,
    workspace: Workspace,
    data: Artifact,
    semantic_ids: Artifact,
    vocab: Artifact,
    rows_from: Artifact,
) -> Artifact:
    """Folder `model` (LM and tokenizer, readable by transformers alone); table: steps."""

    def make(folder: Path, key: str) -> dict[str, Any]:
        scratch = workspace.scratch("sft", key)
        prompter = load_prompter(config, vocab)
        train, valid, counts = _examples(config, data, semantic_ids, prompter)
        rows, token_ids = load_rows(rows_from.path)
        full = config.lm.model_copy(update={"dtype": "float32"})  # mixed precision keeps float32 weights
        model = load_model(base_path(config, workspace, vocab), full)
        lm = ExtendedLM(model, rows, int(token_ids.min())).to(model.device)
        result = fine_tune(
            lm,
            train,
            valid,
            config.sft,
            seed=config.seed,
            work=scratch,
            bf16=config.lm.dtype == "bfloat16",
            progress=Progress("sft", "steps"),
        )
        merged = merge(model, lm.new_rows.detach(), lm.first_id).to(getattr(torch, config.lm.dtype))
        merged.save_pretrained(str(folder / MODEL))
        load_tokenizer(vocab.path / TOKENIZER).save_pretrained(str(folder / MODEL))
        write_steps(result.steps, folder)
        shutil.rmtree(scratch, ignore_errors=True)
        last = {name: value for _, name, value in result.steps}
        return {
            **counts,
            "budget": result.budget.to_dict(),
            "resumed_from_step": result.resumed_from,
            "loss_last": round(last["loss"], 4),
            "valid_loss": round(last["valid_loss"], 4) if "valid_loss" in last else None,
        }

    settings = {
        "sft": config.sft.model_dump(mode="json", exclude=UNKEYED),
        "lm": lm_settings(config.lm),
        "seed": config.seed,
        "pairs": config.ground.model_dump(mode="json", include=PAIR_SETTINGS)
        if config.sft.tasks == "multitask"
        else None,
    }
    inputs = {"data": data.key, "semantic_ids": semantic_ids.key, "vocab": vocab.key, "rows": rows_from.key}
    return run_stage(workspace, "sft", module=__name__, settings=settings, inputs=inputs, write=make)


def _examples(
    config: Config, data: Artifact, semantic_ids: Artifact, prompter: Prompter
) -> tuple[list[Example], list[Example], dict[str, int]]:
    """Training and validation examples, and how many there are of each kind."""
    codes = load_codes(semantic_ids)
    sequences = schemas.SEQUENCES.read(data.path)
    sft = config.sft
    train = training_examples(
        sequences, codes, prompter, targets=sft.targets, max_history=sft.max_history, seed=config.seed
    )
    counts = {"next_item_examples": len(train), "pair_examples": 0}
    if sft.tasks == "multitask":
        pairs = grounding_pairs(schemas.ITEMS.read(data.path), codes, config.ground, prompter)
        train = mix(train, encode_pairs(pairs, prompter), sft.pairs_share, config.seed)
        counts["pair_examples"] = len(train) - counts["next_item_examples"]
    valid = sample_rows(sequences[sequences[c.SPLIT] == "valid"], VALID_USERS, seed=0)
    return train, answered_examples(valid, codes, prompter, max_history=sft.max_history), counts


def sample_rows(rows: pd.DataFrame, most: int | None, seed: int) -> pd.DataFrame:
    """At most so many rows, a seeded sample in the table's order."""
    if most is None or len(rows) <= most:
        return rows
    chosen = np.random.default_rng(seed).permutation(len(rows))[:most]
    return rows.iloc[np.sort(chosen)]
