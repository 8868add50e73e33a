"""The network of SASRec (arXiv 1808.09781): a causal transformer over item-id embeddings, which also are its output."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gti_pipeline.config import SasrecConfig

PADDING = 0  # items are numbered from 1
INIT_STD = 0.02


class SasRec(nn.Module):
    """Item numbers of B users and T events to the state after each event.

    Histories are padded at their end, which a causal mask never looks at. Positions count back from the newest event,
    as in the original, whose padding stands in front.
    """

    def __init__(self, num_items: int, config: SasrecConfig) -> None:
        super().__init__()
        self.items = nn.Embedding(num_items + 1, config.dim, padding_idx=PADDING)
        self.positions = nn.Embedding(config.max_history, config.dim)
        self.dropout = nn.Dropout(config.dropout)
        layer = nn.TransformerEncoderLayer(
            config.dim, config.heads, 4 * config.dim, config.dropout, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(
            layer, config.layers, norm=nn.LayerNorm(config.dim), enable_nested_tensor=False
        )
        for table in (self.items, self.positions):
            nn.init.normal_(table.weight, std=INIT_STD)
        with torch.no_grad():
            self.items.weight[PADDING] = 0

    def forward(self, events: Tensor) -> Tensor:
        """[B, T] item numbers to states [B, T, D]; those at padded places mean nothing."""
        length = events.shape[1]
        newest = (events != PADDING).sum(dim=1, keepdim=True) - 1
        ages = (newest - torch.arange(length, device=events.device)).clamp(min=0)
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=events.device)
        states: Tensor = self.layers(self.dropout(self.items(events) + self.positions(ages)), mask=mask, is_causal=True)
        return states

    def last(self, events: Tensor) -> Tensor:
        """[B, T] to the state after each user's newest event, [B, D]."""
        newest = (events != PADDING).sum(dim=1) - 1
        states: Tensor = self(events)
        return states[torch.arange(len(events), device=events.device), newest]

    def scores(self, states: Tensor) -> Tensor:
        """[M, D] to a logit per item, [M, num_items]: item number n stands at n - 1."""
        return states @ self.items.weight[1:].T


def padded(rows: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """[B, T] from lists of item numbers, oldest first, filled up at their end."""
    longest = max(map(len, rows))
    filled = [[*row, *[PADDING] * (longest - len(row))] for row in rows]
    return torch.tensor(filled, dtype=torch.int64, device=device)
