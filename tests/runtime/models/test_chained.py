"""The decoder as one chain: to the bit what the same kernels give when they are called one by one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from treille.kernels.select import select_kernels
from treille.runtime.models.llama import LlamaModel
from treille.runtime.models.load import read_config
from treille.runtime.models.safetensors_source import SafetensorsSource
from treille.runtime.models.weights import load_weights

CPU = torch.device("cpu")
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "odd heads": {"head_dim": 20, "num_key_value_heads": 1},
    "window": {"architectures": ["MistralForCausalLM"], "sliding_window": 7},
    "normed": {"architectures": ["Qwen3ForCausalLM"], "head_dim": 16},
}


@pytest.fixture(params=sorted(FAMILIES))
def folder(
    request: pytest.FixtureRequest,
    tiny_hf: Callable[..., dict[str, Any]],
    write_folder: Callable[..., Path],
    make_tensors: Callable[..., dict[str, Tensor]],
) -> Path:
    config = tiny_hf(num_hidden_layers=3, **FAMILIES[request.param])
    bare = write_folder(config)
    return write_folder(config, make_tensors(read_config(bare)))


def load(folder: Path, dtype: torch.dtype, bits: int | None = None) -> LlamaModel:
    """A model that our own kernels multiply for on every processor."""
    config = read_config(folder)
    with SafetensorsSource(folder) as source:
        weights = load_weights(config, source, dtype=dtype, device=CPU, bits=bits, deterministic=True)
    return LlamaModel(config, weights, select_kernels(CPU))


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("bits", [None, 8, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_equals_single_calls(
    folder: Path, dtype: torch.dtype, bits: int | None, threads: int, paged_run: Any
) -> None:
    torch.set_num_threads(threads)
    chained, single = load(folder, dtype, bits), load(folder, dtype, bits)
    assert chained._decoder is not None
    single._decoder = None
    runs = [paged_run(model, num_sequences=3) for model in (chained, single)]
    steps: list[tuple[dict[int, list[int]], list[int] | None]] = [
        ({0: [1, 2, 3, 4, 5]}, None),
        ({1: list(range(40)), 0: [9]}, [40]),
        ({0: [7], 1: [8], 2: [9]}, [0, 1, 2]),
        ({2: [1, 2, 3], 0: [5]}, []),
        ({2: [3], 0: [6, 7], 1: [2]}, [3, 0]),
        ({2: [3]}, None),
    ]
    for new, rows in steps:
        first, second = (run.extend(new, rows) for run in runs)
        assert torch.equal(first, second)


def test_another_cache_is_another_chain(folder: Path, paged_run: Any) -> None:
    model = load(folder, torch.float32)
    one, other = paged_run(model), paged_run(model)
    expected = [one.extend({0: [1, 2, 3]}), one.extend({0: [4]})]
    assert torch.equal(other.extend({0: [1, 2, 3]}), expected[0])
    one.extend({0: [5]})
    assert torch.equal(other.extend({0: [4]}), expected[1])
