"""Reads YAML layers and `--set` overrides into one `Config`, and reports everything that is wrong with them at once."""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from gti_pipeline.config import Config
from gti_pipeline.errors import raise_all

ROOT = Path(__file__).resolve().parent.parent
CONFIGS = ROOT / "configs"
BOOL = "tag:yaml.org,2002:bool"


class _Loader(yaml.SafeLoader):
    """YAML in which only true and false are switches, as in YAML 1.2: `no` is a language and `on` a key."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != BOOL]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(BOOL, re.compile(r"(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))


def load_config(
    *,
    profile: str,
    dataset: str,
    method: str = "gti",
    overrides: Sequence[str] = (),
    configs: Path = CONFIGS,
) -> Config:
    """Merges defaults, profile, data set, method and `a.b=c` overrides.

    Raises:
        GtiError: names every unknown key and bad value with its dotted path, value and the nearest valid name.
    """
    problems: list[str] = []
    merged: dict[str, Any] = {}
    for folder, name in (("profiles", profile), ("datasets", dataset), ("methods", method)):
        merged = _merge(merged, _read_layer(configs / folder, name, problems))
    for override in overrides:
        merged = _merge(merged, _parse_override(override, problems))
    named = {"profile": profile, "dataset": dataset, "method": Path(method).stem}
    config = _validate(_merge(merged, named), problems)
    raise_all("The configuration is not valid:", problems)
    assert config is not None
    return config


def names_in(kind: str, configs: Path = CONFIGS) -> list[str]:
    """The names of the YAML files in one folder of `configs/`."""
    return sorted(path.stem for path in (configs / kind).glob("*.yaml"))


def _read_layer(folder: Path, name: str, problems: list[str]) -> dict[str, Any]:
    """A YAML mapping: `name` is a file's stem in `folder`, or a path to any YAML file."""
    path = Path(name) if name.endswith((".yaml", ".yml")) else folder / f"{name}.yaml"
    option = folder.name.removesuffix("s")
    if not path.is_file():
        known = sorted(p.stem for p in folder.glob("*.yaml"))
        problems.append(f"--{option}={name}: no file {path.name} in {folder}{_nearest(name, known)}; known: {known}")
        return {}
    try:
        content = _load_yaml(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        problems.append(f"{path}: not readable as YAML: {' '.join(str(error).split())}")
        return {}
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        problems.append(f"{path}: expected a mapping of sections, found {type(content).__name__}")
        return {}
    return content


def _parse_override(override: str, problems: list[str]) -> dict[str, Any]:
    """`a.b=c` as a nested mapping; the value is read as YAML."""
    path, equals, text = override.partition("=")
    if not equals or not all(path.split(".")):
        problems.append(f"--set {override!r}: expected key.path=value, for example --set sft.learning_rate=1e-4")
        return {}
    try:
        value = _load_yaml(text)
    except yaml.YAMLError:
        problems.append(f"--set {override!r}: the value is not readable as YAML")
        return {}
    for key in reversed(path.split(".")):
        value = {key: value}
    assert isinstance(value, dict)
    return value


def _load_yaml(text: str) -> Any:
    loader = _Loader(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def _merge(low: Mapping[str, Any], high: Mapping[str, Any]) -> dict[str, Any]:
    """`high` over `low`, section by section."""
    merged = dict(low)
    for key, value in high.items():
        below = merged.get(key)
        both = isinstance(below, Mapping) and isinstance(value, Mapping)
        merged[key] = _merge(below, value) if both else value  # type: ignore[arg-type]
    return merged


def _validate(values: dict[str, Any], problems: list[str]) -> Config | None:
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        problems.extend(_explain(detail) for detail in error.errors(include_url=False) if not _is_other_branch(detail))
        return None


def _is_other_branch(detail: Any) -> bool:
    """Whether an error is of that half of `str | tuple[str, ...]` which the value was not meant for."""
    is_list = isinstance(detail["input"], (list, tuple))
    return bool(detail["type"] == "tuple_type" and detail["loc"][-1] == "tuple[str, ...]") or (
        detail["type"] == "string_type" and detail["loc"][-1] == "str" and is_list
    )


def _explain(detail: Any) -> str:
    """One pydantic error as `dotted.path=value: what is wrong`."""
    loc = tuple(detail["loc"])
    if detail["type"] == "extra_forbidden":
        return f"{'.'.join(map(str, loc))}: no such key{_suggestion(loc)}"
    path = ".".join(str(part) for part in loc if part not in ("str", "tuple[str, ...]"))  # pydantic names the halves
    message = str(detail["msg"]).removeprefix("Value error, ").replace("a valid tuple", "a list, as in [a, b]")
    if not path:
        return message
    if detail["type"] == "model_type":
        message = f"expected a section of settings, as in {path}.{_fields(loc)[0]}=..."
    return f"{path}={detail['input']!r}: {message}{_nearest_literal(detail)}"


def _suggestion(loc: Sequence[Any]) -> str:
    """The nearest key of the same section, else the same key in another, else all keys of the section."""
    known = _fields(loc[:-1])
    near = _nearest(str(loc[-1]), known, loc[:-1])
    elsewhere = [path for path in _paths(Config) if path.split(".")[-1] == loc[-1]]
    return near or (f"; did you mean {' or '.join(elsewhere)}?" if elsewhere else f"; known: {known}")


def _paths(model: type[BaseModel], prefix: str = "") -> list[str]:
    """The dotted paths of all settings."""
    paths = []
    for name, field in model.model_fields.items():
        section = _section(field.annotation)
        paths += _paths(section, f"{prefix}{name}.") if section else [prefix + name]
    return paths


def _nearest_literal(detail: Any) -> str:
    expected = str(detail.get("ctx", {}).get("expected", ""))
    return _nearest(str(detail["input"]), [part.strip("'") for part in expected.replace(" or ", ", ").split(", ")])


def _fields(path: Sequence[Any]) -> list[str]:
    """The keys that the section at `path` knows."""
    model: Any = Config
    for part in path:
        field = model.model_fields.get(part) if isinstance(part, str) else None
        if field is None:
            return []
        model = _section(field.annotation)
        if model is None:
            return []
    return list(model.model_fields)


def _section(annotation: Any) -> type[BaseModel] | None:
    options = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    return next((o for o in options if isinstance(o, type) and issubclass(o, BaseModel)), None)


def _nearest(name: str, known: Sequence[str], prefix: Sequence[Any] = ()) -> str:
    match = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {'.'.join([*map(str, prefix), match[0]])}?" if match else ""


def to_yaml(config: Config) -> str:
    """The resolved configuration as YAML that can be read back."""
    return str(yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True))
