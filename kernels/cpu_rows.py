"""Rows moved and widened: what lies between the kernels of a chain."""

from __future__ import annotations

from numba import njit

from treille.kernels.instructions import LANES
from treille.kernels.parallel import ARGS, WorkerSource
from treille.kernels.simd import (
    bf16_at,
    f32_at,
    fetch_add,
    load_some,
    read_i16,
    read_i64,
    store_some,
    write_i16,
    write_i64,
)


def widen_source(key: str) -> WorkerSource:
    """bfloat16 to float32. Words: num_rows, rows to a piece, width, x, out."""

    def widen_rows(args: int) -> None:
        if key:
            _widen(args)

    return widen_rows


def gather_source(key: str) -> WorkerSource:
    """Chosen rows, one after the other. Words: num_rows, rows to a piece, bytes to a row (even), x, indices
    (int64), out.
    """

    def gather_rows(args: int) -> None:
        if key:
            _gather(args)

    return gather_rows


@njit(error_model="numpy")
def _widen(args: int) -> None:
    num_rows, piece, width = read_i64(args, ARGS), read_i64(args, ARGS + 1), read_i64(args, ARGS + 2)
    x, out = bf16_at(read_i64(args, ARGS + 3)), f32_at(read_i64(args, ARGS + 4))
    while True:
        first = fetch_add(args, piece)
        if first >= num_rows:
            return
        end = min(first + piece, num_rows) * width
        for at in range(first * width, end, LANES):
            store_some(out, at, load_some(x, at, end - at), end - at)


@njit(error_model="numpy")
def _gather(args: int) -> None:
    num_rows, piece, size = read_i64(args, ARGS), read_i64(args, ARGS + 1), read_i64(args, ARGS + 2)
    x, indices, out = read_i64(args, ARGS + 3), read_i64(args, ARGS + 4), read_i64(args, ARGS + 5)
    while True:
        first = fetch_add(args, piece)
        if first >= num_rows:
            return
        for row in range(first, min(first + piece, num_rows)):
            source, target = x + read_i64(indices, row) * size, out + row * size
            for word in range(size // 8):
                write_i64(target, word, read_i64(source, word))
            for half in range(size // 8 * 4, size // 2):
                write_i16(target, half, read_i16(source, half))
