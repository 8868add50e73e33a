"""The trie of valid semantic IDs as flat tensors: compressed sparse rows, level by level (STATIC, arXiv 2602.22647).

Nodes of a level are numbered in lexicographic order of their codes, so the children of a node are neighbours, a smaller
number is a smaller code, and the nodes of the last level are the items in the order of their codes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gti_pipeline.errors import GtiError


@dataclass(frozen=True)
class Level:
    """The step from N nodes to their M children: node n has the children offsets[n] .. offsets[n + 1] - 1.

    offsets [N + 1] and tokens [M] (the child's row in the LM) are int32; no node has more than `max_children`.
    """

    offsets: Tensor
    tokens: Tensor
    max_children: int


@dataclass(frozen=True)
class Trie:
    """`levels` from the root down, and `items` [num_items] (int32): the catalogue index of each node of the last."""

    levels: tuple[Level, ...]
    items: Tensor
    max_token: int

    @staticmethod
    def build(codes: NDArray[np.integer], token_ids: Tensor) -> Trie:
        """Builds the trie on the CPU, with numpy throughout.

        Args:
            codes: [num_items, L], rows all distinct, values 0 .. K - 1.
            token_ids: [L, K], the LM's row of each code of each level, in any order.

        Raises:
            GtiError: shapes that do not fit, a code out of range, two items with the same codes, a token used twice.
        """
        codes, tokens = np.asarray(codes), token_ids.cpu().numpy()
        _check(codes, tokens)
        order = _order(codes, tokens.shape[1])
        opens = np.arange(len(order)) == 0  # [num_items]: does the item open a new node of this level?
        parents = np.zeros(1, dtype=np.int64)
        levels = []
        for column, level_tokens in zip(codes.T, tokens, strict=True):
            ordered = column[order]
            opens[1:] |= ordered[1:] != ordered[:-1]
            children = np.flatnonzero(opens)
            levels.append(_level(parents, children, level_tokens[ordered[children]]))
            parents = children
        _check_distinct(opens, order, codes)
        return Trie(tuple(levels), torch.from_numpy(order.astype(np.int32)), int(tokens.max()))

    def to(self, device: torch.device | str) -> Trie:
        """The same trie on another device."""
        levels = tuple(Level(x.offsets.to(device), x.tokens.to(device), x.max_children) for x in self.levels)
        return Trie(levels, self.items.to(device), self.max_token)

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors: about 8 per node and 4 per item."""
        return self.items.nbytes + sum(x.offsets.nbytes + x.tokens.nbytes for x in self.levels)


def _order(codes: NDArray[np.integer], size: int) -> NDArray[np.int64]:
    """The items in the order of their codes [num_items, L], each below `size`; equal ones in the catalogue's order.

    One key per item sorts several times faster than a key per level; only what does not fit into 63 bits needs those.
    """
    levels = codes.shape[1]
    if size**levels > np.iinfo(np.int64).max:
        return np.lexsort(codes.T[::-1])
    keys = np.ravel_multi_index(tuple(codes.T), (size,) * levels)
    return np.argsort(keys, kind="stable")


def _level(parents: NDArray[np.int64], children: NDArray[np.int64], tokens: NDArray[np.int64]) -> Level:
    """A level from the first row of each parent and of each child (both ascending) and the children's tokens."""
    offsets = np.append(np.searchsorted(children, parents), len(children)).astype(np.int32)
    return Level(
        torch.from_numpy(offsets), torch.from_numpy(tokens.astype(np.int32)), max_children=int(np.diff(offsets).max())
    )


def _check(codes: NDArray[np.integer], tokens: NDArray[np.int64]) -> None:
    """Refuses what does not fit together."""
    if codes.ndim != 2 or 0 in codes.shape:
        raise GtiError(f"semantic IDs must be a table [items, levels] that is not empty, got the shape {codes.shape}")
    if not np.issubdtype(codes.dtype, np.integer):
        raise GtiError(f"semantic IDs must be integers, got {codes.dtype}")
    if tokens.ndim != 2 or len(tokens) != codes.shape[1]:
        raise GtiError(f"token ids of shape {tokens.shape} do not fit semantic IDs of {codes.shape[1]} levels")
    outside = np.argwhere((codes < 0) | (codes >= tokens.shape[1]))
    if len(outside):
        item, level = outside[0]
        raise GtiError(
            f"code {codes[item, level]} of item {item}, level {level}, lies outside 0..{tokens.shape[1] - 1}"
            f" ({len(outside)} such codes)"
        )
    if tokens.min() < 0 or any(len(np.unique(level)) < len(level) for level in tokens):
        raise GtiError("the token ids of a level must be distinct and not negative")


def _check_distinct(opens: NDArray[np.bool_], order: NDArray[np.int64], codes: NDArray[np.integer]) -> None:
    """Refuses two items with the same codes: they could not be told apart."""
    same = np.flatnonzero(~opens)
    if len(same):
        at = same[0]
        raise GtiError(
            f"items {order[at - 1]} and {order[at]} have the same semantic ID {codes[order[at]].tolist()}"
            f" ({len(same)} items repeat another's)"
        )
