"""A linear layer whose weight is laid out once for the device that multiplies it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from treille.kernels.api import KV_DTYPES
from treille.kernels.cpu_packed import PackedLinear
from treille.kernels.cpu_quantized import QuantizedLinear
from treille.kernels.quantize import quantize
from treille.kernels.select import select_cpu_kernels


class Linear:
    """`x [T, in] -> x @ weight.T + bias [T, out]`, all in the weight's dtype.

    `bits` 8 or 4 rounds the weight (CPU only; `quantize.py` says how), None keeps it as it is.
    `deterministic` (CPU only) takes our own kernel everywhere: a row's result is then the same to the bit
    whatever other rows there are, which oneDNN does not promise.

    On a CPU the weight is laid out once, instead of at every call: for oneDNN where the processor multiplies
    tiles of bfloat16 (AMX), elsewhere for our own kernel, which is faster from one row to thousands
    (benchmarks/LOG.md). `packed` is the layer in that kernel's layout, which a chain of kernels can take.
    """

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None = None,
        *,
        bits: int | None = None,
        deterministic: bool = False,
    ) -> None:
        self.out_features, self.in_features = weight.shape
        self._bias = bias
        self.packed: PackedLinear | QuantizedLinear | None = None
        self._multiply: Callable[[Tensor], Tensor] = self._plainly
        if bits is not None:
            rounded = quantize(weight, bits)
            self.packed = select_cpu_kernels().pack_quantized(rounded, bias, dtype=weight.dtype)
            self._multiply = self.packed
        elif onednn_is_faster(weight) and not deterministic:
            self._weight = torch.ops.mkldnn._reorder_linear_weight(weight)
            self._multiply = self._by_onednn
        elif weight.device.type == "cpu" and weight.dtype in KV_DTYPES:
            self.packed = self._multiply = select_cpu_kernels().pack_linear(weight, bias)
        else:
            self._weight = weight

    def __call__(self, x: Tensor) -> Tensor:
        return self._multiply(x)

    def float32(self, x: Tensor) -> Tensor:
        """What a call gives, as float32: rounded to the weight's dtype all the same."""
        return self._multiply(x).float() if self.packed is None else self.packed(x, wide=True)

    def _plainly(self, x: Tensor) -> Tensor:
        return functional.linear(x, self._weight, self._bias)

    def _by_onednn(self, x: Tensor) -> Tensor:
        if x.shape[0] == 0:
            return x.new_empty(0, self.out_features)
        result: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "")
        return result


def onednn_is_faster(weight: Tensor) -> bool:
    """Whether oneDNN multiplies this weight faster than our own kernel, which knows no tiles."""
    if weight.device.type != "cpu" or weight.dtype != torch.bfloat16:
        return False
    if not torch.backends.mkldnn.is_available() or not torch.cpu._is_amx_tile_supported():  # type: ignore[no-untyped-call]
        return False
    return hasattr(torch.ops.mkldnn, "_reorder_linear_weight")


def has_fast_bfloat16() -> bool:
    """Whether this CPU multiplies bfloat16 in hardware (AVX-512 BF16 or AMX)."""
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
