"""Host memory for evicted pages of the KV cache: the copies; `radix/host.py` keeps the books."""

from __future__ import annotations

import torch
from torch import Tensor

from treille.kernels.api import KVCache


def pool_tensors(kv: KVCache) -> list[Tensor]:
    """The tensors that hold a pool's pages, each once: a cache may keep keys and values in one."""
    return list({id(tensor): tensor for tensor in (*kv.keys, *kv.values)}.values())


class HostPages:
    """`num_slots` pages outside the pool, bit for bit as they were in it.

    On CUDA the slots are pinned memory; on the CPU they are memory like the pool's own, which is of use only
    where the pool is kept small.
    """

    def __init__(self, kv: KVCache, num_slots: int) -> None:
        self._pages = pool_tensors(kv)
        self._slots = [
            torch.empty(
                (num_slots, *tensor.shape[1:]), dtype=tensor.dtype, pin_memory=tensor.device.type == "cuda"
            )
            for tensor in self._pages
        ]

    def store(self, page: int, slot: int) -> None:
        """Copy a page of the pool to a slot; done when this returns."""
        for pages, slots in zip(self._pages, self._slots, strict=True):
            slots[slot].copy_(pages[page])

    def load(self, slot: int, page: int) -> None:
        """Copy a slot to a page of the pool; done when this returns."""
        for pages, slots in zip(self._pages, self._slots, strict=True):
            pages[page].copy_(slots[slot])
