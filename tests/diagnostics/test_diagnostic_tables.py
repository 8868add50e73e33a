"""The diagnostics' tables: schemas, levels, codes that nobody has, samples."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import pearsonr

from gti_pipeline import schemas
from gti_pipeline.diagnostics import geometry as g
from gti_pipeline.diagnostics import tables as t

LEVELS, SIZE, DIM = 2, 6, 9
ORDINARY = np.arange(3, 80)


@pytest.fixture
def codes() -> t.Codes:
    rng = np.random.default_rng(0)
    counts = np.array([[5, 0, 2, 9, 1, 4], [3, 3, 0, 0, 8, 1]])
    return t.Codes(rng.normal(size=(LEVELS, SIZE, 4)), counts)


@pytest.fixture
def moment() -> t.Moment:
    rng = np.random.default_rng(1)
    return t.Moment(t.TUNED, rng.normal(size=(LEVELS, SIZE, DIM)), rng.normal(size=(80, DIM)))


def values(frame: pd.DataFrame) -> pd.Series:
    return frame.set_index(["level", "metric"])["value"]


def test_numbers_by_level_and_over_all(moment: t.Moment, codes: t.Codes) -> None:
    frame = t.numbers(moment, codes, ORDINARY)
    schemas.DIAGNOSTICS.check(frame)
    found = values(frame)
    flat = moment.new_rows.reshape(-1, DIM)
    assert found[0, "effective_rank"] == pytest.approx(g.effective_rank(np.linalg.svd(flat)[1]))
    assert found[2, "effective_rank"] == pytest.approx(g.effective_rank(np.linalg.svd(moment.new_rows[1])[1]))
    assert found[0, "mean_norm"] == pytest.approx(np.linalg.norm(flat, axis=1).mean())
    assert found[0, "mean_norm_old"] == pytest.approx(np.linalg.norm(moment.old_rows[3:], axis=1).mean())
    assert (found[0, "tokens"], found[0, "used_codes"], found[1, "used_codes"]) == (12, 9, 5)


def test_rsa_is_over_the_codes_that_an_item_has(moment: t.Moment, codes: t.Codes) -> None:
    used = [0, 2, 3, 4, 5]
    pairs = [
        [table[i] @ table[j] / np.linalg.norm(table[i]) / np.linalg.norm(table[j]) for i in used for j in used if i < j]
        for table in (moment.new_rows[0], codes.codebooks[0])
    ]
    wanted = pearsonr(*pairs).statistic
    assert values(t.numbers(moment, codes, ORDINARY))[1, "rsa_pearson"] == pytest.approx(wanted)
    moment.new_rows[0, 1] = 100.0  # no item has this code
    assert values(t.numbers(moment, codes, ORDINARY))[1, "rsa_pearson"] == pytest.approx(wanted)


def test_rows_that_are_one_point(moment: t.Moment, codes: t.Codes) -> None:
    same = t.Moment(t.INIT, np.zeros_like(moment.new_rows) + moment.old_rows.mean(0), moment.old_rows)
    found = values(t.numbers(same, codes, ORDINARY))
    assert found[0, "effective_rank"] == pytest.approx(1)
    assert found[0, "mean_cosine"] == pytest.approx(1)
    assert np.isnan(found[0, "rsa_pearson"])


def test_cosine_blocks_hold_every_pair_once_in_order(moment: t.Moment) -> None:
    frame = t.cosine_blocks(moment, ORDINARY, lambda token: f"w{token}")
    schemas.COSINES.check(frame)
    by_level = frame[frame["block"] == "by_level"]
    assert np.stack(by_level["cosines"].tolist()) == pytest.approx(
        g.cosines(moment.new_rows.reshape(-1, DIM)), abs=1e-6
    )
    assert by_level["token"].tolist() == [f"{level}:{code}" for level in (1, 2) for code in range(SIZE)]
    affinity = frame[frame["block"] == "affinity"]
    assert (affinity["level"] == 0).sum() == 50  # of 77 old tokens
    assert (affinity["level"] > 0).sum() == LEVELS * SIZE
    chosen = [int(word[1:]) for word in affinity["token"][:50]]
    assert min(chosen) >= 3  # the first three are no text
    rows = np.concatenate([moment.old_rows[chosen], moment.new_rows.reshape(-1, DIM)])
    assert np.stack(affinity["cosines"].tolist()) == pytest.approx(g.cosines(rows), abs=1e-6)


def test_large_vocabularies_are_sampled_alike_at_every_level() -> None:
    rng = np.random.default_rng(2)
    rows, old = rng.normal(size=(3, 700, 4)), rng.normal(size=(60, 4))
    first, again = (t.cosine_blocks(t.Moment(name, rows, old), np.arange(60), str) for name in (t.INIT, t.TUNED))
    by_level = first[first["block"] == "by_level"]
    assert by_level["level"].value_counts().to_dict() == {1: 341, 2: 341, 3: 341}
    assert first["token"].tolist() == again["token"].tolist()


def test_nearest_words_of_the_most_frequent_codes(moment: t.Moment, codes: t.Codes) -> None:
    moment.new_rows[0, 3] = 2 * moment.old_rows[17]
    moment.new_rows[1, 4] = moment.old_rows[1]  # which is no text
    frame = t.nearest_words(moment, codes, ORDINARY, lambda token: f"w{token}")
    schemas.NEAREST_WORDS.check(frame)
    assert frame.groupby("level", sort=False)["code"].unique().map(list).to_dict() == {1: [3, 0, 5], 2: [4, 0, 1]}
    first = frame[(frame["level"] == 1) & (frame["code"] == 3)]
    assert first["word"].iloc[0] == "w17"
    assert first["value"].iloc[0] == pytest.approx(1)
    assert first["value"].is_monotonic_decreasing
    assert "w1" not in set(frame["word"])
