"""The tile of a linear layer: a few rows times a few panels of sixteen outputs, summed in registers.

A panel holds the weights of sixteen outputs, step by step: sixteen 32-bit words to a step, each one float32
of one input or bfloat16 of two neighbouring inputs. The rows are float32, or, where the machine multiplies
pairs of bfloat16 (AVX512-BF16), words of two of them too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types

from treille.kernels.instructions import (
    BF16X32,
    DOT_NAME,
    F32,
    F32X16,
    I32,
    I32X16,
    I64,
    Builder,
    Value,
    ask_for,
    call,
    code,
    constant,
    has_bf16,
    has_feature,
    load_at,
    splat,
    store_at,
)
from treille.kernels.simd import Kinds, f32_pointer, operation
from treille.kernels.tile import STEP_BYTES, lower_halves, plus, upper_halves

MAX_PANELS = 4
# By rows, the panels that a tile spans: as many accumulators as the registers hold, and enough of them that
# each has time to be ready again. Twelve rows read each weight half as often as six.
_WIDE = {1: 4, 2: 4, 3: 4, 4: 4, 6: 4, 12: 2}
_NARROW = {1: 4, 2: 2, 3: 2, 4: 1, 6: 1}
LINE = 64  # bytes
MAX_LINES = 4


def tile_panels() -> dict[int, int]:
    """By number of rows, how many panels a tile spans at most."""
    return _WIDE if has_feature("avx512f") else _NARROW


def _signature(kind: Any, *rest: Any) -> Any:
    return types.void(kind, *[types.int64] * 10)


@operation(_signature)
def gemm_tile(
    builder: Builder,
    kinds: Kinds,
    weights: Value,
    rows_at: Value,
    row_bytes: Value,
    rows: Value,
    panels: Value,
    panel_bytes: Value,
    steps: Value,
    out: Value,
    ldo: Value,
    ahead: Value,
    lines: Value,
) -> None:
    """out[m, 16 p + lane] = sum over steps of rows[m, step] . panel p [step, lane].

    weights: pointer to the first panel (its type is the weights'); rows_at: address of the first row, each
    `row_bytes` long; rows: a key of `tile_panels`; panels: up to what that has; steps: words to a panel's
    lane; out: address of float32, `ldo` bytes to a row; ahead: address of what is asked for on the way, so
    many cache lines a step, 1 to 4.
    """
    weights = builder.ptrtoint(weights, I64)
    done = builder.append_basic_block("gemm_done")
    key = builder.add(builder.mul(rows, ir.Constant(I64, 8)), panels)
    switch = builder.switch(key, done)
    for m, most in tile_panels().items():
        for n in range(1, most + 1):
            block = builder.append_basic_block(f"gemm_{m}x{n}")
            switch.add_case(ir.Constant(I64, m * 8 + n), block)
            builder.position_at_end(block)
            _tile(
                builder,
                kinds[0],
                m,
                n,
                (weights, rows_at, row_bytes, panel_bytes, steps, out, ldo, ahead, lines),
            )
            builder.branch(done)
    builder.position_at_end(done)


def _tile(builder: Builder, kind: Any, m: int, n: int, given: tuple[Value, ...]) -> None:
    weights, rows_at, row_bytes, panel_bytes, steps, out, ldo, ahead, lines = given
    sums = [[code.alloca_once(builder, F32X16) for _ in range(n)] for _ in range(m)]
    for slot in (slot for row in sums for slot in row):
        builder.store(constant(F32X16, 0.0), slot)
    rows = [builder.add(rows_at, builder.mul(row_bytes, ir.Constant(I64, i))) for i in range(m)]
    bases = [builder.add(weights, builder.mul(panel_bytes, ir.Constant(I64, i))) for i in range(n)]
    # Where fewer lines are wanted than there are instructions, one asks for what another has asked for.
    last = builder.sub(lines, ir.Constant(I64, 1))
    numbers = [ir.Constant(I64, number) for number in range(MAX_LINES)]
    least = [builder.select(builder.icmp_signed("<", number, last), number, last) for number in numbers]
    asked = [builder.mul(number, ir.Constant(I64, LINE)) for number in least]
    multiply = _chosen(kind)
    with code.for_range(builder, steps, intp=I64) as loop:
        at = builder.mul(loop.index, ir.Constant(I64, STEP_BYTES))
        line = plus(builder, ahead, builder.mul(loop.index, lines), LINE)
        for later in asked:
            ask_for(builder, builder.add(line, later))
        words = [load_at(builder, builder.add(base, at), I32X16) for base in bases]
        multiply(builder, loop.index, rows, words, sums)
    for i in range(m):
        for j in range(n):
            place = plus(builder, plus(builder, out, builder.mul(ldo, ir.Constant(I64, i))), j, STEP_BYTES)
            store_at(builder, place, builder.load(sums[i][j]))


Multiply = Callable[[Builder, Value, list[Value], list[Value], list[list[Value]]], None]


def _chosen(kind: Any) -> Multiply:
    if kind == f32_pointer:
        return _whole_words
    return _dots if has_bf16() else _half_words


def _add_products(builder: Builder, left: Value, rights: list[Value], slots: list[Value]) -> None:
    for slot, right in zip(slots, rights, strict=True):
        builder.store(call(builder, "llvm.fma.v16f32", F32X16, left, right, builder.load(slot)), slot)


def _number(builder: Builder, row: Value, index: Value) -> Value:
    """A float32 of a row, in all lanes."""
    return splat(builder, load_at(builder, plus(builder, row, index, 4), F32))


def _whole_words(
    builder: Builder, step: Value, rows: list[Value], words: list[Value], sums: list[list[Value]]
) -> None:
    rights = [builder.bitcast(word, F32X16) for word in words]
    for row, slots in zip(rows, sums, strict=True):
        _add_products(builder, _number(builder, row, step), rights, slots)


def _half_words(
    builder: Builder, step: Value, rows: list[Value], words: list[Value], sums: list[list[Value]]
) -> None:
    first = builder.mul(step, ir.Constant(I64, 2))
    for half, index in ((lower_halves, first), (upper_halves, builder.add(first, ir.Constant(I64, 1)))):
        rights = [half(builder, word) for word in words]
        for row, slots in zip(rows, sums, strict=True):
            _add_products(builder, _number(builder, row, index), rights, slots)


def _dots(
    builder: Builder, step: Value, rows: list[Value], words: list[Value], sums: list[list[Value]]
) -> None:
    rights = [builder.bitcast(word, BF16X32) for word in words]
    for row, slots in zip(rows, sums, strict=True):
        pair = splat(builder, load_at(builder, plus(builder, row, step, 4), I32))
        left = builder.bitcast(pair, BF16X32)
        for slot, right in zip(slots, rights, strict=True):
            builder.store(call(builder, DOT_NAME, F32X16, builder.load(slot), left, right), slot)
