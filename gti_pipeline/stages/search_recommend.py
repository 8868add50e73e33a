"""Trie-constrained beam search for the test queries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from gti_pipeline import columns as c
from gti_pipeline import schemas
from gti_pipeline.artifacts import Artifact
from gti_pipeline.config import Config
from gti_pipeline.data.sample import USER_SEED, sample_rows
from gti_pipeline.data.split import TEST
from gti_pipeline.decode.stage import recommend
from gti_pipeline.lm.load import load_model
from gti_pipeline.progress import Progress
from gti_pipeline.search.prompts import prompts
from gti_pipeline.stages.base import Workspace, run_stage
from gti_pipeline.stages.language_model import MODEL, lm_settings, load_codes, load_prompter
from gti_pipeline.vocab import load_rows


def run(
    config: Config, workspace: Workspace, data: Artifact, semantic_ids: Artifact, vocab: Artifact, sft: Artifact
) -> Artifact:
    """Table: recommendations, in which a query stands where a user does."""

    def make(folder: Path, key: str) -> dict[str, Any]:
        del key
        queries = test_queries(config, data)
        codes = load_codes(semantic_ids)
        found = recommend(
            load_model(sft.path / MODEL, config.lm),
            prompts(queries, codes, load_prompter(config, vocab), config.search.max_query_tokens),
            list(queries[c.QUERY_ID]),
            list(codes),
            np.stack(list(codes.values())),
            torch.from_numpy(load_rows(vocab.path)[1]),
            config.search.candidates,
            _batch_size(config),
            Progress("search_recommend", "queries"),
        )
        schemas.RECOMMENDATIONS.write(found, folder)
        return {"queries": len(queries), "of_queries": data.summary["tested_queries"], "candidates": _longest(found)}

    settings = {
        "search": config.search.model_dump(mode="json", include={"candidates", "max_query_tokens"}),
        "max_users": config.decode.max_users,
        "lm": lm_settings(config.lm),
    }
    inputs = {"data": data.key, "semantic_ids": semantic_ids.key, "vocab": vocab.key, "sft": sft.key}
    return run_stage(workspace, "search_recommend", module=__name__, settings=settings, inputs=inputs, write=make)


def test_queries(config: Config, data: Artifact) -> pd.DataFrame:
    """The test queries, or the sample of them that `decode.max_users` asks for; the same for every arm and seed."""
    queries = schemas.QUERIES.read(data.path)
    return sample_rows(queries[queries[c.SPLIT] == TEST], config.decode.max_users, USER_SEED)


def _batch_size(config: Config) -> int:
    """As many queries at a time as keep no more beams in memory than `decode.batch_size` users would."""
    return max(1, config.decode.batch_size * config.decode.beams // config.search.candidates)


def _longest(found: pd.DataFrame) -> int:
    return int(found[c.RANK].max()) if len(found) else 0
