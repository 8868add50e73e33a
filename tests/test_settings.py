"""Settings: what wins, what is refused, and that everything wrong is said at once and clearly."""

from __future__ import annotations

import itertools
import re

import pytest
import yaml

from gti_pipeline.config import Config
from gti_pipeline.errors import GtiError
from gti_pipeline.settings import CONFIGS, load_config, names_in, to_yaml

EVERY = list(itertools.product(*(names_in(kind) for kind in ("profiles", "datasets", "methods"))))


def load(*overrides, profile="tiny", dataset="vibrent", method="gti", configs=CONFIGS):
    return load_config(profile=profile, dataset=dataset, method=method, overrides=overrides, configs=configs)


def problems(*overrides, **where):
    """The lines of the one error, without its title."""
    with pytest.raises(GtiError) as caught:
        load(*overrides, **where)
    title, *lines = str(caught.value).splitlines()
    assert title == "The configuration is not valid:"
    assert all(line.startswith("  - ") for line in lines)
    return [line.removeprefix("  - ") for line in lines]


@pytest.fixture
def folder(tmp_path):
    """A function that writes YAML layers; those not given are empty."""

    def write(**layers):
        for kind, name in (("profiles", "p"), ("datasets", "d"), ("methods", "m")):
            path = tmp_path / kind / f"{name}.yaml"
            path.parent.mkdir(exist_ok=True)
            path.write_text(layers.get(kind, ""), encoding="utf-8")
        return {"profile": "p", "dataset": "d", "method": "m", "configs": tmp_path}

    return write


def test_there_are_configurations_to_load():
    assert {"tiny", "cpu", "paper"} <= {profile for profile, _, _ in EVERY}
    assert {"vibrent", "office_products"} <= {dataset for _, dataset, _ in EVERY}
    assert {"gti", "mean_sft", "random_sft", "lc_rec", "gti_multitask"} <= {method for _, _, method in EVERY}


@pytest.mark.parametrize(("profile", "dataset", "method"), EVERY)
def test_every_combination_loads_and_reads_back(profile, dataset, method):
    config = load(profile=profile, dataset=dataset, method=method)
    assert (config.profile, config.dataset, config.method) == (profile, dataset, method)
    assert Config.model_validate(yaml.safe_load(to_yaml(config))) == config


def test_the_methods_are_the_papers_arms():
    arms = {method: load(method=method) for method in names_in("methods")}
    assert {name: (c.vocab.init, c.ground.enabled, c.sft.tasks) for name, c in arms.items()} == {
        "gti": ("mean", True, "next_item"),
        "mean_sft": ("mean", False, "next_item"),
        "random_sft": ("random", False, "next_item"),
        "keyword_sft": ("keyword", False, "next_item"),
        "lc_rec": ("mean", False, "multitask"),
        "gti_multitask": ("mean", True, "multitask"),
        "mean_sft_matched": ("mean", False, "next_item"),
        "lc_rec_matched": ("mean", False, "multitask"),
    }
    assert {name for name, config in arms.items() if config.sft.extra_steps} == {"mean_sft_matched", "lc_rec_matched"}


def test_the_paper_profile_has_the_papers_numbers():
    config = load(profile="paper")
    assert (config.semantic_ids.num_levels, config.semantic_ids.codebook_size) == (4, 256)
    assert (config.semantic_ids.hidden_dims, config.semantic_ids.latent_dim) == ((512, 256), 32)
    assert (config.semantic_ids.dropout, config.semantic_ids.epochs) == (0.1, 20000)
    assert (config.ground.learning_rate, config.ground.epochs, config.ground.batch_size) == (1e-3, 10, 16)
    assert (config.sft.batch_size, config.sft.max_steps) == (512, 1600)
    assert (config.lm.model, config.lm.dtype, config.embed.max_tokens) == ("Qwen/Qwen3-0.6B", "bfloat16", 2048)


def test_precedence_lowest_first(folder):
    layers = {
        "profiles": "sft: {epochs: 11, batch_size: 48, max_history: 6, save_steps: 7}",
        "datasets": "sft: {batch_size: 64, max_history: 8, save_steps: 8}",
        "methods": "sft: {max_history: 9, save_steps: 9}",
    }
    sft = load("sft.save_steps=10", "sft.save_steps=12", **folder(**layers)).sft
    assert sft.micro_batch_size == Config().sft.micro_batch_size
    assert (sft.epochs, sft.batch_size, sft.max_history, sft.save_steps) == (11, 64, 9, 12)


def test_names_in_a_file_do_not_override_the_command_line(folder):
    config = load(**folder(profiles="profile: other\nmethod: other"))
    assert (config.profile, config.dataset, config.method) == ("p", "d", "m")


def test_a_path_to_any_yaml_file_is_a_layer(folder, tmp_path):
    where = folder()
    path = tmp_path / "my_arm.yaml"
    path.write_text("sft: {epochs: 2}")
    config = load(**where | {"method": str(path)})
    assert (config.sft.epochs, config.method) == (2, "my_arm")


@pytest.mark.parametrize(
    ("override", "section", "key", "value"),
    [
        ("sft.learning_rate=1e-4", "sft", "learning_rate", 1e-4),
        ("sft.learning_rate=2.5E-4", "sft", "learning_rate", 2.5e-4),
        ("sft.learning_rate=1", "sft", "learning_rate", 1.0),
        ("data.max_users=300", "data", "max_users", 300),
        ("data.max_users=null", "data", "max_users", None),
        ("data.max_users=", "data", "max_users", None),
        ("data.require_real=true", "data", "require_real", True),
        ("data.dir=/a=b/c.d", "data", "dir", "/a=b/c.d"),
        ("semantic_ids.hidden_dims=[64, 32]", "semantic_ids", "hidden_dims", (64, 32)),
        ("evaluate.ks=[5,10]", "evaluate", "ks", (5, 10)),
        ("ground.sid_to_text=[]", "ground", "sid_to_text", ()),
    ],
)
def test_override_values(override, section, key, value):
    found = getattr(getattr(load(override), section), key)
    assert found == value
    assert type(found) is type(value)


def test_an_override_reaches_into_nested_sections_and_leaves_the_rest():
    config = load("data.items.title=headline", "seed=7")
    assert (config.data.items.title, config.seed) == ("headline", 7)
    assert config.data.items.item_id == load().data.items.item_id


def test_only_true_and_false_are_switches(folder):
    text = "data: {name: off, items: {keep: {is: [no, yes, trueish]}}, interactions: {join: {file: o.csv, on: n}}}"
    config = load(**folder(datasets=text, methods="ground: {enabled: false}"))
    assert (config.data.name, config.data.interactions.join.on) == ("off", "n")
    assert config.data.items.keep == {"is": ("no", "yes", "trueish")}
    assert not config.ground.enabled
    assert load("data.require_real=True", "data.items.keep.on=[no]").data.items.keep == {"on": ("no",)}


def test_everything_wrong_is_reported_at_once():
    lines = problems(
        "sft.learning_rte=1e-4",
        "sftt.epochs=3",
        "ground.batch_size=many",
        "vocab.init=maen",
        "semantic_ids.hidden_dims=[64, big]",
        "data.items.delimter=;",
        "malformed",
        profile="tinny",
        dataset="vibrnt",
        method="gtii",
    )
    expected = [
        r"--profile=tinny: no file tinny.yaml in .*profiles; did you mean tiny\?; known: \['cpu', 'paper', 'tiny'\]",
        r"--dataset=vibrnt: no file vibrnt.yaml in .*datasets; did you mean vibrent\?; known: .*",
        r"--method=gtii: no file gtii.yaml in .*methods; did you mean gti\?; known: .*",
        r"--set 'malformed': expected key.path=value, for example --set sft.learning_rate=1e-4",
        r"sft.learning_rte: no such key; did you mean sft.learning_rate\?",
        r"sftt: no such key; did you mean sft\?",
        r"ground.batch_size='many': Input should be a valid integer.*",
        r"vocab.init='maen': Input should be 'mean', 'random' or 'keyword'; did you mean mean\?",
        r"semantic_ids.hidden_dims.1='big': Input should be a valid integer.*",
        r"data.items.delimter: no such key; did you mean data.items.delimiter\?",
    ]
    assert len(lines) == len(expected)
    for pattern in expected:
        assert sum(re.fullmatch(pattern, line) is not None for line in lines) == 1, (pattern, lines)


@pytest.mark.parametrize(
    ("override", "pattern"),
    [
        ("sft.batch_size=0", r"sft.batch_size=0: Input should be greater than or equal to 1"),
        ("sft.batch_size=1.5", r"sft.batch_size=1.5: Input should be a valid integer.*"),
        ("sft.batch_size=[1]", r"sft.batch_size=\[1\]: Input should be a valid integer"),
        ("sft.batch_size=true", r"sft.batch_size=True: true and false are no value of this setting"),
        ("seed=false", r"seed=False: true and false are no value of this setting"),
        ("ground.enabled=maybe", r"ground.enabled='maybe': Input should be a valid boolean.*"),
        ("sft.batch_size.x=1", r"sft.batch_size=\{'x': 1\}: Input should be a valid integer"),
        ("sft.batch_size=", r"sft.batch_size=None: Input should be a valid integer"),
        ("sft=3", r"sft=3: expected a section of settings, as in sft.tasks=.*"),
        ("sft=", r"sft=None: expected a section of settings, as in sft.tasks=.*"),
        ("data.items.file=3", r"data.items.file=3: Input should be a valid string"),
        ("data.items.file=[3]", r"data.items.file.0=3: Input should be a valid string"),
        ("data.name=a b", r"data.name='a b': String should match pattern .*"),
        ("sft.learning_rate=fast", r"sft.learning_rate='fast': Input should be a valid number.*"),
        ("sft.learning_rate=0", r"sft.learning_rate=0: Input should be greater than 0"),
        ("sft.learning_rate=.nan", r"sft.learning_rate=nan: Input should be a finite number"),
        ("sft.learning_rate=.inf", r"sft.learning_rate=inf: Input should be a finite number"),
        ("sft.epochs=-.inf", r"sft.epochs=-inf: Input should be .*"),
        ("sft.learning_rate=nan", r"sft.learning_rate='nan': Input should be a finite number"),
        ("sft.pairs_share=1.1", r"sft.pairs_share=1.1: Input should be less than 1"),
        ("lm.device=gpu", r"lm.device='gpu': Input should be 'auto', 'cpu' or 'cuda'.*"),
        ("ground.text_to_sid=[titel]", r"ground.text_to_sid.0='titel': Input should be .*; did you mean title\?"),
        ("ground.text_to_sid=title", r"ground.text_to_sid='title': Input should be a list, as in \[a, b\]"),
        ("data.max_users=few", r"data.max_users='few': Input should be a valid integer.*"),
        ("evaluate.ks=[50]", r"evaluate.ks asks for 50 results, decode.beams=20 finds fewer: .*"),
        ("evaluate.ks=[]", r"evaluate.ks is empty"),
        ("sft.micro_batch_size=7", r"sft.batch_size=16 is not a multiple of sft.micro_batch_size=7"),
        ("zebra.x=1", r"zebra: no such key; known: .*sft.*"),
        ("data.str=[1]", r"data.str: no such key; .*"),
        (
            "learning_rate=1",
            r"learning_rate: no such key; did you mean semantic_ids.learning_rate or .* or sft.learning_rate or .*\?",
        ),
        ("=3", r"--set '=3': expected key.path=value, .*"),
        ("sft..x=3", r"--set 'sft..x=3': expected key.path=value, .*"),
        ("sft.epochs=[1", r"--set 'sft.epochs=\[1': the value is not readable as YAML"),
        ("sft.epochs={1: 2}", r"sft.epochs=\{1: 2\}: Input should be a valid number"),
    ],
)
def test_each_error_is_one_line_with_path_and_value(override, pattern):
    (line,) = problems(override)
    assert re.fullmatch(pattern, line), line


def test_contradicting_settings_are_all_told():
    (line,) = problems("ground.text_to_sid=[]", "ground.sid_to_text=[]", "evaluate.ks=[99]")
    assert "nothing to ground on" in line
    assert "evaluate.ks asks for 99" in line


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("- a\n- b\n", r".*d.yaml: expected a mapping of sections, found list"),
        ("just text", r".*d.yaml: expected a mapping of sections, found str"),
        ("1: 2\n", r".*d.yaml: expected a mapping of sections, .*"),
        ("data: [1\nx: }", r".*d.yaml: not readable as YAML: .*line 2.*"),
        ("data:\n\tname: x\n", r".*d.yaml: not readable as YAML: .*line 2.*"),
        ("data:\n", r"data=None: expected a section of settings, as in data.name=.*"),
        ("data: {items: {titel: x}}", r"data.items.titel: no such key; did you mean data.items.title\?"),
    ],
)
def test_a_bad_file_is_one_line_that_names_it(folder, text, pattern):
    (line,) = problems(**folder(datasets=text))
    assert re.fullmatch(pattern, line), line


def test_a_file_that_is_not_utf8_is_told(folder, tmp_path):
    where = folder()
    (tmp_path / "datasets" / "d.yaml").write_bytes(b"data: {name: \xff}")
    (line,) = problems(**where)
    assert "d.yaml: not readable as YAML" in line


def test_an_empty_file_changes_nothing(folder):
    assert load(**folder(profiles="# nothing yet\n")).sft == Config().sft
