"""`load_model`: from what the user typed to a model that runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from treille.kernels.select import select_kernels
from treille.runtime.errors import ModelError, ModelNotFound
from treille.runtime.models.config import ModelConfig
from treille.runtime.models.files import read_json
from treille.runtime.models.gguf import GGUFSource
from treille.runtime.models.hf_config import config_from_hf
from treille.runtime.models.linear import has_fast_bfloat16
from treille.runtime.models.llama import LanguageModel, LlamaModel
from treille.runtime.models.resolve import resolve_model
from treille.runtime.models.safetensors_source import SafetensorsSource, weight_files
from treille.runtime.models.weights import ModelWeights, load_weights
from treille.runtime.tokenizer import Tokenizer

DTYPES = (torch.float32, torch.bfloat16)


@dataclass(frozen=True, slots=True, eq=False)
class LoadedModel:
    """A model ready to run. `folder` is where its files lie; None for a GGUF file. `bits` are those of the
    linear layers' weights where they were rounded: 8, 4 or None; `deterministic` as in `load_model`.
    `weight_files` are those that the weights were read from, if any."""

    name: str
    config: ModelConfig
    model: LanguageModel
    tokenizer: Tokenizer
    folder: Path | None
    bits: int | None = None
    deterministic: bool = False
    weight_files: tuple[Path, ...] = ()


def load_model(
    source: str | Path,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device,
    max_seq_len: int | None = None,
    bits: int | None = None,
    deterministic: bool = False,
) -> LoadedModel:
    """Load an alias, a folder, a GGUF file or a hub id.

    `dtype` is float32 or bfloat16; None picks bfloat16 where the hardware multiplies it, else float32.
    `bits` 8 or 4 rounds the weights of linear layers; `deterministic` makes a token's logits the same to the
    bit whatever else is computed beside it (both CPU only).
    Raises `ModelNotFound`, `UnsupportedModel` or `ModelError`, each with what to do about it.
    """
    dtype = default_dtype(device) if dtype is None else dtype
    if dtype not in DTYPES:
        raise ModelError(f"dtype must be torch.float32 or torch.bfloat16, not {dtype}")
    place = resolve_model(source)
    read = _read_gguf if place.is_gguf else _read_folder
    config, weights, tokenizer = read(
        place.path, dtype=dtype, device=device, bits=bits, deterministic=deterministic
    )
    try:
        model = LlamaModel(config, weights, select_kernels(device), max_seq_len=max_seq_len)
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise ModelError(_too_long(config, max_seq_len)) from error
    except RuntimeError as error:  # what PyTorch raises where the CPU's memory is short
        if "allocate memory" not in str(error):
            raise
        raise ModelError(_too_long(config, max_seq_len)) from error
    folder = None if place.is_gguf else place.path
    files = (place.path,) if folder is None else tuple(weight_files(folder))
    return LoadedModel(place.name, config, model, tokenizer, folder, bits, deterministic, files)


def _too_long(config: ModelConfig, max_seq_len: int | None) -> str:
    positions = max_seq_len or config.max_position_embeddings
    return f"there is no memory for the tables of {positions} positions: lower max_seq_len"


def default_dtype(device: torch.device) -> torch.dtype:
    """bfloat16 on CUDA and on CPUs that multiply it in hardware, else float32."""
    fast = device.type == "cuda" or (device.type == "cpu" and has_fast_bfloat16())
    return torch.bfloat16 if fast else torch.float32


def read_config(folder: Path) -> ModelConfig:
    """The config of a Hugging Face folder. Raises `ModelNotFound` if it has none."""
    if not (folder / "config.json").is_file():
        raise ModelNotFound(f"{folder} holds no config.json; it is not a model folder")
    generation = folder / "generation_config.json"
    return config_from_hf(
        read_json(folder / "config.json"), read_json(generation) if generation.exists() else None
    )


def _read_folder(folder: Path, **form: Any) -> tuple[ModelConfig, ModelWeights, Tokenizer]:
    config = read_config(folder)
    with SafetensorsSource(folder) as source:
        weights = load_weights(config, source, **form)
    return config, weights, Tokenizer.from_folder(folder)


def _read_gguf(path: Path, **form: Any) -> tuple[ModelConfig, ModelWeights, Tokenizer]:
    with GGUFSource(path) as source, TemporaryDirectory(prefix="treille-") as scratch:
        for name, content in source.tokenizer_files().items():
            (Path(scratch) / name).write_bytes(content)
        tokenizer = Tokenizer.from_folder(scratch)
        weights = load_weights(source.config, source, **form)
        return source.config, weights, tokenizer
