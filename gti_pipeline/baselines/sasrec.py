"""SASRec (arXiv 1808.09781) with cross-entropy over the whole catalogue (arXiv 2309.07602).

Trained with one or few sampled negatives SASRec looks weak beside newer models; with the full softmax it does not.
Validation NDCG@10 ends the training, and the best weights are kept.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gti_pipeline import columns as c
from gti_pipeline.baselines.ranking import Ranked, recommendations, top
from gti_pipeline.baselines.sasrec_model import PADDING, SasRec, padded
from gti_pipeline.config import SasrecConfig
from gti_pipeline.errors import GtiError
from gti_pipeline.schemas import STEPS

CUTOFF = 10
BLOCK = 256  # users scored at a time
PART = 64  # runs of like length at a time: the same gradient with less padding
CLIP = 1.0  # largest gradient norm

Progress = Callable[[int, int], None]
log = logging.getLogger(__name__)


@dataclass
class Trained:
    """A trained network, its history (`schemas.STEPS`) and what it did best."""

    model: SasRec
    steps: list[tuple[int, str, float]] = field(default_factory=list)
    epochs: int = 0
    best_epoch: int = 0
    valid_ndcg: float | None = None


def sasrec(
    training: pd.DataFrame,
    valid: pd.DataFrame,
    users: pd.DataFrame,
    item_ids: Sequence[str],
    num: int,
    config: SasrecConfig,
    seed: int,
    device: torch.device,
    progress: Progress,
) -> tuple[pd.DataFrame, dict[str, object], pd.DataFrame]:
    """Self-attention over the user's last `max_history` items predicts the next.

    Same tables and seed on one CPU: same lists. torch's global random state is left as it was. Nothing is filtered:
    the network learns whether items come back.

    Args:
        training: user_id and history: each user's training events, oldest first.
        valid: user_id, history, target: what decides when to stop; where there are none, all epochs are run.
        users: user_id and history (never empty): whom to recommend to.
        item_ids: the catalogue.
        num: the most items per user.
        config: the network and its training.
        seed: of weights, order and dropout.
        device: where to train.
        progress: called with (epochs done, epochs at most); at the end both are the epochs done.

    Returns:
        `schemas.RECOMMENDATIONS` (the score is a logit), a summary, and `schemas.STEPS` by epoch.

    Raises:
        GtiError: no user has two training events, or the loss stopped being finite.
    """
    ids = sorted(item_ids)
    number = {item: place for place, item in enumerate(ids, 1)}
    sequences = _numbers(training, number)
    targets = [number[item] for item in valid[c.TARGET]]
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        model = SasRec(len(ids), config).to(device)
        trained = _fit(
            model, windows(sequences, config.max_history), _numbers(valid, number), targets, config, progress
        )
    lists = _lists(trained.model, _numbers(users, number), ids, num, config.max_history)
    summary: dict[str, object] = {
        "epochs": trained.epochs,
        "best_epoch": trained.best_epoch,
        "valid_ndcg": trained.valid_ndcg,
        "parameters": sum(p.numel() for p in model.parameters()),
    }
    steps = pd.DataFrame(trained.steps, columns=list(STEPS.fields))
    return recommendations(users[c.USER_ID], lists), summary, steps


def windows(sequences: Sequence[Sequence[int]], max_history: int) -> list[list[int]]:
    """Runs of at most max_history + 1 events in which each event but a sequence's first is a target exactly once."""
    return [
        list(events[max(0, end - max_history - 1) : end])
        for events in sequences
        for end in range(len(events), 1, -max_history)
    ]


def _numbers(rows: pd.DataFrame, number: dict[str, int]) -> list[list[int]]:
    return [[number[item] for item in history] for history in rows[c.HISTORY]]


def _fit(
    model: SasRec,
    runs: list[list[int]],
    histories: list[list[int]],
    targets: list[int],
    config: SasrecConfig,
    progress: Progress,
) -> Trained:
    """Epochs until validation gains no more; the weights of the best epoch stay."""
    if not runs:
        raise GtiError("sasrec: no user has two training events, so there is no next item to learn")
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay)
    trained = Trained(model)
    best: dict[str, Tensor] = {}
    while trained.epochs < config.epochs:
        loss = _epoch(model, optimizer, runs, config.batch_size)
        trained.epochs += 1
        if not np.isfinite(loss):
            raise GtiError(
                f"sasrec: the loss is {loss} in epoch {trained.epochs}: lower baselines.sasrec.learning_rate"
            )
        trained.steps.append((trained.epochs, "loss", loss))
        if targets:
            value = _ndcg(model, histories, targets, config.max_history)
            trained.steps.append((trained.epochs, "valid_ndcg", value))
            if trained.valid_ndcg is None or value > trained.valid_ndcg:
                trained.valid_ndcg, trained.best_epoch = value, trained.epochs
                best = copy.deepcopy(model.state_dict())
            elif trained.epochs - trained.best_epoch >= config.patience:
                break
        progress(trained.epochs, config.epochs)
    progress(trained.epochs, trained.epochs)
    if best:
        model.load_state_dict(best)
    model.eval()
    return trained


def _epoch(model: SasRec, optimizer: torch.optim.Optimizer, runs: list[list[int]], batch_size: int) -> float:
    """One pass in random order; the mean loss over targets."""
    model.train()
    order = torch.randperm(len(runs)).tolist()
    losses, count = 0.0, 0
    for start in range(0, len(order), batch_size):
        batch = sorted((runs[place] for place in order[start : start + batch_size]), key=len)
        targets = sum(map(len, batch)) - len(batch)
        optimizer.zero_grad()
        for first in range(0, len(batch), PART):
            loss = _loss(model, batch[first : first + PART])
            (loss / targets).backward()
            losses += loss.item()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        count += targets
    return losses / count


def _loss(model: SasRec, runs: list[list[int]]) -> Tensor:
    """Cross-entropy over the whole catalogue, summed over all targets."""
    device = model.items.weight.device
    targets = padded([run[1:] for run in runs], device)
    real = targets != PADDING
    # logits at real places only: they are most of the work
    states = model(padded([run[:-1] for run in runs], device))[real]
    return F.cross_entropy(model.scores(states), targets[real] - 1, reduction="sum")


def _score_blocks(model: SasRec, histories: list[list[int]], max_history: int) -> Iterator[Tensor]:
    """Logits [B, num_items] of users, a block at a time, in their order."""
    device = model.items.weight.device
    model.eval()
    for start in range(0, len(histories), BLOCK):
        block = [history[-max_history:] for history in histories[start : start + BLOCK]]
        with torch.inference_mode():
            scores = model.scores(model.last(padded(block, device)))
        yield scores


def _ndcg(model: SasRec, histories: list[list[int]], targets: list[int], max_history: int) -> float:
    """Mean NDCG@10 of one target per user; ties by item number, as in the lists."""
    gains, start = 0.0, 0
    for scores in _score_blocks(model, histories, max_history):
        wanted = torch.tensor(targets[start : start + len(scores)], device=scores.device)[:, None] - 1
        own = scores.gather(1, wanted)
        places = torch.arange(scores.shape[1], device=scores.device)
        before = (scores > own) | ((scores == own) & (places < wanted))
        ranks = before.sum(dim=1) + 1
        gains += float((1 / torch.log2(ranks[ranks <= CUTOFF] + 1.0)).sum())
        start += len(scores)
    return gains / len(targets)


def _lists(model: SasRec, histories: list[list[int]], ids: list[str], num: int, max_history: int) -> Iterator[Ranked]:
    """The best items of every user."""
    catalogue = np.array(ids, dtype=object)
    for block in _score_blocks(model, histories, max_history):
        for scores in block.cpu().numpy():
            best = top(scores, num)
            yield catalogue[best], scores[best]
