"""Rows of logits and packed masks on the CPU: the highest allowed logit, and masks written into the logits.

A mask has bit t set if token t is allowed: uint32, 32 tokens a word. What lies beyond its end is forbidden.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from treille.kernels.instructions import LANES
from treille.kernels.parallel import ARGS, WorkerSource
from treille.kernels.simd import (
    address_of,
    any_nan,
    chosen,
    f32_at,
    fetch_add,
    keep,
    largest,
    load,
    load_some,
    maximum_or_nan,
    read_f32,
    read_f64,
    read_i16,
    read_i64,
    spread,
    stack_room,
    store,
    store_some,
    weight_of,
    write_f32,
    write_f64,
    write_i64,
)

_BLOCK = 16 * LANES  # logits whose highest is looked for together
_LOWEST = np.float32(-np.inf)
_last_room = stack_room(4 * LANES)


def best_source(key: str) -> WorkerSource:
    """The highest allowed logit of rows. Words: num_rows, num_tokens, then addresses of one entry a row:
    where its logits are (int64), where its mask is (int64; 0: all are allowed), how many tokens that has
    (int64); then of the results: id (int64; the lowest of equals), logit (float32), the highest of all logits
    (float32). NaN counts as highest.
    """

    def best_rows(args: int) -> None:
        if key:
            _best_all(args)

    return best_rows


def forbid_source(key: str) -> WorkerSource:
    """Sets what masks do not allow to -inf. Words: the first five of `best_source`."""

    def forbid_rows(args: int) -> None:
        if key:
            _forbid_all(args)

    return forbid_rows


def weights_source(key: str) -> WorkerSource:
    """Sums of 2 ** ((logit - top) * scale) over blocks of rows, in float64. Words: num_rows, num_tokens,
    logits to a block (a multiple of 16), then addresses of one entry a row: where its logits are (int64),
    top, scale (float64); then of the sums, float64 [num_rows, blocks].
    """

    def weigh_rows(args: int) -> None:
        if key:
            _weigh_all(args)

    return weigh_rows


@njit(error_model="numpy", forceinline=True)
def _bits(mask: int, end: int, at: int) -> Any:
    """The mask's bits of sixteen tokens from `at` on (a multiple of 16); `end` tokens have bits."""
    if at >= end:
        return np.int64(0)
    bits = np.int64(read_i16(mask, at // LANES)) & 0xFFFF
    return bits if end - at >= LANES else bits & ((1 << (end - at)) - 1)


@njit(error_model="numpy", forceinline=True)
def _allowed(value: Any, mask: int, end: int, at: int) -> Any:
    return chosen(value, _bits(mask, end, at), spread(_LOWEST)) if mask else value


@njit(error_model="numpy")
def _best_all(args: int) -> None:
    num_rows, num_tokens = read_i64(args, ARGS), read_i64(args, ARGS + 1)
    while True:
        row = fetch_add(args, 1)
        if row >= num_rows:
            return
        logits = read_i64(read_i64(args, ARGS + 2), row)
        mask, end = read_i64(read_i64(args, ARGS + 3), row), read_i64(read_i64(args, ARGS + 4), row)
        place, top, highest = _best(logits, num_tokens, mask, end)
        write_i64(read_i64(args, ARGS + 5), row, place)
        write_f32(read_i64(args, ARGS + 6), row, top)
        write_f32(read_i64(args, ARGS + 7), row, highest)


@njit(error_model="numpy")
def _best(logits: int, num_tokens: int, mask: int, end: int) -> tuple[Any, Any, Any]:
    base = f32_at(logits)
    nothing = spread(_LOWEST)
    all_tops = nothing
    top, block_of_top, found = _LOWEST, 0, False
    for block in range(0, num_tokens, _BLOCK):
        tops = nothing
        for at in range(block, min(block + _BLOCK, num_tokens), LANES):
            left = num_tokens - at
            value = load(base, at) if left >= LANES else keep(load_some(base, at, left), 0, left, nothing)
            all_tops = maximum_or_nan(all_tops, value)
            tops = maximum_or_nan(tops, _allowed(value, mask, end, at))
        here = np.float32(np.nan) if any_nan(tops) else largest(tops)
        if np.isnan(here) or here > top:
            top, block_of_top, found = here, block, True
            if np.isnan(here):
                break
    highest = np.float32(np.nan) if any_nan(all_tops) or np.isnan(top) else largest(all_tops)
    place = 0
    if found:
        for at in range(block_of_top, min(block_of_top + _BLOCK, num_tokens)):
            value = read_f32(logits, at)
            is_allowed = not mask or (_bits(mask, end, at // LANES * LANES) >> (at % LANES)) & 1
            if is_allowed and (value == top or (np.isnan(top) and np.isnan(value))):
                place = at
                break
    return place, top, highest


@njit(error_model="numpy")
def _forbid_all(args: int) -> None:
    num_rows, num_tokens = read_i64(args, ARGS), read_i64(args, ARGS + 1)
    while True:
        row = fetch_add(args, 1)
        if row >= num_rows:
            return
        base = f32_at(read_i64(read_i64(args, ARGS + 2), row))
        mask, end = read_i64(read_i64(args, ARGS + 3), row), read_i64(read_i64(args, ARGS + 4), row)
        for at in range(0, num_tokens, LANES):
            left = num_tokens - at
            store_some(base, at, _allowed(load_some(base, at, left), mask, end, at), left)


@njit(error_model="numpy")
def _weigh_all(args: int) -> None:
    num_rows, num_tokens, size = read_i64(args, ARGS), read_i64(args, ARGS + 1), read_i64(args, ARGS + 2)
    num_blocks = (num_tokens + size - 1) // size
    last = _last_room()
    while True:
        row = fetch_add(args, 1)
        if row >= num_rows:
            return
        base = f32_at(read_i64(read_i64(args, ARGS + 3), row))
        top, scale = read_f64(read_i64(args, ARGS + 4), row), read_f64(read_i64(args, ARGS + 5), row)
        out = read_i64(args, ARGS + 6)
        for block in range(num_blocks):
            first = block * size
            whole = min(size, num_tokens - first) // LANES * LANES
            summed = weight_of(f32_at(address_of(base, first)), top, scale, whole)
            left = min(size, num_tokens - first) - whole
            if left:
                value = load_some(base, first + whole, left)
                store(f32_at(last), 0, keep(value, 0, left, spread(_LOWEST)))
                summed += weight_of(f32_at(last), top, scale, LANES)
            write_f64(out, row * num_blocks + block, summed)
