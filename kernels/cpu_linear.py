"""Linear layers on the CPU: rows times weights that were laid out in panels once.

A piece of work is a block of rows and a group of panels. Within it each panel, small enough for the first
cache, is multiplied with every tile of rows; the rows of a block stay in the second. A row's result does not
depend on what other rows there are: the same sums in the same order, to the bit.
"""

from __future__ import annotations

from typing import Any

import torch
from numba import njit
from torch import Tensor
from torch.nn.functional import pad

from treille.kernels.cpu_span import tile_height
from treille.kernels.gemm_tile import MAX_LINES, MAX_PANELS, gemm_tile, tile_panels
from treille.kernels.instructions import LANES, has_bf16
from treille.kernels.parallel import ARGS, WorkerSource
from treille.kernels.simd import (
    add,
    bf16_at,
    f32_at,
    fetch_add,
    is_bf16,
    like,
    load,
    load_some,
    read_i64,
    stack_room,
    store_as,
)

_TALLEST = max(tile_panels())
_sums_room = stack_room(_TALLEST * MAX_PANELS * LANES * 4)
_MOST_PANELS = tuple(tile_panels().get(height, 0) for height in range(_TALLEST + 1))
PAIRED = has_bf16()  # rows in bfloat16 are multiplied as they are


def panels(weight: Tensor) -> Tensor:
    """The weight [out, in] in panels: [out / 16, in / p, 16, p], rounded up with zeros; p is 2 for bfloat16
    and 1 for float32."""
    num_outputs, num_inputs = weight.shape
    pair = 2 if weight.dtype == torch.bfloat16 else 1
    rows, columns = -(-num_outputs // LANES) * LANES, -(-num_inputs // pair) * pair
    if (rows, columns) != (num_outputs, num_inputs):
        padded = weight.new_zeros(rows, columns)
        padded[:num_outputs, :num_inputs] = weight
        weight = padded
    return weight.reshape(rows // LANES, LANES, columns // pair, pair).transpose(1, 2).contiguous()


def ready_rows(x: Tensor) -> Tensor:
    """Rows [T, in] as the tile reads them: whole words, float32 where it does not multiply pairs."""
    if x.dtype == torch.bfloat16 and x.shape[1] % 2:
        x = pad(x, (0, 1))
    if x.dtype == torch.bfloat16 and not PAIRED:
        x = x.float()
    return x if x.stride(1) == 1 else x.contiguous()


def linear_source(key: str, *, bf16: bool) -> WorkerSource:
    """Rows times weights. Words: num_rows, rows to a block, outputs, inputs (padded to a whole number of
    words), panels to a group, rows, bytes to a row, weights, bias (or 0), out, whether that is float32.
    """

    def linear_bf16(args: int) -> None:
        if key:
            _multiply_all(args, bf16_at(0))

    def linear_f32(args: int) -> None:
        if key:
            _multiply_all(args, f32_at(0))

    return linear_bf16 if bf16 else linear_f32


@njit(error_model="numpy")
def _height(left: int) -> int:
    """Rows of the next tile."""
    return _TALLEST if left >= _TALLEST else tile_height(left)


@njit(error_model="numpy")
def _multiply_all(args: int, kind: Any) -> None:
    num_rows, block, num_outputs = read_i64(args, ARGS), read_i64(args, ARGS + 1), read_i64(args, ARGS + 2)
    num_inputs, group = read_i64(args, ARGS + 3), read_i64(args, ARGS + 4)
    rows, row_bytes = read_i64(args, ARGS + 5), read_i64(args, ARGS + 6)
    weights, bias = read_i64(args, ARGS + 7), read_i64(args, ARGS + 8)
    out, wide = read_i64(args, ARGS + 9), read_i64(args, ARGS + 10)
    steps = num_inputs // 2 if is_bf16(kind) else num_inputs
    panel_bytes = 4 * LANES * steps
    num_panels = (num_outputs + LANES - 1) // LANES
    num_groups = (num_panels + group - 1) // group
    num_blocks = (num_rows + block - 1) // block
    sums = _sums_room()
    piece = fetch_add(args, 1)
    while piece < num_groups * num_blocks:
        following = fetch_add(args, 1)
        first_row = piece // num_groups * block
        last_row = min(first_row + block, num_rows)
        panel = piece % num_groups * group
        last_panel = min(panel + group, num_panels)
        # While the piece is multiplied the next one's weights are asked for, so many panels a tile.
        next_panel = following % num_groups * group
        ahead, left = weights + next_panel * panel_bytes, min(group, num_panels - next_panel)
        if following >= num_groups * num_blocks:
            left = 0
        num_tiles = (last_row - first_row + _TALLEST - 1) // _TALLEST
        share = min((left + num_tiles - 1) // num_tiles, MAX_LINES)
        while panel < last_panel:
            widest = min(_MOST_PANELS[_height(last_row - first_row)], last_panel - panel)
            row = first_row
            while row < last_row:
                height = _height(last_row - row)
                done = 0
                while done < widest:
                    panels = min(_MOST_PANELS[height], widest - done)
                    here = weights + (panel + done) * panel_bytes
                    asked, lines = (ahead, min(share, left)) if left > 0 else (here, 1)
                    gemm_tile(
                        like(kind, here),
                        rows + row * row_bytes,
                        row_bytes,
                        height,
                        panels,
                        panel_bytes,
                        steps,
                        sums,
                        4 * LANES * MAX_PANELS,
                        asked,
                        lines,
                    )
                    ahead, left = ahead + lines * panel_bytes, left - lines
                    column = (panel + done) * LANES
                    _finish(kind, sums, out, wide, bias, row, height, column, panels, num_outputs)
                    done += panels
                row += height
            panel += widest
        piece = following


@njit(error_model="numpy")
def _finish(
    kind: Any,
    sums: int,
    out: int,
    wide: int,
    bias: int,
    row: int,
    height: int,
    column: int,
    panels: int,
    num_outputs: int,
) -> None:
    """Sums to outputs: with the bias, in the rows' precision, also where they are stored in float32."""
    for i in range(height):
        for panel in range(panels):
            at = column + panel * LANES
            value = load(f32_at(sums), i * LANES * MAX_PANELS + panel * LANES)
            left = num_outputs - at
            if bias:
                value = add(value, load_some(like(kind, bias), at, left))
            store_as(kind, out, wide, (row + i) * num_outputs + at, value, left)
