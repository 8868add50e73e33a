"""The flat trie against sets of prefixes."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gti_pipeline.decode.trie import Trie
from gti_pipeline.errors import GtiError


@st.composite
def catalogues(draw: st.DrawFn) -> tuple[np.ndarray, torch.Tensor]:
    levels, size = draw(st.integers(1, 4)), draw(st.integers(2, 8))
    rows = draw(st.lists(st.tuples(*[st.integers(0, size - 1)] * levels), min_size=1, max_size=40, unique=True))
    tokens = np.random.default_rng(len(rows)).permutation(100)[: levels * size].reshape(levels, size)
    return np.array(rows), torch.from_numpy(tokens)


def children(trie: Trie, depth: int, node: int) -> tuple[range, list[int]]:
    level = trie.levels[depth]
    span = range(int(level.offsets[node]), int(level.offsets[node + 1]))
    return span, level.tokens[span.start : span.stop].tolist()


@settings(max_examples=100, deadline=None)
@given(catalogues())
def test_walking_the_trie_gives_every_item_once_and_nothing_else(catalogue: tuple[np.ndarray, torch.Tensor]) -> None:
    codes, tokens = catalogue
    trie = Trie.build(codes, tokens)
    walked: dict[tuple[int, ...], int] = {(): 0}
    for depth, level in enumerate(trie.levels):
        assert level.max_children == max(len(children(trie, depth, node)[0]) for node in walked.values())
        walked = {
            (*prefix, token): child
            for prefix, node in walked.items()
            for child, token in zip(*children(trie, depth, node), strict=True)
        }
    found = {prefix: int(trie.items[node]) for prefix, node in walked.items()}
    answers = tokens[torch.arange(codes.shape[1]), torch.from_numpy(codes)].tolist()
    assert found == {tuple(answer): item for item, answer in enumerate(answers)}


@settings(max_examples=50, deadline=None)
@given(catalogues())
def test_nodes_are_numbered_in_the_order_of_their_codes(catalogue: tuple[np.ndarray, torch.Tensor]) -> None:
    codes, tokens = catalogue
    ordered = codes[Trie.build(codes, tokens).items.numpy()].tolist()
    assert ordered == sorted(codes.tolist())


def test_codes_too_large_for_one_key_per_item() -> None:
    rng = np.random.default_rng(0)
    codes = np.unique(rng.integers(0, [2, 3, 1024, 2, 1024, 1024, 1024], size=(500, 7)), axis=0)  # 2**70 places
    shuffled = rng.permutation(codes)
    trie = Trie.build(shuffled, torch.arange(7 * 1024).reshape(7, 1024))
    assert shuffled[trie.items.numpy()].tolist() == codes.tolist()
    again = np.concatenate([shuffled, shuffled[3:4]])
    with pytest.raises(GtiError, match="items 3 and 500 have the same"):
        Trie.build(again, torch.arange(7 * 1024).reshape(7, 1024))


def test_size_is_a_few_bytes_per_node_and_item() -> None:
    codes = np.array(list(product(range(16), repeat=3)))
    trie = Trie.build(codes, torch.arange(48).reshape(3, 16))
    assert trie.nbytes < 16 * codes.size
    assert trie.to("cpu").nbytes == trie.nbytes


TOKENS = torch.arange(8).reshape(2, 4)


@pytest.mark.parametrize(
    ("codes", "tokens", "message"),
    [
        ([[0, 1], [2, 3], [0, 1]], TOKENS, r"items 0 and 2 have the same semantic ID \[0, 1\]"),
        ([[0, 1], [0, 4]], TOKENS, r"code 4 of item 1, level 1, lies outside 0\.\.3"),
        ([[0, -1]], TOKENS, "code -1 of item 0"),
        ([[0, 1, 2]], TOKENS, "3 levels"),
        (np.empty((0, 2), dtype=int), TOKENS, "not empty"),
        ([0, 1], TOKENS, "table"),
        ([[0.0, 1.0]], TOKENS, "integers"),
        ([[0, 1]], torch.zeros(2, 4, dtype=torch.long), "distinct"),
    ],
)
def test_refuses(codes: object, tokens: torch.Tensor, message: str) -> None:
    with pytest.raises(GtiError, match=message):
        Trie.build(np.asarray(codes), tokens)
