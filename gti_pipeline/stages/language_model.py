"""What grounding, fine-tuning and recommending read alike: the extended LM, its prompter, the items' codes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from gti_pipeline import columns as c
from gti_pipeline import schemas
from gti_pipeline.artifacts import Artifact
from gti_pipeline.config import Config, LmConfig
from gti_pipeline.lm.load import load_tokenizer
from gti_pipeline.lm.prompts import Prompter
from gti_pipeline.stages.vocab import TOKENIZER

MODEL = "model"  # the folder of a whole LM in an artifact: fine-tuning's, and grounding's after its second phase


def lm_settings(config: LmConfig) -> dict[str, Any]:
    """The settings that change results: the device does not."""
    return config.model_dump(mode="json", exclude={"device"})


def load_prompter(config: Config, vocab: Artifact) -> Prompter:
    """The prompter with the extended tokenizer."""
    return Prompter(load_tokenizer(vocab.path / TOKENIZER), config.lm.system, config.lm.max_tokens)


def load_codes(semantic_ids: Artifact) -> dict[str, list[int]]:
    """Codes [L] by item_id, in the table's order."""
    frame = schemas.SEMANTIC_IDS.read(semantic_ids.path)
    return {item: codes.tolist() for item, codes in zip(frame[c.ITEM_ID], frame[c.CODES], strict=True)}


def write_steps(steps: list[tuple[int, str, float]], folder: Path) -> None:
    """Step metrics as a table; of two values of one step and metric the later stays."""
    frame = pd.DataFrame(steps, columns=[c.STEP, c.METRIC, c.VALUE])
    schemas.STEPS.write(frame.drop_duplicates([c.STEP, c.METRIC], keep="last"), folder)
