"""Trie-constrained beam search for the test users."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from gti_pipeline import columns as c
from gti_pipeline import schemas
from gti_pipeline.artifacts import Artifact
from gti_pipeline.config import Config
from gti_pipeline.data.sample import USER_SEED, sample_rows
from gti_pipeline.decode.stage import recommend
from gti_pipeline.lm.load import load_model
from gti_pipeline.lm.next_item import prompts
from gti_pipeline.progress import Progress
from gti_pipeline.stages.base import Workspace, run_stage
from gti_pipeline.stages.language_model import MODEL, lm_settings, load_codes, load_prompter
from gti_pipeline.vocab import load_rows


def run(
    config: Config, workspace: Workspace, data: Artifact, semantic_ids: Artifact, vocab: Artifact, sft: Artifact
) -> Artifact:
    """Table: recommendations."""

    def make(folder: Path, key: str) -> dict[str, Any]:
        del key
        sequences = schemas.SEQUENCES.read(data.path)
        all_rows = sequences[sequences[c.SPLIT] == "test"]
        rows = sample_rows(all_rows, config.decode.max_users, USER_SEED)
        codes = load_codes(semantic_ids)
        found = recommend(
            load_model(sft.path / MODEL, config.lm),
            prompts(rows, codes, load_prompter(config, vocab), max_history=config.sft.max_history),
            list(rows[c.USER_ID]),
            list(codes),
            np.stack(list(codes.values())),
            torch.from_numpy(load_rows(vocab.path)[1]),
            config.decode.beams,
            config.decode.batch_size,
            Progress("recommend", "users"),
        )
        schemas.RECOMMENDATIONS.write(found, folder)
        return {"users": len(rows), "of_users": len(all_rows), "beams": config.decode.beams}

    settings = {
        "decode": config.decode.model_dump(mode="json", exclude={"batch_size"}),
        "max_history": config.sft.max_history,
        "lm": lm_settings(config.lm),
    }
    inputs = {"data": data.key, "semantic_ids": semantic_ids.key, "vocab": vocab.key, "sft": sft.key}
    return run_stage(workspace, "recommend", module=__name__, settings=settings, inputs=inputs, write=make)
