"""Trained weights on disk: what has a gradient, and nothing else."""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import nn


def save_trainable(module: nn.Module, path: Path) -> None:
    """Writes the parameters that train, whole or not at all; with LoRA they are a small part of the module."""
    tensors = {name: p.detach().contiguous() for name, p in module.named_parameters() if p.requires_grad}
    temporary = path.with_name(f".{path.name}")
    save_file(tensors, temporary, metadata={"format": "pt"})
    temporary.replace(path)


def load_trainable(module: nn.Module, path: Path) -> None:
    """Reads what `save_trainable` wrote into a module of the same shape; its other parameters stay as they are."""
    left = {name for name, p in module.named_parameters() if p.requires_grad}
    tensors = load_file(path)
    assert left == set(tensors), f"{path} holds the weights of another model"
    module.load_state_dict(tensors, strict=False)


class Best:
    """The weights of the step with the best validation recall so far, on disk; of equal ones the earlier.

    A file goes only once a checkpoint knows the better one, so a resumed run always finds the one that it knows.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.step: int | None = None
        self.value = -1.0

    def path(self, step: int) -> Path:
        """Where the weights of a step lie."""
        return self.folder / f"best-{step}.safetensors"

    def see(self, step: int, value: float) -> bool:
        """Takes a step's recall; whether it is the best yet."""
        if value <= self.value:
            return False
        self.step, self.value = step, value
        return True

    def sweep(self) -> None:
        """Removes the weights that a better step has overtaken."""
        for path in self.folder.glob("best-*.safetensors"):
            if self.step is None or path != self.path(self.step):
                path.unlink()
