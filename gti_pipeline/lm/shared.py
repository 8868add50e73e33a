"""A batch whose rows begin alike: each distinct beginning is run once, in training too. Exact, gradients included.

Shapes: B rows, T tokens, W distinct beginnings of at most P tokens, S longest rest, d hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import DynamicCache

if TYPE_CHECKING:
    from gti_pipeline.lm.extended import ExtendedLM


def batch_hidden(lm: ExtendedLM, ids: Tensor, attention_mask: Tensor) -> Tensor:
    """Last hidden states [B, T, d] of right-padded ids [B, T]; those of padding are arbitrary.

    A row's beginning is what precedes its first new token: in next-item prompts the system line and the wording, of
    which there are a few. Where more than half of the beginnings differ, or a row has no new token, the batch is run
    as it is.
    """
    starts = _starts(lm, ids, attention_mask)
    rows = ids.tolist()
    beginnings = [tuple(row[:start]) for row, start in zip(rows, starts, strict=True)]
    distinct = list(dict.fromkeys(beginnings))
    lengths = attention_mask.sum(dim=1).tolist()
    if 2 * len(distinct) > len(rows) or not all(0 < start < end for start, end in zip(starts, lengths, strict=True)):
        return lm.hidden(ids, attention_mask)
    place = {beginning: i for i, beginning in enumerate(distinct)}
    group = torch.tensor([place[beginning] for beginning in beginnings], device=ids.device)
    return _run(lm, ids, attention_mask, torch.tensor(starts, device=ids.device), distinct, group)


def _starts(lm: ExtendedLM, ids: Tensor, attention_mask: Tensor) -> list[int]:
    """Where each row's first new token is; its length where it has none."""
    is_new = (ids >= lm.first_id) & (ids < lm.first_id + len(lm.new_rows)) & attention_mask.bool()
    first = torch.where(is_new.any(dim=1), is_new.int().argmax(dim=1), attention_mask.sum(dim=1))
    found: list[int] = first.tolist()
    return found


def _run(
    lm: ExtendedLM,
    ids: Tensor,
    attention_mask: Tensor,
    starts: Tensor,
    distinct: Sequence[tuple[int, ...]],
    group: Tensor,
) -> Tensor:
    device, length = ids.device, ids.shape[1]
    cache = DynamicCache()  # made without the config, it keeps all tokens of sliding-window layers too
    openings = pad_sequence([torch.tensor(b, device=device) for b in distinct], batch_first=True)
    before = lm.hidden(openings, cache=cache)  # [W, P, d]; no real token sees the padding after it
    layers: Sequence[Any] = cache.layers
    shared = DynamicCache()
    for index, layer in enumerate(layers):
        shared.update(layer.keys[group], layer.values[group], index)
    widest = openings.shape[1]
    steps = torch.arange(int((attention_mask.sum(dim=1) - starts).max()), device=device)  # [S]
    at = starts.unsqueeze(1) + steps  # [B, S], positions of the rests in their rows
    inside = at < attention_mask.sum(dim=1, keepdim=True)
    rests = ids.gather(1, at.clamp(max=length - 1))
    real = torch.arange(widest, device=device) < starts.unsqueeze(1)  # the shorter beginnings' padding is never seen
    after = lm.hidden(rests, torch.cat([real, inside], dim=1).long(), position_ids=at, cache=shared)  # [B, S, d]
    columns = torch.arange(length, device=device).expand(len(ids), -1)
    source = torch.where(columns < starts.unsqueeze(1), columns, widest + columns - starts.unsqueeze(1))
    both = torch.cat([before[group], after], dim=1)
    return both.gather(1, source.clamp(max=both.shape[1] - 1).unsqueeze(-1).expand(-1, -1, both.shape[2]))
