"""A linear layer whose weight is laid out once for the device that multiplies it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


class Linear:
    """`x [T, in] -> x @ weight.T + bias [T, out]`, all in the weight's dtype.

    On a CPU with oneDNN the weight is reordered once into the blocks its kernels read, instead of at
    every call: one row of SmolLM2's projections then takes about half the time, 64 rows about four fifths
    (benchmarks/LOG.md).
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.out_features, self.in_features = weight.shape
        self._bias = bias
        self._packed = can_pack(weight)
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight) if self._packed else weight

    def __call__(self, x: Tensor) -> Tensor:
        if not self._packed:
            return functional.linear(x, self._weight, self._bias)
        if x.shape[0] == 0:
            return x.new_empty(0, self.out_features)
        result: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "")
        return result


def can_pack(weight: Tensor) -> bool:
    """Whether oneDNN multiplies this dtype here at full speed."""
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    if not hasattr(torch.ops.mkldnn, "_reorder_linear_weight"):
        return False
    return weight.dtype == torch.float32 or (weight.dtype == torch.bfloat16 and has_fast_bfloat16())


def has_fast_bfloat16() -> bool:
    """Whether this CPU multiplies bfloat16 in hardware (AVX-512 BF16 or AMX)."""
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
