"""A model's tensors: what must be there, and how they are fused into what the decoder multiplies with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from treille.runtime.errors import ModelError, UnsupportedModel
from treille.runtime.models.config import ModelConfig
from treille.runtime.models.linear import Linear

_STORED = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
_SHOWN = 5
HEAD_BITS = 8  # of a quantised output layer: four cost more than they save (benchmarks/LOG.md)


class TensorSource(Protocol):
    """Named tensors of a checkpoint, under the names that transformers gives them."""

    @property
    def where(self) -> str:
        """The file or folder, for errors."""
        ...

    def names(self) -> frozenset[str]: ...

    def shape(self, name: str) -> tuple[int, ...]: ...

    def read(self, name: str) -> Tensor:
        """The tensor on the CPU, in the precision in which it is stored."""
        ...


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One decoder layer. `qkv` stacks the q, k and v projections, `gate_up` those of the MLP."""

    input_norm: Tensor
    qkv: Linear
    q_norm: Tensor | None
    k_norm: Tensor | None
    o: Linear
    post_norm: Tensor
    gate_up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class ModelWeights:
    """Everything the decoder multiplies with. `embedding` is `[vocab, hidden]`."""

    embedding: Tensor
    layers: tuple[LayerWeights, ...]
    final_norm: Tensor
    lm_head: Linear


def expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor that a checkpoint of this config must hold."""
    hidden, inner = config.hidden_size, config.intermediate_size
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config.vocab_size, hidden),
        "model.norm.weight": (hidden,),
    }
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, hidden)
    projections = (
        ("self_attn.q_proj", config.q_size, hidden, config.qkv_bias),
        ("self_attn.k_proj", config.kv_size, hidden, config.qkv_bias),
        ("self_attn.v_proj", config.kv_size, hidden, config.qkv_bias),
        ("self_attn.o_proj", hidden, config.q_size, config.o_bias),
        ("mlp.gate_proj", inner, hidden, config.mlp_bias),
        ("mlp.up_proj", inner, hidden, config.mlp_bias),
        ("mlp.down_proj", hidden, inner, config.mlp_bias),
    )
    for index in range(config.num_layers):
        prefix = f"model.layers.{index}"
        for name, rows, columns, has_bias in projections:
            shapes[f"{prefix}.{name}.weight"] = (rows, columns)
            if has_bias:
                shapes[f"{prefix}.{name}.bias"] = (rows,)
        shapes[f"{prefix}.input_layernorm.weight"] = (hidden,)
        shapes[f"{prefix}.post_attention_layernorm.weight"] = (hidden,)
        if config.qk_norm:
            shapes[f"{prefix}.self_attn.q_norm.weight"] = (config.head_dim,)
            shapes[f"{prefix}.self_attn.k_norm.weight"] = (config.head_dim,)
    return shapes


def check_tensors(config: ModelConfig, source: TensorSource) -> None:
    """Raise `ModelError` if a tensor is missing, unexpected, or of another shape than the config says."""
    shapes, names = expected_shapes(config), source.names()
    missing = shapes.keys() - names
    if missing:
        hint = ""
        if "lm_head.weight" in missing:
            hint = " (tie_word_embeddings is false, so the output layer needs its own lm_head.weight)"
        raise ModelError(f"{source.where} lacks {_some(missing)}{hint}")
    # A tied output layer may be stored all the same; old checkpoints hold their rotary frequencies.
    extra = {
        name
        for name in names - shapes.keys()
        if name != "lm_head.weight" and not name.endswith("rotary_emb.inv_freq")
    }
    if extra:
        raise ModelError(
            f"{source.where} holds tensors that {config.architecture} has no use for: {_some(extra)}"
        )
    for name, shape in shapes.items():
        found = source.shape(name)
        if found != shape:
            raise ModelError(
                f"{source.where}: {name} has shape {list(found)}, but the config asks for {list(shape)}"
            )


def load_weights(
    config: ModelConfig,
    source: TensorSource,
    *,
    dtype: torch.dtype,
    device: torch.device,
    bits: int | None = None,
    deterministic: bool = False,
) -> ModelWeights:
    """Check and fuse every tensor, one at a time, so that memory holds the model about once.

    `bits` 8 or 4 rounds the weights of linear layers, those of the output layer to 8; norms and embedding
    stay in `dtype`. `deterministic` has rows multiplied in an order that other rows do not change. Raises
    `UnsupportedModel` for weights that cannot be rounded, and for both elsewhere than on the CPU.
    """
    check_tensors(config, source)
    if bits is not None and device.type != "cpu":
        raise UnsupportedModel(
            f"weights of {bits} bits are multiplied on the CPU alone, not on {device.type}"
        )
    if deterministic and device.type != "cpu":
        raise UnsupportedModel(f"deterministic layers run on the CPU alone, not on {device.type}")
    reader = _Reader(source, dtype, device, bits, deterministic)
    embedding = reader.tensor("model.embed_tokens.weight")
    layers = tuple(
        _load_layer(reader, config, f"model.layers.{index}.") for index in range(config.num_layers)
    )
    head = embedding if config.tie_word_embeddings else reader.tensor("lm_head.weight")
    lm_head = reader.packed("lm_head", head, None, bits=None if bits is None else HEAD_BITS)
    return ModelWeights(embedding, layers, reader.tensor("model.norm.weight"), lm_head)


def _load_layer(reader: _Reader, config: ModelConfig, prefix: str) -> LayerWeights:
    attention, mlp = prefix + "self_attn.", prefix + "mlp."
    qkv = (attention + "q_proj", attention + "k_proj", attention + "v_proj")
    return LayerWeights(
        input_norm=reader.tensor(prefix + "input_layernorm.weight"),
        qkv=reader.linear(qkv, has_bias=config.qkv_bias),
        q_norm=reader.tensor(attention + "q_norm.weight") if config.qk_norm else None,
        k_norm=reader.tensor(attention + "k_norm.weight") if config.qk_norm else None,
        o=reader.linear((attention + "o_proj",), has_bias=config.o_bias),
        post_norm=reader.tensor(prefix + "post_attention_layernorm.weight"),
        gate_up=reader.linear((mlp + "gate_proj", mlp + "up_proj"), has_bias=config.mlp_bias),
        down=reader.linear((mlp + "down_proj",), has_bias=config.mlp_bias),
    )


@dataclass(frozen=True, slots=True)
class _Reader:
    source: TensorSource
    dtype: torch.dtype
    device: torch.device
    bits: int | None
    deterministic: bool

    def tensor(self, *names: str) -> Tensor:
        """The named tensors stacked along their first dimension."""
        shapes = [self.source.shape(name) for name in names]
        rows = sum(shape[0] for shape in shapes)
        fused = torch.empty((rows, *shapes[0][1:]), dtype=self.dtype, device=self.device)
        start = 0
        for name, shape in zip(names, shapes, strict=True):
            stored = self.source.read(name)
            if stored.dtype not in _STORED:
                raise UnsupportedModel(
                    f"{self.source.where}: {name} is stored as {str(stored.dtype).removeprefix('torch.')}; "
                    "supported are float32, float16 and bfloat16"
                )
            fused[start : start + shape[0]].copy_(stored)
            start += shape[0]
        return fused

    def linear(self, names: tuple[str, ...], *, has_bias: bool) -> Linear:
        bias = self.tensor(*(f"{name}.bias" for name in names)) if has_bias else None
        weight = self.tensor(*(f"{name}.weight" for name in names))
        return self.packed(", ".join(names), weight, bias, bits=self.bits)

    def packed(self, name: str, weight: Tensor, bias: Tensor | None, *, bits: int | None) -> Linear:
        try:
            return Linear(weight, bias, bits=bits, deterministic=self.deterministic)
        except ValueError as error:
            raise UnsupportedModel(f"{self.source.where}: {name} cannot have {bits} bits: {error}") from error


def _some(names: Iterable[str]) -> str:
    """The first few names, and how many more there are."""
    ordered = sorted(names)
    more = len(ordered) - _SHOWN
    return ", ".join(ordered[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
