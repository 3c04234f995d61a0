"""The CPU backend: the kernels of `cpu_*.py` behind the contract of `api.py`.

The cache is paged in blocks of sixteen tokens, keys transposed, so that one vector holds one entry of
sixteen keys (see `tile.py`). Multiples of 16 waste no room as page sizes; others are rounded up in memory.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import torch
from torch import Tensor

from treille.kernels.api import (
    KV_DTYPES,
    AttentionSpec,
    KVCache,
    Ragged,
    check_attention,
    check_gate_up,
    check_kv_arguments,
    check_norm,
    check_page_pairs,
    require,
    zeroed,
)
from treille.kernels.chain import Chain, chain_source
from treille.kernels.cpu_attention import TILE_ROWS, attention_source
from treille.kernels.cpu_linear import linear_source
from treille.kernels.cpu_norm import norm_source, silu_source
from treille.kernels.cpu_packed import PackedLinear
from treille.kernels.cpu_quantized import IntegerWorkers, QuantizedLinear
from treille.kernels.cpu_rotary import store_source
from treille.kernels.cpu_rows import gather_source, widen_source
from treille.kernels.instructions import LANES
from treille.kernels.parallel import ThreadTeam, Worker, address, fingerprint, float_bits
from treille.kernels.quantize import QuantizedWeight
from treille.kernels.tile import MAX_ROWS

MIN_TEAM_ELEMENTS = 1 << 15  # below this, waking threads costs more than they save
CACHE_NDIM = 6
PIECES_PER_THREAD = 4
MIN_TILE_ROWS = 24


class Workers:
    """The compiled kernels of one dtype."""

    def __init__(self, *, bf16: bool) -> None:
        key = fingerprint()
        self.norm = Worker(norm_source(key, bf16=bf16))
        self.silu = Worker(silu_source(key, bf16=bf16))
        self.store = Worker(store_source(key, bf16=bf16))
        self.attention = Worker(attention_source(key, bf16=bf16))
        self.linear = Worker(linear_source(key, bf16=bf16))
        self.widen = Worker(widen_source(key))
        self.gather = Worker(gather_source(key))
        self.chain = Worker(chain_source(key))


class CpuKernels:
    """`Kernels` compiled for this processor, when first used with a dtype (cached on disk after that)."""

    name = "cpu"

    def __init__(self) -> None:
        self._team = ThreadTeam()
        self._workers: dict[torch.dtype, Workers] = {}
        self._integers: dict[torch.dtype, IntegerWorkers] = {}
        self._compiling = threading.Lock()

    def warm_up(self, dtype: torch.dtype) -> None:
        """Compiles or loads the kernels of `dtype`, so that the first step need not."""
        self.workers(dtype)

    def loaded_from_cache(self, dtype: torch.dtype) -> bool:
        """Whether the kernels of `dtype` were loaded from disk rather than compiled."""
        workers = self.workers(dtype)
        return all(worker.from_cache for worker in vars(workers).values())

    def page_bytes(
        self, *, num_layers: int, page_size: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype
    ) -> int:
        entries = _up(page_size) * num_kv_heads * (head_dim + _up(head_dim))
        return num_layers * entries * dtype.itemsize

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
        require(device.type == "cpu", "the CPU backend keeps its cache on the CPU")
        per_word = 4 // dtype.itemsize
        blocks = (num_pages, num_kv_heads, _up(page_size) // LANES)
        key_shape = (*blocks, head_dim // per_word, LANES, per_word)
        value_shape = (*blocks, LANES // per_word, _up(head_dim), per_word)
        keys, values = (
            tuple(zeroed(shape, dtype) for _ in range(num_layers)) for shape in (key_shape, value_shape)
        )
        return KVCache(keys, values, num_pages, page_size, num_kv_heads, head_dim)

    def copy_pages(self, kv: KVCache, pairs: Sequence[tuple[int, int]]) -> None:
        check_page_pairs(kv, pairs)
        for tensor in kv.keys + kv.values if pairs else ():
            for src, dst in pairs:
                tensor[dst] = tensor[src]

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        check_norm(x, weight)
        out = torch.empty_like(x)
        self._norm(x, weight, eps, out, (0, 0))
        return out

    def add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        check_norm(x, weight, residual)
        out, total = torch.empty_like(x), torch.empty_like(x)
        self._norm(x, weight, eps, out, (residual.data_ptr(), total.data_ptr()))
        return out, total

    def _norm(self, x: Tensor, weight: Tensor, eps: float, out: Tensor, addresses: tuple[int, int]) -> None:
        require(x.is_cpu, "x must be on the CPU")
        width = weight.shape[0]
        num_rows = x.numel() // width
        num_threads, piece = split(num_rows, width)
        words = (
            num_rows,
            piece,
            width,
            x.data_ptr(),
            weight.data_ptr(),
            out.data_ptr(),
            float_bits(eps),
            *addresses,
        )
        self._team.run(self.workers(x.dtype).norm, words, num_threads=num_threads)

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        check_gate_up(gate_up)
        require(gate_up.is_cpu, "gate_up must be on the CPU")
        width = gate_up.shape[-1] // 2
        out = gate_up.new_empty((*gate_up.shape[:-1], width))
        num_rows = out.numel() // width
        num_threads, piece = split(num_rows, width)
        words = (num_rows, piece, width, gate_up.data_ptr(), out.data_ptr())
        self._team.run(self.workers(gate_up.dtype).silu, words, num_threads=num_threads)
        return out

    def pack_linear(self, weight: Tensor, bias: Tensor | None = None) -> PackedLinear:
        """A linear layer, `x [T, in] -> x @ weight.T + bias [T, out]`, laid out for this processor.

        All are of one dtype; sums are float32, in an order that other rows do not change.
        """
        require(weight.is_cpu and weight.ndim == 2, "weight must be [out, in], on the CPU")
        require(weight.dtype in KV_DTYPES, "weight must be float32 or bfloat16")
        if bias is not None:
            require(bias.shape == weight.shape[:1], "bias must be [out]")
            require(bias.dtype == weight.dtype and bias.is_contiguous(), "bias must be like weight")
        workers = self.workers(weight.dtype)
        return PackedLinear(weight, bias, workers.linear, workers.widen, self._team)

    def chain(self, dtype: torch.dtype, workers: Sequence[Worker], num_words: int) -> Chain:
        """A chain of workers that take up to `num_words` words each."""
        return Chain(self._team, self.workers(dtype).chain, workers, num_words)

    def pack_quantized(
        self, weight: QuantizedWeight, bias: Tensor | None = None, *, dtype: torch.dtype
    ) -> QuantizedLinear:
        """Like `pack_linear` for a quantised weight; rows, bias and outputs are of `dtype`."""
        with self._compiling:
            workers = self._integers.get(dtype) or IntegerWorkers(bf16=dtype == torch.bfloat16)
            self._integers[dtype] = workers
        return QuantizedLinear(weight, bias, workers, self._team, dtype=dtype)

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
        require(kv.keys[layer].ndim == CACHE_NDIM, "the cache was made by another backend")
        workers = self.workers(qkv.dtype)
        num_tokens = ragged.num_tokens
        width = 0 if cos_sin is None else cos_sin.shape[1]
        addresses = qkv.data_ptr(), kv.keys[layer].data_ptr(), kv.values[layer].data_ptr()
        positions, table = ragged.positions.data_ptr(), address(cos_sin)
        eps = float_bits(spec.norm_eps)
        num_threads, piece = split(num_tokens, spec.num_kv_heads * spec.head_dim)
        heads = spec.num_heads, spec.num_kv_heads, spec.head_dim, kv.page_size
        store = (num_tokens, piece, *heads, *addresses, ragged.slots.data_ptr(), positions, table, width)
        self._team.run(workers.store, (*store, address(k_norm), eps), num_threads=num_threads)

        num_threads, tile_rows = split_attention(ragged, spec, kv.page_size)
        out = qkv.new_empty((num_tokens, spec.num_heads * spec.head_dim))
        words = (
            ragged.num_sequences,
            *heads,
            ragged.page_table.shape[1],
            tile_rows,
            spec.window or 0,
            width,
            *addresses,
            out.data_ptr(),
            ragged.query_start.data_ptr(),
            ragged.context_lens.data_ptr(),
            ragged.page_table.data_ptr(),
            positions,
            table,
            address(q_norm),
            float_bits(spec.scale),
            eps,
        )
        self._team.run(workers.attention, words, num_threads=num_threads)
        return out

    def workers(self, dtype: torch.dtype) -> Workers:
        """The compiled kernels of a dtype."""
        found = self._workers.get(dtype)
        if found is None:
            with self._compiling:
                found = self._workers.get(dtype) or Workers(bf16=dtype == torch.bfloat16)
                self._workers[dtype] = found
        return found


def _up(count: int) -> int:
    return -(-count // LANES) * LANES


def split(num_rows: int, width: int) -> tuple[int, int]:
    """Threads for a job of independent rows, and rows to a piece."""
    if num_rows * width < MIN_TEAM_ELEMENTS:
        return 1, num_rows
    return torch.get_num_threads(), piece_rows(num_rows)


def piece_rows(num_rows: int) -> int:
    """Independent rows to a piece, for a team that is at work anyway."""
    num_threads = torch.get_num_threads()
    return max(1, num_rows // (PIECES_PER_THREAD * num_threads)) if num_threads > 1 else max(1, num_rows)


def split_attention(ragged: Ragged, spec: AttentionSpec, page_size: int) -> tuple[int, int]:
    """Threads for a step's attention, and rows to a piece: fewer where they would make too few pieces."""
    most = (
        ragged.page_table.numel() * page_size * spec.num_kv_heads * spec.head_dim
    )  # keys' elements, at most
    if most * (ragged.num_tokens // ragged.num_sequences) < MIN_TEAM_ELEMENTS:
        return 1, TILE_ROWS
    num_threads = torch.get_num_threads()
    num_rows = ragged.num_tokens * spec.num_heads
    fair = num_rows // (PIECES_PER_THREAD * num_threads) // MAX_ROWS * MAX_ROWS
    return num_threads, max(MIN_TILE_ROWS, min(TILE_ROWS, fair))
