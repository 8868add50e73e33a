"""Two processes with gloo, started as `accelerate launch` starts them, do what one process does."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from sft_examples import losses, settings_of, tune

from gti_pipeline.errors import GtiError
from gti_pipeline.sft.train import _arguments

SCRIPT = Path(__file__).with_name("one_process.py")
# ten examples in batches of four: the last batch of an epoch has two, all of them the first process's
SETTINGS = {"epochs": 99, "max_steps": 6, "micro_batch_size": 2, "save_steps": 99}


def launch_two(tiny, out):
    """Runs the script in two processes at once, waits for both, and reads what they found."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "ACCELERATE_USE_CPU": "true"}
    command = [sys.executable, str(SCRIPT), str(tiny), str(out), json.dumps(SETTINGS)]
    running = [
        subprocess.Popen(
            command, env=os.environ | shared | {"RANK": rank, "LOCAL_RANK": rank}, stderr=subprocess.PIPE, text=True
        )
        for rank in "01"
    ]
    for process in running:
        _, errors = process.communicate(timeout=200)
        assert process.returncode == 0, errors
    return [json.loads((out / f"{rank}.json").read_text()) for rank in range(2)]


def test_two_processes_see_each_example_once_and_end_with_the_weights_of_one(tiny_lm, start, tmp_path):
    lm, examples = start()
    one = tune(lm, examples, settings_of(**SETTINGS), tmp_path / "one")
    both = launch_two(tiny_lm, tmp_path)
    # six steps are two epochs
    twice = Counter(tuple(e.ids) for e in examples * 2)
    assert Counter(map(tuple, both[0]["seen"] + both[1]["seen"])) == twice
    assert [len(found["seen"]) for found in both] == [12, 8]
    assert list(both[0]["losses"].values()) == pytest.approx(list(losses(one).values()), rel=1e-4)
    for rank in range(2):
        for name, value in load_file(tmp_path / f"{rank}.safetensors").items():
            assert torch.allclose(value, dict(lm.named_parameters())[name], atol=5e-5), name


def test_a_process_that_does_not_save_writes_no_weights(start, tmp_path, monkeypatch):
    lm, examples = start()
    monkeypatch.setattr("transformers.TrainingArguments.should_save", False)
    tune(lm, examples, settings_of(**SETTINGS), tmp_path)
    assert not list(tmp_path.rglob("*.safetensors"))


def test_a_batch_that_the_processes_cannot_share_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("transformers.TrainingArguments.world_size", 3)
    with pytest.raises(GtiError, match=r"sft.batch_size=4 is not a multiple of sft.micro_batch_size=2 x 3 processes"):
        _arguments(settings_of(micro_batch_size=2), 5, 0, tmp_path, bf16=False, cpu=True, evaluate=False)
