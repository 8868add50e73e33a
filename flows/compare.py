"""Several methods over the same data, semantic IDs and test users; shared stages are computed once."""

from __future__ import annotations

from pathlib import Path

from prefect import flow

from flows import tasks
from flows.arm import Arm, run_arm
from flows.comparison import publish_comparison, trained_of
from flows.console import announce, console
from flows.environment import show_progress
from gti_pipeline.artifacts import Artifact, digest
from gti_pipeline.config import BaselineName
from gti_pipeline.data.source import Source, resolve_source
from gti_pipeline.report import ComparisonInput
from gti_pipeline.report.budgets import budget_sentences
from gti_pipeline.report.compare_tables import compare_table
from gti_pipeline.report.comparison import against_baselines, sentences
from gti_pipeline.settings import load_config
from gti_pipeline.stages.baselines import needs_embeddings, why_not
from gti_pipeline.stages.comparison import REFERENCE, comparison_input, user_values
from gti_pipeline.stages.report import examples


@flow(name="gti-compare", flow_run_name="{dataset}-compare", persist_result=False)
def compare(
    dataset: str = "vibrent",
    profile: str = "cpu",
    methods: tuple[str, ...] = ("mean_sft", "lc_rec", "gti"),
    seeds: int = 1,
    overrides: tuple[str, ...] = (),
    baselines: tuple[BaselineName, ...] = (),
) -> str:
    """Runs methods x seeds and prints one table, absolute and relative to mean_sft; returns the page's path.

    Args:
        dataset: a file of configs/datasets.
        profile: a file of configs/profiles.
        methods: files of configs/methods.
        seeds: seeds 0, 1, ... of every method.
        overrides: settings as `a.b=c`.
        baselines: to stand in the same table; popularity always does.
    """
    show_progress()
    configs = [
        load_config(profile=profile, dataset=dataset, method=method, overrides=(*overrides, f"seed={seed}"))
        for seed in range(seeds)
        for method in methods
    ]
    source = resolve_source(configs[0].data, Path(configs[0].home))
    announce(source)
    arms = [run_arm(config, source) for config in configs]
    others, left_out = _baselines(arms[0], baselines)
    return str(_show(arms, source, others, left_out))


def _baselines(arm: Arm, names: tuple[BaselineName, ...]) -> tuple[Artifact | None, tuple[str, ...]]:
    """The evaluation of the named baselines on the arms' users, None without any; and what was left out."""
    found: dict[str, Artifact] = {}
    left_out = []
    for name in dict.fromkeys(names):
        if reason := why_not(name):
            left_out.append(f"{name} was left out: {reason}")
            continue
        vectors = arm.done["embed"] if needs_embeddings(name) else None
        task = tasks.baseline.with_options(name=f"baseline {name}")
        found[name] = task(arm.config, arm.workspace, arm.done["data"], vectors, name)
    if not found:
        return None, tuple(left_out)
    return tasks.evaluate(arm.config, arm.workspace, arm.done["data"], found), tuple(left_out)


def _show(arms: list[Arm], source: Source, baselines: Artifact | None, left_out: tuple[str, ...]) -> Path:
    """Prints the table and what it shows, and publishes the page."""
    shown = gather_input(arms, source, baselines, left_out)
    out = console()
    out.print(
        compare_table(shown.metrics, shown.reference, title=f"{source.name}: {shown.seeds} seed(s), full ranking")
    )
    said = [*sentences(shown), *budget_sentences(shown.budgets), *(v.text for v in against_baselines(shown))]
    for sentence in said:
        out.print(sentence, markup=False, highlight=False)
    keys = [arm.done["report"].key for arm in arms] + ([baselines.key] if baselines else [])
    return publish_comparison(arms, source, shown, f"compare-{digest([shown.arms, shown.seeds, keys])[:8]}")


def gather_input(
    arms: list[Arm], source: Source, baselines: Artifact | None = None, left_out: tuple[str, ...] = ()
) -> ComparisonInput:
    """Everything that the page shows."""
    trained = trained_of(arms)
    names = [run.method for run in trained]
    first = {run.method: run.done["recommend"] for run in trained if run.seed == trained[0].seed}
    return comparison_input(
        trained,
        user_values(trained, baselines),
        arms[0].config,
        source,
        reference=REFERENCE if REFERENCE in names else names[0],
        examples=examples(arms[0].done["data"], first),
        notes=(*left_out, *notes(arms)),
        baselines=baselines,
    )


def notes(arms: list[Arm]) -> tuple[str, ...]:
    """What the arms share and how each was trained."""
    shared = "All arms share data, vectors, semantic IDs and test users."
    budgets = [
        f"{arm.config.method}, seed {arm.config.seed}, {stage}: {arm.done[stage].summary['budget']['sentence']}"
        for arm in arms
        for stage in ("ground", "sft")
        if stage in arm.done
    ]
    return (shared, *budgets)
