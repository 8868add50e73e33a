"""Tables: what breaks a schema is said, whatever the frame's index."""

from __future__ import annotations

import pandas as pd
import pytest

from gti_pipeline import columns as c
from gti_pipeline.errors import GtiError
from gti_pipeline.schemas import SEMANTIC_IDS, STEPS


def test_a_repeated_key_is_refused_under_a_repeated_index():
    frame = pd.DataFrame({c.STEP: [1, 1], c.METRIC: ["loss", "loss"], c.VALUE: [0.5, 0.25]}, index=[7, 7])
    with pytest.raises(GtiError, match="table steps breaks its schema"):
        STEPS.check(frame)


def test_a_repeated_index_alone_is_no_fault(tmp_path):
    frame = pd.DataFrame({c.ITEM_ID: ["a", "b"], c.CODES: [[1, 2], [3, 4]]}, index=[7, 7])
    SEMANTIC_IDS.write(frame, tmp_path)
    back = SEMANTIC_IDS.read(tmp_path)
    assert [list(codes) for codes in back[c.CODES]] == [[1, 2], [3, 4]]


def test_nulls_and_missing_columns_are_told_together():
    frame = pd.DataFrame({c.STEP: [None, 1.0], c.METRIC: ["loss", "loss"]})
    with pytest.raises(GtiError) as error:
        STEPS.check(frame)
    assert c.STEP in str(error.value)
    assert c.VALUE in str(error.value)
