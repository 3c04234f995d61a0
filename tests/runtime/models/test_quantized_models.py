"""Models with weights of eight and four bits: logits of the dequantised weights, errors, engines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from treille.kernels.quantize import quantize
from treille.kernels.select import select_kernels
from treille.runtime.engine import Engine
from treille.runtime.errors import InvalidRequest, UnsupportedModel
from treille.runtime.models.hf_config import config_from_hf
from treille.runtime.models.linear import Linear
from treille.runtime.models.llama import LlamaModel
from treille.runtime.models.load import read_config
from treille.runtime.models.safetensors_source import SafetensorsSource
from treille.runtime.models.weights import HEAD_BITS, load_weights
from treille.runtime.params import SamplingParams

CPU = torch.device("cpu")
TOKENS = (5, 17, 3, 90, 41, 2, 8, 8, 60, 33)


def load(folder: Path, *, dtype: torch.dtype = torch.float32, bits: int | None = None) -> LlamaModel:
    config = read_config(folder)
    with SafetensorsSource(folder) as source:
        weights = load_weights(config, source, dtype=dtype, device=CPU, bits=bits)
    return LlamaModel(config, weights, select_kernels(CPU))


def as_rounded(tensors: dict[str, Tensor], bits: int) -> dict[str, Tensor]:
    """The same checkpoint with what the rounded weights stand for. Rows are rounded each for itself, so
    that it does not matter which projections are stacked."""
    return {
        name: quantize(tensor, HEAD_BITS if name == "lm_head.weight" else bits).dequantized()
        if name == "lm_head.weight" or "proj.weight" in name
        else tensor
        for name, tensor in tensors.items()
    }


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize(
    "changes", [{}, {"attention_bias": True}, {"hidden_size": 24, "intermediate_size": 41}]
)
def test_logits_are_those_of_the_dequantised_weights(
    bits: int,
    changes: dict[str, Any],
    tmp_path: Path,
    tiny_hf: Callable[..., dict[str, Any]],
    write_folder: Callable[..., Path],
    make_tensors: Callable[..., dict[str, Tensor]],
    paged_run: Any,
) -> None:
    data = tiny_hf(tie_word_embeddings=False, head_dim=8, **changes)
    tensors = make_tensors(config_from_hf(data, None))
    folder = write_folder(data, tensors)
    found = paged_run(load(folder, bits=bits)).extend({0: TOKENS})
    write_folder(data, as_rounded(tensors, bits))
    expected = paged_run(load(folder)).extend({0: TOKENS})
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=2e-3)


def test_a_tied_output_layer_has_eight_bits_and_the_embedding_all_of_them(
    tiny_hf: Callable[..., dict[str, Any]],
    write_folder: Callable[..., Path],
    make_tensors: Callable[..., dict[str, Tensor]],
) -> None:
    data = tiny_hf(tie_word_embeddings=True)
    tensors = make_tensors(config_from_hf(data, None))
    folder = write_folder(data, tensors)
    with SafetensorsSource(folder) as source:
        weights = load_weights(read_config(folder), source, dtype=torch.float32, device=CPU, bits=4)
    embedding = tensors["model.embed_tokens.weight"]
    assert torch.equal(weights.embedding, embedding)
    x = torch.eye(32)
    torch.testing.assert_close(
        weights.lm_head(x), quantize(embedding, 8).dequantized().T, rtol=1e-4, atol=1e-5
    )


def test_weights_that_are_not_finite_are_named(
    tiny_hf: Callable[..., dict[str, Any]],
    write_folder: Callable[..., Path],
    make_tensors: Callable[..., dict[str, Tensor]],
) -> None:
    data = tiny_hf(tie_word_embeddings=True)
    tensors = make_tensors(config_from_hf(data, None))
    tensors["model.layers.1.mlp.down_proj.weight"][3, 4] = torch.nan
    with pytest.raises(UnsupportedModel, match=r"layers\.1\.mlp\.down_proj cannot have 4 bits.*finite"):
        load(write_folder(data, tensors), bits=4)


def test_other_devices_are_refused(
    tiny_hf: Callable[..., dict[str, Any]],
    write_folder: Callable[..., Path],
    make_tensors: Callable[..., dict[str, Tensor]],
) -> None:
    data = tiny_hf(tie_word_embeddings=True)
    folder = write_folder(data, make_tensors(config_from_hf(data, None)))
    with SafetensorsSource(folder) as source, pytest.raises(UnsupportedModel, match="on the CPU alone"):
        load_weights(read_config(folder), source, dtype=torch.bfloat16, device=torch.device("cuda"), bits=8)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_linear_layer_keeps_the_dtype_of_its_rows(bits: int, dtype: torch.dtype) -> None:
    weight = torch.randn(48, 33, generator=torch.Generator().manual_seed(1)).to(dtype)
    x = torch.randn(5, 33, generator=torch.Generator().manual_seed(2)).to(dtype)
    found = Linear(weight, bits=bits)(x)
    expected = x.double() @ quantize(weight, bits).dequantized(torch.float64).T
    assert found.dtype == dtype
    tolerance = 1e-3 if dtype == torch.float32 else 2**-7
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)


def test_engines_run_in_int8_and_int4_and_say_what_they_were_given() -> None:
    for dtype in ("int8", "int4"):
        with Engine("smollm2-135m", dtype=dtype, max_seq_len=64, kv_memory="16MiB") as engine:
            params = SamplingParams(temperature=0, max_tokens=6)
            (done,) = engine.generate(["The opposite of hot is"], params)
            assert "cold" in done.text
    with pytest.raises(InvalidRequest, match="float32, bfloat16, int8, int4"):
        Engine("smollm2-135m", dtype="int3")
