"""Frozen prefixes, computed once: what precedes the first new token never changes while the LM is frozen.

Exact: a prefix's keys, values and last hidden state are what the whole sequence's forward pass would give. Shapes:
B batch, P longest prefix, S longest tail, H key/value heads, D head size, d hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import DynamicCache

from gti_pipeline.lm.extended import ExtendedLM
from gti_pipeline.lm.prompts import Example


@dataclass(frozen=True)
class Prefix:
    """keys_values [layers, 2, H, P, D] of one prefix and the hidden state [d] of its last token."""

    keys_values: Tensor
    last_hidden: Tensor


@dataclass(frozen=True)
class SplitExample:
    """An example cut before its first new token: nothing supervised lies in the prefix."""

    prefix: tuple[int, ...]
    tail: list[int]
    supervised: list[bool]


def split_example(example: Example, first_id: int, num_new: int) -> SplitExample:
    """Cuts an example before its first new or supervised token (a prefix of at least one token)."""
    tokens = enumerate(zip(example.ids, example.supervised, strict=True))
    at = next(i for i, (token, asked) in tokens if asked or first_id <= token < first_id + num_new)
    assert at > 0, "a chat template opens every prompt"
    return SplitExample(tuple(example.ids[:at]), example.ids[at:], example.supervised[at:])


class PrefixCache:
    """Prefixes by their token ids, kept in memory up to `budget` bytes and beyond that computed again."""

    def __init__(self, lm: ExtendedLM, budget: int) -> None:
        self.lm = lm
        self.budget = budget
        self.used = 0
        self._kept: dict[tuple[int, ...], Prefix] = {}
        self._token_bytes = 0  # of one token; 0 while none was computed

    def get(self, prefixes: Sequence[tuple[int, ...]]) -> list[Prefix]:
        """The prefixes, the missing ones computed in one batch."""
        missing = [p for p in dict.fromkeys(prefixes) if p not in self._kept]
        fresh = dict(zip(missing, self._compute(missing), strict=True)) if missing else {}
        result = [self._kept.get(p) or fresh[p] for p in prefixes]
        for ids, prefix in fresh.items():
            size = prefix.keys_values.nbytes
            self._token_bytes = size // len(ids)
            if self.used + size <= self.budget:
                self._kept[ids] = prefix
                self.used += size
        return result

    def warm(self, prefixes: Sequence[tuple[int, ...]]) -> None:
        """Leaves the cache as `get` would, and computes nothing where nothing would be kept.

        A prefix's last bits depend on what is computed beside it, so a resumed run fills its cache as the first did.
        """
        missing = [p for p in dict.fromkeys(prefixes) if p not in self._kept]
        if any(self.used + self._token_bytes * len(p) <= self.budget for p in missing):
            self.get(prefixes)

    @torch.no_grad()  # not inference mode: gradients of the tails pass these tensors by
    def _compute(self, prefixes: Sequence[tuple[int, ...]]) -> list[Prefix]:
        """Right padding is exact here: under causal attention no real token sees a later one."""
        device = self.lm.old_rows.device
        ids = pad_sequence([torch.tensor(p, device=device) for p in prefixes], batch_first=True)
        cache = DynamicCache()  # made without the config, it keeps all tokens of sliding-window layers too
        hidden = self.lm.hidden(ids, cache=cache)
        layers: Sequence[Any] = cache.layers
        stacked = torch.stack([torch.stack([layer.keys, layer.values], dim=1) for layer in layers])
        return [
            Prefix(stacked[:, row, :, :, : len(p)].clone(), hidden[row, len(p) - 1].clone())
            for row, p in enumerate(prefixes)
        ]


def tail_loss(lm: ExtendedLM, examples: Sequence[SplitExample], prefixes: Sequence[Prefix]) -> Tensor:
    """Mean NLL over the supervised tokens of the tails; only the tails are run, logits at supervised positions only."""
    return tail_nll(lm, examples, prefixes)[0].mean()


def tail_nll(lm: ExtendedLM, examples: Sequence[SplitExample], prefixes: Sequence[Prefix]) -> tuple[Tensor, Tensor]:
    """NLL [N] of each supervised token, and the example [N] that each belongs to, in order."""
    device = lm.old_rows.device
    tails = pad_sequence([torch.tensor(e.tail, device=device) for e in examples], batch_first=True)
    supervised = [torch.tensor(e.supervised, device=device) for e in examples]
    chosen = pad_sequence(supervised, batch_first=True)  # [B, S], padding is False
    states = torch.stack([p.last_hidden for p in prefixes]).unsqueeze(1)  # predicts the tail's first token
    if tails.shape[1] > 1:
        states = torch.cat([states, _run_tails(lm, tails[:, :-1], prefixes)], dim=1)
    nll = F.cross_entropy(lm.logits(states[chosen]), tails[chosen], reduction="none")
    return nll, chosen.nonzero()[:, 0]


def _run_tails(lm: ExtendedLM, tails: Tensor, prefixes: Sequence[Prefix]) -> Tensor:
    """Hidden states [B, S, d] of right-padded tails that follow left-padded prefixes."""
    lengths = torch.tensor([p.keys_values.shape[-2] for p in prefixes], device=tails.device)
    longest = int(lengths.max())
    padded = [F.pad(p.keys_values, (0, 0, longest - p.keys_values.shape[-2], 0)) for p in prefixes]
    cache = DynamicCache()
    for index, layer in enumerate(torch.stack(padded, dim=1)):  # [B, 2, H, P, D]
        cache.update(layer[:, 0], layer[:, 1], index)
    real = torch.arange(longest, device=tails.device) >= (longest - lengths).unsqueeze(1)
    mask = torch.cat([real, torch.ones_like(tails, dtype=torch.bool)], dim=1).long()
    positions = lengths.unsqueeze(1) + torch.arange(tails.shape[1], device=tails.device)
    return lm.hidden(tails, attention_mask=mask, position_ids=positions, cache=cache)
