"""Causal attention over pages on the CPU: one worker for decode rows, chunks and prompts alike.

A *row* is one query head of one token; the rows that share a key/value head and a sequence are one matrix,
token by token. A piece of work is up to `TILE_ROWS` consecutive rows. It walks over the keys that any of
them sees, `SPAN` at a time, keeping a running maximum, sum and weighted value for each row (Milakov and
Gimelshein, "Online normalizer calculation for softmax", 2018; Dao et al., "FlashAttention", 2022), so that
a page is read once for all query heads and all tokens of the piece. Spans start at fixed places: a row's
result is the same, to the bit, however its sequence was cut into chunks and whatever runs beside it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from treille.kernels.cpu_rotary import MAX_HEAD_DIM, head_room, padded, ready_head
from treille.kernels.parallel import ARGS, WorkerSource
from treille.kernels.simd import (
    LANES,
    LOG2_E,
    add,
    address_of,
    bf16_at,
    div,
    exp2,
    f32_at,
    fetch_add,
    is_bf16,
    keep,
    largest,
    like,
    load,
    maximum,
    mul,
    read_f32,
    read_f64,
    read_i32,
    read_i64,
    spread,
    stack_room,
    store,
    store_part,
    sub,
    total,
    write_f32,
    write_i64,
)
from treille.kernels.tile import MAX_ROWS, scores_tile, values_tile

TILE_ROWS = 96
SPAN_BLOCKS = 8
SPAN = SPAN_BLOCKS * LANES
NEVER = np.float32(-np.inf)


_rows_room = stack_room(TILE_ROWS * MAX_HEAD_DIM * 4)
_sums_room = stack_room(TILE_ROWS * LANES * 4)
_tops_room = stack_room(TILE_ROWS * 4)
_span_room = stack_room(MAX_ROWS * SPAN * 4)
_decay_room = stack_room(MAX_ROWS * LANES * 4)
_blocks_room = stack_room(SPAN_BLOCKS * 8)


def attention_source(key: str, *, bf16: bool) -> WorkerSource:
    """Attention of all rows. Words: the fields of `Problem`, in order (`scale`, `eps` as float bits)."""

    def attention_bf16(args: int) -> None:
        if key:
            _attend_all(args, bf16_at(0))

    def attention_f32(args: int) -> None:
        if key:
            _attend_all(args, f32_at(0))

    return attention_bf16 if bf16 else attention_f32


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

    query: int  # the cache's dtype [R, Dp]
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
def _attend_all(args: int, kind: Any) -> None:
    p = _problem(args + 8 * ARGS)
    room = Room(
        _rows_room(),
        _rows_room(),
        _sums_room(),
        _tops_room(),
        _span_room(),
        _span_room(),
        _decay_room(),
        _blocks_room(),
        _blocks_room(),
        _blocks_room(),
        _blocks_room(),
    )
    group = p.num_heads // p.num_kv_heads
    seq, before = 0, 0  # the sequence that the counter has come to, pieces in the ones before it
    while True:
        item = fetch_add(args, 1)
        while True:
            if seq == p.num_sequences:
                return
            token = int(read_i32(p.query_start, seq))
            count = read_i32(p.query_start, seq + 1) - token
            num_tiles = (count * group + p.tile_rows - 1) // p.tile_rows
            if item < before + num_tiles * p.num_kv_heads:
                break
            before += num_tiles * p.num_kv_heads
            seq += 1
        head, rank = (item - before) // num_tiles, (item - before) % num_tiles
        first_row = (num_tiles - 1 - rank) * p.tile_rows  # the longest first, the shortest fill the end
        num_rows = min(p.tile_rows, count * group - first_row)
        offset = read_i32(p.context_lens, seq) - count
        _attend_piece(kind, p, room, Piece(seq, head, token, offset, first_row, num_rows, group))


@njit(error_model="numpy")
def _problem(at: int) -> Problem:
    return Problem(
        read_i64(at, 0),
        read_i64(at, 1),
        read_i64(at, 2),
        read_i64(at, 3),
        read_i64(at, 4),
        read_i64(at, 5),
        read_i64(at, 6),
        read_i64(at, 7),
        read_i64(at, 8),
        read_i64(at, 9),
        read_i64(at, 10),
        read_i64(at, 11),
        read_i64(at, 12),
        read_i64(at, 13),
        read_i64(at, 14),
        read_i64(at, 15),
        read_i64(at, 16),
        read_i64(at, 17),
        read_i64(at, 18),
        read_f64(at, 19),
        read_f64(at, 20),
    )


@njit(error_model="numpy")
def _attend_piece(kind: Any, p: Problem, room: Room, piece: Piece) -> None:
    _load_queries(kind, p, room, piece)
    first = piece.offset + piece.first_row // piece.group
    last = piece.offset + (piece.first_row + piece.num_rows - 1) // piece.group
    lowest = max(0, first - p.window + 1) if p.window else 0
    block = _block_of(p, lowest) // SPAN_BLOCKS * SPAN_BLOCKS
    end = _block_of(p, last) + 1
    while block < end:
        num_blocks = min(SPAN_BLOCKS, end - block)
        _locate_blocks(kind, p, room, piece, block, num_blocks)
        row = 0
        while row < piece.num_rows:
            height = _tile_height(piece.num_rows - row)
            _attend_span(kind, p, room, piece, row, height, num_blocks)
            row += height
        block += num_blocks
    _write_out(kind, p, room, piece)


@njit(error_model="numpy")
def _tile_height(left: int) -> int:
    """Rows of the next tile, such that the last tiles are not slivers; one of tile.ROW_CHOICES."""
    if left == 5:
        return 3
    if left == 7 or left == 8:
        return 4
    return min(left, MAX_ROWS)


@njit(error_model="numpy")
def _block_of(p: Problem, index: int) -> int:
    """The block of the token at `index`, counted through the sequence's pages."""
    per_page = (p.page_size + LANES - 1) // LANES
    return index // p.page_size * per_page + index % p.page_size // LANES


@njit(error_model="numpy")
def _load_queries(kind: Any, p: Problem, room: Room, piece: Piece) -> None:
    """Queries normed, rotated and rounded; the running values reset."""
    stride = padded(p.head_dim)
    ready, zero = f32_at(head_room()), spread(np.float32(0.0))
    query, out, sums = like(kind, room.query), f32_at(room.out), f32_at(room.sums)
    token_width = (p.num_heads + 2 * p.num_kv_heads) * p.head_dim
    for i in range(piece.num_rows):
        row = piece.first_row + i
        token = piece.token + row // piece.group
        at = token * token_width + (piece.head * piece.group + row % piece.group) * p.head_dim
        table = p.cos_sin + 4 * p.table_width * read_i64(p.positions, token) if p.cos_sin else 0
        norm = like(kind, p.q_norm)
        ready_head(like(kind, p.qkv), at, ready, p.head_dim, norm, p.eps, table, p.table_width)
        for column in range(0, stride, LANES):
            store(query, i * stride + column, load(ready, column))
            store(out, i * stride + column, zero)
        store(sums, i * LANES, zero)
        write_f32(room.tops, i, NEVER)


@njit(error_model="numpy")
def _locate_blocks(kind: Any, p: Problem, room: Room, piece: Piece, first: int, count: int) -> None:
    per_word = 2 if is_bf16(kind) else 1
    key_bytes, value_bytes = 64 * (p.head_dim // per_word), 64 * (padded(p.head_dim) // per_word)
    per_page = (p.page_size + LANES - 1) // LANES
    for i in range(count):
        place, inside = (first + i) // per_page, (first + i) % per_page
        page = int(read_i32(p.page_table, piece.seq * p.max_pages + place))
        block = (page * p.num_kv_heads + piece.head) * per_page + inside
        start = place * p.page_size + inside * LANES
        write_i64(room.key_blocks, i, p.keys + block * key_bytes)
        write_i64(room.value_blocks, i, p.values + block * value_bytes)
        write_i64(room.starts, i, start)
        write_i64(room.ends, i, min(start + LANES, (place + 1) * p.page_size))


@njit(error_model="numpy")
def _attend_span(
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
    query = like(kind, address_of(like(kind, room.query), row * stride))
    lda, steps = stride * 4 // per_word, p.head_dim // per_word
    block = 0
    while block < num_blocks:
        columns = _columns(num_blocks - block)
        scores, blocks = room.scores + 64 * block, room.key_blocks + 8 * block
        scores_tile(query, lda, height, columns, blocks, steps, scores, 4 * SPAN)
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


@njit(error_model="numpy")
def _write_out(kind: Any, p: Problem, room: Room, piece: Piece) -> None:
    stride = padded(p.head_dim)
    values, out = f32_at(room.out), like(kind, p.out)
    for i in range(piece.num_rows):
        row = piece.first_row + i
        token = piece.token + row // piece.group
        at = (token * p.num_heads + piece.head * piece.group + row % piece.group) * p.head_dim
        divisor = spread(total(load(f32_at(room.sums), i * LANES)))
        for column in range(0, p.head_dim, LANES):
            value = div(load(values, i * stride + column), divisor)
            if p.head_dim - column >= LANES:
                store(out, at + column, value)
            else:
                store_part(out, at + column, value, p.head_dim - column)
