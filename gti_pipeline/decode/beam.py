"""Beam search over the trie of valid semantic IDs: one prefill per user, shared by all beams without a copy.

The beams of a user are the tokens of one sequence: a tree mask lets each see the prompt and its own ancestors only, all
at their true positions. So the key/value cache holds the prompt once per user, is never reordered, and a step is one
forward pass over [B, W] tokens. Prompts are padded on the right: under causal attention no real token sees the
padding, so the prefill needs no mask; the tree mask hides it from the beams.

Shapes: B users, P prompt tokens with padding, W beams, C most children of a node, V rows of the model, S cached
tokens of earlier levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from gti_pipeline.decode.trie import Level, Trie
from gti_pipeline.errors import GtiError

MIN_OPENING = 16  # a shared opening shorter than this is not worth a forward pass of its own
MAX_LOGITS = 2**27  # values of one pass (half a GiB in float32); more beams than that go in several passes


@dataclass(frozen=True)
class Prompts:
    """What the beams share: the cache with the prompts' keys and values, which steps extend, and lengths [B].

    longest is P and rows is V.
    """

    cache: DynamicCache
    lengths: Tensor
    longest: int
    rows: int


@dataclass(frozen=True)
class Children:
    """The children [B, W, C] of the beams in the trie: nodes, tokens, and whether there is such a child at all."""

    nodes: Tensor
    tokens: Tensor
    exist: Tensor


@dataclass(frozen=True)
class Beams:
    """Nodes [B, W] in ascending order, their tokens [B, W] and scores [B, W] (-inf: no beam).

    sees [B, W, S] are the cached tokens of earlier levels that are a beam's ancestors; broken [] is whether a NaN
    was met.
    """

    nodes: Tensor
    tokens: Tensor
    scores: Tensor
    sees: Tensor
    broken: Tensor


@torch.inference_mode()
def beam_search(
    model: PreTrainedModel, prompts: Sequence[Sequence[int]], trie: Trie, num_beams: int
) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """The best items of each user under the trie.

    The score is the sum of log P over the whole vocabulary, in float32, as in transformers' constrained generation
    with `length_penalty=0`; whatever the model's generation_config says plays no part. Equal scores: the smaller
    codes first.

    Args:
        model: a causal LM in eval mode with sdpa or eager attention over the whole context.
        prompts: [B] lists of token ids, none empty.
        trie: on the model's device.
        num_beams: beams kept at each level, and the most items returned.

    Returns:
        [B] pairs of item indices and scores, best first; shorter than `num_beams` where the trie holds, or the beams
        reach, fewer items.

    Raises:
        GtiError: logits that are not numbers, an empty prompt, tokens the model does not have, attention without
            support for the tree mask.
    """
    _check(model, prompts, num_beams)
    if not prompts:
        return []
    shared, logits = _prefill(model, prompts)
    if trie.max_token >= shared.rows:
        raise GtiError(f"the semantic IDs use token {trie.max_token}, the model has only {shared.rows} rows")
    beams = _root(len(prompts), model.device)
    for depth, level in enumerate(trie.levels):
        children = _children(beams.nodes, level)
        if depth == 0:
            log_probs = _log_probs(logits, children.tokens)
        else:
            log_probs = _step(model, shared, beams, children.tokens, depth)
        beams = _choose(beams, children, log_probs, min(num_beams, len(level.tokens)))
    return _ranked(beams, trie)


def _check(model: PreTrainedModel, prompts: Sequence[Sequence[int]], num_beams: int) -> None:
    """Refuses what would fail late or silently."""
    assert not model.training, "dropout would make the scores random"
    if num_beams < 1:
        raise GtiError(f"decode.beams must be at least 1, got {num_beams}")
    if any(len(prompt) == 0 for prompt in prompts):
        raise GtiError("an empty prompt: nothing to continue")
    attention = model.config._attn_implementation
    if attention not in ("sdpa", "eager"):
        raise GtiError(f"the beams' tree mask needs sdpa or eager attention, the model was loaded with {attention}")


def _prefill(model: PreTrainedModel, prompts: Sequence[Sequence[int]]) -> tuple[Prompts, Tensor]:
    """Runs the prompts once, what all of them open with only once; also the logits [B, 1, V] after each."""
    device = model.device
    cache = DynamicCache(config=model.config)
    if any(type(layer) is not DynamicLayer for layer in cache.layers):
        raise GtiError(f"{type(model).__name__} does not attend to its whole context in every layer: not supported")
    opening = _shared_opening(prompts)
    if opening:
        ids = torch.tensor([prompts[0][:opening]], device=device)
        model(input_ids=ids, cache=cache, use_cache=True, logits_to_keep=1)
        cache.batch_repeat_interleave(len(prompts))
    lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)
    rest = pad_sequence([torch.tensor(prompt[opening:]) for prompt in prompts], batch_first=True).to(device)
    last = (lengths - opening - 1).unsqueeze(1)
    logits = model(input_ids=rest, cache=cache, use_cache=True, logits_to_keep=last).logits
    return Prompts(cache, lengths, opening + rest.shape[1], logits.shape[-1]), logits


def _shared_opening(prompts: Sequence[Sequence[int]]) -> int:
    """How many tokens all prompts open with, at least one left over for each; 0 where sharing them is no gain."""
    shortest = min(len(prompt) for prompt in prompts) - 1
    first = prompts[0]
    length = next((i for i in range(shortest) if any(prompt[i] != first[i] for prompt in prompts)), shortest)
    return length if len(prompts) > 1 and length >= MIN_OPENING else 0


def _root(batch: int, device: torch.device) -> Beams:
    """The one beam per user that the first level expands from."""
    zeros = torch.zeros(batch, 1, dtype=torch.long, device=device)
    nothing = torch.zeros(batch, 1, 0, dtype=torch.bool, device=device)
    return Beams(zeros, zeros, zeros.float(), nothing, broken=torch.tensor(False, device=device))


def _children(nodes: Tensor, level: Level) -> Children:
    """Gathered from the trie; the places beyond a node's last child hold some other node."""
    first, end = level.offsets[nodes], level.offsets[nodes + 1]  # [B, W]
    children = first.unsqueeze(-1) + torch.arange(level.max_children, device=nodes.device)
    exist = children < end.unsqueeze(-1)
    children = children.clamp(max=len(level.tokens) - 1).long()
    return Children(children, level.tokens[children].long(), exist)


def _step(model: PreTrainedModel, shared: Prompts, beams: Beams, children: Tensor, depth: int) -> Tensor:
    """Runs the beams' tokens, all beams of a user as one sequence under the tree mask; log P of `children` [B, W, C].

    Where the logits of all beams would be too many, some beams at a time: they do not see one another anyway.
    """
    batch, width = beams.tokens.shape
    some = max(1, MAX_LOGITS // (batch * shared.rows))
    prompt = torch.arange(shared.longest, device=children.device) < shared.lengths.unsqueeze(1)  # [B, P]
    positions = (shared.lengths + depth - 1).unsqueeze(1).expand(batch, width)
    found = []
    for start in range(0, width, some):
        end = min(start + some, width)
        sees = beams.sees[:, start:end, : beams.sees.shape[-1] - (width - end)]  # the beams after these are not cached
        allowed = torch.cat([prompt.unsqueeze(1).expand(-1, end - start, -1), sees], dim=-1).unsqueeze(1)
        # Additive, because eager attention takes no other; finite, because a row of -inf would become NaN.
        mask = torch.zeros(allowed.shape, dtype=model.dtype, device=allowed.device)
        mask.masked_fill_(~allowed, torch.finfo(model.dtype).min)
        output = model(
            input_ids=beams.tokens[:, start:end],
            attention_mask=mask,
            position_ids=positions[:, start:end],
            cache=shared.cache,
            use_cache=True,
        )
        found.append(_log_probs(output.logits, children[:, start:end]))
    return torch.cat(found, dim=1)


def _log_probs(logits: Tensor, tokens: Tensor) -> Tensor:
    """The log P [B, W, C] of tokens [B, W, C] over the whole vocabulary of logits [B, W, V], in float32."""
    return logits.float().log_softmax(-1).gather(-1, tokens)


def _choose(beams: Beams, children: Children, log_probs: Tensor, width: int) -> Beams:
    """The `width` best children of all beams; where fewer exist, some of score -inf."""
    totals = (beams.scores.unsqueeze(-1) + log_probs).masked_fill(~children.exist, -torch.inf).flatten(1)  # [B, W * C]
    missing = totals.isnan()  # reported at the end: asking here would make a GPU wait
    broken = beams.broken | missing.any()
    chosen = _best(totals.masked_fill(missing, -torch.inf), width)
    nodes, tokens, scores = (x.flatten(1).gather(1, chosen) for x in (children.nodes, children.tokens, totals))
    parents = (chosen // log_probs.shape[-1]).unsqueeze(-1).expand(-1, -1, beams.sees.shape[-1])
    own = torch.eye(width, dtype=torch.bool, device=chosen.device).expand(len(chosen), -1, -1)
    return Beams(nodes, tokens, scores, torch.cat([beams.sees.gather(1, parents), own], dim=-1), broken)


def _best(totals: Tensor, width: int) -> Tensor:
    """Positions [B, width] of the highest totals [B, N] in ascending order; of equal totals the first ones.

    topk alone picks any of equal values, and a stable sort of all candidates costs more than the level's trie work.
    """
    threshold = totals.topk(width, dim=1).values[:, -1:]
    above, equal = totals > threshold, totals == threshold
    room = width - above.sum(dim=1, keepdim=True)
    chosen = above | (equal & (equal.cumsum(dim=1) <= room))  # exactly `width` in each row
    return torch.nonzero_static(chosen, size=len(totals) * width)[:, 1].view(-1, width)


def _ranked(beams: Beams, trie: Trie) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """The beams as items, best first, those without a finite score left out."""
    if beams.broken:
        raise GtiError(
            "the model gives logits that are not numbers (NaN): its weights are damaged or its dtype too small"
        )
    scores, order = beams.scores.sort(dim=1, descending=True, stable=True)
    items = trie.items[beams.nodes.gather(1, order)].long().cpu().numpy()
    values = scores.cpu().numpy()
    return [(item[np.isfinite(value)], value[np.isfinite(value)]) for item, value in zip(items, values, strict=True)]
