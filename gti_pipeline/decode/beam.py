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


@dataclass(frozen=True)
class Prompts:
    """What the beams share: the cache with the prompts' keys and values, which steps extend, and lengths [B]."""

    cache: DynamicCache
    lengths: Tensor
    longest: int


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
    if trie.max_token >= logits.shape[-1]:
        raise GtiError(f"the semantic IDs use token {trie.max_token}, the model has only {logits.shape[-1]} rows")
    beams = _root(len(prompts), model.device)
    for depth, level in enumerate(trie.levels):
        if depth > 0:
            logits = _step(model, shared, beams, depth)
        beams = _expand(beams, logits, level, num_beams)
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
    return Prompts(cache, lengths, opening + rest.shape[1]), logits


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


def _step(model: PreTrainedModel, shared: Prompts, beams: Beams, depth: int) -> Tensor:
    """Runs the beams' tokens, all beams of a user as one sequence under the tree mask; logits [B, W, V]."""
    batch, width = beams.tokens.shape
    device = beams.tokens.device
    prompt = torch.arange(shared.longest, device=device) < shared.lengths.unsqueeze(1)  # [B, P]
    allowed = torch.cat([prompt.unsqueeze(1).expand(-1, width, -1), beams.sees], dim=-1).unsqueeze(1)  # [B, 1, W, P+S]
    # Additive, because eager attention takes no other; finite, because a row of -inf would become NaN.
    mask = torch.zeros(allowed.shape, dtype=model.dtype, device=device)
    mask.masked_fill_(~allowed, torch.finfo(model.dtype).min)
    positions = (shared.lengths + depth - 1).unsqueeze(1).expand(batch, width)
    output = model(
        input_ids=beams.tokens, attention_mask=mask, position_ids=positions, cache=shared.cache, use_cache=True
    )
    logits: Tensor = output.logits
    return logits


def _expand(beams: Beams, logits: Tensor, level: Level, num_beams: int) -> Beams:
    """The best children of all beams, gathered from the trie: at most `num_beams`, and no more than the level has."""
    first, end = level.offsets[beams.nodes], level.offsets[beams.nodes + 1]  # [B, W]
    slots = torch.arange(level.max_children, device=logits.device)
    children = first.unsqueeze(-1) + slots  # [B, W, C]
    valid = children < end.unsqueeze(-1)
    children = children.clamp(max=len(level.tokens) - 1).long()
    tokens = level.tokens[children].long()
    log_probs = logits.float().log_softmax(-1).gather(-1, tokens)
    totals = (beams.scores.unsqueeze(-1) + log_probs).masked_fill(~valid, -torch.inf).flatten(1)  # [B, W * C]
    missing = totals.isnan()  # reported at the end: asking here would make a GPU wait
    broken = beams.broken | missing.any()
    chosen = _best(totals.masked_fill(missing, -torch.inf), min(num_beams, len(level.tokens)))
    nodes, tokens, scores = (x.flatten(1).gather(1, chosen) for x in (children, tokens, totals))
    parents = (chosen // level.max_children).unsqueeze(-1).expand(-1, -1, beams.sees.shape[-1])
    own = torch.eye(chosen.shape[1], dtype=torch.bool, device=chosen.device).expand(len(chosen), -1, -1)
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
    items = trie.items[beams.nodes.gather(1, order)].cpu().numpy()
    values = scores.cpu().numpy()
    return [(item[np.isfinite(value)], value[np.isfinite(value)]) for item, value in zip(items, values, strict=True)]
