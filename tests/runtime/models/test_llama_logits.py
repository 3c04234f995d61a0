"""The decoder against transformers in float32, through the paged cache, for every family and rope type."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

transformers = pytest.importorskip("transformers")

SIZES = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "initializer_range": 0.2,
    "attn_implementation": "eager",
}
LENGTH = 29
IDS = torch.randint(0, 97, (LENGTH,), generator=torch.Generator().manual_seed(3)).tolist()


def rope(kind: str, **more: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 500.0, **more}}


MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama-tied": ("Llama", {"tie_word_embeddings": True}),
    "llama-biases": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "llama-head-dim": ("Llama", {"head_dim": 20, "num_key_value_heads": 1, "rms_norm_eps": 1e-3}),
    "llama-no-gqa": ("Llama", {"num_key_value_heads": 4}),
    "mistral-window": ("Mistral", {"sliding_window": 7}),
    "mistral-no-window": ("Mistral", {"sliding_window": None, "head_dim": 16}),
    "qwen2": ("Qwen2", {}),
    "qwen2-tied": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen2-window": ("Qwen2", {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}),
    "qwen3": ("Qwen3", {"head_dim": 16}),
    "qwen3-biases-window": (
        "Qwen3",
        {
            "head_dim": 24,
            "attention_bias": True,
            "use_sliding_window": True,
            "sliding_window": 6,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    ),
    "linear": ("Llama", rope("linear", factor=3.0)),
    "dynamic-within": ("Llama", rope("dynamic", factor=4.0)),
    "yarn": ("Llama", rope("yarn", factor=4.0, original_max_position_embeddings=16)),
    "yarn-all-keys": (
        "Qwen3",
        {"head_dim": 32}
        | rope(
            "yarn",
            factor=4.0,
            original_max_position_embeddings=16,
            beta_fast=8.0,
            beta_slow=0.5,
            mscale=0.7,
            mscale_all_dim=0.4,
            truncate=False,
        ),
    ),
    "yarn-attention-factor": (
        "Mistral",
        rope("yarn", factor=2.0, original_max_position_embeddings=32, attention_factor=1.25),
    ),
    "llama3": (
        "Llama",
        {"head_dim": 32}
        | rope(
            "llama3",
            factor=8.0,
            original_max_position_embeddings=32,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
        ),
    ),
}


def make_reference(family: str, **settings: Any) -> Any:
    """A random transformers model whose norms and biases are not the ones and zeros of a fresh one."""
    config = getattr(transformers, f"{family}Config")(**(SIZES | settings))
    torch.manual_seed(11)
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name or name.endswith("bias"):
                parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4 * expected.abs().max().item())


@pytest.mark.parametrize("name", MODELS)
def test_logits_equal_transformers(name: str, tmp_path: Path, load_folder: Any, paged_run: Any) -> None:
    family, settings = MODELS[name]
    reference = make_reference(family, **settings)
    reference.save_pretrained(tmp_path)
    with torch.no_grad():
        expected = reference(torch.tensor([IDS])).logits[0]
    model = load_folder(tmp_path)
    assert model.config.architecture == f"{family}ForCausalLM"
    close(paged_run(model).extend({0: IDS}), expected)
    run = paged_run(model)
    parts = [run.extend({0: IDS[a:b]}) for a, b in ((0, 5), (5, 6), (6, 7), (7, 20), (20, LENGTH))]
    close(torch.cat(parts), expected)


def test_ragged_batch_and_rows(tmp_path: Path, load_folder: Any, paged_run: Any) -> None:
    reference = make_reference("Qwen2", use_sliding_window=True, sliding_window=5, max_window_layers=1)
    reference.save_pretrained(tmp_path)
    model = load_folder(tmp_path)
    prompts = [IDS[:9], IDS[4:23], IDS[20:]]
    with torch.no_grad():
        expected = [reference(torch.tensor([ids])).logits[0] for ids in prompts]
    run = paged_run(model, num_sequences=3)
    nothing = run.extend({0: prompts[0][:8], 2: prompts[2][:3]}, rows=[])
    assert nothing.shape == (0, 97) and nothing.dtype == torch.float32
    # One decodes, one prefills whole, one goes on with its chunk; rows asked for out of order.
    found = run.extend({2: prompts[2][3:], 0: prompts[0][8:], 1: prompts[1]}, rows=[6, 25, 5])
    close(found, torch.stack([expected[0][-1], expected[1][-1], expected[2][-1]]))


@pytest.mark.filterwarnings("ignore:`past_key_values` is deprecated:FutureWarning")
def test_dynamic_rope_beyond_the_original_length(tmp_path: Path, load_folder: Any, paged_run: Any) -> None:
    """transformers extended token by token with its cache, as in generation."""
    reference = make_reference("Llama", max_position_embeddings=12, **rope("dynamic", factor=4.0))
    reference.save_pretrained(tmp_path)
    cache = transformers.DynamicCache(config=reference.config)
    with torch.no_grad():
        steps = [reference(torch.tensor([[t]]), past_key_values=cache).logits[0] for t in IDS]
    expected = torch.cat(steps)
    model = load_folder(tmp_path, max_seq_len=32)
    close(paged_run(model).extend({0: IDS}), expected)
    run = paged_run(model)
    close(torch.cat([run.extend({0: IDS[:13]}), run.extend({0: IDS[13:]})]), expected)


def test_sharded_and_half_precision_checkpoints(tmp_path: Path, load_folder: Any, paged_run: Any) -> None:
    reference = make_reference("Qwen3", head_dim=16).to(torch.bfloat16)
    reference.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    with torch.no_grad():
        reloaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
        expected = reloaded(torch.tensor([IDS])).logits[0]
    close(paged_run(load_folder(tmp_path)).extend({0: IDS}), expected)


def test_bfloat16_is_near_float32(tmp_path: Path, load_folder: Any, paged_run: Any) -> None:
    reference = make_reference("Llama", attention_bias=True)
    reference.save_pretrained(tmp_path)
    with torch.no_grad():
        expected = reference(torch.tensor([IDS])).logits[0]
    model = load_folder(tmp_path, dtype=torch.bfloat16)
    assert model.dtype == torch.bfloat16
    found = paged_run(model).extend({0: IDS})
    assert found.dtype == torch.float32
    assert (found - expected).norm() / expected.norm() < 0.03


def test_old_spelling_of_rope(tmp_path: Path, load_folder: Any, paged_run: Any) -> None:
    """`rope_scaling` with `type`, beside a top-level `rope_theta`, as older checkpoints have it."""
    reference = make_reference("Llama", **rope("linear", factor=2.0))
    reference.save_pretrained(tmp_path)
    data = json.loads((tmp_path / "config.json").read_text())
    del data["rope_parameters"]
    data |= {"rope_theta": 500.0, "rope_scaling": {"type": "linear", "factor": 2.0}}
    (tmp_path / "config.json").write_text(json.dumps(data))
    with torch.no_grad():
        expected = reference(torch.tensor([IDS])).logits[0]
    close(paged_run(load_folder(tmp_path)).extend({0: IDS}), expected)
