"""Two references: transformers' own constrained beam search, and a plain one that runs every prefix in full."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from gti_pipeline.decode.exhaustive import score_catalogue

Tables = tuple[dict[tuple[int, ...], list[int]], dict[tuple[int, ...], int]]


def tables(codes: NDArray[np.int64], token_ids: torch.Tensor) -> Tables:
    """The next tokens of each prefix, and the item of each whole semantic ID."""
    answers = token_ids[torch.arange(codes.shape[1]), torch.from_numpy(codes)].tolist()
    children: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for answer in answers:
        for depth, token in enumerate(answer):
            if token not in children[tuple(answer[:depth])]:
                children[tuple(answer[:depth])].append(token)
    return children, {tuple(answer): item for item, answer in enumerate(answers)}


def generated(
    model: PreTrainedModel, prompt: list[int], codes: NDArray[np.int64], token_ids: torch.Tensor, num_beams: int
) -> tuple[list[int], list[float]]:
    """Items and sums of log-probabilities of `generate` with `prefix_allowed_tokens_fn`, best first.

    At least 2 beams: with one, generate is another algorithm.
    """
    return generate(model, prompt, tables(codes, token_ids), codes.shape[1], num_beams)


def generate(
    model: PreTrainedModel, prompt: list[int], known: Tables, levels: int, num_beams: int
) -> tuple[list[int], list[float]]:
    """The same with tables made before."""
    children, index = known
    output = model.generate(
        input_ids=torch.tensor([prompt], device=model.device),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long, device=model.device),
        prefix_allowed_tokens_fn=lambda _, ids: children.get(tuple(ids[len(prompt) :].tolist())) or [0],
        num_beams=num_beams,
        num_return_sequences=num_beams,
        max_new_tokens=levels,
        do_sample=False,
        length_penalty=0.0,
        early_stopping=False,
        output_scores=True,
        return_dict_in_generate=True,
    )
    sequences = output.sequences[:, len(prompt) :].tolist()
    # Scores below -1e8 are generate's filler where a level has fewer nodes than beams.
    pairs = zip(sequences, output.sequences_scores.tolist(), strict=True)
    kept = [(index[tuple(sequence)], score) for sequence, score in pairs if score > -1e8]
    return [item for item, _ in kept], [score for _, score in kept]


def plain_beam(
    model: PreTrainedModel, prompt: list[int], codes: NDArray[np.int64], token_ids: torch.Tensor, num_beams: int
) -> NDArray[np.float32]:
    """Scores of a beam search that scores each prefix by a full forward pass, best first."""
    kept: set[tuple[int, ...]] = {()}
    for depth in range(1, codes.shape[1] + 1):
        prefixes = np.array([p for p in sorted({tuple(row) for row in codes[:, :depth].tolist()}) if p[:-1] in kept])
        scores = score_catalogue(model, prompt, prefixes, token_ids[:depth])
        best = np.argsort(-scores, kind="stable")[:num_beams]
        kept = {tuple(row) for row in prefixes[best].tolist()}
    return scores[best]
