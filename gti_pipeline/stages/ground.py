"""GTI grounding: the new rows learn from paired text <-> semantic-ID prompts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gti_pipeline import columns as c
from gti_pipeline import schemas
from gti_pipeline.artifacts import Artifact
from gti_pipeline.config import Config
from gti_pipeline.ground import GroundResult, ground
from gti_pipeline.lm.pairs import encode_pairs, grounding_pairs
from gti_pipeline.lm.prompts import Example
from gti_pipeline.progress import Progress
from gti_pipeline.stages.base import Workspace, run_stage
from gti_pipeline.stages.language_model import (
    lm_settings,
    load_codes,
    load_extended,
    load_prompter,
    write_steps,
)
from gti_pipeline.vocab import load_rows, save_rows

UNKEYED = {"enabled", "cache_mb"}  # a cache's size changes no result


def run(config: Config, workspace: Workspace, data: Artifact, semantic_ids: Artifact, vocab: Artifact) -> Artifact:
    """new_rows.safetensors; tables: grounding_pairs, steps."""

    def make(folder: Path, key: str) -> dict[str, Any]:
        del key
        prompter = load_prompter(config, vocab)
        items = schemas.ITEMS.read(data.path)
        pairs = grounding_pairs(items, load_codes(semantic_ids), config.ground, prompter)
        schemas.GROUNDING_PAIRS.write(pairs, folder)
        examples: dict[str, list[Example]] = {}
        for direction, example in zip(pairs[c.DIRECTION], encode_pairs(pairs, prompter), strict=True):
            examples.setdefault(direction, []).append(example)
        lm = load_extended(config, workspace, vocab, vocab)
        result = ground(lm, examples, config.ground, config.seed, Progress("ground", "steps"))
        save_rows(folder, lm.new_rows, load_rows(vocab.path)[1])
        write_steps(result.steps, folder)
        return {"pairs": len(pairs), "budget": result.budget.to_dict(), **_losses(result)}

    settings = {
        "ground": config.ground.model_dump(mode="json", exclude=UNKEYED),
        "lm": lm_settings(config.lm),
        "seed": config.seed,
    }
    inputs = {"data": data.key, "semantic_ids": semantic_ids.key, "vocab": vocab.key}
    return run_stage(workspace, "ground", module=__name__, settings=settings, inputs=inputs, write=make)


def _losses(result: GroundResult) -> dict[str, Any]:
    """Mean loss of each direction over the first and the last tenth of its steps."""
    losses: dict[str, Any] = {}
    for name in sorted({metric for _, metric, _ in result.steps}):
        values = [value for _, metric, value in result.steps if metric == name]
        tenth = max(1, len(values) // 10)
        losses[f"{name}_first"] = round(sum(values[:tenth]) / tenth, 4)
        losses[f"{name}_last"] = round(sum(values[-tenth:]) / tenth, 4)
    return losses
