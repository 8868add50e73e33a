"""Supervised fine-tuning: the extended LM learns to recommend, and becomes an ordinary transformers model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from gti_pipeline import columns as c
from gti_pipeline import schemas
from gti_pipeline.artifacts import Artifact
from gti_pipeline.config import Config
from gti_pipeline.data.sample import sample_rows
from gti_pipeline.lm.next_item import answered_examples, prompts, training_examples
from gti_pipeline.lm.prompts import Example, Prompter
from gti_pipeline.sft.validation import Validation
from gti_pipeline.stages.base import Workspace, run_stage
from gti_pipeline.stages.language_model import (
    lm_settings,
    load_codes,
    load_prompter,
)
from gti_pipeline.stages.tuning import UNKEYED, pair_settings, text_pairs, tune_and_save
from gti_pipeline.vocab import load_rows


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
        codes = load_codes(semantic_ids)
        train, pairs = _training(config, data, codes, prompter), text_pairs(config, data, codes, prompter)
        counts = {"next_item_examples": len(train), "pairs": len(pairs)}
        valid_rows = _valid_rows(config, data)
        valid = answered_examples(valid_rows, codes, prompter, max_history=config.sft.max_history)
        validation = Validation(
            list(valid_rows[c.USER_ID]),
            prompts(valid_rows, codes, prompter, max_history=config.sft.max_history),
            _relevant(data, "valid"),
            codes,
            load_rows(vocab.path)[1],
            config.decode.batch_size,
        )
        examples = (train, pairs, valid)
        return counts | tune_and_save(config, workspace, vocab, rows_from, *examples, validation, scratch, folder)

    settings = {
        "sft": config.sft.model_dump(mode="json", exclude=UNKEYED),
        "lm": lm_settings(config.lm),
        "seed": config.seed,
        "pairs": pair_settings(config),
    }
    inputs = {"data": data.key, "semantic_ids": semantic_ids.key, "vocab": vocab.key, "rows": rows_from.key}
    return run_stage(workspace, "sft", module=__name__, settings=settings, inputs=inputs, write=make)


def _training(config: Config, data: Artifact, codes: dict[str, list[int]], prompter: Prompter) -> list[Example]:
    """Next-item examples."""
    return training_examples(
        schemas.SEQUENCES.read(data.path),
        codes,
        prompter,
        targets=config.sft.targets,
        max_history=config.sft.max_history,
        seed=config.seed,
    )


def _valid_rows(config: Config, data: Artifact) -> pd.DataFrame:
    """The sample of validation users, the same for every arm and seed."""
    sequences = schemas.SEQUENCES.read(data.path)
    return sample_rows(sequences[sequences[c.SPLIT] == "valid"], config.sft.valid_users, seed=0)


def _relevant(data: Artifact, split: str) -> pd.DataFrame:
    relevant = schemas.RELEVANT.read(data.path)
    return relevant[relevant[c.SPLIT] == split]
