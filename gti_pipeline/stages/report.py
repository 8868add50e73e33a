"""A run's report: one self-contained page, its figures, its tables as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from gti_pipeline import columns as c
from gti_pipeline import schemas
from gti_pipeline.artifacts import Artifact
from gti_pipeline.config import Config
from gti_pipeline.evaluate.intervals import paired_interval
from gti_pipeline.report import BudgetRow, Diagnostics, Difference, Example, Recommended, ReportInput, StageRow
from gti_pipeline.report.html import build_report
from gti_pipeline.report.page import template_digests
from gti_pipeline.settings import to_yaml
from gti_pipeline.stages.base import Workspace, run_stage
from gti_pipeline.stages.evaluate import ARM, named_metrics

EXAMPLES, SHOWN = 6, 5
STEPPED = ("semantic_ids", "ground", "sft")


def run(config: Config, workspace: Workspace, done: Mapping[str, Artifact], banner: str) -> Artifact:
    """report.html, metrics.md, figures; `done` holds the run's artifacts by stage, in order."""

    def make(folder: Path, key: str) -> dict[str, Any]:
        del key
        build_report(report_input(config, workspace, done, banner), folder)
        return {"page": "report.html"}

    shown = config.model_dump(mode="json", exclude={"home": True, "data": {"dir"}})
    inputs = {stage: artifact.key for stage, artifact in done.items()}
    settings = {"config": shown, "banner": banner, "templates": template_digests()}
    return run_stage(workspace, "report", module=__name__, settings=settings, inputs=inputs, write=make)


def report_input(config: Config, workspace: Workspace, done: Mapping[str, Artifact], banner: str) -> ReportInput:
    """Gathers what the page shows."""
    data = done["data"]
    return ReportInput(
        title=f"{workspace.dataset}: {config.method}, seed {config.seed}",
        dataset=workspace.dataset,
        arm=config.method,
        metrics=named_metrics(done["evaluate"], config.method),
        config_yaml=to_yaml(config),
        is_standin=bool(data.summary["is_standin"]),
        banner=banner,
        data_summary=data.summary,
        stages=tuple(
            StageRow(stage, artifact.key, artifact.summary["seconds"], False, stage_note(artifact))
            for stage, artifact in done.items()
        ),
        semantic_id_summary=done["semantic_ids"].summary,
        semantic_ids=schemas.SEMANTIC_IDS.read(done["semantic_ids"].path),
        codebook_size=config.semantic_ids.codebook_size,
        budgets=tuple(
            budget_row(artifact.summary["budget"]) for artifact in done.values() if "budget" in artifact.summary
        ),
        steps={stage: schemas.STEPS.read(done[stage].path) for stage in STEPPED if stage in done},
        differences=differences(done["evaluate"], config),
        diagnostics=diagnostics(done["diagnostics"]) if "diagnostics" in done else None,
        examples=examples(data, {config.method: done["recommend"]}),
        next_steps=next_steps(config),
        headline_k=config.evaluate.headline_k,
        confidence=config.evaluate.confidence,
    )


def stage_note(artifact: Artifact) -> str:
    """One line on what a stage did."""
    s = artifact.summary
    match artifact.stage:
        case "data":
            counts = f"{s['items']:,} items, {s['interactions']:,} interactions, {s['users']:,} users"
            return f"{counts}; {sum(s['rejects'].values()):,} of {s['rows_read']:,} rows rejected"
        case "embed":
            return f"{s['items']:,} vectors of {s['dim']} dimensions ({s['model']})"
        case "semantic_ids":
            return f"{s['levels']} levels of {s['codebook_size']} codes, {s['items_moved']} items moved to be unique"
        case "vocab":
            return f"{s['new_tokens']} new tokens on {s['model']}, {s['init']} init"
        case "ground":
            return str(s["sentence"])
        case "sft":
            resumed = s["resumed_from_step"]
            return str(s["budget"]["sentence"]) + (f"; resumed after step {resumed}" if resumed else "")
        case "recommend":
            return f"{s['users']:,} of {s['of_users']:,} test users, {s['beams']} beams"
        case "diagnostics":
            ranks = ", ".join(
                f"{moment} {numbers['effective_rank']:.1f}"
                for moment, numbers in s.items()
                if isinstance(numbers, dict)
            )
            return f"effective rank of the new rows: {ranks}"
        case "evaluate":
            return f"{s['users']:,} users, full ranking"
    return ""


def budget_row(budget: Mapping[str, Any]) -> BudgetRow:
    """A stage's budget for the page."""
    stopped = f"budget {budget['limited_by']}" if budget["limited_by"] else "as planned"
    counts = (budget["steps"], budget["epochs"], budget["examples"], budget["tokens"])
    return BudgetRow(budget["stage"], *counts, stopped, budget["sentence"])


def differences(evaluation: Artifact, config: Config) -> tuple[Difference, ...]:
    """Paired differences of the arm to every other of the table, in Recall at every K."""
    values = schemas.USER_METRICS.read(evaluation.path)
    recall = values[values[c.METRIC] == "recall"]
    others = [name for name in dict.fromkeys(recall[c.ARM]) if name != ARM]
    rows = []
    for k in config.evaluate.ks:
        table = recall[recall[c.K] == k].pivot(index=c.USER_ID, columns=c.ARM, values=c.VALUE)
        for name in others:
            ours, theirs = table[ARM].to_numpy(), table[name].to_numpy()
            gain = paired_interval(ours, theirs, config.evaluate.bootstrap, config.evaluate.confidence)
            rows.append(Difference(config.method, name, "recall", k, gain.mean, gain.low, gain.high, len(table)))
    return tuple(rows)


def diagnostics(artifact: Artifact) -> Diagnostics:
    """The diagnostics stage's tables."""
    return Diagnostics(
        numbers=schemas.DIAGNOSTICS.read(artifact.path),
        cosines=schemas.COSINES.read(artifact.path),
        spectrum=schemas.SPECTRUM.read(artifact.path),
        nearest_words=schemas.NEAREST_WORDS.read(artifact.path),
    )


def examples(data: Artifact, recommendations: Mapping[str, Artifact]) -> tuple[Example, ...]:
    """The first users' histories, each arm's list for them and their truths, as titles."""
    items = schemas.ITEMS.read(data.path)
    titles: dict[str, str] = dict(zip(items[c.ITEM_ID], items[c.TITLE], strict=True))
    sequences = schemas.SEQUENCES.read(data.path)
    test = sequences[sequences[c.SPLIT] == "test"]
    histories = dict(zip(test[c.USER_ID], test[c.HISTORY], strict=True))
    relevant = schemas.RELEVANT.read(data.path)
    relevant = relevant[relevant[c.SPLIT] == "test"]
    found = {arm: schemas.RECOMMENDATIONS.read(artifact.path) for arm, artifact in recommendations.items()}
    shown = []
    for user in next(iter(found.values()))[c.USER_ID].unique()[:EXAMPLES]:
        truths = relevant.loc[relevant[c.USER_ID] == user, c.ITEM_ID].tolist()
        lists = {arm: _top(frame[frame[c.USER_ID] == user], titles, truths) for arm, frame in found.items()}
        taken = "; ".join(titles[item] for item in truths[:SHOWN]) + (" ..." if len(truths) > SHOWN else "")
        shown.append(Example(user, tuple(titles[item] for item in histories[user][-8:]), lists, taken))
    return tuple(shown)


def _top(rows: pd.DataFrame, titles: Mapping[str, str], truths: Sequence[str]) -> tuple[Recommended, ...]:
    top = rows.sort_values(c.RANK).head(SHOWN)
    return tuple(
        Recommended(rank, titles[item], score, item in truths)
        for rank, item, score in zip(top[c.RANK].tolist(), top[c.ITEM_ID].tolist(), top[c.SCORE].tolist(), strict=True)
    )


def next_steps(config: Config) -> str:
    """What a reader might do next."""
    return (
        f"Compare with the other arms: make compare DATASET={config.dataset} METHODS=mean_sft,lc_rec,gti. "
        "See every run beside this one: make ui."
    )
