"""Matrix factorisation of who had what, by the library `implicit` (an optional extra): ALS and BPR.

ALS is Hu, Koren and Volinsky (2008): confidence by count, all other items weakly negative. BPR is Rendle et al. (2009):
an item the user had should score above one he had not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from gti_pipeline import columns as c
from gti_pipeline.baselines.ranking import rank_by_product, recommendations
from gti_pipeline.baselines.selection import choose
from gti_pipeline.config import AlsConfig, BprConfig
from gti_pipeline.errors import GtiError

MISSING = "the library `implicit` is not installed: pip install 'gti-pipeline[implicit]', or leave out als and bpr"
REPEATS = (True, False)  # whether items of the history may come back

Factors = NDArray[np.float32]


def missing_library() -> str | None:
    """Why ALS and BPR cannot run here, or None."""
    return None if find_spec("implicit") else MISSING


def als(
    training: pd.DataFrame,
    valid: pd.DataFrame,
    users: pd.DataFrame,
    item_ids: Sequence[str],
    num: int,
    config: AlsConfig,
    seed: int,
    progress: Callable[[int, int], None],
) -> tuple[pd.DataFrame, dict[str, object]]:
    """Alternating least squares on counts; a user is folded in from the history he is asked with.

    Whether items of the history may come back is chosen by NDCG@10 on the validation rows.

    Args:
        training: user_id and history: each user's training events.
        valid: user_id, history, target: the validation rows.
        users: user_id and history (never empty): whom to recommend to.
        item_ids: the catalogue.
        num: the most items per user.
        config: factors, regularisation, iterations and the weight of an event.
        seed: of the initial factors.
        progress: called with (iterations done, iterations).

    Returns:
        `schemas.RECOMMENDATIONS`, and what was chosen.

    Raises:
        GtiError: `implicit` is not installed.
    """
    _need_library()
    from implicit.als import AlternatingLeastSquares

    ids = np.array(sorted(item_ids), dtype=object)
    with _one_blas_thread():
        model = AlternatingLeastSquares(
            factors=config.factors,
            regularization=config.regularization,
            alpha=config.alpha,
            iterations=config.iterations,
            random_state=seed,
        )
        counts = _counts(training, ids)
        model.fit(counts, show_progress=False, callback=lambda done, *_: progress(done + 1, config.iterations))

        def profiles(rows: pd.DataFrame) -> Factors:
            return np.asarray(model.recalculate_user(np.arange(len(rows)), _counts(rows, ids)), dtype=np.float32)

        return _recommend(profiles, model.item_factors, ids, valid, users, num)


def bpr(
    training: pd.DataFrame,
    valid: pd.DataFrame,
    users: pd.DataFrame,
    item_ids: Sequence[str],
    num: int,
    config: BprConfig,
    seed: int,
    progress: Callable[[int, int], None],
) -> tuple[pd.DataFrame, dict[str, object]]:
    """Bayesian personalised ranking.

    A user is known by his training events alone: his newer history is not used, because this model cannot fold it in.
    One without training events gets the items of largest bias. One thread, so that a seed gives one result. Arguments,
    result and errors as of `als`.
    """
    _need_library()
    from implicit.bpr import BayesianPersonalizedRanking

    ids = np.array(sorted(item_ids), dtype=object)
    with _one_blas_thread():
        model = BayesianPersonalizedRanking(
            factors=config.factors,
            learning_rate=config.learning_rate,
            regularization=config.regularization,
            iterations=config.iterations,
            random_state=seed,
            num_threads=1,
        )
        present = _counts(training, ids)
        present.data[:] = 1
        model.fit(present, show_progress=False, callback=lambda done, *_: progress(done + 1, config.iterations))
        row_of = {user: row for row, user in enumerate(training[c.USER_ID])}
        stranger = np.zeros((1, model.user_factors.shape[1]), dtype=np.float32)
        stranger[0, -1] = 1  # the library keeps an item's bias in the last column
        known = np.concatenate([model.user_factors, stranger])

        def profiles(rows: pd.DataFrame) -> Factors:
            return known[[row_of.get(user, -1) for user in rows[c.USER_ID]]]

        return _recommend(profiles, model.item_factors, ids, valid, users, num)


def _recommend(
    profiles: Callable[[pd.DataFrame], Factors],
    factors: Factors,
    ids: NDArray[np.object_],
    valid: pd.DataFrame,
    users: pd.DataFrame,
    num: int,
) -> tuple[pd.DataFrame, dict[str, object]]:
    """Lists for the users; whether they may hold items of the history is chosen on the validation rows."""
    place = {item: number for number, item in enumerate(ids)}

    def lists(rows: pd.DataFrame, repeats: bool) -> pd.DataFrame:
        own = None if repeats else [[place[item] for item in set(history)] for history in rows[c.HISTORY]]
        return recommendations(rows[c.USER_ID], rank_by_product(profiles(rows), factors, ids, num, hidden=own))

    repeats, value = choose(REPEATS, lambda choice: lists(valid, choice), valid)
    return lists(users, repeats), {"repeats": repeats, "valid_ndcg": value}


def _counts(rows: pd.DataFrame, ids: NDArray[np.object_]) -> csr_matrix:
    """How often each row's history has each item: [rows, items], float32."""
    place = {item: number for number, item in enumerate(ids)}
    columns = np.array([place[item] for history in rows[c.HISTORY] for item in history], dtype=np.int32)
    owners = np.repeat(np.arange(len(rows), dtype=np.int32), rows[c.HISTORY].map(len))
    ones = np.ones(len(columns), dtype=np.float32)
    return csr_matrix((ones, (owners, columns)), shape=(len(rows), len(ids)), dtype=np.float32)


def _need_library() -> None:
    reason = missing_library()
    if reason:
        raise GtiError(reason)


def _one_blas_thread() -> Any:
    """The library has threads of its own, and warns about BLAS's."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(limits=1, user_api="blas")
