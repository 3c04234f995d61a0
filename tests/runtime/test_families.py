"""Tiny random models of every family, from a folder through the engine: the tokens are transformers' own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from oracles.prompts import PROMPTS

from treille.runtime.engine import Engine
from treille.runtime.params import SamplingParams

SIZES = {
    "vocab_size": 49_152,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "initializer_range": 0.2,
}
FAMILIES = {
    "llama": ("Llama", {"attention_bias": True}),
    "smollm": ("Llama", {"tie_word_embeddings": True}),
    "mistral": ("Mistral", {"sliding_window": 50, "head_dim": 16}),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {"head_dim": 16}),
}
# Two random logits in sixteen thousand rows come this close by chance; float32 sums differ by less.
TIE = 1e-4


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("length", [24, pytest.param(64, marks=pytest.mark.slow)])
def test_tokens_are_those_of_transformers(
    name: str, length: int, tmp_path: Path, smollm2_folder: Path
) -> None:
    """One forward over prompt and output: each output token is the likeliest after what precedes it."""
    import transformers

    family, settings = FAMILIES[name]
    torch.manual_seed(11)
    config = getattr(transformers, f"{family}Config")(**(SIZES | settings))
    net = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    net.save_pretrained(tmp_path)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(smollm2_folder / file, tmp_path)
    with Engine(tmp_path, dtype="float32", kv_memory="64MiB") as engine:
        prompts = [engine.encode(prompt) for prompt in PROMPTS]
        done = engine.generate(prompts, SamplingParams(temperature=0, max_tokens=length, ignore_eos=True))
    exact = 0
    for ids, completion in zip(prompts, done, strict=True):
        output = torch.tensor(completion.token_ids)
        with torch.inference_mode():
            logits = net(torch.tensor([[*ids, *output]])).logits[0, len(ids) - 1 : -1]
        chosen = logits.gather(1, output[:, None])[:, 0]
        assert len(output) == length and bool((logits.amax(dim=1) - chosen <= TIE).all())
        exact += int((logits.argmax(dim=1) == output).sum())
    assert exact >= length * len(PROMPTS) - 3
