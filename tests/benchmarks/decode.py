"""Decoding: ours against transformers' generate with prefix_allowed_tokens_fn, a bare forward, exhaustive scoring.

Run:  .venv/bin/python tests/benchmarks/decode.py --beams 20 50 100 --prompt-tokens 40 200

One user at a time, as generate does it well; "batch" is ours with eight users at a time, per user. The bound is how
many tokens generate has to run (it repeats the prompt for each beam) by how many we do: what a perfect implementation
would gain. The bare forward is one pass of the model over as many tokens as ours runs, logits included. The lists of
both are asserted to be the same, up to scores that float32 cannot tell apart.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import numpy as np
import torch
from common import REPO, Row, Table, by_turns, device_arguments, median, parser, peak_mb, ratios, spread
from ground import merged
from models import LEVELS, load, tree_codes
from transformers import PreTrainedModel

from gti_pipeline.decode import Trie, beam_search
from gti_pipeline.decode.exhaustive import score_catalogue

sys.path.append(str(REPO / "tests" / "decode"))  # the reference is the oracle of the decoding tests
from references import Tables, generate, tables

CLOSE = 1e-3  # scores nearer than this may come in either order
BATCH = 8


def widths(trie: Trie, beams: int) -> list[int]:
    """Beams that are run at each level: all but the last."""
    return [min(beams, len(level.tokens)) for level in trie.levels[:-1]]


@torch.inference_mode()
def bare_forward(model: PreTrainedModel, prompt: int, answers: int) -> None:
    """One pass over as many tokens, with logits where ours needs them."""
    ids = torch.arange(prompt + answers, device=model.device).unsqueeze(0)
    model(input_ids=ids, use_cache=False, logits_to_keep=answers + 1)


def same_list(items: Sequence[int], scores: Sequence[float], others: Sequence[int], their: Sequence[float]) -> None:
    """The same items in the same order, but for scores that are too close to tell."""
    assert len(items) == len(others), f"{len(items)} items, {len(others)} of the reference"
    np.testing.assert_allclose(scores, their, atol=CLOSE)
    gaps = np.diff(np.asarray(their), append=-np.inf)
    clear = (np.abs(gaps) > CLOSE) & (np.abs(np.roll(gaps, 1)) > CLOSE)
    clear[0] = abs(gaps[0]) > CLOSE
    clear[-1] = False  # the last may have won by a hair over one that is in neither list
    np.testing.assert_array_equal(np.asarray(items)[clear], np.asarray(others)[clear])


def prompts_of(length: int, users: int, known: int) -> list[list[int]]:
    """Random prompts with the same opening of 24 tokens."""
    rng = np.random.default_rng(length)
    opening = rng.integers(3, known, 24).tolist()
    return [opening + rng.integers(3, known, length - 24).tolist() for _ in range(users)]


def against_generate(
    model: PreTrainedModel, trie: Trie, known: Tables, prompts: list[list[int]], beams: int, repeats: int
) -> Row:
    """One row; the reference is left out where `repeats` is 0."""
    length, run = len(prompts[0]), widths(trie, beams)
    sides = {
        "ours": lambda: beam_search(model, prompts[:1], trie, beams),
        "bare": lambda: bare_forward(model, length, sum(run)),
    }
    theirs = {"reference": lambda: generate(model, prompts[0], known, LEVELS, beams)}
    [(items, scores)] = beam_search(model, prompts[:1], trie, beams)
    if repeats:
        others, other_scores = generate(model, prompts[0], known, LEVELS, beams)
        same_list(items.tolist(), scores.tolist(), others, other_scores)
    seconds = by_turns(sides | theirs if repeats else sides, repeats or 2)
    together = by_turns({"batch": lambda: beam_search(model, prompts, trie, beams)}, 1)["batch"][0] / len(prompts)
    row = {
        "beams": beams,
        "prompt tokens": length,
        "s/user": median(seconds["ours"]),
        "s/user from to": spread(seconds["ours"]),
        "batch s/user": median([together]),
        "by a bare forward": ratios(seconds["ours"], seconds["bare"])["ratio"],
        "bound": round(beams * (length + LEVELS - 1) / (length + sum(run)), 1),
    }
    if not repeats:
        return row | {"peak MiB": peak_mb()}
    return row | {
        "generate s/user": median(seconds["reference"]),
        "generate s/user from to": spread(seconds["reference"]),
        **ratios(seconds["reference"], seconds["ours"]),
    }


def against_exhaustive(model: PreTrainedModel, codes: np.ndarray, ids: torch.Tensor, prompt: list[int]) -> Row:
    """As many beams as items: the whole catalogue in the order of exhaustive scoring."""
    trie = Trie.build(codes, ids)
    on_device = trie.to(model.device)
    expected = score_catalogue(model, prompt, codes, ids)
    order = np.argsort(-expected, kind="stable")
    [(items, scores)] = beam_search(model, [prompt], on_device, len(codes))
    same_list(items.tolist(), scores.tolist(), order.tolist(), expected[order].tolist())
    sides = {
        "ours": lambda: beam_search(model, [prompt], on_device, len(codes)),
        "exhaustive": lambda: score_catalogue(model, prompt, codes, ids),
    }
    seconds = by_turns(sides, 2)
    return {
        "items, all ranked": len(codes),
        "prompt tokens": len(prompt),
        "s/user": median(seconds["ours"]),
        "exhaustive s/user": median(seconds["exhaustive"]),
        **ratios(seconds["exhaustive"], seconds["ours"]),
    }


def run(args: argparse.Namespace) -> None:
    """Rows as they come."""
    model, lm, _, ids = load(args)
    model = merged(model, lm)
    codes, tokens = tree_codes(args.items), torch.from_numpy(ids)
    trie, known = Trie.build(codes, tokens).to(model.device), tables(codes, tokens)
    table = Table(args.rows_file)
    for beams in args.beams:
        for length in args.prompt_tokens:
            prompts = prompts_of(length, BATCH, lm.first_id)
            repeats = 1 if beams * length > args.long else args.repeats
            table.add(against_generate(model, trie, known, prompts, beams, repeats))
    [prompt] = prompts_of(40, 1, lm.first_id)
    if args.exhaustive_items:
        table.add(against_exhaustive(model, codes[: args.exhaustive_items], tokens, prompt))
    if args.widest:
        table.add(against_generate(model, trie, known, [prompt], args.widest, 0))


def main() -> None:
    """Three tables: against generate, against exhaustive scoring, and a wide beam alone."""
    arguments = parser(__doc__)
    device_arguments(arguments)
    arguments.add_argument("--items", type=int, default=5000)
    arguments.add_argument("--beams", type=int, nargs="*", default=[20, 50, 100])
    arguments.add_argument("--prompt-tokens", type=int, nargs="+", default=[40, 200])
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--long", type=int, default=5000, help="one turn where beams x prompt tokens are more")
    arguments.add_argument("--exhaustive-items", type=int, default=60, help="0 leaves it out")
    arguments.add_argument("--widest", type=int, default=500, help="beams of the last row; 0 leaves it out")
    run(arguments.parse_args())


if __name__ == "__main__":
    main()
