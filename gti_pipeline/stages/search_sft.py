"""Supervised fine-tuning on search: query text to the semantic ID of a good match."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from gti_pipeline import columns as c
from gti_pipeline import schemas
from gti_pipeline.artifacts import Artifact
from gti_pipeline.config import Config
from gti_pipeline.data.sample import sample_rows
from gti_pipeline.data.split import VALID
from gti_pipeline.lm.prompts import Example, Prompter
from gti_pipeline.search.prompts import match_examples, prompts
from gti_pipeline.search.split import TRAIN, check_no_leak, good_matches
from gti_pipeline.sft.validation import Validation
from gti_pipeline.stages.base import Workspace, run_stage
from gti_pipeline.stages.language_model import lm_settings, load_codes, load_prompter
from gti_pipeline.stages.tuning import UNKEYED, pair_settings, text_pairs, tune_and_save
from gti_pipeline.vocab import load_rows

OF_HISTORIES = {"targets", "max_history"}  # settings that mean nothing here
VALID_SEED = 0  # the same sample of validation queries for every arm and seed


def run(
    config: Config, workspace: Workspace, data: Artifact, semantic_ids: Artifact, vocab: Artifact, rows_from: Artifact
) -> Artifact:
    """Folder `model` (LM and tokenizer, readable by transformers alone); table: steps."""

    def make(folder: Path, key: str) -> dict[str, Any]:
        scratch = workspace.scratch("search_sft", key)
        prompter, codes = load_prompter(config, vocab), load_codes(semantic_ids)
        train, pairs = _training(config, data, codes, prompter), text_pairs(config, data, codes, prompter)
        counts = {"search_examples": len(train), "pairs": len(pairs)}
        matches, valid = _validation_queries(config, data)
        asked = config.search.max_query_tokens
        validation = Validation(
            list(valid[c.QUERY_ID]),
            prompts(valid, codes, prompter, asked),
            matches.rename(columns={c.QUERY_ID: c.USER_ID}),
            codes,
            load_rows(vocab.path)[1],
            config.decode.batch_size,
        )
        answered = match_examples(matches, codes, prompter, asked, None)
        examples = (train, pairs, answered)
        return counts | tune_and_save(config, workspace, vocab, rows_from, *examples, validation, scratch, folder)

    settings = {
        "sft": config.sft.model_dump(mode="json", exclude=UNKEYED | OF_HISTORIES),
        "max_query_tokens": config.search.max_query_tokens,
        "lm": lm_settings(config.lm),
        "seed": config.seed,
        "pairs": pair_settings(config),
    }
    inputs = {"data": data.key, "semantic_ids": semantic_ids.key, "vocab": vocab.key, "rows": rows_from.key}
    return run_stage(workspace, "search_sft", module=__name__, settings=settings, inputs=inputs, write=make)


def _training(config: Config, data: Artifact, codes: dict[str, list[int]], prompter: Prompter) -> list[Example]:
    """Training examples, none of a held-out query."""
    queries = schemas.QUERIES.read(data.path)
    matches = good_matches(queries, schemas.JUDGMENTS.read(data.path), TRAIN)
    check_no_leak(matches, queries)
    return match_examples(matches, codes, prompter, config.search.max_query_tokens, config.seed)


def _validation_queries(config: Config, data: Artifact) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The good matches of a sample of the validation queries, and those of the queries that have one."""
    queries = schemas.QUERIES.read(data.path)
    matches = good_matches(queries, schemas.JUDGMENTS.read(data.path), VALID)
    answered = queries[queries[c.QUERY_ID].isin(matches[c.QUERY_ID])]
    chosen = sample_rows(answered, config.sft.valid_users, VALID_SEED)
    return matches[matches[c.QUERY_ID].isin(chosen[c.QUERY_ID])], chosen
