"""Fixtures of the tests of fine-tuning."""

from __future__ import annotations

import pytest
from sft_examples import LEVELS, SIZE, make_examples


@pytest.fixture
def start(make_tiny):
    """A function that gives the same fresh LM each time, and examples."""

    def fresh():
        lm, prompter, _ = make_tiny(LEVELS, SIZE)
        return lm, make_examples(prompter)

    return fresh
