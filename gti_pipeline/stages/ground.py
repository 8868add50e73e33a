"""GTI grounding: the new rows learn from paired text <-> semantic-ID prompts."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from gti_pipeline import columns as c
from gti_pipeline import schemas
from gti_pipeline.artifacts import Artifact
from gti_pipeline.config import Config
from gti_pipeline.ground import GroundResult, ground
from gti_pipeline.ground.probe import draw_sample, probe, summarize
from gti_pipeline.lm.extended import ExtendedLM, merge
from gti_pipeline.lm.load import load_model
from gti_pipeline.lm.pairs import encode_pairs, grounding_pairs, hold_out
from gti_pipeline.lm.prompts import Example, Prompter
from gti_pipeline.progress import Progress
from gti_pipeline.stages.base import Workspace, run_stage
from gti_pipeline.stages.language_model import MODEL, lm_settings, load_codes, load_prompter, write_steps
from gti_pipeline.stages.vocab import base_path
from gti_pipeline.vocab import load_rows, save_rows

UNKEYED = {"enabled", "cache_mb"}  # a cache's size changes no result
TRAIN, VALID = "train", "valid"

log = logging.getLogger(__name__)


def run(config: Config, workspace: Workspace, data: Artifact, semantic_ids: Artifact, vocab: Artifact) -> Artifact:
    """new_rows.safetensors; tables: grounding_pairs, steps, probe. After a second phase also the folder `model`."""

    def make(folder: Path, key: str) -> dict[str, Any]:
        scratch = workspace.scratch("ground", key)
        prompter = load_prompter(config, vocab)
        items, codes = schemas.ITEMS.read(data.path), load_codes(semantic_ids)
        pairs = _pairs(items, codes, config, prompter)
        schemas.GROUNDING_PAIRS.write(pairs, folder)
        model, lm, token_ids = _load(config, workspace, vocab)
        sample = draw_sample(items, config.ground.probe_items, prompter, config.ground.max_text_tokens)

        def look() -> pd.DataFrame:
            return probe(model, lm, sample, codes, torch.from_numpy(token_ids), prompter)

        train, valid = _examples(pairs, TRAIN, prompter), _examples(pairs, VALID, prompter)
        before = look() if sample.item_ids else None
        progress = Progress("ground", "steps")
        result = ground(lm, train, config.ground, config.seed, progress, valid=valid, work=scratch)
        if result.second_phase:
            merge(model, lm.new_rows.detach(), lm.first_id).to(getattr(torch, config.lm.dtype))
            model.save_pretrained(str(folder / MODEL))
            prompter.tokenizer.save_pretrained(str(folder / MODEL))
        save_rows(folder, lm.new_rows, token_ids)
        write_steps(result.steps, folder)
        summary = _summary(pairs, result)
        if before is not None:
            summary["probe"] = _compare(before, look(), list(train), folder)
            summary["sentence"] += f"; {summary['probe']['sentence']}"
        shutil.rmtree(scratch, ignore_errors=True)
        return summary

    settings = {
        "ground": config.ground.model_dump(mode="json", exclude=UNKEYED),
        "lm": lm_settings(config.lm),
        "seed": config.seed,
    }
    inputs = {"data": data.key, "semantic_ids": semantic_ids.key, "vocab": vocab.key}
    return run_stage(workspace, "ground", module=__name__, settings=settings, inputs=inputs, write=make)


def _pairs(items: pd.DataFrame, codes: dict[str, list[int]], config: Config, prompter: Prompter) -> pd.DataFrame:
    """`schemas.GROUNDING_PAIRS`: which train and which are held out."""
    pairs = grounding_pairs(items, codes, config.ground, prompter)
    held = hold_out(pairs, config.ground.valid_share, config.seed)
    if config.ground.valid_share and not held.any():
        log.warning("ground: no item has two wordings in a direction: no pair is held out, the last rows are kept")
    pairs[c.SPLIT] = np.where(held, VALID, TRAIN)
    return pairs


def _examples(pairs: pd.DataFrame, split: str, prompter: Prompter) -> dict[str, list[Example]]:
    """The pairs of a split as token ids, by direction."""
    part = pairs[pairs[c.SPLIT] == split]
    examples: dict[str, list[Example]] = {}
    for direction, example in zip(part[c.DIRECTION], encode_pairs(part, prompter), strict=True):
        examples.setdefault(direction, []).append(example)
    return examples


def _load(
    config: Config, workspace: Workspace, vocab: Artifact
) -> tuple[PreTrainedModel, ExtendedLM, NDArray[np.int64]]:
    """The base LM grown by the new rows, its extension (which shares its weights), and the token ids [L, K]."""
    # training everything needs float32 weights; the new rows always have them
    kind = config.lm.model_copy(update={"dtype": "float32"}) if config.ground.second_phase_steps else config.lm
    rows, token_ids = load_rows(vocab.path)
    first = int(token_ids.min())
    model = load_model(base_path(config, workspace, vocab), kind)
    merge(model, rows.to(model.device), first)  # before the extension: growing replaces the matrix
    return model, ExtendedLM(model, rows, first).to(model.device), token_ids


def _summary(pairs: pd.DataFrame, result: GroundResult) -> dict[str, Any]:
    """Counts, budget, and each metric over the first and the last tenth of its steps."""
    summary: dict[str, Any] = {
        "pairs": len(pairs),
        "held_out_pairs": int((pairs[c.SPLIT] == VALID).sum()),
        "budget": result.budget.to_dict(),
        "sentence": result.budget.sentence(),
    }
    if result.second_phase:
        summary["second_phase"] = result.second_phase.to_dict()
        summary["sentence"] += f"; then everything unfrozen: {result.second_phase.sentence()}"
    if result.best_step is not None:
        summary["best_step"] = result.best_step
    for name in sorted({metric for _, metric, _ in result.steps}):
        values = [value for _, metric, value in result.steps if metric == name]
        tenth = max(1, len(values) // 10)
        summary[f"{name}_first"] = round(sum(values[:tenth]) / tenth, 4)
        summary[f"{name}_last"] = round(sum(values[-tenth:]) / tenth, 4)
    if result.best_step == 0:
        note = "no check of the held-out pairs beat the start, whose rows were kept"
        log.warning("ground: %s", note)
        summary["sentence"] += f"; {note}"
    return summary


def _compare(before: pd.DataFrame, after: pd.DataFrame, trained: list[str], folder: Path) -> dict[str, Any]:
    """Writes the probe's table; its numbers and the sentence, which is also logged."""
    schemas.PROBE.write(pd.concat([before.assign(**{c.PHASE: "before"}), after.assign(**{c.PHASE: "after"})]), folder)
    found = summarize(before, after, trained)
    (log.warning if found["missed"] else log.info)("ground: %s", found["sentence"])
    return found
