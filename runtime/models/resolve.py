"""Where a model's files are: alias, folder, GGUF file or hub id, resolved to a path on this machine."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from treille.runtime.errors import ModelError, ModelNotFound
from treille.runtime.models.aliases import ALIASES, find_alias
from treille.runtime.models.hub import download

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


@dataclass(frozen=True, slots=True)
class ModelPlace:
    """A model's name, as shown to users, and its folder or `.gguf` file."""

    name: str
    path: Path

    @property
    def is_gguf(self) -> bool:
        return self.path.suffix == ".gguf"


def resolve_model(source: str | Path) -> ModelPlace:
    """Find a model, converting or downloading it if need be.

    An alias comes first (`./name` is the folder of that name), then an existing path, then a hub id
    `org/name`. Raises `ModelNotFound` or `ModelError`.
    """
    if isinstance(source, str) and source in ALIASES:
        return ModelPlace(source, find_alias(ALIASES[source]))
    path = Path(source).expanduser()
    if path.is_dir() or (path.is_file() and path.suffix == ".gguf"):
        return ModelPlace(path.resolve().name if path.is_dir() else path.stem, path)
    if path.exists():
        raise ModelError(f"{path} is neither a model folder nor a .gguf file")
    if isinstance(source, str) and _HUB_ID.fullmatch(source) and path.suffix != ".gguf":
        return ModelPlace(source, download(source))
    if isinstance(source, Path) or "/" in source or "\\" in source or path.suffix == ".gguf":
        raise ModelNotFound(f"{path} does not exist")
    raise ModelNotFound(
        f"no model answers to {source!r}; give an alias ({', '.join(ALIASES)}), a folder, a .gguf file, "
        "or a hub id such as org/name"
    )
