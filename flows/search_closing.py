"""The end of a search task's run: the tables in the layout of the paper's tables 1 and 2, and the page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from flows.arm import Arm
from flows.comparison import publish_comparison, trained_of
from flows.console import console
from gti_pipeline import columns as c
from gti_pipeline import schemas
from gti_pipeline.artifacts import Artifact, digest
from gti_pipeline.config import Config
from gti_pipeline.data.source import Source
from gti_pipeline.report import ComparisonInput, Example, StageRow
from gti_pipeline.report.budgets import budget_sentences
from gti_pipeline.report.tables import stage_table
from gti_pipeline.search.evaluate import gains
from gti_pipeline.search.examples import examples
from gti_pipeline.search.tables import rich_tables, sentences
from gti_pipeline.stages.comparison import REFERENCE, SEED, Trained, comparison_input, user_values
from gti_pipeline.stages.evaluate import POPULAR
from gti_pipeline.stages.report import stage_note


def show_search(arms: list[Arm], source: Source) -> Path:
    """Prints the stages, the tables and what they show, and publishes the page."""
    out = console()
    for arm in arms:
        title = f"{source.name}: {arm.config.method}, seed {arm.config.seed}"
        out.print(stage_table([_row(artifact) for artifact in arm.done.values()], title=title))
    config, trained = arms[0].config, trained_of(arms)
    users = user_values(trained)
    shown = gather_input(trained, users, config, source)
    gained = gains(for_every_seed(users), shown.reference, config.evaluate)
    for table in rich_tables(shown.metrics, gained, shown.reference, f"{source.name}, {shown.seeds} seed(s)"):
        out.print(table)
    for line in (*sentences(gained, shown.reference, config.evaluate.headline_k), *budget_sentences(shown.budgets)):
        out.print(line, markup=False, highlight=False, soft_wrap=True)
    keys = [artifact.key for arm in arms for artifact in arm.done.values()]
    return publish_comparison(arms, source, shown, f"search-{digest([shown.arms, shown.seeds, keys])[:8]}")


def gather_input(trained: list[Trained], users: pd.DataFrame, config: Config, source: Source) -> ComparisonInput:
    """Everything that the page shows; one method alone is held against the popular items."""
    names = list(dict.fromkeys(run.method for run in trained))
    alone = POPULAR if len(names) == 1 else names[0]
    return comparison_input(
        trained,
        users,
        config,
        source,
        reference=REFERENCE if REFERENCE in names and len(names) > 1 else alone,
        examples=_examples(trained),
        notes=notes(trained[0].done),
    )


def for_every_seed(users: pd.DataFrame) -> pd.DataFrame:
    """The values by query with those of the popular items, which know no seed, once for each seed of the arms."""
    floor = users[users[c.ARM] == POPULAR]
    arms = users[users[c.ARM] != POPULAR]
    return pd.concat([arms, *(floor.assign(seed=seed) for seed in arms[SEED].unique())], ignore_index=True)


def notes(done: Mapping[str, Artifact]) -> tuple[str, ...]:
    """What the task is and what the arms share."""
    found, counts = done["recommend"].summary, done["data"].summary
    return (
        "A search task: in the tables a query stands where a user does.",
        f"{found['candidates']} items of a catalogue of {counts['items']:,} for each of {found['queries']:,} test"
        f" queries (of {found['of_queries']:,}), under the trie of valid IDs. Unjudged items count as not good.",
        f"Fine-tuning on {counts['training_matches']:,} good matches of training queries; queries of equal text are in"
        " one split. All arms share data, vectors, semantic IDs and test queries.",
    )


def _examples(trained: list[Trained]) -> tuple[Example, ...]:
    data = trained[0].done["data"].path
    tables = (schemas.ITEMS.read(data), schemas.QUERIES.read(data), schemas.JUDGMENTS.read(data))
    first = [run for run in trained if run.seed == trained[0].seed]
    return examples(*tables, {run.method: schemas.RECOMMENDATIONS.read(run.done["recommend"].path) for run in first})


def _row(artifact: Artifact) -> StageRow:
    return StageRow(artifact.stage, artifact.key, artifact.summary["seconds"], artifact.cached, _note(artifact))


def _note(artifact: Artifact) -> str:
    """One line on what a stage did."""
    s = artifact.summary
    match artifact.stage:
        case "search_data":
            counts = f"{s['items']:,} items, {s['queries']:,} queries, {s['judgments']:,} judgments"
            return f"{counts}; {sum(s['rejects'].values()):,} of {s['rows_read']:,} rows rejected"
        case "search_sft":
            return str(s["budget"]["sentence"])
        case "search_recommend":
            return f"{s['queries']:,} of {s['of_queries']:,} test queries, {s['candidates']} candidates each"
        case "search_evaluate":
            return f"{s['queries']:,} queries, {s['judgments']:,} judgments"
    return stage_note(artifact)
