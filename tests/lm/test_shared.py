"""Running shared beginnings once changes neither a loss nor a gradient."""

from __future__ import annotations

import pytest
import torch

from gti_pipeline.lm.extended import IGNORED
from gti_pipeline.lm.shared import batch_hidden

LEVELS, SIZE = 2, 3


@pytest.fixture
def lm(make_tiny):
    model = make_tiny(LEVELS, SIZE)[0].double()
    model.requires_grad_(True)
    return model.eval()


def batch(lm, beginnings, rests):
    """Right-padded ids, mask, and labels that supervise all but the first token of each rest."""
    rows = [b + r for b, r in zip(beginnings, rests, strict=True)]
    length = max(map(len, rows))
    ids = torch.tensor([row + [0] * (length - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in rows])
    labels = torch.full_like(ids, IGNORED)
    for i, (begin, row) in enumerate(zip(beginnings, rows, strict=True)):
        labels[i, len(begin) + 1 : len(row)] = ids[i, len(begin) + 1 : len(row)]
    return ids, mask, labels


def shared_batch(lm):
    new = [lm.first_id + n for n in range(LEVELS * SIZE)]
    beginnings = [[5, 6, 7], [5, 6, 7], [5, 6, 8, 9, 10], [5, 6, 7], [5, 6, 8, 9, 10], [11]] + [[5, 6, 7]] * 2
    rests = [[new[0], 3, new[1]], [new[2]] * 6, [new[3], new[4], 12], [new[5], 4], [new[1]] * 4, [new[0], new[1]]]
    return batch(lm, beginnings, [*rests, [new[2], new[2]], [new[0], new[0], 7, 8]])


def run(lm, inputs):
    lm.zero_grad()
    loss = lm(*inputs)["loss"]
    loss.backward()
    return loss.detach(), {name: p.grad.clone() for name, p in lm.named_parameters() if p.grad is not None}


def test_loss_and_gradients_are_those_of_the_plain_forward(lm, monkeypatch):
    inputs = shared_batch(lm)
    loss, gradients = run(lm, inputs)
    monkeypatch.setattr("gti_pipeline.lm.extended.batch_hidden", lambda lm, ids, mask: lm.hidden(ids, mask))
    plain_loss, plain = run(lm, inputs)
    torch.testing.assert_close(loss, plain_loss, rtol=1e-7, atol=0)
    assert gradients.keys() == plain.keys()
    for name, gradient in gradients.items():
        # the norms work in float32 whatever the weights are
        torch.testing.assert_close(gradient, plain[name], rtol=1e-6, atol=2e-7, msg=name)


def test_hidden_states_of_every_real_token(lm):
    ids, mask, _ = shared_batch(lm)
    with torch.no_grad():
        ours, plain = batch_hidden(lm, ids, mask), lm.hidden(ids, mask)
    real = mask.bool()
    torch.testing.assert_close(ours[real], plain[real], rtol=1e-6, atol=1e-6)


def test_beginnings_are_run_once(lm, monkeypatch):
    seen = []
    plain = type(lm).hidden

    def counted(self, ids, *args, **kwargs):
        seen.append(tuple(ids.shape))
        return plain(self, ids, *args, **kwargs)

    monkeypatch.setattr(type(lm), "hidden", counted)
    ids, mask, _ = shared_batch(lm)
    batch_hidden(lm, ids, mask)
    assert seen == [(3, 5), (8, 6)]


@pytest.mark.parametrize("case", ["all different", "nothing new", "new at once"])
def test_batches_with_nothing_to_share_are_run_as_they_are(lm, case):
    new = lm.first_id
    beginnings = {"all different": [[1], [2], [3]], "nothing new": [[4, 5]] * 3, "new at once": [[], [], []]}[case]
    rests = [[6, 7]] * 3 if case == "nothing new" else [[new, 6], [new + 1], [new, new]]
    ids, mask, _ = batch(lm, beginnings, rests)
    with torch.no_grad():
        torch.testing.assert_close(batch_hidden(lm, ids, mask), lm.hidden(ids, mask), rtol=1e-6, atol=1e-6)
