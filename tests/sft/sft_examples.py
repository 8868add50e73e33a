"""What the tests of fine-tuning share: a little world in which each item is followed by the next one."""

from __future__ import annotations

import pandas as pd

from gti_pipeline.config import GroundConfig, SftConfig
from gti_pipeline.lm.next_item import training_examples
from gti_pipeline.lm.pairs import encode_pairs, grounding_pairs
from gti_pipeline.sft import fine_tune

LEVELS, SIZE = 2, 3
ITEMS = [f"i{n}" for n in range(8)]
CODES = {item: [n // SIZE, n % SIZE] for n, item in enumerate(ITEMS)}


class KilledError(Exception):
    """Stands for a process that ends in the middle of a step."""


def quiet(done, total):
    """No progress shown."""


def kill_after(step):
    def progress(done, total):
        if done == step:
            raise KilledError

    return progress


def next_item_rows(lengths):
    """Train rows in which each item is followed by the next one, round and round."""
    histories = [[ITEMS[(start + n) % 8] for n in range(length)] for start, length in enumerate(lengths)]
    targets = [ITEMS[(start + length) % 8] for start, length in enumerate(lengths)]
    users = [f"u{n}" for n in range(len(histories))]
    return pd.DataFrame({"user_id": users, "split": "train", "history": histories, "target": targets})


def make_examples(prompter, lengths=(1, 5, 2, 7, 3, 3, 1, 6, 4, 2)):
    """Ten examples with different lengths and different counts of supervised tokens."""
    rows = next_item_rows(lengths)
    return training_examples(rows, CODES, prompter, targets="all", max_history=20, seed=0)


def make_pairs(prompter):
    """Twenty-four pairs of different lengths: of each item one from its title, one to it, one from both texts."""
    titles = [f"Item {'with many words ' * (n % 3)}{n}" for n in range(8)]
    items = pd.DataFrame({"item_id": ITEMS, "title": titles, "description": "made of wool"})
    config = GroundConfig(text_to_sid=("title", "both"), sid_to_text=("title",))
    return encode_pairs(grounding_pairs(items, CODES, config, prompter), prompter)


def settings_of(**changes):
    steady = {"batch_size": 4, "micro_batch_size": 4, "learning_rate": 1e-3, "new_token_learning_rate": 1e-2}
    return SftConfig(**steady | changes)


def tune(lm, examples, config, work, *, valid=(), seed=0, progress=quiet, bf16=False, validate=None, pairs=()):
    options = {"seed": seed, "work": work, "bf16": bf16, "progress": progress, "validate": validate, "pairs": pairs}
    return fine_tune(lm, examples, valid, config, levels=LEVELS, **options)


def losses(result, name="loss"):
    return {step: value for step, metric, value in result.steps if metric == name}


def weights(lm):
    return {name: value.clone() for name, value in lm.state_dict().items()}
