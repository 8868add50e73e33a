"""The `gti` command. Heavy libraries are imported where they are used, so that `gti --help` is quick."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gti_pipeline.errors import GtiError

if TYPE_CHECKING:
    from rich.table import Table

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
SEARCH = "search"  # of data.task
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
    config = _checked(profile, dataset, method, overrides)
    _prepare(config)
    if config.data.task == SEARCH:
        _search(dataset, profile, (method,), (config.seed,), overrides)
        return
    if _shown_again(config):
        return
    _enter_prefect()
    from flows.pipeline import pipeline

    pipeline(dataset=dataset, profile=profile, method=method, overrides=overrides)


@app.command()
def compare(
    dataset: Dataset = "vibrent",
    profile: Profile = "",
    methods: Annotated[str, typer.Option(help="Names of methods, with commas.")] = "mean_sft,lc_rec,gti",
    seeds: Annotated[int, typer.Option(min=1, help="Seeds 0, 1, ... of every method.")] = 1,
    baselines: Annotated[str, typer.Option(help="Names of baselines to stand beside them, with commas.")] = "",
    sets: Sets = None,
    data_dir: DataDir = "",
    require_real: RequireReal = False,
) -> None:
    """Runs several methods over the same data and semantic IDs and prints one table."""
    profile = profile or default_profile()
    names = tuple(dict.fromkeys(name.strip() for name in methods.split(",") if name.strip()))
    if not names:
        raise GtiError(f"--methods {methods!r} names no method: for example mean_sft,lc_rec,gti")
    beside = _baseline_names(baselines)
    overrides = _overrides(sets, None, data_dir, require_real) + beside
    for name in names:
        config = _checked(profile, dataset, name, overrides)
    _prepare(config)
    if config.data.task == SEARCH:
        _search(dataset, profile, names, tuple(range(seeds)), overrides)
        return
    _enter_prefect()
    from flows.compare import compare as flow

    shown = config.baselines.names if beside else ()
    flow(dataset=dataset, profile=profile, methods=names, seeds=seeds, overrides=overrides, baselines=shown)


@app.command()
def baselines(
    dataset: Dataset = "vibrent",
    profile: Profile = "",
    names: Annotated[str, typer.Option(help="Names of baselines, with commas; default: all (`baselines.names`).")] = "",
    with_arm: Annotated[str, typer.Option(help="A method to stand in the same table; run first if need be.")] = "",
    sets: Sets = None,
    seed: Seed = None,
    data_dir: DataDir = "",
    require_real: RequireReal = False,
) -> None:
    """Popularity, repetition, k-NN, ALS, BPR and SASRec on the arms' test users, in one table."""
    profile = profile or default_profile()
    overrides = _overrides(sets, seed, data_dir, require_real) + _baseline_names(names)
    config = _checked(profile, dataset, with_arm or "gti", overrides)
    _refuse_search(config, "gti baselines")
    _prepare(config)
    _enter_prefect()
    from flows.baselines import baselines as flow

    flow(dataset=dataset, profile=profile, with_arm=with_arm, overrides=overrides)


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
    _refuse_search(config, "gti schedule")
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
    rejects: Annotated[Path | None, typer.Option(help="Write the rejected rows to this Parquet file.")] = None,
) -> None:
    """Reads and cleans a data set and prints exact counts: rows read, kept, rejected and left out, by reason."""
    whole = _checked("cpu", dataset, "gti", _overrides(sets, None, data_dir, require_real))
    config = whole.data
    from flows.console import announce, console
    from gti_pipeline.data import stage, summary
    from gti_pipeline.data.source import resolve_source
    from gti_pipeline.search import data as search

    source = resolve_source(config, Path(whole.home))
    announce(source)
    cleaned = search.clean(config, source) if config.task == SEARCH else stage.clean(config, source)
    console().print(_account_table(source.name, cleaned.summary))
    if rejects is not None:
        summary.write_rejects(cleaned.rejected, rejects)
        typer.echo(f"{len(cleaned.rejected):,} rejected rows: {rejects}")
    if isinstance(cleaned, search.Cleaned):
        search.check_content(config, cleaned)
        facts = search.facts_text(search.split_cleaned(config, cleaned).summary)
    else:
        stage.check_content(config, cleaned)
        facts = summary.facts_text(stage.split_cleaned(config, cleaned).summary)
    console().print(facts, soft_wrap=True)


def _account_table(title: str, summary: dict[str, Any]) -> Table:
    """What became of every row, file by file."""
    from rich.table import Table

    from gti_pipeline.data.summary import summary_rows

    table = Table("file", "what", "reason", "rows", title=title)
    table.columns[-1].justify = "right"
    for file, what, reason, count in summary_rows(summary):
        table.add_row(file, what, reason, f"{count:,}")
    return table


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


def _baseline_names(names: str) -> tuple[str, ...]:
    """Names with commas as an override of `baselines.names`, whose validation checks them; no names, no override."""
    wanted = list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    return (f"baselines.names={json.dumps(wanted)}",) if wanted else ()


def _checked(profile: str, dataset: str, method: str, overrides: tuple[str, ...]) -> Config:
    from gti_pipeline.settings import load_config

    return load_config(profile=profile, dataset=dataset, method=method, overrides=overrides)


def _prepare(config: Config) -> None:
    """What must be known before Prefect starts: the raw files are there, and where its state lies."""
    from flows.environment import configure
    from gti_pipeline.data.source import resolve_source

    resolve_source(config.data, Path(config.home))
    configure(Path(config.home))


def _search(
    dataset: str, profile: str, methods: tuple[str, ...], seeds: tuple[int, ...], overrides: tuple[str, ...]
) -> None:
    """A search task's arms, one or several; those that were all done before are shown without Prefect."""
    from flows.search_arm import finished_arms
    from gti_pipeline.data.source import resolve_source

    configs = [_checked(profile, dataset, name, (*overrides, f"seed={seed}")) for seed in seeds for name in methods]
    source = resolve_source(configs[0].data, Path(configs[0].home))
    arms = finished_arms(configs, source)
    if arms:
        from flows.console import announce
        from flows.search_closing import show_search

        announce(source)
        show_search(arms, source)
        return
    _enter_prefect()
    from flows.search import search

    search(dataset=dataset, profile=profile, methods=methods, seeds=seeds, overrides=overrides)


def _refuse_search(config: Config, command: str) -> None:
    if config.data.task == SEARCH:
        raise GtiError(
            f"data set {config.dataset!r} is a search task (data.task=search), which {command} does not know: use"
            " gti run or gti compare"
        )


def _shown_again(config: Config) -> bool:
    """Shows a run that was done before; False where something is left to do."""
    from flows.arm import finished_arm
    from gti_pipeline.data.source import resolve_source

    source = resolve_source(config.data, Path(config.home))
    arm = finished_arm(config, source)
    if arm is None:
        return False
    from flows.closing import show_run
    from flows.console import announce

    announce(source)
    show_run(arm, source)
    return True


def _enter_prefect() -> None:
    """Before Prefect is imported: which server it uses, and no traceback for an error that we print ourselves."""
    from flows.environment import use_running_server

    use_running_server()

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
