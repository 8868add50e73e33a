"""The stages as Prefect tasks, thin: all that they do is in `gti_pipeline.stages`.

Results are passed as values, never persisted by Prefect: our content-keyed artifacts are the memory across runs.
"""

from __future__ import annotations

from collections.abc import Mapping

from prefect import task
from prefect.cache_policies import NO_CACHE

from gti_pipeline.artifacts import Artifact
from gti_pipeline.config import BaselineName, Config
from gti_pipeline.data.source import Source
from gti_pipeline.stages.base import Workspace


@task(name="data", cache_policy=NO_CACHE, persist_result=False)
def data(config: Config, workspace: Workspace, source: Source) -> Artifact:
    """Raw files to clean tables and sequences."""
    from gti_pipeline.stages import data as stage

    return stage.run(config, workspace, source)


@task(name="embed", cache_policy=NO_CACHE, persist_result=False)
def embed(config: Config, workspace: Workspace, data: Artifact) -> Artifact:
    """Item text to vectors."""
    from gti_pipeline.stages import embed as stage

    return stage.run(config, workspace, data)


@task(name="semantic_ids", cache_policy=NO_CACHE, persist_result=False)
def semantic_ids(config: Config, workspace: Workspace, data: Artifact, embeddings: Artifact) -> Artifact:
    """Vectors to unique semantic IDs."""
    from gti_pipeline.stages import semantic_ids as stage

    return stage.run(config, workspace, data, embeddings)


@task(name="vocab", cache_policy=NO_CACHE, persist_result=False)
def vocab(config: Config, workspace: Workspace, data: Artifact, semantic_ids: Artifact) -> Artifact:
    """New tokens and their initial rows."""
    from gti_pipeline.stages import vocab as stage

    return stage.run(config, workspace, data, semantic_ids)


@task(name="ground", cache_policy=NO_CACHE, persist_result=False)
def ground(config: Config, workspace: Workspace, data: Artifact, semantic_ids: Artifact, vocab: Artifact) -> Artifact:
    """GTI grounding of the new rows."""
    from gti_pipeline.stages import ground as stage

    return stage.run(config, workspace, data, semantic_ids, vocab)


@task(name="sft", cache_policy=NO_CACHE, persist_result=False)
def sft(
    config: Config,
    workspace: Workspace,
    data: Artifact,
    semantic_ids: Artifact,
    vocab: Artifact,
    rows_from: Artifact,
) -> Artifact:
    """Next-item fine-tuning."""
    from gti_pipeline.stages import sft as stage

    return stage.run(config, workspace, data, semantic_ids, vocab, rows_from)


@task(name="recommend", cache_policy=NO_CACHE, persist_result=False)
def recommend(
    config: Config, workspace: Workspace, data: Artifact, semantic_ids: Artifact, vocab: Artifact, sft: Artifact
) -> Artifact:
    """Trie-constrained beam search."""
    from gti_pipeline.stages import recommend as stage

    return stage.run(config, workspace, data, semantic_ids, vocab, sft)


@task(name="evaluate", cache_policy=NO_CACHE, persist_result=False)
def evaluate(
    config: Config,
    workspace: Workspace,
    data: Artifact,
    recommendations: Artifact | Mapping[str, Artifact],
    semantic_ids: Artifact | None = None,
) -> Artifact:
    """Metrics with intervals, of one arm beside popularity or of several."""
    from gti_pipeline.stages import evaluate as stage

    return stage.run(config, workspace, data, recommendations, semantic_ids)


@task(name="diagnostics", cache_policy=NO_CACHE, persist_result=False)
def diagnostics(
    config: Config,
    workspace: Workspace,
    semantic_ids: Artifact,
    vocab: Artifact,
    ground: Artifact | None,
    sft: Artifact,
) -> Artifact:
    """What the new tokens' rows are like."""
    from gti_pipeline.stages import diagnostics as stage

    return stage.run(config, workspace, semantic_ids, vocab, ground, sft)


@task(name="report", cache_policy=NO_CACHE, persist_result=False)
def report(config: Config, workspace: Workspace, done: Mapping[str, Artifact], banner: str) -> Artifact:
    """The page."""
    from gti_pipeline.stages import report as stage

    return stage.run(config, workspace, done, banner)


@task(name="baseline", cache_policy=NO_CACHE, persist_result=False)
def baseline(
    config: Config, workspace: Workspace, data: Artifact, embeddings: Artifact | None, name: BaselineName
) -> Artifact:
    """One baseline's recommendations."""
    from gti_pipeline.stages import baselines as stage

    return stage.run(config, workspace, data, embeddings, name)
