"""The `gti` command. Heavy libraries are imported where they are used, so that `gti --help` is quick."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gti_pipeline.errors import GtiError

if TYPE_CHECKING:
    from gti_pipeline.config import Config

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)
config_app = typer.Typer(no_args_is_help=True, help="Show or check a resolved configuration.")
data_app = typer.Typer(no_args_is_help=True, help="Look at a data set before a run.")
models_app = typer.Typer(no_args_is_help=True, help="The bundled pretrained models.")
app.add_typer(config_app, name="config")
app.add_typer(data_app, name="data")
app.add_typer(models_app, name="models")

Dataset = Annotated[str, typer.Option(help="A file of configs/datasets, or a path to a YAML file.")]
Profile = Annotated[str, typer.Option(help="A file of configs/profiles; default: paper with a GPU, else cpu.")]
Method = Annotated[str, typer.Option(help="A file of configs/methods.")]
Sets = Annotated[list[str] | None, typer.Option("--set", help="Override a setting: a.b=c. Repeatable.")]
Seed = Annotated[int | None, typer.Option(help="Seed of initial rows, grounding and fine-tuning.")]
DataDir = Annotated[str, typer.Option(help="The folder of the raw files.")]
RequireReal = Annotated[bool, typer.Option("--require-real", help="Refuse generated stand-in data.")]


def main() -> None:
    """Runs the command; an error that a user can mend is printed without a traceback, with exit code 2."""
    logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%H:%M:%S", level=logging.WARNING)
    logging.getLogger("gti_pipeline").setLevel(logging.INFO)
    try:
        app()
    except GtiError as error:
        sys.stderr.write(f"\nerror: {error}\n")
        sys.exit(2)


@app.command()
def run(
    dataset: Dataset = "vibrent",
    profile: Profile = "",
    method: Method = "gti",
    sets: Sets = None,
    seed: Seed = None,
    data_dir: DataDir = "",
    require_real: RequireReal = False,
) -> None:
    """Runs the whole pipeline: text to recommendations, with metrics, report and an MLflow run."""
    profile = profile or default_profile()
    overrides = _overrides(sets, seed, data_dir, require_real)
    _prepare(_checked(profile, dataset, method, overrides))
    from flows.pipeline import pipeline

    _quiet_known_errors()
    pipeline(dataset=dataset, profile=profile, method=method, overrides=overrides)


@app.command()
def compare(
    dataset: Dataset = "vibrent",
    profile: Profile = "",
    methods: Annotated[str, typer.Option(help="Names of methods, with commas.")] = "mean_sft,lc_rec,gti",
    seeds: Annotated[int, typer.Option(min=1, help="Seeds 0, 1, ... of every method.")] = 1,
    sets: Sets = None,
    data_dir: DataDir = "",
    require_real: RequireReal = False,
) -> None:
    """Runs several methods over the same data and semantic IDs and prints one table."""
    profile = profile or default_profile()
    names = tuple(dict.fromkeys(name.strip() for name in methods.split(",") if name.strip()))
    if not names:
        raise GtiError(f"--methods {methods!r} names no method: for example mean_sft,lc_rec,gti")
    overrides = _overrides(sets, None, data_dir, require_real)
    for name in names:
        config = _checked(profile, dataset, name, overrides)
    _prepare(config)
    from flows.compare import compare as flow

    _quiet_known_errors()
    flow(dataset=dataset, profile=profile, methods=names, seeds=seeds, overrides=overrides)


@app.command()
def schedule(
    cron: Annotated[str, typer.Option(help="Five fields: minute, hour, day, month, weekday.")] = "0 3 * * 0",
    dataset: Dataset = "vibrent",
    profile: Profile = "",
    method: Method = "gti",
    sets: Sets = None,
    seed: Seed = None,
    data_dir: DataDir = "",
    allow_standin: Annotated[bool, typer.Option("--allow-standin", help="Do not insist on real data.")] = False,
) -> None:
    """Serves the pipeline on a schedule, one run at a time (needs a Prefect server: `make server`)."""
    profile = profile or default_profile()
    overrides = _overrides(sets, seed, str(Path(data_dir).absolute()) if data_dir else "", not allow_standin)
    config = _checked(profile, dataset, method, overrides)
    _prepare(config)
    # the scheduled process may start in another folder
    overrides += (f"home={json.dumps(str(Path(config.home).absolute()))}",)
    from flows.schedule import serve

    serve(dataset=dataset, profile=profile, method=method, overrides=overrides, cron=cron)


@config_app.command("show")
def config_show(
    dataset: Dataset = "vibrent", profile: Profile = "", method: Method = "gti", sets: Sets = None, seed: Seed = None
) -> None:
    """Prints the resolved configuration as YAML."""
    from gti_pipeline.settings import to_yaml

    config = _checked(profile or default_profile(), dataset, method, _overrides(sets, seed, "", False))
    typer.echo(to_yaml(config), nl=False)


@config_app.command("validate")
def config_validate(
    dataset: Dataset = "vibrent", profile: Profile = "", method: Method = "gti", sets: Sets = None, seed: Seed = None
) -> None:
    """Checks a configuration; every problem is reported at once."""
    profile = profile or default_profile()
    _checked(profile, dataset, method, _overrides(sets, seed, "", False))
    typer.echo(f"valid: data set {dataset}, profile {profile}, method {method}")


@data_app.command("check")
def data_check(
    dataset: Dataset = "vibrent",
    sets: Sets = None,
    data_dir: DataDir = "",
    require_real: RequireReal = False,
) -> None:
    """Reads and cleans a data set and prints exact counts: rows read, kept, and rejected by reason."""
    from rich.table import Table

    config = _checked("cpu", dataset, "gti", _overrides(sets, None, data_dir, require_real))
    from flows.console import announce, console
    from gti_pipeline.data.source import resolve_source
    from gti_pipeline.data.stage import check_report, prepare

    source = resolve_source(config.data, Path(config.home))
    announce(source)
    prepared = prepare(config.data, source)
    table = Table("file", "what", "rows", title=source.name)
    for file, what, count in check_report(prepared):
        table.add_row(file, what, f"{count:,}")
    out = console()
    out.print(table)
    facts = ("items", "interactions", "users", "tested_users", "mean_history", "repeat_share")
    out.print(", ".join(f"{prepared.summary[name]:,} {name.replace('_', ' ')}" for name in facts))


@models_app.command("fetch")
def models_fetch(home: Annotated[Path, typer.Option(help="The folder below which models lie.")] = Path("data")) -> None:
    """Fetches the two bundled models by pinned version and digest, once."""
    from gti_pipeline import models

    for name in models.BUNDLED:
        typer.echo(f"{name}: {models.install(name, home).path}")


def default_profile() -> str:
    """`paper` where torch sees a GPU, else `cpu`."""
    import torch

    return "paper" if torch.cuda.is_available() else "cpu"


def _overrides(sets: list[str] | None, seed: int | None, data_dir: str, require_real: bool) -> tuple[str, ...]:
    """All overrides as `a.b=c`, which a Prefect deployment can keep as text."""
    overrides = list(sets or [])
    if seed is not None:
        overrides.append(f"seed={seed}")
    if data_dir:
        overrides.append(f"data.dir={json.dumps(data_dir)}")
    if require_real:
        overrides.append("data.require_real=true")
    return tuple(overrides)


def _checked(profile: str, dataset: str, method: str, overrides: tuple[str, ...]) -> Config:
    from gti_pipeline.settings import load_config

    return load_config(profile=profile, dataset=dataset, method=method, overrides=overrides)


def _prepare(config: Config) -> None:
    """What must be known before Prefect starts: the raw files are there, and where its state lies."""
    from flows.environment import configure
    from gti_pipeline.data.source import resolve_source

    resolve_source(config.data, Path(config.home))
    configure(Path(config.home))


def _quiet_known_errors() -> None:
    """Keeps Prefect from printing a traceback for an error that we print ourselves."""

    def without_traceback(record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], GtiError))

    for name in (
        "prefect.flow_runs",
        "prefect.task_runs",
        "prefect.engine",
        "prefect.task_engine",
        "prefect.flow_engine",
    ):
        logging.getLogger(name).addFilter(without_traceback)
