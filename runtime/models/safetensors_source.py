"""The tensors of a Hugging Face folder: one safetensors file, or shards with an index."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from treille.runtime.errors import ModelError, ModelNotFound
from treille.runtime.models.files import read_json

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"


class SafetensorsSource:
    """A context manager; files are memory-mapped and closed at its end.

    Raises `ModelNotFound` if the folder holds no safetensors weights, saying what it holds instead.
    """

    def __init__(self, folder: Path) -> None:
        self.where = str(folder)
        self._stack = ExitStack()
        self._files: dict[str, Any] = {}
        for path in weight_files(folder):
            try:
                opened = self._stack.enter_context(safe_open(path, framework="pt", device="cpu"))
            except (SafetensorError, OSError) as error:
                self._stack.close()
                raise ModelError(
                    f"{path} is not readable as safetensors: {error}; download it again"
                ) from error
            self._files |= dict.fromkeys(opened.keys(), opened)

    def __enter__(self) -> SafetensorsSource:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.clear()
        self._stack.close()

    def names(self) -> frozenset[str]:
        return frozenset(self._files)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._files[name].get_slice(name).get_shape())

    def read(self, name: str) -> Tensor:
        tensor: Tensor = self._files[name].get_tensor(name)
        return tensor


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a folder, in order. Every shard that the index names must exist."""
    index = folder / INDEX
    if index.exists():
        shards = read_json(index).get("weight_map")
        if not isinstance(shards, dict) or not all(isinstance(name, str) for name in shards.values()):
            raise ModelError(f"{index} has no weight_map from tensor names to files")
        names = sorted(set(shards.values()))
        for name in names:
            if Path(name).name != name:
                raise ModelError(f"{index} names a file outside its folder: {name}")
            if not (folder / name).exists():
                raise ModelNotFound(
                    f"{folder} lacks {name}, which its index names; download the folder again"
                )
        return [folder / name for name in names]
    if (folder / SINGLE).exists():
        return [folder / SINGLE]
    if any(folder.glob("*.bin")) or any(folder.glob("*.pt*")):
        raise ModelError(
            f"{folder} holds only pickled weights (.bin, .pt), which can run code when loaded; convert them "
            "to safetensors: AutoModelForCausalLM.from_pretrained(...).save_pretrained(...)"
        )
    if any(folder.glob("*.gguf")):
        raise ModelNotFound(f"{folder} holds no {SINGLE}; give the path of its .gguf file itself")
    raise ModelNotFound(f"{folder} holds no {SINGLE} and no {INDEX}")
