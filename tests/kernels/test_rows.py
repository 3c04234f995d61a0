"""Norms and the gated activation against float64."""

from __future__ import annotations

import pytest
import torch

from treille.kernels.api import Kernels

SHAPES = [(1, 576), (32, 576), (5, 40), (3, 7), (300, 256), (2, 3, 48)]
DTYPES = [torch.float32, torch.bfloat16]
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 1.6e-2}


def _norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    x = x.double()
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight.double()


@pytest.mark.parametrize("dtype", DTYPES, ids=["f32", "bf16"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rms_norm(kernels: Kernels, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x, weight = torch.randn(shape).to(dtype), torch.rand(shape[-1]).to(dtype)
    out = kernels.rms_norm(x, weight, 1e-5)
    assert out.dtype == dtype and out.shape == x.shape
    torch.testing.assert_close(out.double(), _norm(x, weight, 1e-5), rtol=TOLERANCE[dtype], atol=2e-6)


@pytest.mark.parametrize("dtype", DTYPES, ids=["f32", "bf16"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_add_rms_norm(kernels: Kernels, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x, residual = torch.randn(shape).to(dtype), torch.randn(shape).to(dtype)
    weight, before = torch.rand(shape[-1]).to(dtype), (x.clone(), residual.clone())
    out, total = kernels.add_rms_norm(x, residual, weight, 1e-5)
    assert torch.equal(total, before[0] + before[1])
    assert torch.equal(x, before[0]) and torch.equal(residual, before[1])
    torch.testing.assert_close(out.double(), _norm(total, weight, 1e-5), rtol=TOLERANCE[dtype], atol=2e-6)


def test_rms_norm_rounds_before_the_weight(kernels: Kernels) -> None:
    x, weight = torch.randn(64, 96).bfloat16(), torch.rand(96).bfloat16()
    inner = x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-6)
    expected = inner.bfloat16() * weight
    same = (kernels.rms_norm(x, weight, 1e-6) == expected).float().mean()
    assert same > 0.99  # the mean may round differently


@pytest.mark.parametrize("dtype", DTYPES, ids=["f32", "bf16"])
@pytest.mark.parametrize("shape", [(1, 3072), (32, 128), (3, 14), (2, 3, 64), (400, 512)], ids=str)
def test_silu_mul(kernels: Kernels, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = (8 * torch.randn(shape)).to(dtype)
    gate, up = x.double().chunk(2, dim=-1)
    out = kernels.silu_mul(x)
    assert out.dtype == dtype
    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(out.double(), gate * gate.sigmoid() * up, rtol=tolerance, atol=tolerance / 10)


@pytest.mark.parametrize("dtype", DTYPES, ids=["f32", "bf16"])
def test_silu_mul_at_the_ends(kernels: Kernels, dtype: torch.dtype) -> None:
    gate = torch.tensor([-1e30, -200.0, -100.0, -1.0, 0.0, 1.0, 100.0, 200.0, 1e30, torch.nan] * 2)
    out = kernels.silu_mul(torch.cat([gate, torch.ones(20)]).to(dtype)).float()
    expected = torch.nn.functional.silu(gate.to(dtype).double()).float()
    torch.testing.assert_close(out, expected, rtol=1e-2, atol=1e-6, equal_nan=True)
