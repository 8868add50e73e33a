"""The trie at scale: building it, its bytes, and a decoding step, beside a Python dict.

Run:  .venv/bin/python tests/benchmarks/trie.py --items 1000 100000 1000000 10000000

A step is what decoding costs at a level beside the LM's forward pass, for 50 beams of 8 users: gathering the children,
their log-probabilities, choosing the best. It is timed over the vocabulary of the default LM, and over the new tokens
alone, which leaves the trie's own part. The dict is the usual one for `prefix_allowed_tokens_fn`: from each prefix to
the list of its next tokens. All is one thread, and its CPU time, which a busy machine disturbs little; the
ratio at the end is of the least times.
"""

from __future__ import annotations

import json
import time
import tracemalloc
from collections.abc import Callable

import numpy as np
import torch
from common import Table, alone, median, parser, spread
from numpy.typing import NDArray

from gti_pipeline.decode.beam import Beams, _children, _choose, _log_probs, _root
from gti_pipeline.decode.trie import Trie

LEVELS, CODES = 4, 256
USERS, BEAMS = 8, 50
VOCABULARY = 49_152  # of the default LM, before the new tokens
DictTrie = dict[tuple[int, ...], list[int]]


def random_codes(items: int, seed: int = 0) -> NDArray[np.int32]:
    """Distinct codes [items, L] in random order."""
    rng = np.random.default_rng(seed)
    places = np.unique(rng.integers(0, CODES**LEVELS, int(items * 1.01) + 10))  # a little too many: few are equal
    codes = np.unravel_index(rng.permutation(places)[:items], (CODES,) * LEVELS)
    return np.stack(codes, axis=1).astype(np.int32)


def dict_trie(codes: NDArray[np.int32], token_ids: NDArray[np.int64]) -> DictTrie:
    """The reference."""
    children: DictTrie = {}
    for row in token_ids[np.arange(codes.shape[1]), codes].tolist():
        for depth, token in enumerate(row):
            known = children.setdefault(tuple(row[:depth]), [])
            if token not in known:
                known.append(token)
    return children


def descend(trie: Trie, logits: torch.Tensor, seconds: Callable[[int, float], None]) -> Beams:
    """Beam search over given logits [USERS, BEAMS, V], the same at every level."""
    beams = _root(USERS, torch.device("cpu"))
    for depth, level in enumerate(trie.levels):
        start = time.thread_time()
        children = _children(beams.nodes, level)
        log_probs = _log_probs(logits[:, : beams.nodes.shape[1]], children.tokens)
        beams = _choose(beams, children, log_probs, min(BEAMS, len(level.tokens)))
        seconds(depth, time.thread_time() - start)
    return beams


def descend_dict(trie: DictTrie, logits: NDArray[np.float32]) -> list[tuple[tuple[int, ...], float]]:
    """The same for one user, logits [BEAMS, V], with the dict: prefixes and scores, ties by the smaller tokens."""
    log_probs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    beams: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    for _ in range(LEVELS):
        found = [
            ((*prefix, token), score + float(log_probs[row, token]))
            for row, (prefix, score) in enumerate(beams)
            for token in trie[prefix]
        ]
        beams = sorted(sorted(found, key=lambda beam: (-beam[1], beam[0]))[:BEAMS])
    return beams


def measure(items: int, repeats: int, with_dict: bool) -> dict[str, object]:
    """One row."""
    torch.set_num_threads(1)
    codes, token_ids = random_codes(items), np.arange(LEVELS * CODES).reshape(LEVELS, CODES)
    building = []
    for _ in range(repeats):
        start = time.thread_time()
        trie = Trie.build(codes, torch.from_numpy(token_ids))
        building.append(time.thread_time() - start)
    small = random_logits(token_ids.size)
    alone_ms, last = step_times(trie, small, 10 * repeats)
    whole_ms, _ = step_times(trie, random_logits(VOCABULARY + token_ids.size), repeats)
    row = {
        "items": items,
        "build s": median(building),
        "build from to": spread(building),
        "bytes per item": median([trie.nbytes / items]),
        "step ms": median(whole_ms),
        "step from to": spread(whole_ms),
        "trie's part ms": median(alone_ms),
        "trie's part from to": spread(alone_ms),
        "least step ms": min(whole_ms),
    }
    return row | (_beside_dict(codes, token_ids, small, last, median(building)) if with_dict else {})


def random_logits(rows: int) -> torch.Tensor:
    """[USERS, BEAMS, rows]."""
    return 2 * torch.randn(USERS, BEAMS, rows, generator=torch.Generator().manual_seed(1))


@torch.inference_mode()
def step_times(trie: Trie, logits: torch.Tensor, repeats: int) -> tuple[list[float], Beams]:
    """Milliseconds of a step, the mean over all levels but the first, and the beams at the end."""
    found = []
    for _ in range(repeats):
        each: list[float] = []
        last = descend(trie, logits, lambda depth, seconds, each=each: each.append(seconds) if depth else None)
        found.append(1e3 * sum(each) / len(each))
    return found, last


def _beside_dict(
    codes: NDArray[np.int32], token_ids: NDArray[np.int64], logits: torch.Tensor, last: Beams, ours: float
) -> dict[str, object]:
    start = time.thread_time()
    trie = dict_trie(codes, token_ids)
    seconds = time.thread_time() - start
    start = time.thread_time()
    found = descend_dict(trie, logits[0].numpy())
    step = 1e3 * (time.thread_time() - start) / LEVELS * USERS
    np.testing.assert_allclose([score for _, score in found], last.scores[0].numpy(), atol=1e-4)
    tracemalloc.start()
    again = dict_trie(codes, token_ids)
    size = tracemalloc.get_traced_memory()[0]
    assert len(again) == len(trie)
    return {
        "dict build s": median([seconds]),
        "dict bytes per item": median([size / len(codes)]),
        "dict step ms": median([step]),
        "build ratio": median([seconds / ours]),
    }


def main() -> None:
    """Each size in a process of its own, so that the peak of memory is its own."""
    arguments = parser(__doc__)
    arguments.add_argument("--items", type=int, nargs="+", default=[1_000, 10_000, 100_000, 1_000_000, 10_000_000])
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--dict-up-to", type=int, default=1_000_000, help="items of the largest dict trie")
    arguments.add_argument("--one", type=int, help="measure one size and print it as JSON")
    args = arguments.parse_args()
    if args.one:
        print(json.dumps(measure(args.one, args.repeats, args.one <= args.dict_up_to)))
        return
    table, steps = Table(args.rows_file), {}
    for items in args.items:
        options = ["--repeats", str(args.repeats), "--dict-up-to", str(args.dict_up_to)]
        row = alone(__file__, "--one", str(items), *options)
        steps[items] = row["least step ms"]
        table.add(row)
    if {10_000, 10_000_000} <= set(steps):
        table.add({"a step at 10,000,000 items by one at 10,000": median([steps[10_000_000] / steps[10_000]])})


if __name__ == "__main__":
    main()
