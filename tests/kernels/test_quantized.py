"""Weights of eight and four bits: their rounding, and products against float64 with what they stand for."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from treille.kernels.cpu import CpuKernels
from treille.kernels.quantize import GROUP, QuantizedWeight, quantize

DTYPES = (torch.float32, torch.bfloat16)
SHAPES = ((16, 32), (1, 1), (48, 33), (100, 64), (576, 1536), (130, 577))
BITS = (8, 4)


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
@pytest.mark.parametrize("rows", [1, 2, 3, 5, 6, 7, 11, 64, 97, 200])
def test_it_is_a_matrix_product(
    cpu_kernels: CpuKernels, rows: int, outputs: int, inputs: int, dtype: torch.dtype, bits: int
) -> None:
    weight = quantize(random(outputs, inputs, seed=1), bits)
    bias = random(outputs, dtype=dtype, seed=2) if rows % 2 else None
    x = random(rows, inputs, dtype=dtype, seed=rows)
    layer = cpu_kernels.pack_quantized(weight, bias, dtype=dtype)
    found = layer(x)
    assert torch.equal(layer(x, wide=True), found.float())
    exact = weight.dequantized(torch.float64)
    expected = x.double() @ exact.T + (0 if bias is None else bias.double())
    assert found.shape == (rows, outputs) and found.dtype == dtype
    # Half a unit of each input's group, and the rounding of sums and outputs.
    tops = torch.stack([part.abs().amax(dim=1) for part in x.double().split(GROUP, dim=1)], dim=1)
    unit = (tops / 32767).repeat_interleave(GROUP, dim=1)[:, :inputs]
    size = x.double().abs() @ exact.abs().T + 1
    rounding = 0.0 if dtype == torch.float32 else 2**-8
    allowed = 0.51 * unit @ exact.abs().T + size * 1e-6 + expected.abs() * rounding
    assert bool(((found.double() - expected).abs() <= allowed).all())


@pytest.mark.parametrize("bits", BITS)
def test_whole_numbers_are_exact(cpu_kernels: CpuKernels, bits: int) -> None:
    """Every weight of the range times rows that int16 holds as they are."""
    low, high = (-127, 127) if bits == 8 else (0, 15)
    values = torch.arange(33 * 64).reshape(33, 64) * 7 % (high - low + 1) + low
    scales = torch.ones(33, 1 if bits == 8 else 64 // GROUP)
    offsets = torch.full_like(scales, 0.0 if bits == 8 else -8.0)
    weight = QuantizedWeight(bits, values.to(torch.int8), scales, offsets)
    x = torch.eye(64) * 32767
    found = cpu_kernels.pack_quantized(weight, dtype=torch.float32)(x)
    assert torch.equal(found, (values + int(offsets[0, 0])).T.float() * 32767)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_is_the_same_to_the_bit_beside_any_others(
    cpu_kernels: CpuKernels, dtype: torch.dtype, bits: int
) -> None:
    layer = cpu_kernels.pack_quantized(quantize(random(200, 130, seed=1), bits), dtype=dtype)
    x = random(150, 130, dtype=dtype, seed=2)
    whole = layer(x)
    for first, last in ((0, 1), (3, 5), (10, 13), (20, 24), (30, 35), (40, 46), (50, 149)):
        assert torch.equal(layer(x[first:last]), whole[first:last])


@pytest.mark.parametrize("bits", BITS)
def test_rows_need_not_lie_together(cpu_kernels: CpuKernels, bits: int) -> None:
    layer = cpu_kernels.pack_quantized(quantize(random(32, 64, seed=1), bits), dtype=torch.float32)
    wide, tall = random(9, 128, seed=2), random(64, 9, seed=3)
    assert torch.equal(layer(wide[:, 64:]), layer(wide[:, 64:].contiguous()))
    assert torch.equal(layer(tall.T), layer(tall.T.contiguous()))
    assert layer(wide[:0, 64:]).shape == (0, 32)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_a_row_that_is_not_finite_stays_so_and_leaves_the_others_alone(
    cpu_kernels: CpuKernels, bits: int, bad: float
) -> None:
    layer = cpu_kernels.pack_quantized(quantize(random(20, 40, seed=1), bits), dtype=torch.float32)
    x = random(7, 40, seed=2)
    expected = layer(x)
    x[3, 35] = bad
    found = layer(x)
    assert not bool(found[3].isfinite().any())
    others = [0, 1, 2, 4, 5, 6]
    assert torch.equal(found[others], expected[others])


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("size", [0.0, 1e-42, 1e-20, 1e20])
def test_rows_of_any_size(cpu_kernels: CpuKernels, bits: int, size: float) -> None:
    weight = quantize(random(20, 40, seed=1), bits)
    x = random(3, 40, seed=2) * size
    found = cpu_kernels.pack_quantized(weight, dtype=torch.float32)(x)
    expected = x.double() @ weight.dequantized(torch.float64).T
    assert bool(((found.double() - expected).abs() <= 1e-3 * size + 1e-28).all())


def test_int8_rounds_to_half_a_step() -> None:
    weight = random(30, 70, seed=1)
    found = quantize(weight, 8)
    step = weight.abs().amax(dim=1, keepdim=True) / 127
    assert bool(((found.dequantized() - weight).abs() <= step * 0.5001).all())
    assert int(found.values.abs().amax()) == 127


def test_int4_spans_each_group_as_well_as_a_fine_grid_of_spans() -> None:
    """Brute force over both ends of the span: the few that are tried come close to the best of all."""
    weight = random(20, 2 * GROUP, seed=1) + 0.3
    found = (quantize(weight, 4).dequantized() - weight).square().view(20, 2, GROUP).sum(dim=2)
    groups = weight.view(20, 2, GROUP)
    low, high = groups.amin(dim=2, keepdim=True), groups.amax(dim=2, keepdim=True)
    best = torch.full((20, 2), torch.inf)
    for left in torch.arange(0.0, 0.3, 0.02):
        for right in torch.arange(0.0, 0.3, 0.02):
            start, step = low + (high - low) * left, (high - low) * (1 - left - right) / 15
            whole = ((groups - start) / step).round().clamp(0, 15)
            best = torch.minimum(best, (whole * step + start - groups).square().sum(dim=2))
    assert float(found.sum() / best.sum()) < 1.35


def test_int4_keeps_what_lies_on_such_a_grid() -> None:
    whole = torch.arange(4 * GROUP).view(2, 2 * GROUP) * 7 % 16
    weight = whole * 0.25 - 1.5
    assert torch.equal(quantize(weight, 4).dequantized(), weight)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_rows_of_zeros_and_of_any_dtype(bits: int, dtype: torch.dtype) -> None:
    weight = random(5, 40, dtype=dtype, seed=1)
    weight[2] = 0
    found = quantize(weight, bits).dequantized()
    assert bool((found[2] == 0).all()) and bool(found.isfinite().all())
    assert float((found - weight.float()).abs().max()) < (0.02 if bits == 8 else 0.35)


def test_what_does_not_fit_is_refused(cpu_kernels: CpuKernels) -> None:
    weight = random(4, 3, seed=1)
    with pytest.raises(ValueError, match="8 or 4 bits, not 5"):
        quantize(weight, 5)
    with pytest.raises(ValueError, match="finite"):
        quantize(weight * torch.inf, 8)
    with pytest.raises(ValueError, match="bias must be"):
        cpu_kernels.pack_quantized(quantize(weight, 8), torch.ones(3), dtype=torch.float32)
    with pytest.raises(ValueError, match="float32 or bfloat16"):
        cpu_kernels.pack_quantized(quantize(weight, 8), dtype=torch.float64)
    layer = cpu_kernels.pack_quantized(quantize(weight, 8), dtype=torch.float32)
    with pytest.raises(ValueError, match=r"x must be \[T, in\]"):
        layer(torch.ones(2, 4))
    with pytest.raises(ValueError, match="x must be"):
        layer(torch.ones(2, 3, dtype=torch.bfloat16))
