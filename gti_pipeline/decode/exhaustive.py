"""The oracle of beam search: every item of the catalogue, scored by a full forward pass. Slow and obviously right."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel


@torch.inference_mode()
def score_catalogue(
    model: PreTrainedModel,
    prompt: Sequence[int],
    codes: NDArray[np.integer],
    token_ids: Tensor,
    batch_size: int = 64,
) -> NDArray[np.float32]:
    """Sum of log P(token) over each item's semantic ID after the prompt, over the whole vocabulary.

    Args:
        model: a causal LM in eval mode.
        prompt: token ids, at least one.
        codes: [num_items, L].
        token_ids: [L, K].
        batch_size: items per forward pass.

    Returns:
        Scores [num_items], in the order of `codes`.
    """
    levels = torch.arange(codes.shape[1])
    answers = token_ids.cpu()[levels, torch.as_tensor(codes, dtype=torch.long)].to(model.device)  # [num_items, L]
    start = torch.tensor(list(prompt), device=model.device)
    scores = []
    for answer in answers.split(batch_size):
        ids = torch.cat([start.expand(len(answer), -1), answer], dim=1)
        logits = model(input_ids=ids, use_cache=False).logits[:, len(start) - 1 : -1].float()  # [b, L, V]
        scores.append(logits.log_softmax(-1).gather(-1, answer.unsqueeze(-1)).squeeze(-1).sum(-1))
    result: NDArray[np.float32] = torch.cat(scores).cpu().numpy()
    return result
