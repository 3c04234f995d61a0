"""Converted models on disk: ordinary Hugging Face folders that appear whole or not at all.

`$TREILLE_CACHE`, else `$XDG_CACHE_HOME/treille`, else `~/.cache/treille` holds `models/<name>/` with
`config.json`, `model.safetensors` (bfloat16), the tokenizer's files, and `treille.json`, which says what
they were made from. transformers loads such a folder too.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path

import torch
from safetensors.torch import save_file

from treille.runtime.errors import ModelError
from treille.runtime.models.files import read_json
from treille.runtime.models.gguf import GGUFSource
from treille.runtime.models.hf_config import config_to_hf
from treille.runtime.models.weights import check_tensors, expected_shapes

# Raised whenever a conversion would come out different; folders of another format are made anew.
FORMAT = 1
STAMP = "treille.json"


def cache_root() -> Path:
    """Where converted models live."""
    own = os.environ.get("TREILLE_CACHE")
    if own:
        return Path(own).expanduser()
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared).expanduser() if shared else Path.home() / ".cache") / "treille"


def cached_folder(name: str) -> Path | None:
    """The converted model of that name, if it is there in the present format."""
    folder = cache_root() / "models" / name
    return folder if _is_current(folder) else None


def store_gguf(name: str, path: Path) -> Path:
    """Convert a GGUF file into the cache and return its folder. Several processes may do so at once."""
    models = cache_root() / "models"
    try:
        models.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=models))
    except OSError as error:
        raise ModelError(
            f"{models} cannot be written ({error}); set TREILLE_CACHE to a folder that can"
        ) from error
    try:
        fresh = scratch / name
        fresh.mkdir()
        convert_gguf(path, fresh)
        return _put(fresh, models / name, scratch / "old")
    except OSError as error:
        raise ModelError(f"{path} could not be converted into {models}: {error}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def convert_gguf(path: Path, folder: Path) -> None:
    """Write a GGUF model into an empty folder as transformers would save it, with bfloat16 weights."""
    with GGUFSource(path) as source:
        config = source.config
        check_tensors(config, source)
        tensors = {name: source.read(name).to(torch.bfloat16) for name in expected_shapes(config)}
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        for file_name, content in source.tokenizer_files().items():
            (folder / file_name).write_bytes(content)
    _write_json(folder / "config.json", {**config_to_hf(config), "dtype": "bfloat16"})
    origin = {"file": path.name, "bytes": path.stat().st_size, "sha256": _sha256(path)}
    _write_json(folder / STAMP, {"format": FORMAT, "source": origin})


def _put(fresh: Path, target: Path, old: Path) -> Path:
    """Move a finished folder to its place; one that another process put there meanwhile is as good."""
    if target.exists() and not _is_current(target):
        target.rename(old)
    try:
        fresh.rename(target)
    except OSError:
        if not _is_current(target):
            raise
    return target


def _is_current(folder: Path) -> bool:
    stamp = folder / STAMP
    return stamp.is_file() and read_json(stamp).get("format") == FORMAT


def _write_json(path: Path, data: dict[str, object]) -> None:
    path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
