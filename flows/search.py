"""The search task as a Prefect flow: arms of query text to ranked items, side by side."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from prefect import flow, task
from prefect.cache_policies import NO_CACHE

from flows import tasks
from flows.console import announce
from flows.environment import show_progress
from flows.search_arm import OWN, module, run_arm
from flows.search_closing import show_search
from gti_pipeline.artifacts import Artifact
from gti_pipeline.data.source import resolve_source
from gti_pipeline.settings import load_config


@flow(name="gti-search", flow_run_name="{dataset}-search", persist_result=False)
def search(
    dataset: str = "jobs",
    profile: str = "cpu",
    methods: tuple[str, ...] = ("mean_sft", "lc_rec", "gti"),
    seeds: tuple[int, ...] = (0,),
    overrides: tuple[str, ...] = (),
) -> str:
    """Runs methods x seeds and prints the tables; returns the page's path.

    Args:
        dataset: a file of configs/datasets with `data.task: search`.
        profile: a file of configs/profiles.
        methods: files of configs/methods.
        seeds: of every method.
        overrides: settings as `a.b=c`.
    """
    show_progress()
    configs = [
        load_config(profile=profile, dataset=dataset, method=method, overrides=(*overrides, f"seed={seed}"))
        for seed in seeds
        for method in methods
    ]
    source = resolve_source(configs[0].data, Path(configs[0].home))
    announce(source)
    return str(show_search([run_arm(config, source, as_task) for config in configs], source))


def as_task(stage: str) -> Callable[..., Artifact]:
    """A stage as a Prefect task: the recommender's where it is the same."""
    if stage not in OWN:
        shared: Callable[..., Artifact] = getattr(tasks, stage)
        return shared
    run: Callable[..., Artifact] = import_module(module(stage)).run
    return task(name=f"search_{stage}", cache_policy=NO_CACHE, persist_result=False)(run)
