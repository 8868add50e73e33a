"""Recommendations to metrics, beside popularity on the same users."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from gti_pipeline import columns as c
from gti_pipeline import schemas
from gti_pipeline.artifacts import Artifact
from gti_pipeline.config import Config
from gti_pipeline.data.split import training_items
from gti_pipeline.evaluate.popularity import popular
from gti_pipeline.evaluate.stage import evaluate
from gti_pipeline.stages.base import Workspace, run_stage
from gti_pipeline.stages.recommend import USER_SEED
from gti_pipeline.stages.sft import sample_rows

ARM, POPULAR = "model", "popular"  # the artifact does not know the method's name: methods may share it


def run(config: Config, workspace: Workspace, data: Artifact, recommendations: Artifact) -> Artifact:
    """Tables: metrics, user_metrics; arms `model` and `popular`."""

    def make(folder: Path, key: str) -> dict[str, Any]:
        del key
        sequences = schemas.SEQUENCES.read(data.path)
        test = sample_rows(sequences[sequences[c.SPLIT] == "test"], config.decode.max_users, USER_SEED)
        found = {
            ARM: schemas.RECOMMENDATIONS.read(recommendations.path),
            POPULAR: popular(training_items(sequences), list(test[c.USER_ID]), max(config.evaluate.ks)),
        }
        items = schemas.ITEMS.read(data.path)
        metrics, user_metrics = evaluate(found, test, set(items[c.ITEM_ID]), config.evaluate)
        schemas.METRICS.write(metrics, folder)
        schemas.USER_METRICS.write(user_metrics, folder)
        return {"users": len(test)}

    settings = {"evaluate": config.evaluate.model_dump(mode="json"), "max_users": config.decode.max_users}
    inputs = {"data": data.key, "recommend": recommendations.key}
    return run_stage(workspace, "evaluate", module=__name__, settings=settings, inputs=inputs, write=make)


def named_metrics(evaluation: Artifact, method: str) -> pd.DataFrame:
    """The metrics table with the method's name for its arm."""
    frame = schemas.METRICS.read(evaluation.path)
    frame[c.ARM] = frame[c.ARM].replace(ARM, method)
    return frame
