"""What a kernel backend promises: the values it is given and the operations it has.

A backend owns the layout of the key/value cache; everybody else sees pages only as numbers. Token `i` of
a sequence lies in page `page_table[seq, i // page_size]` at offset `i % page_size`; its *slot* is
`page_id * page_size + offset`. Sequences may share pages that no token of the step is written to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

KV_DTYPES = (torch.float32, torch.bfloat16)


def require(condition: object, message: str) -> None:
    """Raises `ValueError(message)` unless `condition` holds."""
    if not condition:
        raise ValueError(message)


@dataclass(frozen=True, slots=True, eq=False)
class KVCache:
    """Keys and values of every layer, made by `Kernels.allocate_kv` and only read by the same backend.

    `keys[layer]` and `values[layer]` hold `num_pages` pages along their first dimension; the rest of the
    shape is the backend's own.
    """

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    num_pages: int
    page_size: int
    num_kv_heads: int
    head_dim: int

    @property
    def num_layers(self) -> int:
        return len(self.keys)

    @property
    def dtype(self) -> torch.dtype:
        return self.keys[0].dtype

    @property
    def device(self) -> torch.device:
        return self.keys[0].device


@dataclass(frozen=True, slots=True, eq=False)
class Ragged:
    """The shape of one step, shared by all layers: `S` sequences, `T` new tokens laid end to end.

    query_start:  int32 [S + 1], offset of each sequence's new tokens in the flat batch; every sequence has
                  at least one
    context_lens: int32 [S], tokens of each sequence in the cache once this step's tokens are stored
    page_table:   int32 [S, max_pages], page ids in order; what lies beyond the context is not read
    slots:        int64 [T], where each new token's key and value are stored
    positions:    int64 [T], row of the rotary table for each new token

    All contiguous, on one device. The new tokens are the last ones of their sequence's context; that, not
    `positions`, decides what each of them sees.
    """

    query_start: Tensor
    context_lens: Tensor
    page_table: Tensor
    slots: Tensor
    positions: Tensor

    @property
    def num_sequences(self) -> int:
        return self.context_lens.shape[0]

    @property
    def num_tokens(self) -> int:
        return self.slots.shape[0]

    def check(self, kv: KVCache, *, max_positions: int) -> None:
        """Raises `ValueError` unless every index is in range and every slot agrees with the page table.

        Call it once a step, before the first layer: the kernels trust these numbers. `max_positions` is
        the number of rows of the rotary table.
        """
        self.check_form()
        starts, lens = _host(self.query_start), _host(self.context_lens)
        table, slots, positions = _host(self.page_table), _host(self.slots), _host(self.positions)
        counts = np.diff(starts)
        require(starts[0] == 0 and starts[-1] == len(slots), "query_start does not span the tokens")
        require((counts > 0).all(), "a sequence has no new token")
        require((lens >= counts).all(), "a context is shorter than its new tokens")
        num_used = -(-lens.astype(np.int64) // kv.page_size)
        require((num_used <= table.shape[1]).all(), "a context is longer than its row of the page table")
        used = np.arange(table.shape[1]) < num_used[:, None]
        require(((table >= 0) & (table < kv.num_pages))[used].all(), "a page id is out of range")
        require(((positions >= 0) & (positions < max_positions)).all(), "a position is out of range")
        seq = np.repeat(np.arange(len(lens)), counts)
        index = np.arange(len(slots)) - starts[seq] + (lens - counts)[seq]
        expected = table[seq, index // kv.page_size].astype(np.int64) * kv.page_size + index % kv.page_size
        require((slots == expected).all(), "a slot disagrees with the page table")
        require(len(np.unique(slots)) == len(slots), "two tokens are stored in one slot")

    def check_form(self) -> None:
        """Raises `ValueError` unless dtypes, shapes, devices and strides are as promised."""
        S, T = self.context_lens.shape[0] if self.context_lens.ndim == 1 else -1, self.slots.numel()
        require(S >= 1 and T >= 1, "a step has at least one sequence and one token")
        require(self.query_start.shape == (S + 1,), "query_start must be [S + 1]")
        require(self.page_table.ndim == 2 and self.page_table.shape[0] == S, "page_table must be [S, pages]")
        require(self.slots.shape == (T,) and self.positions.shape == (T,), "slots, positions must be [T]")
        for tensor in (self.query_start, self.context_lens, self.page_table):
            require(tensor.dtype == torch.int32, "query_start, context_lens, page_table must be int32")
        for tensor in (self.slots, self.positions):
            require(tensor.dtype == torch.int64, "slots and positions must be int64")
        for tensor in (self.query_start, self.context_lens, self.page_table, self.slots, self.positions):
            require(tensor.is_contiguous(), "the step's tensors must be contiguous")
            require(tensor.device == self.slots.device, "the step's tensors must share one device")


def zeroed(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Zeros on the CPU whose memory the system hands out page by page, when it is first touched: a pool is
    sized for the worst case and mostly stays empty."""
    raw = np.zeros(math.prod(shape) * dtype.itemsize, dtype=np.uint8)
    return torch.from_numpy(raw).view(dtype).reshape(tuple(shape))


def _host(tensor: Tensor) -> np.ndarray:
    return tensor.cpu().numpy()


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """The constants of one layer's attention, checked when made (`ValueError`).

    `scale` multiplies the scores (usually `head_dim ** -0.5`). With `window`, the token at index `i` sees
    index `j` iff `i - window < j <= i`; without, iff `j <= i`. `norm_eps` belongs to the optional query and
    key norms. Query head `h` reads key/value head `h // (num_heads // num_kv_heads)`.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    window: int | None = None
    norm_eps: float = 1e-6

    def __post_init__(self) -> None:
        require(self.num_kv_heads >= 1, "num_kv_heads must be positive")
        require(
            self.num_heads >= 1 and self.num_heads % self.num_kv_heads == 0,
            "num_heads must be a multiple of num_kv_heads",
        )
        require(self.head_dim >= 2 and self.head_dim % 2 == 0, "head_dim must be even and positive")
        require(self.scale > 0, "scale must be positive")
        require(self.window is None or self.window >= 1, "window must be positive")

    @property
    def qkv_width(self) -> int:
        return (self.num_heads + 2 * self.num_kv_heads) * self.head_dim


class Kernels(Protocol):
    """One device's operations. Stateless: safe to call from several threads on different caches.

    Activations are float32 or bfloat16, contiguous, and of one dtype with the cache and the weights. All
    arithmetic is float32 inside; results are rounded once to the dtype of the input, where not said
    otherwise. `ValueError` for every wrong shape, dtype or stride; indices are checked by `Ragged.check`.
    """

    @property
    def name(self) -> str:
        """`"reference"` or `"cpu"`; for logs and statistics."""
        ...

    def warm_up(self, dtype: torch.dtype) -> None:
        """Does now what the first call with `dtype` would otherwise wait for."""
        ...

    def page_bytes(
        self, *, num_layers: int, page_size: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype
    ) -> int:
        """Bytes that one page takes over all layers, padding included."""
        ...

    def allocate_kv(
        self,
        *,
        num_layers: int,
        num_pages: int,
        page_size: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> KVCache:
        """A zeroed cache. `page_size` 1 to 256; dtype float32 or bfloat16; `head_dim` even, at most 256."""
        ...

    def copy_pages(self, kv: KVCache, pairs: Sequence[tuple[int, int]]) -> None:
        """Copies page `src` to page `dst` in all layers for each `(src, dst)`.

        No `dst` may appear twice or as a `src` of the same call.
        """
        ...

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """`x * rsqrt(mean(x ** 2) + eps)` over the last dimension, rounded to x's dtype, times `weight`.

        x: [..., H]; weight: [H]. Returns [..., H].
        """
        ...

    def add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        """`total = x + residual` (rounded to the dtype); returns `(rms_norm(total), total)`, both new."""
        ...

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        """`silu(gate) * up` for gate_up = [gate, up]: [..., 2 * I] -> [..., I]."""
        ...

    def attention(
        self,
        layer: int,
        qkv: Tensor,
        kv: KVCache,
        ragged: Ragged,
        spec: AttentionSpec,
        *,
        cos_sin: Tensor | None,
        q_norm: Tensor | None = None,
        k_norm: Tensor | None = None,
    ) -> Tensor:
        """Stores the step's keys and values in `kv` and attends over each sequence's pages.

        qkv:     [T, (Hq + 2 * Hk) * D], queries, keys, values side by side
        cos_sin: float32 [max_positions, R], R even and at most D: cosines in the first half of the
                 columns, sines in the second. The first R entries of each head are rotated, entry `i`
                 with entry `i + R / 2`; the others pass. None: no rotation (a layer without positions).
        q_norm, k_norm: [D], weights of an RMS norm of each head before the rotation; both or neither

        Queries and keys are normed and rotated in float32, then rounded to the dtype. The softmax and
        both sums are float32. Returns [T, Hq * D].
        """
        ...


def check_kv_arguments(
    *, num_layers: int, num_pages: int, page_size: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype
) -> None:
    """Raises `ValueError` for what no backend can allocate."""
    require(num_layers >= 1 and num_pages >= 1 and num_kv_heads >= 1, "a cache needs layers, pages and heads")
    require(1 <= page_size <= 256, "page_size must be from 1 to 256")
    require(2 <= head_dim <= 256 and head_dim % 2 == 0, "head_dim must be even and at most 256")
    require(dtype in KV_DTYPES, "the cache must be float32 or bfloat16")


def check_page_pairs(kv: KVCache, pairs: Sequence[tuple[int, int]]) -> None:
    """Raises `ValueError` when a page is out of range, written twice, or both read and written."""
    sources, targets = {src for src, _ in pairs}, {dst for _, dst in pairs}
    require(len(targets) == len(pairs), "a page is the target of two copies")
    require(not sources & targets, "a page is both source and target")
    require(all(0 <= page < kv.num_pages for page in sources | targets), "a page id is out of range")


def check_norm(x: Tensor, weight: Tensor, residual: Tensor | None = None) -> None:
    """Raises `ValueError` unless the arguments of a norm fit each other."""
    require(x.dtype in KV_DTYPES and x.is_contiguous(), "x must be contiguous float32 or bfloat16")
    require(weight.dtype == x.dtype and weight.is_contiguous(), "weight must be contiguous, of x's dtype")
    require(weight.device == x.device, "weight must be on x's device")
    require(weight.ndim == 1 and x.ndim >= 1 and weight.shape[0] == x.shape[-1], "weight must be [H]")
    if residual is not None:
        require(residual.dtype == x.dtype and residual.is_contiguous(), "residual must be like x")
        require(residual.shape == x.shape and residual.device == x.device, "residual must be like x")


def check_gate_up(gate_up: Tensor) -> None:
    """Raises `ValueError` unless `gate_up` can be halved."""
    require(gate_up.dtype in KV_DTYPES and gate_up.is_contiguous(), "gate_up must be contiguous float")
    require(gate_up.ndim >= 1 and gate_up.shape[-1] % 2 == 0, "gate_up must be [..., 2 * I]")


def check_attention(
    layer: int,
    qkv: Tensor,
    kv: KVCache,
    ragged: Ragged,
    spec: AttentionSpec,
    cos_sin: Tensor | None,
    norms: tuple[Tensor | None, Tensor | None],
) -> None:
    """Raises `ValueError` unless the arguments of `attention` fit each other; reads shapes only."""
    require(0 <= layer < len(kv.keys), "layer is out of range")
    require(qkv.dtype == kv.keys[layer].dtype, "qkv and the cache must have one dtype")
    require(qkv.shape == (ragged.slots.shape[0], spec.qkv_width), "qkv must be [T, (Hq + 2 * Hk) * D]")
    require(qkv.is_contiguous(), "qkv must be contiguous")
    require(
        qkv.device == kv.keys[layer].device == ragged.slots.device,
        "qkv, cache and step must share one device",
    )
    require(
        kv.num_kv_heads == spec.num_kv_heads and kv.head_dim == spec.head_dim, "the cache has other heads"
    )
    if cos_sin is not None:
        require(cos_sin.dtype == torch.float32 and cos_sin.is_contiguous(), "cos_sin must be float32")
        require(
            cos_sin.ndim == 2 and cos_sin.shape[1] % 2 == 0 and 2 <= cos_sin.shape[1] <= spec.head_dim,
            "cos_sin must be [max_positions, R], R even and at most head_dim",
        )
    require((norms[0] is None) == (norms[1] is None), "q_norm and k_norm come together")
    for weight in norms:
        if weight is not None:
            require(weight.shape == (spec.head_dim,), "q_norm and k_norm must be [head_dim]")
            require(weight.dtype == qkv.dtype and weight.is_contiguous(), "norm weights must be like qkv")
