"""`ModelConfig` from the metadata of a GGUF file (keys as in the format's specification)."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from treille.runtime.errors import ModelError, UnsupportedModel
from treille.runtime.models.config import ModelConfig, RopeConfig
from treille.runtime.models.fields import MOST_LAYERS, MOST_POSITIONS, Fields
from treille.runtime.models.hf_config import yarn_magnitude

ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}

# Settings that change the result and are not implemented for these architectures.
_REFUSED = (
    "expert_count",
    "logit_scale",
    "residual_scale",
    "embedding_scale",
    "attention.causal",
    "attention.clamp_kqv",
    "attention.scale",
    "attention.sliding_window",
    "attention.temperature_scale",
    "rope.scale_linear",
    "rope.scaling.alpha",
    "rope.scaling.yarn_ext_factor",
    "rope.scaling.yarn_log_multiplier",
)


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """What only the tensors say: their GGUF names, the vocabulary's size, the rope divisors (llama3)."""

    names: Set[str]
    vocab_size: int
    rope_divisors: tuple[float, ...] = ()


def config_from_gguf(metadata: Fields, tensors: TensorFacts) -> ModelConfig:
    """The config that a file's metadata and tensors state.

    Raises `UnsupportedModel` for an architecture or a setting that is not implemented, `ModelError` for a
    key that is missing or makes no sense.
    """
    arch = metadata.text("general.architecture")
    if arch not in ARCHITECTURES:
        raise UnsupportedModel(
            f"{metadata.where}: GGUF architecture {arch!r} is not supported; "
            f"supported are {', '.join(ARCHITECTURES)}"
        )
    _refuse_unsupported(metadata, arch)
    hidden = metadata.integer(f"{arch}.embedding_length")
    heads = metadata.integer(f"{arch}.attention.head_count")
    head_dim = metadata.integer(f"{arch}.attention.key_length", hidden // heads)
    _same(metadata, f"{arch}.attention.value_length", head_dim)
    _same(metadata, f"{arch}.rope.dimension_count", head_dim)
    context = metadata.integer(f"{arch}.context_length", most=MOST_POSITIONS)
    ends = (metadata.token_ids(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom"))
    bos = metadata.token_ids("tokenizer.ggml.bos_token_id")
    return ModelConfig(
        architecture=ARCHITECTURES[arch],
        vocab_size=tensors.vocab_size,
        hidden_size=hidden,
        intermediate_size=metadata.integer(f"{arch}.feed_forward_length"),
        num_layers=metadata.integer(f"{arch}.block_count", most=MOST_LAYERS),
        num_heads=heads,
        num_kv_heads=metadata.integer(f"{arch}.attention.head_count_kv", heads),
        head_dim=head_dim,
        rms_norm_eps=metadata.number(f"{arch}.attention.layer_norm_rms_epsilon"),
        rope=_rope(metadata, arch, context, tensors.rope_divisors),
        max_position_embeddings=context,
        tie_word_embeddings="output.weight" not in tensors.names,
        qkv_bias=arch == "qwen2" or "blk.0.attn_q.bias" in tensors.names,
        o_bias="blk.0.attn_output.bias" in tensors.names,
        mlp_bias="blk.0.ffn_gate.bias" in tensors.names,
        qk_norm=arch == "qwen3",
        bos_token_id=bos[0] if bos else None,
        eos_token_ids=tuple(dict.fromkeys(token for group in ends for token in group)),
    )


def _refuse_unsupported(metadata: Fields, arch: str) -> None:
    for name in _REFUSED:
        value = metadata.data.get(f"{arch}.{name}")
        if value and not (name == "attention.causal" and value is True):
            raise UnsupportedModel(f"{metadata.where}: {arch}.{name} = {value!r} is not supported")
    if metadata.has("split.count") and metadata.integer("split.count") > 1:
        raise UnsupportedModel(
            f"{metadata.where} is one part of several; merge them with llama-gguf-split --merge"
        )


def _same(metadata: Fields, key: str, head_dim: int) -> None:
    if metadata.integer(key, head_dim) != head_dim:
        raise UnsupportedModel(
            f"{metadata.where}: {key} = {metadata.integer(key)} differs from the head dimension {head_dim}; "
            "that is not supported"
        )


def _rope(metadata: Fields, arch: str, context: int, divisors: tuple[float, ...]) -> RopeConfig:
    prefix = f"{arch}.rope.scaling"
    theta = metadata.number(f"{arch}.rope.freq_base", 10000.0)
    kind = metadata.text(f"{prefix}.type", "none")
    factor = metadata.number(f"{prefix}.factor", 0.0)
    if kind == "none" or (kind == "linear" and factor in (0.0, 1.0)):
        return RopeConfig(theta=theta, divisors=divisors)
    if factor <= 0:
        raise ModelError(f"{metadata.where}: {prefix}.factor must be larger than 0 for {kind} scaling")
    if kind == "linear":
        return RopeConfig(type="linear", theta=theta, factor=factor, divisors=divisors)
    if kind != "yarn":
        raise UnsupportedModel(
            f"{metadata.where}: {prefix}.type {kind!r} is not supported; supported are none, linear, yarn"
        )
    # What the file may add multiplies the magnitude that the YaRN paper gives.
    extra = metadata.number(f"{prefix}.yarn_attn_factor", metadata.number(f"{prefix}.attn_factor", 1.0))
    return RopeConfig(
        type="yarn",
        theta=theta,
        factor=factor,
        original_length=metadata.integer(f"{prefix}.original_context_length", context),
        beta_fast=metadata.number(f"{prefix}.yarn_beta_fast", 32.0),
        beta_slow=metadata.number(f"{prefix}.yarn_beta_slow", 1.0),
        attention_factor=extra * yarn_magnitude(factor),
        divisors=divisors,
    )
