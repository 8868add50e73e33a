"""Recommendations to metrics, beside popularity on the same users."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from gti_pipeline import columns as c
from gti_pipeline import schemas
from gti_pipeline.artifacts import Artifact
from gti_pipeline.baselines.popularity import popular
from gti_pipeline.config import Config
from gti_pipeline.data.sample import USER_SEED, sample_rows
from gti_pipeline.data.split import TEST, training_items
from gti_pipeline.evaluate.stage import Evaluation, Task, evaluate
from gti_pipeline.stages.base import Workspace, run_stage
from gti_pipeline.stages.language_model import load_codes

ARM, POPULAR = "model", "popular"  # the artifact does not know the method's name: methods may share it


def run(
    config: Config,
    workspace: Workspace,
    data: Artifact,
    recommendations: Artifact | Mapping[str, Artifact],
    semantic_ids: Artifact | None = None,
) -> Artifact:
    """Tables: metrics, user_metrics, user_slices.

    Args:
        config: cut-offs, bootstrap, and the sample of test users.
        workspace: where artifacts lie.
        data: the data stage's artifact.
        recommendations: of one arm, which is then called `model`; or of several by name. `popular` is added where it
            is not among them.
        semantic_ids: for the SID-level rates, which are left out without it.
    """
    arms = {ARM: recommendations} if isinstance(recommendations, Artifact) else dict(recommendations)

    def make(folder: Path, key: str) -> dict[str, Any]:
        del key
        task = load_task(config, data, semantic_ids)
        found = {name: schemas.RECOMMENDATIONS.read(artifact.path) for name, artifact in arms.items()}
        if POPULAR not in found:
            found[POPULAR] = popular(task.training_items, list(task.test[c.USER_ID]), max(config.evaluate.ks))
        write_tables(evaluate(found, task, config.evaluate), folder)
        return {"users": len(task.test), "arms": list(found)}

    shown = config.evaluate.model_dump(mode="json", exclude={"headline_k"})  # it changes no number
    settings = {"evaluate": shown, "max_users": config.decode.max_users, "arms": list(arms)}
    inputs = {"data": data.key} | {f"recommend {name}": artifact.key for name, artifact in arms.items()}
    if semantic_ids is not None:
        inputs["semantic_ids"] = semantic_ids.key
    return run_stage(workspace, "evaluate", module=__name__, settings=settings, inputs=inputs, write=make)


def load_task(config: Config, data: Artifact, semantic_ids: Artifact | None = None) -> Task:
    """The test users that every arm recommends to, what is relevant to them, and the training events."""
    sequences = schemas.SEQUENCES.read(data.path)
    test = sample_rows(sequences[sequences[c.SPLIT] == TEST], config.decode.max_users, USER_SEED)
    relevant = schemas.RELEVANT.read(data.path)
    return Task(
        test=test,
        relevant=relevant[(relevant[c.SPLIT] == TEST) & relevant[c.USER_ID].isin(test[c.USER_ID])],
        item_ids=set(schemas.ITEMS.read(data.path)[c.ITEM_ID]),
        training_items=training_items(sequences),
        codes=load_codes(semantic_ids) if semantic_ids is not None else None,
    )


def write_tables(evaluation: Evaluation, folder: Path) -> None:
    """Writes metrics, user_metrics and user_slices as Parquet."""
    schemas.METRICS.write(evaluation.metrics, folder)
    schemas.USER_METRICS.write(evaluation.user_metrics, folder)
    schemas.USER_SLICES.write(evaluation.user_slices, folder)


def named_metrics(evaluation: Artifact, method: str) -> pd.DataFrame:
    """The metrics table with the method's name for its arm."""
    frame = schemas.METRICS.read(evaluation.path)
    frame[c.ARM] = frame[c.ARM].replace(ARM, method)
    return frame
