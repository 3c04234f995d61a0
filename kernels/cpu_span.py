"""A span of keys, added to the running values of a few rows: scores, weights, weighted values.

The running maximum and sum are those of Milakov and Gimelshein, "Online normalizer calculation for softmax"
(2018), the tiling that of Dao et al., "FlashAttention" (2022).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from treille.kernels.cpu_rotary import padded
from treille.kernels.instructions import LANES
from treille.kernels.simd import (
    LOG2_E,
    add,
    exp2,
    f32_at,
    is_bf16,
    keep,
    largest,
    like,
    load,
    maximum,
    mul,
    prefetch,
    read_f32,
    read_i32,
    read_i64,
    spread,
    store,
    sub,
    write_f32,
    write_i64,
)
from treille.kernels.tile import MAX_ROWS, scores_tile, values_tile

SPAN_BLOCKS = 16
SPAN = SPAN_BLOCKS * LANES
NEVER = np.float32(-np.inf)


class Problem(NamedTuple):
    """What a call of the worker is given; tensors as addresses, 0 for one that is absent."""

    num_sequences: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    page_size: int
    max_pages: int
    tile_rows: int
    window: int  # 0: none
    table_width: int
    qkv: int
    keys: int
    values: int
    out: int
    query_start: int
    context_lens: int
    page_table: int
    positions: int
    cos_sin: int
    q_norm: int
    scale: float
    eps: float


class Room(NamedTuple):
    """Addresses on the worker's stack. `R` rows of the piece, `M` of the tile in hand, `B` blocks."""

    query: int  # words of the cache's dtype [D / p, M] for each tile in turn (tile.py says what p is)
    out: int  # float32 [R, Dp], weighted values so far
    sums: int  # float32 [R, 16], weights so far, sixteen partial sums
    tops: int  # float32 [R], highest score so far
    scores: int  # float32 [M, SPAN]
    weights: int  # the cache's dtype [M, SPAN]
    decay: int  # float32 [M, 16], equal: what the new maximum leaves of the old sums
    key_blocks: int  # int64 [B], addresses
    value_blocks: int
    starts: int  # int64 [B], index of the block's first token in its sequence
    ends: int  # and of the one after its last


class Piece(NamedTuple):
    """Up to `tile_rows` rows of one sequence and one key/value head."""

    seq: int
    head: int  # of keys and values
    token: int  # in the flat batch, the sequence's first new one
    offset: int  # of that token in its sequence
    first_row: int
    num_rows: int
    group: int  # query heads to a key/value head


@njit(error_model="numpy")
def tile_height(left: int) -> int:
    """Rows of the next tile, such that the last tiles are not slivers; one of tile.ROW_CHOICES."""
    if left == 5:
        return 3
    if left == 7 or left == 8:
        return 4
    return min(left, MAX_ROWS)


@njit(error_model="numpy")
def block_of(p: Problem, index: int) -> int:
    """The block of the token at `index`, counted through the sequence's pages."""
    per_page = (p.page_size + LANES - 1) // LANES
    return index // p.page_size * per_page + index % p.page_size // LANES


@njit(error_model="numpy")
def _block_bytes(kind: Any, head_dim: int) -> tuple[int, int]:
    """Bytes of a key block and of a value block."""
    per_word = 2 if is_bf16(kind) else 1
    return 4 * LANES * (head_dim // per_word), 4 * LANES * (padded(head_dim) // per_word)


@njit(error_model="numpy")
def _block_number(p: Problem, piece: Piece, block: int) -> int:
    """The place in the cache of a sequence's block."""
    per_page = (p.page_size + LANES - 1) // LANES
    page = int(read_i32(p.page_table, piece.seq * p.max_pages + block // per_page))
    return (page * p.num_kv_heads + piece.head) * per_page + block % per_page


@njit(error_model="numpy")
def prefetch_blocks(kind: Any, p: Problem, piece: Piece, first: int, count: int) -> None:
    """Where few rows share the keys, memory decides; pages lie anywhere, so nothing else foresees them."""
    key_bytes, value_bytes = _block_bytes(kind, p.head_dim)
    for block in range(first, first + count):
        number = _block_number(p, piece, block)
        for line in range(0, key_bytes, 64):
            prefetch(p.keys + number * key_bytes + line)
        for line in range(0, value_bytes, 64):
            prefetch(p.values + number * value_bytes + line)


@njit(error_model="numpy")
def locate_blocks(kind: Any, p: Problem, room: Room, piece: Piece, first: int, count: int) -> None:
    key_bytes, value_bytes = _block_bytes(kind, p.head_dim)
    per_page = (p.page_size + LANES - 1) // LANES
    for i in range(count):
        place, inside = (first + i) // per_page, (first + i) % per_page
        number = _block_number(p, piece, first + i)
        start = place * p.page_size + inside * LANES
        write_i64(room.key_blocks, i, p.keys + number * key_bytes)
        write_i64(room.value_blocks, i, p.values + number * value_bytes)
        write_i64(room.starts, i, start)
        write_i64(room.ends, i, min(start + LANES, (place + 1) * p.page_size))


@njit(error_model="numpy")
def attend_span(
    kind: Any, p: Problem, room: Room, piece: Piece, row: int, height: int, num_blocks: int
) -> None:
    """Adds a span of keys to the running values of `height` rows of the piece, from `row` on."""
    first = piece.offset + (piece.first_row + row) // piece.group
    last = piece.offset + (piece.first_row + row + height - 1) // piece.group
    while num_blocks > 0 and read_i64(room.starts, num_blocks - 1) > last:
        num_blocks -= 1
    if num_blocks == 0:
        return
    end = read_i64(room.ends, num_blocks - 1)
    if p.window and first - p.window + 1 >= end:
        return
    per_word = 2 if is_bf16(kind) else 1
    stride = padded(p.head_dim)
    steps = p.head_dim // per_word
    query = like(kind, room.query + 4 * row * steps)
    block = 0
    while block < num_blocks:
        columns = _columns(num_blocks - block)
        scores, blocks = room.scores + 64 * block, room.key_blocks + 8 * block
        scores_tile(query, height, columns, blocks, steps, scores, 4 * SPAN)
        block += columns

    _weigh(kind, p, room, piece, row, height, num_blocks)

    start = read_i64(room.starts, num_blocks - 1)
    keys = (num_blocks - 1) * LANES + min(end, last + 1) - start
    weights, steps = like(kind, room.weights), (keys + per_word - 1) // per_word
    ldw, out = 4 * SPAN // per_word, room.out + 4 * row * stride
    column = 0
    while column < stride // LANES:
        columns = _columns(stride // LANES - column)
        shift = 64 * column
        values_tile(
            weights,
            ldw,
            height,
            columns,
            room.value_blocks,
            steps,
            4 * stride,
            shift,
            out + shift,
            4 * stride,
            room.decay,
        )
        column += columns


@njit(error_model="numpy")
def _columns(left: int) -> int:
    """Vectors of the next tile; one of tile.COLUMN_CHOICES."""
    if left >= 4:
        return 4
    return 2 if left >= 2 else 1


@njit(error_model="numpy")
def _weigh(kind: Any, p: Problem, room: Room, piece: Piece, row: int, height: int, num_blocks: int) -> None:
    """From scores to weights: 2 ** ((score - highest) * scale * log2 e), 0 for what a row does not see."""
    scores, weights, sums = f32_at(room.scores), like(kind, room.weights), f32_at(room.sums)
    scale = spread(np.float32(p.scale * LOG2_E))
    for i in range(height):
        index = piece.offset + (piece.first_row + row + i) // piece.group
        lowest = index - p.window + 1 if p.window else 0
        top = spread(NEVER)
        for block in range(num_blocks):
            at, start = i * SPAN + block * LANES, read_i64(room.starts, block)
            end = min(read_i64(room.ends, block), index + 1)
            value = load(scores, at)
            if lowest > start or end < start + LANES:
                value = keep(value, lowest - start, end - start, spread(NEVER))
                store(scores, at, value)
            top = maximum(top, value)
        old = read_f32(room.tops, row + i)
        new = max(old, largest(top))
        write_f32(room.tops, row + i, new)
        base = spread(new if new > NEVER else np.float32(0.0))
        decay = exp2(mul(sub(spread(old), base), scale))
        store(f32_at(room.decay), i * LANES, decay)
        summed = mul(load(sums, (row + i) * LANES), decay)
        for block in range(num_blocks):
            at = i * SPAN + block * LANES
            weight = exp2(mul(sub(load(scores, at), base), scale))
            summed = add(summed, weight)
            store(weights, at, weight)
        store(sums, (row + i) * LANES, summed)
