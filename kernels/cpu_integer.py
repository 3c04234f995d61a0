"""Quantised linear layers on the CPU: rows to int16, and those times weights of int8 or int4 in panels.

Each group of a row's inputs is rounded to whole numbers, its largest one to 32767: 256 times finer than
bfloat16 holds that one. A row's result does not depend on what other rows there are, to the bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from treille.kernels.cpu_integer_tile import (
    GROUP,
    HIGHEST,
    group_bytes,
    integer_tile,
    nearest,
    store_integers,
)
from treille.kernels.cpu_span import tile_height
from treille.kernels.instructions import LANES
from treille.kernels.parallel import ARGS, WorkerSource
from treille.kernels.simd import (
    add,
    bf16_at,
    f32_at,
    fetch_add,
    fma,
    largest,
    like,
    load,
    load_some,
    maximum,
    mul,
    read_i64,
    spread,
    stack_room,
    store_as,
    sub,
    total,
    write_f32,
)
from treille.kernels.tile import MAX_ROWS

SMALLEST = np.float32(1e-30)  # a group below this is taken for zeros
_PANEL_GROUP_8, _PANEL_GROUP_4 = group_bytes(8), group_bytes(4)

_sums_room = stack_room(MAX_ROWS * LANES * 4)


def rows_source(key: str, *, bf16: bool) -> WorkerSource:
    """Rows to whole numbers. Words: num_rows, rows to a piece, inputs, x, elements to a row of it, out int16
    [num_rows, groups * GROUP], scales float32 [num_rows, groups, 2]: a group's scale, and that times its sum.
    """

    def integer_rows_bf16(args: int) -> None:
        if key:
            _round_rows(args, bf16_at(0))

    def integer_rows_f32(args: int) -> None:
        if key:
            _round_rows(args, f32_at(0))

    return integer_rows_bf16 if bf16 else integer_rows_f32


def integers_source(key: str, *, bf16: bool) -> WorkerSource:
    """Rows of whole numbers times weights. Words: num_rows, rows to a block, outputs, bits, groups of inputs,
    panels to a piece, rows, their scales, weights, a float32 scale for each output (or 0), bias (or 0), out,
    whether that is float32; then x (or 0), elements to a row of it, inputs. With x each thread first rounds
    all rows for itself, and the rows and their scales have room for every thread's.
    """

    def integers_bf16(args: int) -> None:
        if key:
            _multiply_integers(args, bf16_at(0))

    def integers_f32(args: int) -> None:
        if key:
            _multiply_integers(args, f32_at(0))

    return integers_bf16 if bf16 else integers_f32


@njit(error_model="numpy")
def _round_rows(args: int, kind: Any) -> None:
    num_rows, piece, num_inputs = read_i64(args, ARGS), read_i64(args, ARGS + 1), read_i64(args, ARGS + 2)
    x, stride = like(kind, read_i64(args, ARGS + 3)), read_i64(args, ARGS + 4)
    out, scales = read_i64(args, ARGS + 5), read_i64(args, ARGS + 6)
    num_groups = (num_inputs + GROUP - 1) // GROUP
    while True:
        first = fetch_add(args, piece)
        if first >= num_rows:
            return
        for row in range(first, min(first + piece, num_rows)):
            _round_row(
                x, row * stride, num_inputs, out + row * num_groups * GROUP * 2, scales + row * num_groups * 8
            )


@njit(error_model="numpy")
def _round_row(x: Any, at: int, num_inputs: int, out: int, scales: int) -> None:
    zero = spread(np.float32(0.0))
    for group in range((num_inputs + GROUP - 1) // GROUP):
        top, wrong = zero, zero
        start, end = group * GROUP, min((group + 1) * GROUP, num_inputs)
        for i in range(start, end, LANES):
            value = load_some(x, at + i, end - i)
            top = maximum(top, maximum(value, sub(zero, value)))
            wrong = fma(value, zero, wrong)  # NaN where the row is not finite: so is its scale then
        size = largest(top)
        factor, scale = np.float32(0.0), np.float32(0.0)
        if size > SMALLEST:
            factor, scale = np.float32(HIGHEST) / size, size / np.float32(HIGHEST)
        scale += total(wrong)
        summed = zero  # exact: 32 whole numbers below 2 ** 15
        for i in range(start, start + GROUP, LANES):
            whole = nearest(load_some(x, at + i, end - i), factor) if i < end else zero
            store_integers(out + 2 * i, whole)
            summed = add(summed, whole)
        write_f32(scales, 2 * group, scale)
        write_f32(scales, 2 * group + 1, scale * total(summed))


@njit(error_model="numpy")
def _multiply_integers(args: int, kind: Any) -> None:
    num_rows, block, num_outputs = read_i64(args, ARGS), read_i64(args, ARGS + 1), read_i64(args, ARGS + 2)
    bits, num_groups, group = read_i64(args, ARGS + 3), read_i64(args, ARGS + 4), read_i64(args, ARGS + 5)
    rows, row_scales = read_i64(args, ARGS + 6), read_i64(args, ARGS + 7)
    weights, scales = read_i64(args, ARGS + 8), read_i64(args, ARGS + 9)
    bias, out, wide = read_i64(args, ARGS + 10), read_i64(args, ARGS + 11), read_i64(args, ARGS + 12)
    panel_bytes = num_groups * (_PANEL_GROUP_8 if bits == 8 else _PANEL_GROUP_4)
    row_bytes = num_groups * GROUP * 2
    num_panels = (num_outputs + LANES - 1) // LANES
    num_pieces = (num_panels + group - 1) // group
    num_blocks = (num_rows + block - 1) // block
    sums = _sums_room()
    if read_i64(args, ARGS + 13):
        x, stride, num_inputs = (
            like(kind, read_i64(args, ARGS + 13)),
            read_i64(args, ARGS + 14),
            read_i64(args, ARGS + 15),
        )
        thread = fetch_add(args + 8, 1)
        rows += thread * num_rows * row_bytes
        row_scales += thread * num_rows * num_groups * 8
        for row in range(num_rows):
            _round_row(x, row * stride, num_inputs, rows + row * row_bytes, row_scales + row * num_groups * 8)
    piece = fetch_add(args, 1)
    while piece < num_pieces * num_blocks:
        following = fetch_add(args, 1)
        first_row = piece // num_pieces * block
        last_row = min(first_row + block, num_rows)
        first_panel = piece % num_pieces * group
        # While the piece is multiplied the next one's weights are asked for, a panel a tile.
        next_panel = following % num_pieces * group
        ahead, left = weights + next_panel * panel_bytes, min(group, num_panels - next_panel)
        if following >= num_pieces * num_blocks:
            left = 0
        for panel in range(first_panel, min(first_panel + group, num_panels)):
            row = first_row
            while row < last_row:
                height = min(tile_height(last_row - row), MAX_ROWS)
                here = weights + panel * panel_bytes
                integer_tile(
                    bits,
                    here,
                    rows + row * row_bytes,
                    row_bytes,
                    row_scales + row * num_groups * 8,
                    height,
                    num_groups,
                    sums,
                    ahead if left > 0 else here,
                )
                ahead, left = ahead + panel_bytes, left - 1
                _finish(kind, sums, out, wide, scales, bias, row, height, panel * LANES, num_outputs)
                row += height
        piece = following


@njit(error_model="numpy")
def _finish(
    kind: Any,
    sums: int,
    out: int,
    wide: int,
    scales: int,
    bias: int,
    row: int,
    height: int,
    column: int,
    num_outputs: int,
) -> None:
    """Sums to outputs: with each output's scale and the bias, in the rows' precision, also where they are
    stored in float32."""
    left = num_outputs - column
    for i in range(height):
        value = load(f32_at(sums), i * LANES)
        if scales:
            value = mul(value, load_some(f32_at(scales), column, left))
        if bias:
            value = add(value, load_some(like(kind, bias), column, left))
        store_as(kind, out, wide, (row + i) * num_outputs + column, value, left)
