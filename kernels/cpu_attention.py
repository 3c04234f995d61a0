"""Causal attention over pages on the CPU: one worker for decode rows, chunks and prompts alike.

A *row* is one query head of one token; the rows that share a key/value head and a sequence are one matrix,
token by token. A piece of work is up to `TILE_ROWS` consecutive rows. It walks over the keys that any of
them sees, `SPAN` at a time, keeping a running maximum, sum and weighted value for each row (`cpu_span.py`),
so that a page is read once for all query heads and all tokens of the piece. Spans start at fixed places:
a row's result is the same, to the bit, however its sequence was cut into chunks and whatever runs beside
it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from treille.kernels.cpu_rotary import MAX_HEAD_DIM, head_room, padded, ready_head
from treille.kernels.cpu_span import (
    NEVER,
    SPAN,
    SPAN_BLOCKS,
    Piece,
    Problem,
    Room,
    attend_span,
    block_of,
    locate_blocks,
    prefetch_blocks,
    tile_height,
)
from treille.kernels.instructions import LANES
from treille.kernels.parallel import ARGS, WorkerSource
from treille.kernels.simd import (
    bf16_at,
    div,
    f32_at,
    fetch_add,
    is_bf16,
    like,
    load,
    read_f64,
    read_i32,
    read_i64,
    spread,
    stack_room,
    store,
    store_some,
    total,
    write_f32,
    write_i32,
)
from treille.kernels.tile import MAX_ROWS

TILE_ROWS = 96
PREFETCH_ROWS = 16


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
    block = block_of(p, lowest) // SPAN_BLOCKS * SPAN_BLOCKS
    end = block_of(p, last) + 1
    while block < end:
        num_blocks = min(SPAN_BLOCKS, end - block)
        if piece.num_rows <= PREFETCH_ROWS:
            prefetch_blocks(kind, p, piece, block, num_blocks)
        locate_blocks(kind, p, room, piece, block, num_blocks)
        row = 0
        while row < piece.num_rows:
            height = tile_height(piece.num_rows - row)
            attend_span(kind, p, room, piece, row, height, num_blocks)
            row += height
        block += num_blocks
    _write_out(kind, p, room, piece)


@njit(error_model="numpy")
def _load_queries(kind: Any, p: Problem, room: Room, piece: Piece) -> None:
    """Queries normed, rotated and rounded; the running values reset."""
    stride = padded(p.head_dim)
    zero = spread(np.float32(0.0))
    out, sums = f32_at(room.out), f32_at(room.sums)
    ready, num_words = head_room(), p.head_dim // (2 if is_bf16(kind) else 1)
    start, height = 0, tile_height(piece.num_rows)  # of the tile that the row is in
    token_width = (p.num_heads + 2 * p.num_kv_heads) * p.head_dim
    for i in range(piece.num_rows):
        row = piece.first_row + i
        token = piece.token + row // piece.group
        at = token * token_width + (piece.head * piece.group + row % piece.group) * p.head_dim
        table = p.cos_sin + 4 * p.table_width * read_i64(p.positions, token) if p.cos_sin else 0
        norm = like(kind, p.q_norm)
        ready_head(like(kind, p.qkv), at, like(kind, ready), p.head_dim, norm, p.eps, table, p.table_width)
        for column in range(0, stride, LANES):
            store(out, i * stride + column, zero)
        while i == start + height:
            start += height
            height = tile_height(piece.num_rows - start)
        words = room.query + 4 * start * num_words
        for word in range(num_words):
            write_i32(words, word * height + i - start, read_i32(ready, word))
        store(sums, i * LANES, zero)
        write_f32(room.tops, i, NEVER)


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
            store_some(out, at + column, value, p.head_dim - column)
