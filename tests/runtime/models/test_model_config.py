"""config.json: what is read, what the families leave out, and what is refused, in which words."""

from __future__ import annotations

import re
from typing import Any

import pytest

from treille.runtime.errors import ModelError, UnsupportedModel
from treille.runtime.models.config import RopeConfig
from treille.runtime.models.hf_config import config_from_hf, config_to_hf

MISTRAL, QWEN2, QWEN3 = (f"{name}ForCausalLM" for name in ("Mistral", "Qwen2", "Qwen3"))


def test_defaults_of_a_short_config(tiny_hf: Any) -> None:
    config = config_from_hf(tiny_hf())
    assert config.architecture == "LlamaForCausalLM"
    assert config.rope == RopeConfig(type="default", theta=10000.0)
    assert (config.head_dim, config.rms_norm_eps, config.tie_word_embeddings) == (8, 1e-6, False)
    assert config.windows == (None, None) and config.eos_token_ids == ()
    assert not (config.qkv_bias or config.o_bias or config.mlp_bias or config.qk_norm)


def test_defaults_of_the_families(tiny_hf: Any) -> None:
    data = tiny_hf(architectures=[MISTRAL], num_attention_heads=8)
    del data["num_key_value_heads"], data["max_position_embeddings"]
    mistral = config_from_hf(data)
    assert mistral.num_kv_heads == 8 and mistral.max_position_embeddings == 131072
    assert mistral.windows == (4096, 4096)
    assert config_from_hf(data | {"sliding_window": None}).windows == (None, None)
    assert config_from_hf(tiny_hf(architectures=[QWEN3])).head_dim == 128
    qwen2 = config_from_hf(tiny_hf(architectures=[QWEN2], num_key_value_heads=None))
    assert qwen2.num_kv_heads == 4 and qwen2.qkv_bias and not qwen2.o_bias
    assert qwen2.windows == (None, None)


def test_windows_per_layer(tiny_hf: Any) -> None:
    base = {"architectures": [QWEN2], "sliding_window": 9, "use_sliding_window": True}
    assert config_from_hf(tiny_hf(**base)).windows == (None, None)  # layers 28 and later
    assert config_from_hf(tiny_hf(**base, max_window_layers=1)).windows == (None, 9)
    kinds = ["sliding_attention", "full_attention"]
    assert config_from_hf(tiny_hf(**base, layer_types=kinds)).windows == (9, None)
    assert config_from_hf(tiny_hf(**(base | {"use_sliding_window": False}))).windows == (None, None)


def test_end_of_text_ids(tiny_hf: Any) -> None:
    assert config_from_hf(tiny_hf(eos_token_id=3)).eos_token_ids == (3,)
    assert config_from_hf(tiny_hf(eos_token_id=3), {"eos_token_id": [5, 4]}).eos_token_ids == (5, 4)
    assert config_from_hf(tiny_hf(eos_token_id=[1, 2]), {"do_sample": True}).eos_token_ids == (1, 2)
    with pytest.raises(ModelError, match=r"generation_config\.json: eos_token_id must be"):
        config_from_hf(tiny_hf(), {"eos_token_id": "</s>"})


def test_model_type_stands_in_for_architectures(tiny_hf: Any) -> None:
    data = tiny_hf(model_type="qwen3")
    del data["architectures"]
    assert config_from_hf(data).architecture == QWEN3


REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"architectures": ["GPT2LMHeadModel"]},
        "architecture GPT2LMHeadModel is not supported; sup",
    ),
    (
        {"architectures": ["LlamaModel"]},
        "supported are LlamaForCausalLM, MistralForCausalLM, Qwen2",
    ),
    ({"architectures": None, "model_type": "phi3"}, "architecture phi3"),
    ({"architectures": None}, "architecture (none named)"),
    ({"hidden_act": "gelu"}, "hidden_act 'gelu' is not supported; only 'silu' is"),
    ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config (gptq)"),
    ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
    ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "partial"),
    (
        {"rope_scaling": {"type": "longrope", "factor": 2.0}},
        "'longrope' is not supported; supported are def",
    ),
    ({"rope_scaling": {"type": "default", "mrope_section": [1, 2]}}, "multimodal"),
    ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "per layer type"),
    ({"architectures": [QWEN2], "layer_types": ["full_attention", "linear_attention"]}, "'linear_attention'"),
    (
        {"architectures": [QWEN2], "layer_types": ["sliding_attention", "full_attention"]},
        "no window is in",
    ),
    ({"architectures": [MISTRAL], "layer_types": ["full_attention"] * 2}, "layer_types contradicts"),
    ({"head_dim": 7}, "head dimension of 7"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_unsupported_settings_are_named(changes: dict[str, Any], message: str, tiny_hf: Any) -> None:
    with pytest.raises(UnsupportedModel, match=re.escape(message)):
        config_from_hf(tiny_hf(**changes))


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"hidden_size": None}, "config.json lacks hidden_size"),
    ({"vocab_size": "many"}, "vocab_size must be a whole number of at least 1, not 'many'"),
    ({"num_hidden_layers": 0}, "num_hidden_layers must be"),
    ({"num_attention_heads": True}, "num_attention_heads must be"),
    ({"num_key_value_heads": 3}, "4 heads cannot share 3"),
    ({"rms_norm_eps": float("nan")}, "rms_norm_eps must be a number"),
    ({"tie_word_embeddings": "yes"}, "tie_word_embeddings must be true or false"),
    ({"architectures": "LlamaForCausalLM"}, "architectures must be a list of strings"),
    ({"rope_scaling": "yarn"}, "rope_scaling must be an object"),
    ({"rope_scaling": {"type": "linear"}}, "rope_scaling lacks factor"),
    ({"rope_scaling": {"type": "linear", "factor": 0}}, "factor must be larger than 0"),
    ({"rope_scaling": {"type": "llama3", "factor": 2.0}}, "lacks low_freq_factor"),
    (
        {"rope_scaling": {"type": "llama3", "factor": 2, "low_freq_factor": 4, "high_freq_factor": 1}},
        "low_freq_factor < high_freq_factor",
    ),
    ({"rope_theta": 1.0}, "rope theta must be larger than 1"),
    ({"architectures": [QWEN2], "layer_types": ["full_attention"]}, "1 entries for 2 layers"),
    ({"architectures": [QWEN2], "max_window_layers": "all"}, "max_window_layers must be"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_wrong_values_are_named(changes: dict[str, Any], message: str, tiny_hf: Any) -> None:
    with pytest.raises(ModelError, match=re.escape(message)):
        config_from_hf(tiny_hf(**changes))


ROUND_TRIPS: list[dict[str, Any]] = [
    {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True, "eos_token_id": [4, 5]},
    {"architectures": [MISTRAL], "sliding_window": 8, "head_dim": 16, "bos_token_id": 1},
    {"architectures": [MISTRAL], "sliding_window": None},
    {"architectures": [QWEN2], "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
    {"architectures": [QWEN3], "attention_bias": True, "rope_theta": 1e6},
    {"rope_scaling": {"type": "linear", "factor": 2.0}},
    {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
    {"rope_scaling": {"type": "yarn", "factor": 2.0, "original_max_position_embeddings": 32, "mscale": 0.5}},
    {
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 2.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 2.0,
            "original_max_position_embeddings": 16,
        }
    },
]


@pytest.mark.parametrize("changes", ROUND_TRIPS)
def test_a_written_config_says_the_same(changes: dict[str, Any], tiny_hf: Any) -> None:
    config = config_from_hf(tiny_hf(**changes))
    assert config_from_hf(config_to_hf(config)) == config
