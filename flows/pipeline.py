"""The pipeline flow: one method, one seed."""

from __future__ import annotations

from pathlib import Path

from prefect import flow

from flows.arm import Arm, run_arm
from flows.closing import show_run
from flows.console import announce
from flows.environment import show_progress
from gti_pipeline.data.source import resolve_source
from gti_pipeline.settings import load_config


@flow(name="gti-pipeline", flow_run_name="{dataset}-{method}", persist_result=False)
def pipeline(
    dataset: str = "vibrent", profile: str = "cpu", method: str = "gti", overrides: tuple[str, ...] = ()
) -> Arm:
    """Runs every stage of one arm.

    Parameters are plain text, so that a deployment can be started with others from Prefect's UI.
    """
    show_progress()
    config = load_config(profile=profile, dataset=dataset, method=method, overrides=overrides)
    source = resolve_source(config.data, Path(config.home))
    announce(source)
    arm = run_arm(config, source)
    show_run(arm, source)
    return arm
