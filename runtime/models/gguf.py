"""A GGUF file as a `TensorSource`: every tensor dequantised to float32 under its transformers name."""

from __future__ import annotations

import re
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
from gguf import GGUFReader, GGUFValueType, quants
from torch import Tensor

from treille.runtime.errors import ModelError, UnsupportedModel
from treille.runtime.models.fields import Fields
from treille.runtime.models.gguf_config import TensorFacts, config_from_gguf
from treille.runtime.models.gguf_tokenizer import tokenizer_files_from_gguf

_TOP = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_BLOCK = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")
_ROPE_DIVISORS = "rope_freqs.weight"
# Everything that the config may need; the rest (vocabulary, merges) is long and slow to decode.
_METADATA = re.compile(r"(general|split|llama|qwen2|qwen3)\..*|tokenizer\.ggml\.\w+_token_id")


class GGUFSource:
    """A context manager over a memory-mapped file. `config` is what its metadata and tensors state.

    Raises `ModelError` for a file that is not GGUF or is cut short, `UnsupportedModel` for what it holds.
    """

    def __init__(self, path: Path) -> None:
        self.where = str(path)
        try:
            self._reader = GGUFReader(path)
            metadata = {
                key: _exact(field.contents(), field.types)
                for key, field in self._reader.fields.items()
                if _METADATA.fullmatch(key)
            }
        except (OSError, ValueError, IndexError, KeyError) as error:
            raise ModelError(f"{path} cannot be read as GGUF: {error}; download it again") from error
        if self._reader.byte_order == "S":
            raise UnsupportedModel(f"{path} was written for machines of the other byte order")
        self._stored: dict[str, Any] = {tensor.name: tensor for tensor in self._reader.tensors}
        if "token_embd.weight" not in self._stored:
            raise ModelError(f"{path} lacks token_embd.weight; it does not hold a language model")
        self._by_name = {
            _hf_name(name): tensor for name, tensor in self._stored.items() if not _is_rotary(name)
        }
        facts = TensorFacts(
            frozenset(self._stored), self.shape("model.embed_tokens.weight")[0], self._divisors()
        )
        self.config = config_from_gguf(Fields(metadata, self.where), facts)
        # llama.cpp's llama rotates neighbouring dimensions, so its files hold q and k rows interleaved.
        self._interleaved = metadata["general.architecture"] == "llama"

    def __enter__(self) -> GGUFSource:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stored.clear()
        self._by_name.clear()
        del self._reader

    def names(self) -> frozenset[str]:
        return frozenset(self._by_name)

    def shape(self, name: str) -> tuple[int, ...]:
        """GGUF states the fastest dimension first."""
        return tuple(int(size) for size in reversed(self._by_name[name].shape))

    def read(self, name: str) -> Tensor:
        """The dequantised tensor, float32, in the row order that transformers uses."""
        values = self._dequantised(self._by_name[name])
        if self._interleaved and ".self_attn.q_proj." in name:
            values = _split_halves(values, self.config.num_heads)
        elif self._interleaved and ".self_attn.k_proj." in name:
            values = _split_halves(values, self.config.num_kv_heads)
        return torch.from_numpy(values)

    def tokenizer_files(self) -> dict[str, bytes]:
        """The files of a tokenizer folder, by name."""
        return tokenizer_files_from_gguf(self._reader)

    def _divisors(self) -> tuple[float, ...]:
        stored = self._stored.get(_ROPE_DIVISORS)
        return () if stored is None else tuple(float(x) for x in self._dequantised(stored))

    def _dequantised(self, stored: Any) -> np.ndarray:
        try:
            values = quants.dequantize(stored.data, stored.tensor_type)
        except NotImplementedError as error:
            raise UnsupportedModel(
                f"{self.where}: {stored.name} has type {stored.tensor_type.name}, which is not supported"
            ) from error
        # The file's own memory is read-only, which torch does not accept.
        return np.require(values, dtype=np.float32, requirements=["C", "W", "O"])


def _split_halves(values: np.ndarray, num_heads: int) -> np.ndarray:
    """Within each head: rows 0, 2, 4, ... first, then 1, 3, 5, ..., so that pairs are half a head apart."""
    paired = values.reshape(num_heads, -1, 2, *values.shape[1:])
    return np.ascontiguousarray(paired.swapaxes(1, 2)).reshape(values.shape)


def _hf_name(name: str) -> str:
    """The name in transformers; a tensor unknown here keeps its own, for the error that will show it."""
    block = _BLOCK.fullmatch(name)
    if block is not None and block[2] in _LAYER:
        return f"model.layers.{block[1]}.{_LAYER[block[2]]}.{block[3]}"
    stem, _, kind = name.rpartition(".")
    return f"{_TOP[stem]}.{kind}" if stem in _TOP else name


def _is_rotary(name: str) -> bool:
    """Rotary frequencies stored as tensors: read elsewhere, or derived."""
    return name == _ROPE_DIVISORS or name.endswith("attn_rot_embd.weight")


def _exact(value: object, types: list[GGUFValueType]) -> object:
    """A float32 as the decimal that was meant: 1e-05, not 9.999999747378752e-06."""
    if isinstance(value, float) and types == [GGUFValueType.FLOAT32]:
        return float(np.format_float_scientific(np.float32(value)))
    return value
