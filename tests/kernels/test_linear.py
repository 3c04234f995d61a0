"""Linear layers in panels, against float64, and their rows, whatever runs beside them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from treille.kernels.cpu import CpuKernels

DTYPES = (torch.float32, torch.bfloat16)
SHAPES = ((16, 2), (1, 1), (48, 33), (100, 64), (576, 1536), (130, 577))


def random(*shape: int, dtype: torch.dtype, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
@pytest.mark.parametrize("rows", [1, 2, 3, 5, 6, 7, 11, 64, 97, 200])
def test_it_is_a_matrix_product(
    cpu_kernels: CpuKernels, rows: int, outputs: int, inputs: int, dtype: torch.dtype
) -> None:
    weight = random(outputs, inputs, dtype=dtype, seed=1)
    bias = random(outputs, dtype=dtype, seed=2) if rows % 2 else None
    x = random(rows, inputs, dtype=dtype, seed=rows)
    layer = cpu_kernels.pack_linear(weight, bias)
    found = layer(x)
    assert torch.equal(layer(x, wide=True), found.float())
    expected = x.double() @ weight.double().T + (0 if bias is None else bias.double())
    assert found.shape == (rows, outputs) and found.dtype == dtype
    size = (x.double().abs() @ weight.double().abs().T) + 1
    rounding = 0.0 if dtype == torch.float32 else 2**-8
    allowed = size * 1e-6 + expected.abs() * rounding
    assert bool(((found.double() - expected).abs() <= allowed).all())


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_is_the_same_to_the_bit_beside_any_others(cpu_kernels: CpuKernels, dtype: torch.dtype) -> None:
    layer = cpu_kernels.pack_linear(random(200, 130, dtype=dtype, seed=1))
    x = random(150, 130, dtype=dtype, seed=2)
    whole = layer(x)
    for first, last in ((0, 1), (3, 5), (10, 13), (20, 24), (30, 35), (40, 46), (50, 149)):
        assert torch.equal(layer(x[first:last]), whole[first:last])


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_need_not_lie_together(cpu_kernels: CpuKernels, dtype: torch.dtype) -> None:
    layer = cpu_kernels.pack_linear(random(32, 64, dtype=dtype, seed=1))
    wide, tall = random(9, 128, dtype=dtype, seed=2), random(64, 9, dtype=dtype, seed=3)
    assert torch.equal(layer(wide[:, 64:]), layer(wide[:, 64:].contiguous()))
    assert torch.equal(layer(tall.T), layer(tall.T.contiguous()))
    assert layer(wide[:0, 64:]).shape == (0, 32)


def test_every_output_is_written(cpu_kernels: CpuKernels) -> None:
    """Poison: what is not computed would be seen, since fresh memory is not zero here."""
    layer = cpu_kernels.pack_linear(torch.full((5, 3), torch.nan))
    assert bool(layer(torch.ones(4, 3)).isnan().all())
    layer = cpu_kernels.pack_linear(torch.ones(5, 3))
    for _ in range(20):
        torch.full((4, 5), torch.nan)
        assert torch.equal(layer(torch.ones(4, 3)), torch.full((4, 5), 3.0))


def test_what_does_not_fit_is_refused(cpu_kernels: CpuKernels) -> None:
    weight = torch.ones(4, 3)
    with pytest.raises(ValueError, match="bias must be"):
        cpu_kernels.pack_linear(weight, torch.ones(3))
    with pytest.raises(ValueError, match="float32 or bfloat16"):
        cpu_kernels.pack_linear(weight.double())
    with pytest.raises(ValueError, match=r"x must be \[T, in\]"):
        cpu_kernels.pack_linear(weight)(torch.ones(2, 4))
    with pytest.raises(ValueError, match="like the weight"):
        cpu_kernels.pack_linear(weight)(torch.ones(2, 3, dtype=torch.bfloat16))
