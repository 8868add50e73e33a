"""Recommendations to graded metrics, beside the popular items on the same queries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gti_pipeline import columns as c
from gti_pipeline import schemas
from gti_pipeline.artifacts import Artifact
from gti_pipeline.config import Config
from gti_pipeline.search.evaluate import evaluate, popular
from gti_pipeline.search.split import TRAIN, good_matches
from gti_pipeline.stages.base import Workspace, run_stage
from gti_pipeline.stages.evaluate import ARM, POPULAR
from gti_pipeline.stages.search_recommend import test_queries


def run(config: Config, workspace: Workspace, data: Artifact, recommendations: Artifact) -> Artifact:
    """Tables: metrics, user_metrics, in which a query stands where a user does; the arm is called `model`."""

    def make(folder: Path, key: str) -> dict[str, Any]:
        del key
        tested = test_queries(config, data)[c.QUERY_ID].tolist()
        judgments = schemas.JUDGMENTS.read(data.path)
        matches = good_matches(schemas.QUERIES.read(data.path), judgments, TRAIN)
        found = {
            ARM: schemas.RECOMMENDATIONS.read(recommendations.path),
            POPULAR: popular(matches, tested, max(config.search.ks)),
        }
        judged = judgments[judgments[c.QUERY_ID].isin(tested)]
        items = set(schemas.ITEMS.read(data.path)[c.ITEM_ID])
        result = evaluate(found, judged, items, config.search.ks, config.evaluate)
        schemas.METRICS.write(result.metrics, folder)
        schemas.USER_METRICS.write(result.user_metrics, folder)
        return {"queries": len(tested), "judgments": len(judged)}

    settings = {
        "ks": list(config.search.ks),
        "bootstrap": config.evaluate.model_dump(mode="json", include={"bootstrap", "confidence"}),
        "max_users": config.decode.max_users,
    }
    inputs = {"data": data.key, "recommend": recommendations.key}
    return run_stage(workspace, "search_evaluate", module=__name__, settings=settings, inputs=inputs, write=make)
