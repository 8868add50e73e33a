"""Validation recall: what a model recommends to a sample of users, by the same beam search as in the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from gti_pipeline import columns as c
from gti_pipeline.decode.stage import recommend
from gti_pipeline.evaluate.metrics import RECALL, per_user

K = 10  # of the recall, and the beams that find it: a curve needs no more


@dataclass(frozen=True)
class Validation:
    """Users with their prompts (token ids of their histories alone), their relevant items, and the catalogue.

    relevant: user_id and item_id. codes: [L] by item_id. token_ids: [L, K], the model's row of each code.
    """

    user_ids: Sequence[str]
    prompts: Sequence[Sequence[int]]
    relevant: pd.DataFrame
    codes: Mapping[str, Sequence[int]]
    token_ids: NDArray[np.int64]
    batch_size: int

    def recall(self, model: PreTrainedModel, *, bf16: bool) -> float:
        """Mean Recall@10, 0..1, of a model with the new rows in place; it is left in eval mode."""
        with torch.autocast(model.device.type, torch.bfloat16, enabled=bf16):
            found = recommend(
                model,
                self.prompts,
                self.user_ids,
                list(self.codes),
                np.stack(list(self.codes.values())),
                torch.from_numpy(self.token_ids),
                K,
                self.batch_size,
                _quiet,
            )
        of_ours = self.relevant[self.relevant[c.USER_ID].isin(self.user_ids)]
        return float(per_user(found, of_ours, [K])[RECALL, K].mean())


def _quiet(done: int, total: int) -> None:
    """A curve's point is no news."""
