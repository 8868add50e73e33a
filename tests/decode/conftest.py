"""Fixtures of the decoding tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tiny_models import make_model
from transformers import PreTrainedModel


@pytest.fixture(scope="session")
def model() -> PreTrainedModel:
    """A Llama with grouped-query attention."""
    return make_model()


@pytest.fixture
def calls(model: PreTrainedModel) -> Iterator[list[tuple[int, ...]]]:
    """The shapes of the input ids of every forward pass of `model`."""
    seen: list[tuple[int, ...]] = []
    handle = model.register_forward_pre_hook(
        lambda _, __, kw: seen.append(tuple(kw["input_ids"].shape)), with_kwargs=True
    )
    yield seen
    handle.remove()
