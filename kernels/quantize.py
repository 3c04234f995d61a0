"""Weights rounded to eight or four bits, and what they stand for.

int8 has one scale for each output, int4 one for each 32 inputs of an output. Both are symmetric: a weight is
its whole number times its scale.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from treille.kernels.api import require

BITS = (8, 4)
GROUP = 32
# Of an int4 group's largest weight: what its scale is tried at. See benchmarks/LOG.md.
TRIED = (1.0, 0.92, 0.85, 0.78)
ROWS_AT_ONCE = 1 << 20  # elements


@dataclass(frozen=True, slots=True, eq=False)
class QuantizedWeight:
    """A weight [out, in]. `values` are int8 [out, in], those of int4 from -8 to 7; `scales` are float32
    [out, groups], in int4 such as bfloat16 holds exactly."""

    bits: int
    values: Tensor
    scales: Tensor

    def dequantized(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """What it stands for, [out, in]."""
        num_inputs = self.values.shape[1]
        if self.bits == 8:
            return self.values.to(dtype) * self.scales.to(dtype)
        each = self.scales.to(dtype).repeat_interleave(GROUP, dim=1)[:, :num_inputs]
        return self.values.to(dtype) * each


def quantize(weight: Tensor, bits: int) -> QuantizedWeight:
    """Round a weight [out, in] of any floating dtype, on the CPU, a few rows at a time.

    Raises ValueError for other bits than 8 and 4 and for a weight that is not finite.
    """
    require(bits in BITS, f"weights can have 8 or 4 bits, not {bits}")
    require(weight.ndim == 2 and weight.is_cpu, "weight must be [out, in], on the CPU")
    num_outputs, num_inputs = weight.shape
    values = torch.empty(num_outputs, num_inputs, dtype=torch.int8)
    scales = torch.empty(num_outputs, 1 if bits == 8 else -(-num_inputs // GROUP))
    step = max(1, ROWS_AT_ONCE // num_inputs)
    for first in range(0, num_outputs, step):
        some = weight[first : first + step].float()
        require(some.isfinite().all(), "weight must be finite")
        rounded = _eight_bits(some) if bits == 8 else _four_bits(some)
        values[first : first + step], scales[first : first + step] = rounded
    return QuantizedWeight(bits, values, scales)


def _eight_bits(weight: Tensor) -> tuple[Tensor, Tensor]:
    scale = weight.abs().amax(dim=1, keepdim=True) / 127
    return (weight * _inverse(scale)).round_().clamp_(-127, 127), scale


def _four_bits(weight: Tensor) -> tuple[Tensor, Tensor]:
    """The scale of a group is the one, of a few, with the least squared error: the largest weight, or a part
    of it, stands at -8 (the scale may be negative)."""
    num_outputs, num_inputs = weight.shape
    missing = -num_inputs % GROUP
    groups = torch.nn.functional.pad(weight, (0, missing)).view(num_outputs, -1, GROUP)
    at = groups.abs().argmax(dim=2, keepdim=True)
    top = groups.gather(2, at) / -8
    best, best_error = top, torch.full_like(top, torch.inf)
    for part in TRIED:
        for sign in (1, -1):
            scale = (top * (part * sign)).bfloat16().float()
            error = (_four(groups, scale) * scale - groups).square_().sum(dim=2, keepdim=True)
            better = error < best_error
            best, best_error = torch.where(better, scale, best), torch.where(better, error, best_error)
    values = _four(groups, best).view(num_outputs, -1)[:, :num_inputs]
    return values, best[:, :, 0]


def _four(groups: Tensor, scale: Tensor) -> Tensor:
    return (groups * _inverse(scale)).round_().clamp_(-8, 7)


def _inverse(scale: Tensor) -> Tensor:
    """1 / scale; 0 where that is not finite."""
    return torch.where(scale.abs() > 1e-30, scale.reciprocal(), 0.0)
