"""RMS norm and the gated activation on the CPU, whole rows at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from treille.kernels.instructions import LANES
from treille.kernels.parallel import ARGS, WorkerSource
from treille.kernels.simd import (
    LOG2_E,
    add,
    bf16_at,
    div,
    exp2,
    f32_at,
    fetch_add,
    fma,
    like,
    load_some,
    mul,
    read_f64,
    read_i64,
    rounded,
    spread,
    store_some,
    total,
)


def norm_source(key: str, *, bf16: bool) -> WorkerSource:
    """RMS norm of rows. Words: num_rows, rows to a piece, width, x, weight, out, eps (float bits),
    residual, sum; the last two are 0 for a norm without an addition.
    """

    def rms_norm_bf16(args: int) -> None:
        if key:
            _norm_rows(args, bf16_at(0))

    def rms_norm_f32(args: int) -> None:
        if key:
            _norm_rows(args, f32_at(0))

    return rms_norm_bf16 if bf16 else rms_norm_f32


def silu_source(key: str, *, bf16: bool) -> WorkerSource:
    """silu(gate) * up for rows [gate, up]. Words: num_rows, rows to a piece, width of a half, x, out."""

    def silu_mul_bf16(args: int) -> None:
        if key:
            _gate_rows(args, bf16_at(0))

    def silu_mul_f32(args: int) -> None:
        if key:
            _gate_rows(args, f32_at(0))

    return silu_mul_bf16 if bf16 else silu_mul_f32


@njit(error_model="numpy")
def _norm_rows(args: int, kind: Any) -> None:
    num_rows, piece, width = read_i64(args, ARGS), read_i64(args, ARGS + 1), read_i64(args, ARGS + 2)
    x, weight = like(kind, read_i64(args, ARGS + 3)), like(kind, read_i64(args, ARGS + 4))
    out, eps = like(kind, read_i64(args, ARGS + 5)), read_f64(args, ARGS + 6)
    residual, summed = like(kind, read_i64(args, ARGS + 7)), like(kind, read_i64(args, ARGS + 8))
    with_residual = read_i64(args, ARGS + 7) != 0
    while True:
        first = fetch_add(args, piece)
        if first >= num_rows:
            return
        for row in range(first, min(first + piece, num_rows)):
            at = row * width
            if with_residual:
                squares = _add_rows(x, residual, summed, at, width)
                factor = np.float32(1.0 / np.sqrt(squares / width + eps))
                _scale_row(summed, weight, out, at, width, factor)
            else:
                factor = np.float32(1.0 / np.sqrt(sum_of_squares(x, at, width) / width + eps))
                _scale_row(x, weight, out, at, width, factor)


@njit(error_model="numpy")
def sum_of_squares(x: Any, at: int, width: int) -> Any:
    """Of `width` elements from `at` on, as float32."""
    squares = spread(np.float32(0.0))
    for i in range(0, width, LANES):
        value = load_some(x, at + i, width - i)
        squares = fma(value, value, squares)
    return total(squares)


@njit(error_model="numpy")
def _add_rows(x: Any, residual: Any, out: Any, at: int, width: int) -> Any:
    squares = spread(np.float32(0.0))
    for i in range(0, width, LANES):
        left = width - i
        value = rounded(x, add(load_some(x, at + i, left), load_some(residual, at + i, left)))
        store_some(out, at + i, value, left)
        squares = fma(value, value, squares)
    return total(squares)


@njit(error_model="numpy")
def _scale_row(x: Any, weight: Any, out: Any, at: int, width: int, factor: Any) -> None:
    scale = spread(factor)
    for i in range(0, width, LANES):
        value = rounded(x, mul(load_some(x, at + i, width - i), scale))
        store_some(out, at + i, mul(value, load_some(weight, i, width - i)), width - i)


@njit(error_model="numpy")
def _gate_rows(args: int, kind: Any) -> None:
    num_rows, piece, width = read_i64(args, ARGS), read_i64(args, ARGS + 1), read_i64(args, ARGS + 2)
    x, out = like(kind, read_i64(args, ARGS + 3)), like(kind, read_i64(args, ARGS + 4))
    while True:
        first = fetch_add(args, piece)
        if first >= num_rows:
            return
        for row in range(first, min(first + piece, num_rows)):
            gate, up, at = row * 2 * width, row * 2 * width + width, row * width
            for i in range(0, width, LANES):
                left = width - i
                value = _gated(load_some(x, gate + i, left), load_some(x, up + i, left))
                store_some(out, at + i, value, left)


@njit(error_model="numpy")
def _gated(gate: Any, up: Any) -> Any:
    """gate / (1 + e ** -gate) * up."""
    power = exp2(mul(gate, spread(np.float32(-LOG2_E))))
    return mul(div(gate, add(spread(np.float32(1.0)), power)), up)
