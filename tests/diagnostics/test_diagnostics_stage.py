"""The diagnostics stage: whose rows each moment reads."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gti_pipeline import columns as c
from gti_pipeline import schemas
from gti_pipeline.artifacts import Artifact
from gti_pipeline.config import Config, GroundConfig, LmConfig, SemanticIdsConfig
from gti_pipeline.stages import diagnostics, ground, vocab
from gti_pipeline.stages.base import Workspace
from gti_pipeline.stages.language_model import MODEL

TITLES = ["linen dress", "wool coat", "silk dress", "denim jacket", "wool scarf", "linen shirt"]
LEVELS, SIZE = 2, 3


@pytest.fixture
def inputs(tmp_path: Path) -> list[Artifact]:
    """(data, semantic_ids) of 6 items."""
    folders = {name: tmp_path / name for name in ("data", "semantic_ids")}
    for folder in folders.values():
        folder.mkdir()
    ids = [f"i{n}" for n in range(6)]
    items = pd.DataFrame({"item_id": ids, "title": TITLES, "description": [""] * 6, "group_id": [None] * 6})
    schemas.ITEMS.write(items, folders["data"])
    codes = pd.DataFrame({"item_id": ids, "codes": [[n // 3, n % 3] for n in range(6)]})
    schemas.SEMANTIC_IDS.write(codes, folders["semantic_ids"])
    rng = np.random.default_rng(0)
    places = [(level, code) for level in range(LEVELS) for code in range(SIZE)]
    vectors = [rng.normal(size=4).astype(np.float32) for _ in places]
    codebooks = pd.DataFrame(places, columns=["level", "code"]).assign(vector=vectors)
    schemas.CODEBOOKS.write(codebooks, folders["semantic_ids"])
    return [Artifact(name, "0", folder) for name, folder in folders.items()]


def test_after_a_second_phase_grounded_is_the_whole_model(tmp_path: Path, inputs: list[Artifact]) -> None:
    grounding = GroundConfig(batch_size=8, learning_rate=0.03, max_steps=3, probe_items=0, second_phase_steps=3)
    config = Config(
        home=str(tmp_path),
        lm=LmConfig(model="tiny", device="cpu", max_tokens=256),
        semantic_ids=SemanticIdsConfig(num_levels=LEVELS, codebook_size=SIZE),
        ground=grounding.model_copy(update={"second_phase_learning_rate": 0.01}),
    )
    workspace = Workspace(tmp_path / "home", "small")
    words = vocab.run(config, workspace, *inputs)
    grounded = ground.run(config, workspace, *inputs, words)
    tuned = Artifact("sft", "0", tmp_path / "sft")  # fine-tuning that changes nothing
    shutil.copytree(grounded.path / MODEL, tuned.path / MODEL)
    made = diagnostics.run(config, workspace, inputs[1], words, grounded, tuned)
    found = schemas.DIAGNOSTICS.read(made.path).pivot(index=[c.LEVEL, c.METRIC], columns=c.STAGE, values=c.VALUE)
    assert found["grounded"].to_dict() == pytest.approx(found["tuned"].to_dict(), nan_ok=True)
    # the second phase trained the old rows too
    old = found.loc[(0, "mean_norm_old")]
    assert abs(old["grounded"] - old["init"]) > 1e-3 * old["init"]
