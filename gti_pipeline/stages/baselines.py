"""Each baseline's recommendations, as an artifact of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from gti_pipeline import columns as c
from gti_pipeline import schemas
from gti_pipeline.artifacts import Artifact, code_digest, file_digest
from gti_pipeline.baselines.content_knn import content_knn
from gti_pipeline.baselines.factorize import als, bpr, missing_library
from gti_pipeline.baselines.popularity import popular, recent_popular
from gti_pipeline.baselines.repeat import popular_repeat, repeat
from gti_pipeline.baselines.sasrec import sasrec
from gti_pipeline.config import BaselineName, Config
from gti_pipeline.data.sample import USER_SEED, sample_rows
from gti_pipeline.data.split import TEST, VALID, training_sequences
from gti_pipeline.lm.load import device_of
from gti_pipeline.progress import Progress
from gti_pipeline.stages.base import Workspace, run_stage

VALID_USERS = 5000  # enough to choose a setting or an epoch
# which module's code is in a baseline's key, beside this file's
MODULES: dict[BaselineName, str] = {
    "popular": "popularity",
    "recent_popular": "popularity",
    "repeat": "repeat",
    "popular_repeat": "repeat",
    "content_knn": "content_knn",
    "als": "factorize",
    "bpr": "factorize",
    "sasrec": "sasrec",
}
Found = tuple[pd.DataFrame, dict[str, object]]


@dataclass(frozen=True)
class _Tables:
    """What baselines learn from. Test targets are not in it."""

    events: pd.DataFrame  # schemas.INTERACTIONS of training alone
    training: pd.DataFrame  # user_id, history: the same events by user
    valid: pd.DataFrame  # user_id, history, target
    users: pd.DataFrame  # user_id, history: whom to recommend to
    item_ids: list[str]


def run(
    config: Config, workspace: Workspace, data: Artifact, embeddings: Artifact | None, name: BaselineName
) -> Artifact:
    """Table: recommendations, as many for each user as the arms'; of sasrec also steps."""

    def make(folder: Path, key: str) -> dict[str, Any]:
        del key
        tables = _tables(config, data)
        found, summary = _recommend(config, tables, embeddings, name, folder)
        schemas.RECOMMENDATIONS.write(found, folder)
        return {"users": len(tables.users), **summary}

    module = f"gti_pipeline.baselines.{MODULES[name]}"
    settings = {
        "settings": _settings(config, name),
        "num": config.decode.beams,
        "max_users": config.decode.max_users,
        # not through this module's imports: a change of one baseline leaves the others' artifacts as they are
        "code": [file_digest(Path(__file__)), code_digest("gti_pipeline.data.split"), USER_SEED],
    }
    inputs = {"data": data.key} | ({"embed": embeddings.key} if embeddings else {})
    return run_stage(workspace, stage_name(name), module=module, settings=settings, inputs=inputs, write=make)


def stage_name(name: BaselineName) -> str:
    """The stage of a baseline, as its folder is called."""
    return f"baseline-{name}"


def why_not(name: BaselineName) -> str | None:
    """Why a baseline cannot run here, or None."""
    return missing_library() if name in ("als", "bpr") else None


def needs_embeddings(name: BaselineName) -> bool:
    """Whether a baseline uses the item vectors."""
    return name == "content_knn"


def _settings(config: Config, name: BaselineName) -> Any:
    """The settings that this baseline depends on."""
    ours = config.baselines
    match name:
        case "recent_popular":
            return {"share": ours.recent_share}
        case "repeat" | "popular_repeat":
            return {"decay": ours.repeat_decay}
        case "als" | "bpr":
            return {"seed": config.seed, **getattr(ours, name).model_dump(mode="json")}
        case "sasrec":
            return {"seed": config.seed, "device": device_of(config.lm).type, **ours.sasrec.model_dump(mode="json")}
    return {}


def _recommend(config: Config, tables: _Tables, embeddings: Artifact | None, name: BaselineName, folder: Path) -> Found:
    """The baseline's lists and what it says of itself."""
    ours, num, seed, users = config.baselines, config.decode.beams, config.seed, tables.users
    who = users[c.USER_ID].tolist()
    learned = (tables.training, tables.valid, users, tables.item_ids, num)
    match name:
        case "popular":
            return popular(tables.events[c.ITEM_ID], who, num), {}
        case "recent_popular":
            return recent_popular(tables.events, who, num, ours.recent_share), {}
        case "repeat":
            return repeat(users, num, ours.repeat_decay), {}
        case "popular_repeat":
            return popular_repeat(tables.events[c.ITEM_ID], users, num, ours.repeat_decay), {}
        case "content_knn":
            assert embeddings is not None
            return content_knn(schemas.ITEM_EMBEDDINGS.read(embeddings.path), tables.valid, users, num)
        case "als":
            return als(*learned, ours.als, seed, Progress("als", "iterations"))
        case "bpr":
            return bpr(*learned, ours.bpr, seed, Progress("bpr", "iterations"))
        case "sasrec":
            progress = Progress("sasrec", "epochs at most")
            found, summary, steps = sasrec(*learned, ours.sasrec, seed, device_of(config.lm), progress)
            schemas.STEPS.write(steps, folder)
            return found, summary


def _tables(config: Config, data: Artifact) -> _Tables:
    sequences = schemas.SEQUENCES.read(data.path)
    by_user = training_sequences(sequences)
    # the same test users as the arms'
    users = sample_rows(sequences[sequences[c.SPLIT] == TEST], config.decode.max_users, USER_SEED)
    valid = sample_rows(sequences[sequences[c.SPLIT] == VALID], VALID_USERS, seed=0)
    return _Tables(
        events=training_events(schemas.INTERACTIONS.read(data.path), by_user),
        training=pd.DataFrame({c.USER_ID: list(by_user), c.HISTORY: list(by_user.values())}),
        valid=valid[[c.USER_ID, c.HISTORY, c.TARGET]],
        users=users[[c.USER_ID, c.HISTORY]],
        item_ids=schemas.ITEMS.read(data.path)[c.ITEM_ID].tolist(),
    )


def training_events(interactions: pd.DataFrame, by_user: Mapping[str, list[str]]) -> pd.DataFrame:
    """The rows of `schemas.INTERACTIONS` that are training: of each user as many of the first as he trains on."""
    ordered = interactions.sort_values([c.USER_ID, c.TIMESTAMP, c.SOURCE_ROW])
    place = ordered.groupby(c.USER_ID, sort=False).cumcount()
    count = ordered[c.USER_ID].map({user: len(items) for user, items in by_user.items()}).fillna(0)
    return ordered[place < count]
