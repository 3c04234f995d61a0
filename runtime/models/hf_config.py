"""`ModelConfig` from a Hugging Face `config.json`, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from treille.runtime.errors import ModelError, UnsupportedModel
from treille.runtime.models.config import ARCHITECTURES, ROPE_TYPES, ModelConfig, RopeConfig
from treille.runtime.models.fields import MOST_LAYERS, MOST_POSITIONS, Fields

_BY_MODEL_TYPE = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}


@dataclass(frozen=True, slots=True)
class _Family:
    """What transformers assumes for a key that a family's config.json leaves out."""

    kv_heads: int | None = None
    head_dim: int | None = None
    context: int = 32768
    window: int | None = None


_FAMILIES = {
    "LlamaForCausalLM": _Family(context=2048),
    "MistralForCausalLM": _Family(kv_heads=8, context=131072, window=4096),
    "Qwen2ForCausalLM": _Family(kv_heads=32, window=4096),
    "Qwen3ForCausalLM": _Family(kv_heads=32, head_dim=128, window=4096),
}


def config_from_hf(data: Mapping[str, object], generation: Mapping[str, object] | None = None) -> ModelConfig:
    """The config that `config.json` states. End-of-text ids come from `generation_config.json` if it has any.

    Raises `UnsupportedModel` for an architecture or a setting that is not implemented, `ModelError` for a
    key that is missing or makes no sense.
    """
    fields = Fields(data, "config.json")
    architecture = _architecture(fields)
    family = _FAMILIES[architecture]
    _refuse_unsupported(fields)
    heads = fields.integer("num_attention_heads")
    hidden = fields.integer("hidden_size")
    # A null means "as many as heads" to transformers; an absent key means the family's default.
    kv_default = heads if "num_key_value_heads" in data else family.kv_heads or heads
    context = fields.integer("max_position_embeddings", family.context, most=MOST_POSITIONS)
    num_layers = fields.integer("num_hidden_layers", most=MOST_LAYERS)
    has_bias_key = architecture in ("LlamaForCausalLM", "Qwen3ForCausalLM")
    attention_bias = has_bias_key and fields.boolean("attention_bias", default=False)
    eos = Fields(generation or {}, "generation_config.json").token_ids("eos_token_id")
    bos = fields.token_ids("bos_token_id")
    return ModelConfig(
        architecture=architecture,
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden,
        intermediate_size=fields.integer("intermediate_size"),
        num_layers=num_layers,
        num_heads=heads,
        num_kv_heads=fields.integer("num_key_value_heads", kv_default),
        head_dim=fields.integer("head_dim", family.head_dim or hidden // heads),
        rms_norm_eps=fields.number("rms_norm_eps", 1e-6),
        rope=_rope(fields, context),
        max_position_embeddings=context,
        tie_word_embeddings=fields.boolean("tie_word_embeddings", default=False),
        qkv_bias=attention_bias or architecture == "Qwen2ForCausalLM",
        o_bias=attention_bias,
        mlp_bias=architecture == "LlamaForCausalLM" and fields.boolean("mlp_bias", default=False),
        qk_norm=architecture == "Qwen3ForCausalLM",
        windows=_windows(fields, architecture, family, num_layers),
        bos_token_id=bos[0] if bos else None,
        eos_token_ids=eos or fields.token_ids("eos_token_id"),
    )


def _architecture(fields: Fields) -> str:
    names = fields.texts("architectures")
    if not names:
        model_type = fields.text("model_type", "")
        names = (_BY_MODEL_TYPE.get(model_type, model_type or "(none named)"),)
    if names[0] not in ARCHITECTURES:
        raise UnsupportedModel(
            f"architecture {names[0]} is not supported; supported are {', '.join(ARCHITECTURES)}"
        )
    return names[0]


def _refuse_unsupported(fields: Fields) -> None:
    activation = fields.text("hidden_act", "silu")
    if activation != "silu":
        raise UnsupportedModel(f"config.json: hidden_act {activation!r} is not supported; only 'silu' is")
    quantization = fields.section("quantization_config")
    if quantization is not None:
        method = quantization.text("quant_method", "unknown")
        raise UnsupportedModel(
            f"config.json: quantization_config ({method}) is not supported; "
            "supported are float32, float16 and bfloat16 safetensors, and GGUF files"
        )
    if fields.number("partial_rotary_factor", 1.0) != 1.0:
        raise UnsupportedModel("config.json: partial_rotary_factor is supported only at 1.0")


def _windows(fields: Fields, architecture: str, family: _Family, layers: int) -> tuple[int | None, ...]:
    if architecture == "LlamaForCausalLM":
        return (None,) * layers
    default = None if "sliding_window" in fields.data else family.window
    window = fields.integer("sliding_window", default) if default or fields.has("sliding_window") else None
    if architecture == "MistralForCausalLM":
        kinds = set(_layer_types(fields, layers))
        if kinds - {"sliding_attention" if window else "full_attention"}:
            raise UnsupportedModel("config.json: layer_types contradicts sliding_window")
        return (window,) * layers
    if not fields.boolean("use_sliding_window", default=False):
        window = None
    first = fields.data.get("max_window_layers", 28)
    if isinstance(first, bool) or not isinstance(first, int):
        raise ModelError(f"config.json: max_window_layers must be a whole number, not {first!r}")
    kinds_or_none = _layer_types(fields, layers)
    if not kinds_or_none:
        return tuple(window if index >= first else None for index in range(layers))
    if window is None and "sliding_attention" in kinds_or_none:
        raise UnsupportedModel("config.json: layer_types names sliding_attention while no window is in use")
    return tuple(window if kind == "sliding_attention" else None for kind in kinds_or_none)


def _layer_types(fields: Fields, layers: int) -> tuple[str, ...]:
    kinds = fields.texts("layer_types")
    unknown = set(kinds) - {"sliding_attention", "full_attention"}
    if unknown:
        raise UnsupportedModel(
            f"config.json: layer type {min(unknown)!r} is not supported; "
            "supported are full_attention and sliding_attention"
        )
    if kinds and len(kinds) != layers:
        raise ModelError(f"config.json: layer_types has {len(kinds)} entries for {layers} layers")
    return kinds


def _rope(fields: Fields, context: int) -> RopeConfig:
    """Both spellings: `rope_parameters`, and the older `rope_scaling` beside `rope_theta`."""
    rope = fields.section("rope_scaling") or fields.section("rope_parameters")
    rope = rope or Fields({}, "config.json: rope_parameters")
    if any(isinstance(value, Mapping) for value in rope.data.values()):
        raise UnsupportedModel(f"{rope.where}: rotary settings per layer type are not supported")
    kind = rope.text("rope_type", rope.text("type", "default"))
    theta = rope.number("rope_theta", fields.number("rope_theta", 10000.0))
    known = next((name for name in ROPE_TYPES if name == kind), None)
    if known is None:
        raise UnsupportedModel(
            f"{rope.where}: rope type {kind!r} is not supported; supported are {', '.join(ROPE_TYPES)}"
        )
    if rope.number("partial_rotary_factor", 1.0) != 1.0 or rope.has("mrope_section"):
        raise UnsupportedModel(f"{rope.where}: partial and multimodal rotary embeddings are not supported")
    if known == "default":
        return RopeConfig(theta=theta)
    if known == "linear":
        return RopeConfig(type="linear", theta=theta, factor=rope.number("factor"))
    if known == "dynamic":
        return RopeConfig(type="dynamic", theta=theta, factor=rope.number("factor"), original_length=context)
    # transformers lets a top-level original length win over the one among the rope parameters
    original = fields.integer(
        "original_max_position_embeddings", rope.integer("original_max_position_embeddings", context)
    )
    if known == "yarn":
        return _yarn(rope, theta, original, context)
    return RopeConfig(
        type="llama3",
        theta=theta,
        factor=rope.number("factor"),
        original_length=original,
        low_freq_factor=rope.number("low_freq_factor"),
        high_freq_factor=rope.number("high_freq_factor"),
    )


def _yarn(rope: Fields, theta: float, original: int, context: int) -> RopeConfig:
    factor = rope.number("factor", context / original)
    return RopeConfig(
        type="yarn",
        theta=theta,
        factor=factor,
        original_length=original,
        beta_fast=rope.number("beta_fast", 32.0) or 32.0,
        beta_slow=rope.number("beta_slow", 1.0) or 1.0,
        truncate=rope.boolean("truncate", default=True),
        attention_factor=rope.number("attention_factor", _yarn_attention_factor(rope, factor)),
    )


def _yarn_attention_factor(rope: Fields, factor: float) -> float:
    """How much longer vectors get, as in section 3.4 of https://arxiv.org/abs/2309.00071."""
    scale, scale_all = rope.number("mscale", 0.0), rope.number("mscale_all_dim", 0.0)
    if scale and scale_all:
        return yarn_magnitude(factor, scale) / yarn_magnitude(factor, scale_all)
    return yarn_magnitude(factor)


def yarn_magnitude(factor: float, scale: float = 1.0) -> float:
    """`0.1 * scale * ln(factor) + 1`, and 1 where nothing is stretched."""
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0


def config_to_hf(config: ModelConfig) -> dict[str, object]:
    """The `config.json` that says the same to transformers and to `config_from_hf`. `dtype` is not included.

    Raises `UnsupportedModel` for what only a GGUF file can state: rope divisors, a part of the biases.
    """
    rope = config.rope
    if rope.divisors:
        raise UnsupportedModel("rope divisors from a GGUF file cannot be written to a config.json")
    if config.architecture == "LlamaForCausalLM" and config.qkv_bias != config.o_bias:
        raise UnsupportedModel("only some of the attention biases: a config.json cannot say that")
    data: dict[str, object] = {
        "architectures": [config.architecture],
        "model_type": next(kind for kind, name in _BY_MODEL_TYPE.items() if name == config.architecture),
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": config.rms_norm_eps,
        "rope_parameters": _rope_to_hf(rope),
        "max_position_embeddings": config.max_position_embeddings,
        "tie_word_embeddings": config.tie_word_embeddings,
        "bos_token_id": config.bos_token_id,
        "eos_token_id": list(config.eos_token_ids) or None,
    }
    if config.architecture in ("LlamaForCausalLM", "Qwen3ForCausalLM"):
        data["attention_bias"] = config.o_bias
    if config.architecture == "LlamaForCausalLM":
        data["mlp_bias"] = config.mlp_bias
    else:
        window = next((window for window in config.windows if window is not None), None)
        data["sliding_window"] = window
        if config.architecture != "MistralForCausalLM":
            data["use_sliding_window"] = window is not None
            data["layer_types"] = ["sliding_attention" if w else "full_attention" for w in config.windows]
    return data


def _rope_to_hf(rope: RopeConfig) -> dict[str, object]:
    data: dict[str, object] = {"rope_type": rope.type, "rope_theta": rope.theta}
    if rope.type != "default":
        data["factor"] = rope.factor
    if rope.type in ("yarn", "llama3"):
        data["original_max_position_embeddings"] = rope.original_length
    if rope.type == "llama3":
        data |= {"low_freq_factor": rope.low_freq_factor, "high_freq_factor": rope.high_freq_factor}
    if rope.type == "yarn":
        data |= {"beta_fast": rope.beta_fast, "beta_slow": rope.beta_slow, "truncate": rope.truncate}
        data["attention_factor"] = rope.attention_factor
    return data
