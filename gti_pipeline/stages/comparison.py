"""What a comparison page shows, gathered from the artifacts of several arms and seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gti_pipeline import columns as c
from gti_pipeline import schemas
from gti_pipeline.artifacts import Artifact
from gti_pipeline.banner import banner_text
from gti_pipeline.config import Config, EvaluateConfig
from gti_pipeline.data.source import Source
from gti_pipeline.evaluate.lists import COVERAGE
from gti_pipeline.evaluate.seeds import seed_intervals
from gti_pipeline.report import OVERALL, ArmBudget, ComparisonInput, Difference, Example
from gti_pipeline.report.budgets import COUNTS
from gti_pipeline.report.tables import COMPARED, OF_SEARCH, first_names, nearest_k
from gti_pipeline.stages.evaluate import ARM

SEED = "seed"
REFERENCE = "mean_sft"  # what all are held against where it is among the methods
BUDGETED = ("ground", "sft")
VALIDATION = "valid"  # how the metrics of fine-tuning's validation begin


@dataclass(frozen=True)
class Trained:
    """One method and seed with its artifacts by stage."""

    method: str
    seed: int
    done: Mapping[str, Artifact]


def comparison_input(
    trained: Sequence[Trained],
    users: pd.DataFrame,
    config: Config,
    source: Source,
    *,
    reference: str,
    examples: tuple[Example, ...],
    notes: tuple[str, ...],
    baselines: Artifact | None = None,
) -> ComparisonInput:
    """Everything that the page of a comparison shows.

    Args:
        trained: of each method the same seeds.
        users: `user_values` of them and the baselines.
        config: of any of them.
        source: their data.
        reference: the row that the others are held against.
        examples: of the first seed.
        notes: what the arms share, what was left out.
        baselines: the evaluation of the baselines that stand beside them.
    """
    names = tuple(dict.fromkeys(run.method for run in trained))
    rows = [summarise(users, config.evaluate), coverage(trained, baselines), slices(trained, baselines)]
    metrics = pd.concat([part for part in rows if len(part)], ignore_index=True)
    title = f"{source.name}: {', '.join(names)}"
    return replace(
        rows_compared(title, source, users, metrics, names, reference, config.evaluate),
        seeds=len({run.seed for run in trained}),
        budgets=budgets(trained),
        curves=curves(trained),
        diagnostics=by_arm(trained, schemas.DIAGNOSTICS),
        spectra=by_arm(trained, schemas.SPECTRUM),
        examples=examples,
        notes=notes,
        next_steps="Open the newest page: make report. See the runs side by side: make ui.",
    )


def rows_compared(
    title: str,
    source: Source,
    users: pd.DataFrame,
    metrics: pd.DataFrame,
    arms: tuple[str, ...],
    reference: str,
    config: EvaluateConfig,
) -> ComparisonInput:
    """The part of a page that arms and baselines alike have: their metrics, and the paired differences.

    Args:
        title: of the page.
        source: their data.
        users, metrics, arms, reference, config: as `differences` takes them.
    """
    return ComparisonInput(
        title=title,
        dataset=source.name,
        metrics=metrics,
        arms=arms,
        reference=reference,
        is_standin=source.is_standin,
        banner=banner_text(source),
        differences=differences(users, metrics, arms, reference, config),
        headline_k=config.headline_k,
        confidence=config.confidence,
    )


def user_values(trained: Sequence[Trained], baselines: Artifact | None = None) -> pd.DataFrame:
    """`arm`, `seed`, the rest of `schemas.USER_METRICS`: methods, then baselines, each once, with seed 0 alone."""
    frames = []
    for run in trained:
        frame = schemas.USER_METRICS.read(run.done["evaluate"].path)
        frame[c.ARM] = frame[c.ARM].replace(ARM, run.method)
        frames.append(frame.assign(**{SEED: np.where(frame[c.ARM] == run.method, run.seed, 0)}))
    if baselines is not None:
        frames.append(schemas.USER_METRICS.read(baselines.path).assign(**{SEED: 0}))
    whole = pd.concat(frames, ignore_index=True).drop_duplicates([c.ARM, SEED, c.USER_ID, c.METRIC, c.K])
    methods = list(dict.fromkeys(run.method for run in trained))
    return pd.concat([whole[whole[c.ARM].isin(methods)], whole[~whole[c.ARM].isin(methods)]], ignore_index=True)


def summarise(users: pd.DataFrame, config: EvaluateConfig) -> pd.DataFrame:
    """`schemas.METRICS` of all test users, with intervals over users and seeds.

    A metric that some users have no value for is a mean over the others.
    """
    tables = []
    for arm in dict.fromkeys(users[c.ARM]):
        wide = _wide(users, arm)
        for columns in _alike(wide):
            known = wide[columns].dropna()
            values = _cube(known)
            intervals = seed_intervals(values, config.bootstrap, config.confidence)
            frame = known.columns.to_frame(index=False).assign(**{c.ARM: arm, c.SLICE: OVERALL})
            frame[[c.VALUE, c.LOW, c.HIGH]] = intervals.T
            tables.append(frame.assign(**{c.NUM_USERS: values.shape[1]}))
    whole = pd.concat(tables, ignore_index=True)
    return whole.astype({c.K: np.int32})[list(schemas.METRICS.fields)]


def differences(
    users: pd.DataFrame, metrics: pd.DataFrame, arms: Sequence[str], reference: str, config: EvaluateConfig
) -> tuple[Difference, ...]:
    """Paired differences with intervals over users and seeds.

    Every arm, or every other row where there is none, to the reference in Recall and NDCG, of a search task in both
    Precisions and NDCG, at every K; every arm to every baseline in the headline metric at the headline K.

    Args:
        users: as `user_values`.
        metrics: `schemas.METRICS` of the same arms.
        arms: the methods among them.
        reference: what all are held against.
        config: bootstrap and headline K.
    """
    everyone = list(dict.fromkeys(users[c.ARM]))
    first = first_names(metrics)
    k = nearest_k(metrics, config.headline_k)
    compared = first if first == OF_SEARCH else COMPARED
    columns = [(name, cut) for name in compared for cut in sorted(set(metrics.loc[metrics[c.METRIC] == name, c.K]))]
    found: list[Difference] = []
    if reference in everyone:
        others = [name for name in (arms or everyone) if name != reference]
        others += [name for name in everyone if reference not in arms and name not in (*others, reference)]
        found += [d for name in others for d in _paired(users, name, reference, columns, config)]
    told = {(d.arm, d.reference) for d in found}
    for arm in arms:
        for baseline in [name for name in everyone if name not in arms and (arm, name) not in told]:
            found += _paired(users, arm, baseline, [(first[0], k)], config)
    return tuple(found)


def _paired(
    users: pd.DataFrame, arm: str, reference: str, columns: list[tuple[str, int]], config: EvaluateConfig
) -> list[Difference]:
    """The differences of two arms, seed by seed and user by user; the one seed of a baseline serves for all."""
    ours, theirs = (_cube(_wide(users, name)[columns].dropna()) for name in (arm, reference))
    values = ours - theirs if len(ours) == len(theirs) else ours - theirs.mean(axis=0)
    intervals = seed_intervals(values, config.bootstrap, config.confidence)
    return [
        Difference(arm, reference, metric, int(k), float(mean), float(low), float(high), values.shape[1])
        for (metric, k), (mean, low, high) in zip(columns, intervals.T, strict=True)
    ]


def _wide(users: pd.DataFrame, arm: str) -> pd.DataFrame:
    """A row per (seed, user), a column per (metric, k)."""
    rows = users[users[c.ARM] == arm]
    return rows.pivot(index=[SEED, c.USER_ID], columns=[c.METRIC, c.K], values=c.VALUE).sort_index()


def _alike(wide: pd.DataFrame) -> list[list[tuple[str, int]]]:
    """Groups of columns that have a value for the same rows."""
    missing = wide.isna().to_numpy()
    patterns: dict[bytes, list[tuple[str, int]]] = {}
    names = wide.columns.to_frame(index=False)
    for place, (metric, k) in enumerate(zip(names[c.METRIC], names[c.K], strict=True)):
        patterns.setdefault(missing[:, place].tobytes(), []).append((metric, k))
    return list(patterns.values())


def _cube(rows: pd.DataFrame) -> NDArray[np.float64]:
    """[seeds, users, columns], the users that every seed has."""
    seeds = rows.index.unique(SEED)
    counts = rows.groupby(level=c.USER_ID).size()
    users = counts.index[counts == len(seeds)].sort_values()
    values = rows.to_numpy(dtype=np.float64)[rows.index.get_indexer(pd.MultiIndex.from_product([seeds, users]))]
    return np.asarray(values.reshape(len(seeds), len(users), -1))


def coverage(trained: Sequence[Trained], baselines: Artifact | None = None) -> pd.DataFrame:
    """The rows of `schemas.METRICS` that are no mean over users, averaged over seeds."""
    frames = []
    for run in trained:
        frame = schemas.METRICS.read(run.done["evaluate"].path)
        frames.append(frame.assign(**{c.ARM: frame[c.ARM].replace(ARM, run.method)}))
    if baselines is not None:
        frames.append(schemas.METRICS.read(baselines.path))
    whole = pd.concat(frames, ignore_index=True)
    order = [c.ARM, c.SLICE, c.METRIC, c.K]
    means = whole[whole[c.METRIC] == COVERAGE].groupby(order, sort=False, as_index=False).mean()
    return means.astype({c.NUM_USERS: "int64"})


def slices(trained: Sequence[Trained], baselines: Artifact | None = None) -> pd.DataFrame:
    """The slices' rows of `schemas.METRICS` of the first seed, whose intervals are over users alone."""
    first = min((run.seed for run in trained), default=0)
    frames = []
    for run in trained:
        if run.seed == first:
            frame = schemas.METRICS.read(run.done["evaluate"].path)
            frames.append(frame.assign(**{c.ARM: frame[c.ARM].replace(ARM, run.method)}))
    if baselines is not None:
        frames.append(schemas.METRICS.read(baselines.path))
    whole = pd.concat(frames, ignore_index=True)
    return whole[whole[c.SLICE] != OVERALL].drop_duplicates([c.ARM, c.SLICE, c.METRIC, c.K])


def budgets(trained: Sequence[Trained]) -> tuple[ArmBudget, ...]:
    """What each arm was trained with; of several seeds the mean."""
    found = []
    for method in dict.fromkeys(run.method for run in trained):
        runs = [run for run in trained if run.method == method]
        for stage in BUDGETED:
            spent = [run.done[stage].summary["budget"] for run in runs if stage in run.done]
            if spent:
                means = {name: round(sum(one[name] for one in spent) / len(spent)) for name in COUNTS}
                found.append(ArmBudget(method, stage, **means))
    return tuple(found)


def curves(trained: Sequence[Trained]) -> pd.DataFrame:
    """`arm`, `seed` and `schemas.STEPS`: fine-tuning's measures on the validation targets."""
    frames = []
    for run in trained:
        frame = schemas.STEPS.read(run.done["sft"].path)
        frame[c.ARM], frame[SEED] = run.method, run.seed
        frames.append(frame)
    whole = pd.concat(frames, ignore_index=True)
    return whole[whole[c.METRIC].str.startswith(VALIDATION)]


def by_arm(trained: Sequence[Trained], table: schemas.Table) -> pd.DataFrame:
    """A table of the diagnostics with the arm's name, its values averaged over seeds."""
    frames = [table.read(run.done["diagnostics"].path).assign(**{c.ARM: run.method}) for run in trained]
    keys = [c.ARM, *table.unique]
    whole = pd.concat(frames, ignore_index=True)[[*keys, c.VALUE]]
    return whole.groupby(keys, sort=False, as_index=False).mean()
