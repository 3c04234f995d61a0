"""Weights rounded to eight or four bits, and what they stand for.

int8 has one scale for each output and is symmetric: a weight is its whole number times its scale. int4 has a
scale and an offset, to be added, for each 32 inputs of an output. Without the offset int4 lost many times as
much (benchmarks/LOG.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from treille.kernels.api import require

BITS = (8, 4)
GROUP = 32
TRIED = (1.0, 0.92, 0.84)  # of an int4 group's range: what its sixteen values are tried to span
ROWS_AT_ONCE = 1 << 20  # elements


@dataclass(frozen=True, slots=True, eq=False)
class QuantizedWeight:
    """A weight [out, in]. `values` are int8 [out, in], those of int4 from 0 to 15; `scales` and `offsets` are
    float32 [out, groups], in int4 such as bfloat16 holds exactly, in int8 one group and no offset."""

    bits: int
    values: Tensor
    scales: Tensor
    offsets: Tensor

    def dequantized(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """What it stands for, [out, in]."""
        num_inputs = self.values.shape[1]
        if self.bits == 8:
            return self.values.to(dtype) * self.scales.to(dtype)
        scales, offsets = (
            numbers.to(dtype).repeat_interleave(GROUP, dim=1)[:, :num_inputs]
            for numbers in (self.scales, self.offsets)
        )
        return self.values.to(dtype) * scales + offsets


def quantize(weight: Tensor, bits: int) -> QuantizedWeight:
    """Round a weight [out, in] of any floating dtype, on the CPU, a few rows at a time.

    Raises ValueError for other bits than 8 and 4 and for a weight that is not finite.
    """
    require(bits in BITS, f"weights can have 8 or 4 bits, not {bits}")
    require(weight.ndim == 2 and weight.is_cpu, "weight must be [out, in], on the CPU")
    num_outputs, num_inputs = weight.shape
    values = torch.empty(num_outputs, num_inputs, dtype=torch.int8)
    scales = torch.empty(num_outputs, 1 if bits == 8 else -(-num_inputs // GROUP))
    offsets = torch.zeros_like(scales)
    step = max(1, ROWS_AT_ONCE // num_inputs)
    for first in range(0, num_outputs, step):
        some = weight[first : first + step].float()
        require(some.isfinite().all(), "weight must be finite")
        rows = slice(first, first + step)
        if bits == 8:
            values[rows], scales[rows] = _eight_bits(some)
        else:
            values[rows], scales[rows], offsets[rows] = _four_bits(some)
    return QuantizedWeight(bits, values, scales, offsets)


def _eight_bits(weight: Tensor) -> tuple[Tensor, Tensor]:
    scale = weight.abs().amax(dim=1, keepdim=True) / 127
    return (weight * _inverse(scale)).round_().clamp_(-127, 127), scale


def _four_bits(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of each group the sixteen evenly spaced values, of a few such rows, with the least squared error."""
    num_outputs, num_inputs = weight.shape
    missing = -num_inputs % GROUP
    if missing:  # with what changes no range
        weight = torch.cat([weight, weight[:, -1:].expand(-1, missing)], dim=1)
    groups = weight.view(num_outputs, -1, GROUP)
    low, high = groups.aminmax(dim=2, keepdim=True)
    middle, half = (low + high) / 2, (high - low) / 2
    values, scales, offsets = torch.empty_like(groups), torch.empty_like(low), torch.empty_like(low)
    least = torch.full_like(low, torch.inf)
    for part in TRIED:
        offset = (middle - half * part).bfloat16().float()
        scale = (half * (part * 2 / 15)).bfloat16().float()
        whole = ((groups - offset) * _inverse(scale)).round_().clamp_(0, 15)
        error = (whole * scale).add_(offset).sub_(groups).square_().sum(dim=2, keepdim=True)
        better = error < least
        values, least = torch.where(better, whole, values), torch.where(better, error, least)
        scales, offsets = torch.where(better, scale, scales), torch.where(better, offset, offsets)
    return values.view(num_outputs, -1)[:, :num_inputs], scales[:, :, 0], offsets[:, :, 0]


def _inverse(scale: Tensor) -> Tensor:
    """1 / scale; 0 where that is not finite."""
    return torch.where(scale.abs() > 1e-30, scale.reciprocal(), 0.0)
