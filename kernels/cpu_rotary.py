"""Heads made ready (norm, rotation), and the store of a step's keys and values in their pages.

A page of one key/value head is a row of blocks of sixteen tokens (`tile.py` has their layout); a page size
that is no multiple of sixteen leaves the end of its last block empty.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from treille.kernels.cpu_norm import sum_of_squares
from treille.kernels.instructions import LANES
from treille.kernels.parallel import ARGS, WorkerSource
from treille.kernels.simd import (
    address_of,
    bf16_at,
    f32_at,
    fetch_add,
    fma,
    is_bf16,
    like,
    load_some,
    mul,
    prefetch,
    read_f64,
    read_i16,
    read_i32,
    read_i64,
    spread,
    stack_room,
    store,
    store_pairs,
    store_some,
    sub,
    write_i16,
    write_i32,
)

MAX_HEAD_DIM = 256

LOOKAHEAD = 2  # tokens whose places in the cache are asked for before they are written

head_room = stack_room(4 * MAX_HEAD_DIM)


def store_source(key: str, *, bf16: bool) -> WorkerSource:
    """Stores keys and values. Words: num_tokens, tokens to a piece, num_heads, num_kv_heads, head_dim,
    page_size, qkv, keys, values, slots, positions, cos_sin (0: none), its width, k_norm (0: none), eps.
    """

    def store_kv_bf16(args: int) -> None:
        if key:
            _store_tokens(args, bf16_at(0))

    def store_kv_f32(args: int) -> None:
        if key:
            _store_tokens(args, f32_at(0))

    return store_kv_bf16 if bf16 else store_kv_f32


@njit(error_model="numpy")
def ready_head(
    x: Any, at: int, out: Any, head_dim: int, norm: Any, eps: float, table: int, width: int
) -> None:
    """One head of one token, from element `at` of `x`, normed and rotated, to `out`.

    norm: pointer to the norm's weights, or to address 0; table: address of the token's row of `width`
    cosines and sines, or 0. `out` is written in whole vectors.
    """
    factor = np.float32(1.0)
    if address_of(norm, 0):
        factor = np.float32(1.0 / np.sqrt(sum_of_squares(x, at, head_dim) / head_dim + eps))
    turned = width if table else 0
    if turned < head_dim or turned % (2 * LANES):
        for i in range(0, head_dim, LANES):
            store(out, i, _scaled(x, at, norm, factor, i, head_dim - i))
    row, half = f32_at(table), turned // 2
    for i in range(0, half, LANES):
        left = half - i
        first = _scaled(x, at, norm, factor, i, left)
        second = _scaled(x, at, norm, factor, half + i, left)
        cos, sin = load_some(row, i, left), load_some(row, half + i, left)
        store_some(out, i, sub(mul(first, cos), mul(second, sin)), left)
        store_some(out, half + i, fma(second, cos, mul(first, sin)), left)


@njit(error_model="numpy", forceinline=True)
def _scaled(x: Any, at: int, norm: Any, factor: Any, index: int, count: int) -> Any:
    value = load_some(x, at + index, count)
    if address_of(norm, 0):
        value = mul(mul(value, spread(factor)), load_some(norm, index, count))
    return value


@njit(error_model="numpy")
def _store_tokens(args: int, kind: Any) -> None:
    num_tokens, piece = read_i64(args, ARGS), read_i64(args, ARGS + 1)
    while True:
        first = fetch_add(args, piece)
        if first >= num_tokens:
            return
        _store_piece(args, kind, first, min(first + piece, num_tokens))


@njit(error_model="numpy")
def _store_piece(args: int, kind: Any, first: int, last: int) -> None:
    num_tokens, num_heads = read_i64(args, ARGS), read_i64(args, ARGS + 2)
    num_kv_heads, head_dim = read_i64(args, ARGS + 3), read_i64(args, ARGS + 4)
    page_size, qkv = read_i64(args, ARGS + 5), like(kind, read_i64(args, ARGS + 6))
    keys, values, slots = read_i64(args, ARGS + 7), read_i64(args, ARGS + 8), read_i64(args, ARGS + 9)
    positions, cos_sin = read_i64(args, ARGS + 10), read_i64(args, ARGS + 11)
    width, norm = read_i64(args, ARGS + 12), like(kind, read_i64(args, ARGS + 13))
    eps = read_f64(args, ARGS + 14)
    per_word = 2 if is_bf16(kind) else 1
    key_bytes, value_bytes = 64 * (head_dim // per_word), 64 * (padded(head_dim) // per_word)
    per_page = (page_size + LANES - 1) // LANES
    token_width = (num_heads + 2 * num_kv_heads) * head_dim
    row = head_room()
    for token in range(first, min(first + LOOKAHEAD, last)):
        _ask_for(keys, values, read_i64(slots, token), page_size, num_kv_heads, key_bytes, value_bytes)
    paired = False  # the value of this token went in with the one before
    for token in range(first, last):
        slot = read_i64(slots, token)
        if token + LOOKAHEAD < last:
            later = read_i64(slots, token + LOOKAHEAD)
            if later != read_i64(slots, token + LOOKAHEAD - 1) + 1 or later % page_size % LANES == 0:
                _ask_for(keys, values, later, page_size, num_kv_heads, key_bytes, value_bytes)
        page, offset = slot // page_size, slot % page_size
        lane = offset % LANES
        follows = token + 1 < num_tokens and offset + 1 < page_size and read_i64(slots, token + 1) == slot + 1
        table = cos_sin + 4 * width * read_i64(positions, token) if cos_sin else 0
        pairs = is_bf16(kind) and lane % 2 == 0 and follows and token + 1 < last
        for head in range(num_kv_heads):
            block = (page * num_kv_heads + head) * per_page + offset // LANES
            at = token * token_width + (num_heads + head) * head_dim
            ready_head(qkv, at, like(kind, row), head_dim, norm, eps, table, width)
            target = keys + block * key_bytes + 4 * lane
            for word in range(head_dim // per_word):
                write_i32(target, word * LANES, read_i32(row, word))
            source = address_of(qkv, at + num_kv_heads * head_dim)
            target = values + block * value_bytes
            if not is_bf16(kind):
                for i in range(head_dim):
                    write_i32(target + 4 * lane * padded(head_dim), i, read_i32(source, i))
            elif pairs:
                _store_two(source, source + 2 * token_width, target, lane, head_dim)
            elif not paired:
                _store_one(source, target, lane, head_dim, 1 if lane % 2 == 0 and not follows else 0)
        paired = pairs


@njit(error_model="numpy")
def _ask_for(
    keys: int, values: int, slot: int, page_size: int, num_kv_heads: int, key_bytes: int, value_bytes: int
) -> None:
    """Asks for the blocks that a token is in: else its writes would wait for memory one by one."""
    per_page = (page_size + LANES - 1) // LANES
    for head in range(num_kv_heads):
        block = (slot // page_size * num_kv_heads + head) * per_page + slot % page_size // LANES
        for line in range(0, key_bytes, 64):
            prefetch(keys + block * key_bytes + line)
        # Of the values only the token's own lines, and those of the tokens next to it in them.
        row_bytes = value_bytes // LANES
        start = slot % page_size % LANES // 2 * 2 * row_bytes
        for line in range(start, min(start + 2 * row_bytes, value_bytes), 64):
            prefetch(values + block * value_bytes + line)


@njit(error_model="numpy", forceinline=True)
def padded(head_dim: int) -> int:
    """The head's width in whole vectors."""
    return (head_dim + LANES - 1) // LANES * LANES


@njit(error_model="numpy")
def _store_two(low: int, high: int, block: int, lane: int, head_dim: int) -> None:
    """Neighbouring tokens' bfloat16 values, `low` at an even lane."""
    target = block + 4 * (lane // 2) * padded(head_dim)
    whole = head_dim - head_dim % LANES
    for i in range(0, whole, LANES):
        store_pairs(target + 4 * i, low + 2 * i, high + 2 * i)
    for i in range(whole, head_dim):
        write_i16(target, 2 * i, read_i16(low, i))
        write_i16(target, 2 * i + 1, read_i16(high, i))


@njit(error_model="numpy")
def _store_one(source: int, block: int, lane: int, head_dim: int, clears: int) -> None:
    """One token's bfloat16 values. `clears` zeroes the other half of each word: no token is there yet, and
    what an earlier owner of the page left (perhaps a NaN) would be multiplied by the weight 0.
    """
    target = block + 4 * (lane // 2) * padded(head_dim)
    for i in range(head_dim):
        write_i16(target, 2 * i + lane % 2, read_i16(source, i))
        if clears:
            write_i16(target, 2 * i + 1, np.int16(0))
