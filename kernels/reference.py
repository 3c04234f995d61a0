"""The plain PyTorch backend: any device, no cleverness, the measure of the others.

Queries are cut into tiles of equally many tokens, so that a batch of one long prompt and many single
tokens is not padded to the long one. Pages are gathered into a padded [tiles, length] view and masked.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from treille.kernels.api import (
    AttentionSpec,
    KVCache,
    Ragged,
    check_attention,
    check_gate_up,
    check_kv_arguments,
    check_norm,
    check_page_pairs,
    require,
)

TILE_TOKENS = 64
MAX_SCORES = 1 << 26  # elements of the score tensor held at once


class ReferenceKernels:
    """`Kernels` in plain PyTorch. The cache is [num_pages, page_size, Hk, D] a layer."""

    name = "reference"

    def warm_up(self, dtype: torch.dtype) -> None:
        """Nothing is compiled here."""

    def page_bytes(
        self, *, num_layers: int, page_size: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype
    ) -> int:
        return 2 * num_layers * page_size * num_kv_heads * head_dim * dtype.itemsize

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
        check_kv_arguments(
            num_layers=num_layers,
            num_pages=num_pages,
            page_size=page_size,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            dtype=dtype,
        )
        shape = (num_pages, page_size, num_kv_heads, head_dim)
        keys, values = (
            tuple(torch.zeros(shape, dtype=dtype, device=device) for _ in range(num_layers)) for _ in range(2)
        )
        return KVCache(keys, values, num_pages, page_size, num_kv_heads, head_dim)

    def copy_pages(self, kv: KVCache, pairs: Sequence[tuple[int, int]]) -> None:
        check_page_pairs(kv, pairs)
        if not pairs:
            return
        src = torch.tensor([pair[0] for pair in pairs], device=kv.device)
        dst = torch.tensor([pair[1] for pair in pairs], device=kv.device)
        for tensor in kv.keys + kv.values:
            tensor[dst] = tensor[src]

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        check_norm(x, weight)
        return _normed(x.float(), eps).to(x.dtype) * weight

    def add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        check_norm(x, weight, residual)
        total = x + residual
        return _normed(total.float(), eps).to(x.dtype) * weight, total

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        check_gate_up(gate_up)
        gate, up = gate_up.float().chunk(2, dim=-1)
        return (torch.nn.functional.silu(gate) * up).to(gate_up.dtype)

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
        check_attention(layer, qkv, kv, ragged, spec, cos_sin, (q_norm, k_norm))
        require(kv.keys[layer].ndim == 4, "the cache was made by another backend")
        heads = qkv.float().view(ragged.num_tokens, -1, spec.head_dim)
        query, rest = heads[:, : spec.num_heads], heads[:, spec.num_heads :]
        key, value = rest.chunk(2, dim=1)
        if q_norm is not None and k_norm is not None:
            query = _normed(query, spec.norm_eps) * q_norm.float()
            key = _normed(key, spec.norm_eps) * k_norm.float()
        if cos_sin is not None:
            table = cos_sin[ragged.positions][:, None, :]
            query, key = _rotated(query, table), _rotated(key, table)
        kv.keys[layer].flatten(0, 1)[ragged.slots] = key.to(qkv.dtype)
        kv.values[layer].flatten(0, 1)[ragged.slots] = value.to(qkv.dtype)
        out = _attend(query.to(qkv.dtype).float(), kv.keys[layer], kv.values[layer], ragged, spec)
        return out.flatten(1).to(qkv.dtype)


def _normed(x: Tensor, eps: float) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


def _rotated(x: Tensor, table: Tensor) -> Tensor:
    """x: float32 [T, H, D]; table: [T, 1, R]. The halves of the first R entries turn together."""
    width = table.shape[-1]
    cos, sin = table.chunk(2, dim=-1)
    first, second = x[..., :width].chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin, x[..., width:]], dim=-1)


def _attend(query: Tensor, keys: Tensor, values: Tensor, ragged: Ragged, spec: AttentionSpec) -> Tensor:
    """query: float32 [T, Hq, D]; keys, values: [num_pages, page_size, Hk, D]. Returns float32 [T, Hq, D]."""
    page_size = keys.shape[1]
    counts = ragged.query_start.diff()
    width = min(TILE_TOKENS, int(counts.max()))
    num_pages = -(-int(ragged.context_lens.max()) // page_size)
    tile_counts = (counts + width - 1) // width
    seq = torch.repeat_interleave(torch.arange(len(counts), device=query.device), tile_counts)
    first_tile = tile_counts.cumsum(0) - tile_counts
    rank = torch.arange(len(seq), device=query.device) - first_tile[seq]
    offset = rank[:, None] * width + torch.arange(
        width, device=query.device
    )  # [tiles, width] in its sequence
    real = offset < counts[seq][:, None]
    rows = (ragged.query_start[:-1][seq][:, None] + offset).clamp(max=ragged.num_tokens - 1)
    index = (ragged.context_lens - counts)[seq][:, None] + offset

    out = torch.empty_like(query)
    step = max(1, MAX_SCORES // (width * spec.num_heads * num_pages * page_size))
    for at in range(0, len(seq), step):
        part = slice(at, at + step)
        table = ragged.page_table[seq[part], :num_pages].long()
        table = table.masked_fill(
            torch.arange(num_pages, device=query.device) * page_size
            >= ragged.context_lens[seq[part]][:, None],
            0,
        )
        tile = _attend_tiles(
            query[rows[part]],
            keys[table].flatten(1, 2).float(),
            values[table].flatten(1, 2).float(),
            index[part],
            spec,
        )
        out[rows[part][real[part]]] = tile[real[part]]
    return out


def _attend_tiles(query: Tensor, key: Tensor, value: Tensor, index: Tensor, spec: AttentionSpec) -> Tensor:
    """query: [N, W, Hq, D]; key, value: [N, L, Hk, D]; index: [N, W], each query's place in its context."""
    group = spec.num_heads // spec.num_kv_heads
    key, value = (x.permute(0, 2, 1, 3).repeat_interleave(group, dim=1) for x in (key, value))
    scores = query.permute(0, 2, 1, 3) @ key.transpose(2, 3) * spec.scale  # [N, Hq, W, L]
    place = torch.arange(key.shape[2], device=query.device)
    seen = place <= index[..., None]
    if spec.window is not None:
        seen &= place > index[..., None] - spec.window
    weights = scores.masked_fill(~seen[:, None], -torch.inf).softmax(-1)
    # Pages are reused: what lies behind the context may be anything, even NaN, and 0 * NaN is NaN.
    value = value.masked_fill(~seen.any(1)[:, None, :, None], 0.0)
    return (weights @ value).permute(0, 2, 1, 3)
