"""The grounding corpus: paired text <-> semantic-ID prompts in both directions (paper's step 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gti_pipeline import columns as c
from gti_pipeline.config import GroundConfig
from gti_pipeline.lm.prompts import SID_TO_TEXT, TEXT_TO_SID, Example, Prompter
from gti_pipeline.vocab import sid_text

TO_SID, TO_TEXT = "text_to_sid", "sid_to_text"
MOST_HELD_OUT = 64  # of each direction: enough for a curve, and a check takes seconds


def grounding_pairs(
    items: pd.DataFrame, codes: Mapping[str, Sequence[int]], config: GroundConfig, prompter: Prompter
) -> pd.DataFrame:
    """All pairs as text: item_id, direction, template, prompt, answer.

    Items without a description have no pairs of the templates that need one.
    """
    rows = []
    for item_id, title, description in zip(items[c.ITEM_ID], items[c.TITLE], items[c.DESCRIPTION], strict=True):
        text = {
            "title": prompter.cut(title, config.max_text_tokens),
            "description": prompter.cut(description, config.max_text_tokens),
        }
        sid = sid_text(codes[item_id])
        for name in config.text_to_sid:
            if text["description"] or name == "title":
                rows.append((item_id, TO_SID, name, TEXT_TO_SID[name].format(**text), sid))
        for name in config.sid_to_text:
            if text["description"] or name == "title":
                question, answer = SID_TO_TEXT[name]
                rows.append((item_id, TO_TEXT, name, question.format(sid=sid), answer.format(**text)))
    return pd.DataFrame(rows, columns=[c.ITEM_ID, c.DIRECTION, c.TEMPLATE, c.PROMPT, c.ANSWER])


def hold_out(pairs: pd.DataFrame, share: float, seed: int) -> NDArray[np.bool_]:
    """Which pairs are held out, [pairs]: one wording of a direction for a share of the items that have others in it.

    At least one and at most `MOST_HELD_OUT` of each direction that has any to spare; none where the share is 0.
    """
    rng = np.random.default_rng(seed)
    mixed = pairs.iloc[rng.permutation(len(pairs))]
    nth = mixed.groupby([c.ITEM_ID, c.DIRECTION]).cumcount().reindex(pairs.index).to_numpy()  # in random order
    spare = pairs[nth == 1].set_index([c.ITEM_ID, c.DIRECTION]).index  # items with a second wording
    first = pd.MultiIndex.from_frame(pairs[[c.ITEM_ID, c.DIRECTION]])
    eligible = (nth == 0) & first.isin(spare)
    held = np.zeros(len(pairs), dtype=bool)
    for direction in (TO_SID, TO_TEXT):
        places = np.flatnonzero(eligible & (pairs[c.DIRECTION] == direction).to_numpy())
        wanted = min(MOST_HELD_OUT, len(places), max(1, round(share * len(places)))) if share else 0
        held[rng.permutation(places)[:wanted]] = True
    return held


def encode_pairs(pairs: pd.DataFrame, prompter: Prompter) -> list[Example]:
    """Pairs as token ids, in order; a text answer ends with the end of the turn, a semantic ID needs none."""
    return [
        prompter.example(prompt, answer, with_end=direction == TO_TEXT)
        for direction, prompt, answer in zip(pairs[c.DIRECTION], pairs[c.PROMPT], pairs[c.ANSWER], strict=True)
    ]
