"""Which backend runs on which device."""

from __future__ import annotations

from functools import lru_cache

import torch

from treille.kernels.api import Kernels
from treille.kernels.cpu import CpuKernels
from treille.kernels.host_rows import RowKernels
from treille.kernels.reference import ReferenceKernels


def select_kernels(device: torch.device) -> Kernels:
    """The fastest backend for `device`: compiled for CPUs, PyTorch's own operations elsewhere."""
    return select_cpu_kernels() if device.type == "cpu" else ReferenceKernels()


@lru_cache(maxsize=1)
def select_cpu_kernels() -> CpuKernels:
    """One for the process, so that each kernel is compiled or loaded once."""
    return CpuKernels()


@lru_cache(maxsize=1)
def select_row_kernels() -> RowKernels:
    """Those for rows of logits in host memory, once for the process."""
    return RowKernels()
