"""`semantic_ids.base`: the artifact that is extended, found by key or as the newest of its kind."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gti_pipeline import schemas
from gti_pipeline.config import Config
from gti_pipeline.errors import GtiError
from gti_pipeline.stages.base import Workspace
from gti_pipeline.stages.semantic_ids import run

SMALL = {"num_levels": 3, "codebook_size": 8, "hidden_dims": [16], "latent_dim": 8, "epochs": 10, "min_code_use": 0}


def _config(**changes) -> Config:
    return Config.model_validate({"semantic_ids": SMALL | changes})


@pytest.fixture
def catalogue(tmp_path):
    """A function: workspace, and the data and embed artifacts of so many items."""
    workspace = Workspace(tmp_path, "shop")

    def make(items: int):
        ids = [f"i{n:03d}" for n in range(items)]
        vectors = np.random.default_rng(0).normal(size=(100, 12)).astype(np.float32)[:items]
        table = pd.DataFrame(
            {"item_id": ids, "title": "t", "description": "", "group_id": [f"g{n % 4}" for n in range(items)]}
        )
        rows = pd.DataFrame({"item_id": ids, "embedding": list(vectors)})
        data = workspace.store.create("data", f"{items}", lambda f: {"p": str(schemas.ITEMS.write(table, f))}, {})
        embed = workspace.store.create(
            "embed", f"{items}", lambda f: {"p": str(schemas.ITEM_EMBEDDINGS.write(rows, f))}, {}
        )
        return workspace, data, embed

    return make


def _codes(artifact) -> dict[str, tuple[int, ...]]:
    table = schemas.SEMANTIC_IDS.read(artifact.path)
    return dict(zip(table["item_id"], table["codes"].map(tuple), strict=True))


def test_latest_extends_the_newest_and_leaves_alone_what_is_complete(catalogue):
    first = run(_config(), *catalogue(40))
    assert first.summary["category_nmi"] is not None
    again = run(_config(base="latest"), *catalogue(40))
    assert again.key == first.key
    more = run(_config(base="latest"), *catalogue(50))
    assert more.summary["items_new"] == 10
    assert _codes(more).items() >= _codes(first).items()
    most = run(_config(base="latest"), *catalogue(60))
    assert most.summary["items_new"] == 10
    assert _codes(most).items() >= _codes(more).items()
    assert run(_config(base="latest"), *catalogue(60)).key == most.key


def test_latest_without_an_earlier_one_of_these_settings_learns_anew(catalogue):
    run(_config(), *catalogue(40))
    other = run(_config(base="latest", codebook_size=9), *catalogue(50))
    assert "items_new" not in other.summary


def test_a_named_base_must_be_there_and_of_these_settings(catalogue):
    first = run(_config(), *catalogue(40))
    named = run(_config(base=first.key), *catalogue(50))
    assert named.summary["stopped"] == f"extends {first.key}"
    with pytest.raises(GtiError, match=r"no such artifact in .*`latest` takes the newest"):
        run(_config(base="feed"), *catalogue(50))
    with pytest.raises(GtiError, match=r"made with other semantic_ids settings: \['codebook_size'\]"):
        run(_config(base=first.key, codebook_size=9), *catalogue(50))
