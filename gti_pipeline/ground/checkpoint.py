"""A checkpoint is one safetensors file, replaced by an atomic rename: it is whole or it is the one before."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

STATE = "state"
ADAM = "adam"

log = logging.getLogger(__name__)


def save(path: Path, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
    """Writes tensors and a JSON state, on disk before the rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    save_file(whole, temporary, metadata={STATE: json.dumps(state)})
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    temporary.replace(path)


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Tensors and state; None where there is no checkpoint, or none that can be read (which is said)."""
    if not path.is_file():
        return None
    try:
        with safe_open(path, "pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, json.loads(file.metadata()[STATE])  # noqa: SIM118
    except (SafetensorError, KeyError, TypeError, ValueError, OSError) as error:
        log.warning("ground: the checkpoint %s cannot be read (%s): starting from the beginning", path, error)
        return None


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's moments and step counts by name."""
    states = optimizer.state_dict()["state"]
    return {f"{ADAM}.{index}.{name}": value for index, values in states.items() for name, value in values.items()}


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Puts what `optimizer_tensors` gave back."""
    states: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        kind, _, rest = key.partition(".")
        if kind == ADAM:
            index, _, name = rest.partition(".")
            states.setdefault(int(index), {})[name] = value
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": states, "param_groups": groups})
