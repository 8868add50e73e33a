"""Several methods over the same data, semantic IDs and test users; shared stages are computed once."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from prefect import flow

from flows.arm import Arm, run_arm
from flows.console import announce, console, show_banner
from flows.environment import show_progress
from gti_pipeline import columns as c
from gti_pipeline import schemas
from gti_pipeline.artifacts import digest
from gti_pipeline.banner import banner_text
from gti_pipeline.config import EvaluateConfig
from gti_pipeline.data.source import Source, resolve_source
from gti_pipeline.evaluate.intervals import mean_interval, paired_interval
from gti_pipeline.evaluate.lists import COVERAGE
from gti_pipeline.report import ComparisonInput, Difference
from gti_pipeline.report.html import build_comparison
from gti_pipeline.report.tables import compare_table
from gti_pipeline.report.verdict import between_arms
from gti_pipeline.settings import load_config
from gti_pipeline.stages.evaluate import ARM, POPULAR, named_metrics

REFERENCE = "mean_sft"
COMPARED = "recall"


@flow(name="gti-compare", flow_run_name="{dataset}-compare", persist_result=False)
def compare(
    dataset: str = "vibrent",
    profile: str = "cpu",
    methods: tuple[str, ...] = ("mean_sft", "lc_rec", "gti"),
    seeds: int = 1,
    overrides: tuple[str, ...] = (),
) -> str:
    """Runs methods x seeds and prints one table, absolute and relative to mean_sft; returns the page's path."""
    show_progress()
    configs = [
        load_config(profile=profile, dataset=dataset, method=method, overrides=(*overrides, f"seed={seed}"))
        for seed in range(seeds)
        for method in methods
    ]
    source = resolve_source(configs[0].data, Path(configs[0].home))
    announce(source)
    arms = [run_arm(config, source) for config in configs]
    return str(_show(arms, source, seeds))


def _show(arms: list[Arm], source: Source, seeds: int) -> Path:
    users = pd.concat([_user_values(arm) for arm in arms]).drop_duplicates([c.ARM, "seed", c.USER_ID, c.METRIC, c.K])
    config = arms[0].config.evaluate
    metrics = pd.concat([summarise(users, config), _coverage(arms)], ignore_index=True)
    reference = REFERENCE if REFERENCE in set(metrics[c.ARM]) else arms[0].config.method
    gains = differences(users, reference, config)
    names = [arm.config.method for arm in arms]
    out = console()
    out.print(compare_table(metrics, reference, title=f"{source.name}: {seeds} seed(s), full ranking"))
    for sentence in between_arms(gains, list(dict.fromkeys(names)), reference):
        out.print(sentence, markup=False, highlight=False)
    name = digest([list(dict.fromkeys(names)), seeds, [arm.done["evaluate"].key for arm in arms]])[:8]
    folder = arms[0].workspace.home / "reports" / source.name / f"compare-{name}"
    page = build_comparison(
        ComparisonInput(
            title=f"{source.name}: {', '.join(dict.fromkeys(names))}",
            dataset=source.name,
            metrics=metrics,
            reference=reference,
            is_standin=source.is_standin,
            banner=banner_text(source),
            differences=gains,
            notes=notes(arms, seeds),
            next_steps="See the runs side by side: make ui.",
            headline_k=config.headline_k,
            confidence=config.confidence,
        ),
        folder,
    )
    schemas.METRICS.write(metrics, folder)
    out.print(f"page:    {page.page}\ntable:   {folder / 'metrics.parquet'}\nnext:    make ui", highlight=False)
    show_banner(source)
    return page.page


def summarise(users: pd.DataFrame, config: EvaluateConfig) -> pd.DataFrame:
    """Metrics by arm: each user's values averaged over seeds first, then over users, with a bootstrap over users."""
    rows = []
    order = [c.ARM, c.METRIC, c.K]
    for (arm, metric, k), group in users.groupby(order, sort=False):
        values = group.groupby(c.USER_ID)[c.VALUE].mean().to_numpy()
        interval = mean_interval(values, config.bootstrap, config.confidence)
        rows.append((arm, "all", metric, k, *interval, len(values)))
    names = [c.ARM, c.SLICE, c.METRIC, c.K, c.VALUE, c.LOW, c.HIGH, c.NUM_USERS]
    return pd.DataFrame(rows, columns=names)


def differences(users: pd.DataFrame, reference: str, config: EvaluateConfig) -> tuple[Difference, ...]:
    """Paired differences of every arm to the reference in Recall, users' values averaged over seeds."""
    recall = users[users[c.METRIC] == COMPARED]
    found = []
    for k in config.ks:
        table = recall[recall[c.K] == k].pivot_table(index=c.USER_ID, columns=c.ARM, values=c.VALUE, aggfunc="mean")
        for arm in table.columns:
            if arm != reference:
                gain = paired_interval(
                    table[arm].to_numpy(), table[reference].to_numpy(), config.bootstrap, config.confidence
                )
                found.append(Difference(str(arm), reference, COMPARED, k, *gain, len(table)))
    return tuple(found)


def notes(arms: list[Arm], seeds: int) -> tuple[str, ...]:
    """What the arms share and what each was given."""
    shared = "All arms share data, vectors, semantic IDs, test users and the fine-tuning budget."
    budgets = [
        f"{arm.config.method}, seed {arm.config.seed}, {stage}: {arm.done[stage].summary['budget']['sentence']}"
        for arm in arms
        for stage in ("ground", "sft")
        if stage in arm.done
    ]
    one = () if seeds > 1 else ("One seed: differences between arms include the chance of a single training run.",)
    return (shared, *one, *budgets)


def _user_values(arm: Arm) -> pd.DataFrame:
    frame = schemas.USER_METRICS.read(arm.done["evaluate"].path)
    frame[c.ARM] = frame[c.ARM].replace(ARM, arm.config.method)
    return frame.assign(seed=frame[c.ARM].map(lambda name: 0 if name == POPULAR else arm.config.seed))


def _coverage(arms: list[Arm]) -> pd.DataFrame:
    """The rows of METRICS that are no mean over users, averaged over seeds."""
    frames = [named_metrics(arm.done["evaluate"], arm.config.method) for arm in arms]
    whole = pd.concat(frames, ignore_index=True)
    order = [c.ARM, c.SLICE, c.METRIC, c.K]
    means = whole[whole[c.METRIC] == COVERAGE].groupby(order, sort=False, as_index=False).mean()
    return means.astype({c.NUM_USERS: "int64"})
