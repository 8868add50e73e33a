"""A pretrained LM's tokenizer with the new tokens, and the new tokens' initial rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from gti_pipeline import columns as c
from gti_pipeline import models, schemas
from gti_pipeline.artifacts import Artifact
from gti_pipeline.config import Config
from gti_pipeline.lm.extended import embedding_rows
from gti_pipeline.lm.load import load_model, load_tokenizer
from gti_pipeline.lm.tiny import save_tiny
from gti_pipeline.stages.base import Workspace, run_stage
from gti_pipeline.stages.embed import items_digest
from gti_pipeline.vocab import build_rows, extend_tokenizer, keyword_rows, save_rows

TINY = "tiny"
BASE, TOKENIZER = "base", "tokenizer"


def run(config: Config, workspace: Workspace, data: Artifact, semantic_ids: Artifact) -> Artifact:
    """Folder `tokenizer`, new_rows.safetensors; for the tiny LM also the folder `base`."""
    tiny = config.lm.model == TINY
    base = None if tiny else models.resolve(config.lm.model, workspace.home)
    ids = config.semantic_ids
    keyword = config.vocab.init == "keyword"

    def make(folder: Path, key: str) -> dict[str, Any]:
        del key
        if base is None:
            items = schemas.ITEMS.read(data.path)
            save_tiny([*items[c.TITLE], *items[c.DESCRIPTION]], folder / BASE)
        path = base.path if base else folder / BASE
        tokenizer = load_tokenizer(path)
        known = len(tokenizer)
        token_ids = extend_tokenizer(tokenizer, ids.num_levels, ids.codebook_size)
        known_rows = embedding_rows(load_model(path, config.lm))
        if keyword:
            rows = _keyword_rows(known_rows[:known], tokenizer, schemas.ITEMS.read(data.path), semantic_ids, token_ids)
        else:
            rows = build_rows(known_rows, token_ids, config.vocab, config.seed)
        tokenizer.save_pretrained(str(folder / TOKENIZER))
        save_rows(folder, rows, token_ids)
        return {"model": config.lm.model, "init": config.vocab.init, "known_tokens": known, "new_tokens": len(rows)}

    settings = {
        "init": config.vocab.init,
        "levels": ids.num_levels,
        "codebook_size": ids.codebook_size,
        "dtype": config.lm.dtype,
        "seed": config.seed if config.vocab.init == "random" else None,
    }
    # the tokens depend on the shape of the IDs alone, but the tiny tokenizer is trained on the items' text
    inputs = {"model": base.identity if base else TINY, "semantic_ids": semantic_ids.key}
    if keyword:
        inputs["items"] = items_digest(data)
    return run_stage(workspace, "vocab", module=__name__, settings=settings, inputs=inputs, write=make)


def _keyword_rows(
    old_rows: Tensor,
    tokenizer: PreTrainedTokenizerBase,
    items: pd.DataFrame,
    semantic_ids: Artifact,
    token_ids: NDArray[np.int64],
) -> Tensor:
    """Rows [L*K, d] from the titles of the items; whatever in a title looks like a new token does not count."""
    codes = schemas.SEMANTIC_IDS.read(semantic_ids.path).set_index(c.ITEM_ID)[c.CODES]
    titles = tokenizer([f" {title}" for title in items[c.TITLE]], add_special_tokens=False, verbose=False)["input_ids"]
    words = [[token for token in title if token < len(old_rows)] for title in titles]
    return keyword_rows(old_rows, words, np.stack(codes.loc[items[c.ITEM_ID]].tolist()), token_ids.shape[1])


def base_path(config: Config, workspace: Workspace, vocab: Artifact) -> Path:
    """The folder of the LM that the new rows extend."""
    if config.lm.model == TINY:
        return vocab.path / BASE
    return models.resolve(config.lm.model, workspace.home).path
