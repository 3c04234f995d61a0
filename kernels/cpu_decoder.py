"""The layers of a decoder as one chain of workers: the same kernels in the same order as one by one, without
what it costs to call each.

All activations lie in buffers that are made once and grow with the largest step; a step only rewrites how
many rows there are and where its own tensors lie. Results are those of the single calls, to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from treille.kernels.api import AttentionSpec, KVCache, Ragged, require
from treille.kernels.chain import BLOCK_ROWS, Chain, Part
from treille.kernels.cpu import CpuKernels, piece_rows, split_attention
from treille.kernels.cpu_packed import PackedLinear
from treille.kernels.cpu_quantized import QuantizedLinear
from treille.kernels.parallel import ARGS, Worker, address, float_bits

MAX_WORDS = 24
MAX_ROWS = 4096  # steps of more tokens go kernel by kernel

ChainedLinear = PackedLinear | QuantizedLinear


@dataclass(frozen=True, slots=True, eq=False)
class DecoderLayer:
    """One layer's parts, as the single calls take them."""

    input_norm: Tensor
    qkv: ChainedLinear
    q_norm: Tensor | None
    k_norm: Tensor | None
    o: ChainedLinear
    post_norm: Tensor
    gate_up: ChainedLinear
    down: ChainedLinear
    spec: AttentionSpec

    def linears(self) -> tuple[ChainedLinear, ...]:
        return self.qkv, self.o, self.gate_up, self.down


class _Buffers:
    """Activations of up to `num_rows` tokens."""

    def __init__(self, num_rows: int, layer: DecoderLayer, dtype: torch.dtype) -> None:
        def rows(width: int, kind: torch.dtype = dtype) -> Tensor:
            return torch.empty(num_rows, width, dtype=kind)

        self.num_rows = num_rows
        hidden, inner = layer.down.out_features, layer.down.in_features
        self.residual, self.chosen_residual = rows(hidden), rows(hidden)
        self.hidden, self.mixed = rows(hidden), rows(hidden)
        self.qkv = rows(layer.qkv.out_features)
        self.heads, self.chosen_heads = rows(layer.o.in_features), rows(layer.o.in_features)
        self.gate_up, self.gated = rows(layer.gate_up.out_features), rows(inner)
        self.scratch = torch.empty(
            max(linear.scratch_bytes(num_rows) for linear in layer.linears()), dtype=torch.uint8
        )


class CpuDecoder:
    """Runs all layers and the norm behind them."""

    def __init__(
        self,
        kernels: CpuKernels,
        layers: Sequence[DecoderLayer],
        final_norm: Tensor,
        cos_sin: Tensor,
        eps: float,
    ) -> None:
        self._kernels = kernels
        self._layers = tuple(layers)
        self._final_norm = final_norm
        self._cos_sin = cos_sin
        self._eps = float_bits(eps)
        self._dtype = final_norm.dtype
        self._buffers: _Buffers | None = None
        self._kv: KVCache | None = None
        self._chain: Chain | None = None
        self._places: dict[str, np.ndarray] = {}  # of what is rewritten, the blocks
        self._chosen_from = 0  # the block from which on there are only the chosen rows

    @classmethod
    def of(
        cls,
        kernels: CpuKernels,
        layers: Sequence[DecoderLayer],
        final_norm: Tensor,
        cos_sin: Tensor,
        eps: float,
    ) -> CpuDecoder | None:
        """The decoder, or None if one of its linear layers cannot be in a chain."""
        if not all(linear.can_chain for layer in layers for linear in layer.linears()):
            return None
        return cls(kernels, layers, final_norm, cos_sin, eps)

    def forward(self, embedded: Tensor, kv: KVCache, ragged: Ragged, logit_rows: Tensor) -> Tensor:
        """embedded: [T, H], the tokens' embeddings; T up to `MAX_ROWS`. Stores the step's keys and values in
        `kv`. Returns [R, H], the chosen rows behind the last norm: valid until the next call.
        """
        num_rows, num_chosen = embedded.shape[0], logit_rows.shape[0]
        require(num_rows <= MAX_ROWS, f"a chain takes up to {MAX_ROWS} rows")
        buffers, chain = self._ready(num_rows, kv)
        buffers.residual[:num_rows] = embedded
        rows = logit_rows.contiguous()
        self._write_step(chain, num_rows, ragged, rows)
        # All that tokens owe where no logits are wanted are their keys and values.
        chain.run(torch.get_num_threads(), num_blocks=None if num_chosen else self._chosen_from)
        return buffers.hidden[:num_chosen]

    def _ready(self, num_rows: int, kv: KVCache) -> tuple[_Buffers, Chain]:
        buffers = self._buffers
        if buffers is None or buffers.num_rows < num_rows:
            room = max(16, 1 << (num_rows - 1).bit_length())
            buffers = self._buffers = _Buffers(room, self._layers[0], self._dtype)
            self._chain = None
        if self._chain is None or self._kv is not kv:
            self._chain, self._kv = self._made(buffers, kv), kv
        return buffers, self._chain

    def _made(self, b: _Buffers, kv: KVCache) -> Chain:
        """The chain with all that does not change from step to step."""
        workers = self._kernels.workers(self._dtype)
        blocks: list[tuple[Part, str]] = []
        size = self._dtype.itemsize

        def add(worker: Worker, kind: str, *words: int) -> None:
            blocks.append((Part(worker, words), kind))

        def multiply(layer: ChainedLinear, x: Tensor, out: Tensor, kind: str) -> None:
            for part in layer.parts(x.data_ptr(), out.data_ptr(), b.scratch.data_ptr(), b.num_rows):
                blocks.append((part, f"blocks_{kind}" if part.in_blocks else kind))

        def norm(x: Tensor, weight: Tensor, residual: Tensor | None, kind: str) -> None:
            place = address(residual)
            ends = (x.data_ptr(), weight.data_ptr(), b.hidden.data_ptr(), self._eps, place, place)
            add(workers.norm, kind, 0, 0, weight.shape[0], *ends)

        norm(b.residual, self._layers[0].input_norm, None, "all")
        last = len(self._layers) - 1
        width = self._cos_sin.shape[1]
        for index, layer in enumerate(self._layers):
            spec = layer.spec
            heads = spec.num_heads, spec.num_kv_heads, spec.head_dim, kv.page_size
            places = b.qkv.data_ptr(), kv.keys[index].data_ptr(), kv.values[index].data_ptr()
            table = self._cos_sin.data_ptr()
            multiply(layer.qkv, b.hidden, b.qkv, "all")
            ends = (0, 0, table, width, address(layer.k_norm), float_bits(spec.norm_eps))
            add(workers.store, "store", 0, 0, *heads, *places, *ends)
            step = (b.heads.data_ptr(), 0, 0, 0, 0, table, address(layer.q_norm))
            scales = (float_bits(spec.scale), float_bits(spec.norm_eps))
            window = spec.window or 0
            add(workers.attention, "attention", 0, *heads, 0, 0, window, width, *places, *step, *scales)
            source, residual, kind = b.heads, b.residual, "all"
            if index == last:
                self._chosen_from = len(blocks)
                kind, source, residual = "chosen", b.chosen_heads, b.chosen_residual
                for x, out in ((b.heads, source), (b.residual, residual)):
                    add(workers.gather, "gather", 0, 0, x.shape[1] * size, x.data_ptr(), 0, out.data_ptr())
            multiply(layer.o, source, b.mixed, kind)
            norm(b.mixed, layer.post_norm, residual, kind)
            multiply(layer.gate_up, b.hidden, b.gate_up, kind)
            inner = layer.down.in_features
            add(workers.silu, kind, 0, 0, inner, b.gate_up.data_ptr(), b.gated.data_ptr())
            multiply(layer.down, b.gated, b.mixed, kind)
            following = self._final_norm if index == last else self._layers[index + 1].input_norm
            norm(b.mixed, following, residual, kind)

        chain = self._kernels.chain(self._dtype, [part.worker for part, _ in blocks], MAX_WORDS)
        places_of: dict[str, list[int]] = {}
        for place, (part, kind) in enumerate(blocks):
            chain.blocks[place, ARGS : ARGS + len(part.words)] = part.words
            places_of.setdefault(kind, []).append(place)
        self._places = {kind: np.array(places) for kind, places in places_of.items()}
        return chain

    def _write_step(self, chain: Chain, num_rows: int, ragged: Ragged, logit_rows: Tensor) -> None:
        """What changes from step to step."""
        spec, blocks, places = self._layers[0].spec, chain.blocks, self._places

        def write(kind: str, word: int, *values: int) -> None:
            blocks[places[kind], ARGS + word : ARGS + word + len(values)] = values

        num_chosen = logit_rows.shape[0]
        for kind, count in (("all", num_rows), ("chosen", num_chosen), ("gather", num_chosen)):
            if kind in places:
                write(kind, 0, count, piece_rows(count))
            if f"blocks_{kind}" in places:
                write(f"blocks_{kind}", 0, count, max(1, min(count, BLOCK_ROWS)))
        write("gather", 4, logit_rows.data_ptr())
        positions, slots = ragged.positions.data_ptr(), ragged.slots.data_ptr()
        write("store", 0, num_rows, piece_rows(num_rows))
        write("store", 9, slots, positions)
        _, tile_rows = split_attention(ragged, spec, self._kv.page_size if self._kv else 1)
        write("attention", 0, ragged.num_sequences)
        write("attention", 5, ragged.page_table.shape[1], tile_rows)
        starts, lengths = ragged.query_start.data_ptr(), ragged.context_lens.data_ptr()
        write("attention", 13, starts, lengths, ragged.page_table.data_ptr(), positions)
