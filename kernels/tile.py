"""The two matrix products of attention, as tiles of accumulators that stay in registers.

Both have the form C[rows, 16 * n] (+)= A[rows, steps] @ B[steps, 16 * n], where one step of A is a 32-bit
*word*: one float32, or two neighbouring bfloat16 that meet two in B. B lies in blocks of sixteen keys:

    keys    [D / p, 16, p]     sixteen words to a step, one step for each p entries of the head
    values  [16 / p, Dp, p]    Dp words to a step, one step for each p keys; Dp = D rounded up to 16

with p = 1 for float32 and p = 2 for bfloat16. Where the machine multiplies pairs of bfloat16 (AVX512-BF16)
a step is one instruction, elsewhere two multiply-adds on the widened halves.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from llvmlite import ir
from numba import types

from treille.kernels.instructions import (
    BF16X32,
    DOT_NAME,
    F32X16,
    I32,
    I32X16,
    I64,
    LANES,
    Builder,
    Value,
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

MAX_ROWS = 6
ROW_CHOICES = (1, 2, 3, 4, 6)
COLUMN_CHOICES = (1, 2, 4)
STEP_BYTES = 4 * LANES  # one step of a key block


@lru_cache(maxsize=1)
def tile_columns() -> int:
    """Vectors of sixteen that a row of accumulators may span without spilling."""
    return 4 if has_feature("avx512f") else 1


def _multiply(builder: Builder, kind: Any, a: Value, b: list[Value], sums: list[Value]) -> None:
    """Adds one word of A, times one step of B, to a row of accumulators (stack slots, later registers)."""
    bits = splat(builder, a)
    if kind == f32_pointer:
        factors = [(builder.bitcast(bits, F32X16), [builder.bitcast(x, F32X16) for x in b])]
    elif has_bf16():
        left = builder.bitcast(bits, BF16X32)
        for slot, right in zip(sums, b, strict=True):
            product = call(
                builder, DOT_NAME, F32X16, builder.load(slot), left, builder.bitcast(right, BF16X32)
            )
            builder.store(product, slot)
        return
    else:
        halves = (lower_halves, upper_halves)
        factors = [(half(builder, bits), [half(builder, x) for x in b]) for half in halves]
    for left, rights in factors:
        for slot, right in zip(sums, rights, strict=True):
            builder.store(call(builder, "llvm.fma.v16f32", F32X16, left, right, builder.load(slot)), slot)


def lower_halves(builder: Builder, words: Value) -> Value:
    return builder.bitcast(builder.shl(words, constant(I32X16, 16)), F32X16)


def upper_halves(builder: Builder, words: Value) -> Value:
    return builder.bitcast(builder.and_(words, constant(I32X16, -0x10000)), F32X16)


def plus(builder: Builder, base: Value, offset: Value | int, scale: int = 1) -> Value:
    """base + offset * scale, all int64."""
    if isinstance(offset, int):
        return builder.add(base, ir.Constant(I64, offset * scale))
    return builder.add(base, builder.mul(offset, ir.Constant(I64, scale)) if scale != 1 else offset)


def _each_shape(
    builder: Builder, rows: Value, columns: Value, generate: Callable[[int, int, int], None]
) -> None:
    """Branches to the code for (rows, columns); `generate(rows, first column, columns)` makes each part.

    Columns beyond what the registers hold are a second pass over A.
    """
    done = builder.append_basic_block("tile_done")
    key = builder.add(builder.mul(rows, ir.Constant(I64, 8)), columns)
    switch = builder.switch(key, done)
    for m in ROW_CHOICES:
        for n in COLUMN_CHOICES:
            block = builder.append_basic_block(f"tile_{m}x{n}")
            switch.add_case(ir.Constant(I64, m * 8 + n), block)
            builder.position_at_end(block)
            for first in range(0, n, tile_columns()):
                generate(m, first, min(n - first, tile_columns()))
            builder.branch(done)
    builder.position_at_end(done)


def _accumulators(builder: Builder, m: int, n: int) -> list[list[Value]]:
    return [[code.alloca_once(builder, F32X16) for _ in range(n)] for _ in range(m)]


def _scores_signature(a: Any, *rest: Any) -> Any:
    return types.void(a, *[types.int64] * 6)


@operation(_scores_signature)
def scores_tile(
    builder: Builder,
    kinds: Kinds,
    a: Value,
    rows: Value,
    columns: Value,
    blocks: Value,
    steps: Value,
    out: Value,
    ldo: Value,
) -> None:
    """out[m, 16 n + lane] = sum over steps of A[m, step] . key block n [step, lane].

    a: pointer to A's words as [steps, rows] (its type is the cache's), so that one register walks over
    all rows; rows in ROW_CHOICES; columns (key blocks) in COLUMN_CHOICES; blocks: address of their
    addresses; out: address of float32, `ldo` bytes to a row.
    """
    a = builder.ptrtoint(a, I64)

    def generate(m: int, first: int, n: int) -> None:
        sums = _accumulators(builder, m, n)
        for slot in (slot for row in sums for slot in row):
            builder.store(constant(F32X16, 0.0), slot)
        bases = [load_at(builder, plus(builder, blocks, first + i, 8), I64) for i in range(n)]
        with code.for_range(builder, steps, intp=I64) as loop:
            at = builder.mul(loop.index, ir.Constant(I64, STEP_BYTES))
            b = [load_at(builder, builder.add(base, at), I32X16) for base in bases]
            words = plus(builder, a, loop.index, 4 * m)
            for i in range(m):
                _multiply(builder, kinds[0], load_at(builder, plus(builder, words, i, 4), I32), b, sums[i])
        for i in range(m):
            for j in range(n):
                place = plus(builder, plus(builder, out, ldo, i), first + j, STEP_BYTES)
                store_at(builder, place, builder.load(sums[i][j]))

    _each_shape(builder, rows, columns, generate)


def _values_signature(a: Any, *rest: Any) -> Any:
    return types.void(a, *[types.int64] * 10)


@operation(_values_signature)
def values_tile(
    builder: Builder,
    kinds: Kinds,
    a: Value,
    lda: Value,
    rows: Value,
    columns: Value,
    blocks: Value,
    steps: Value,
    width: Value,
    shift: Value,
    out: Value,
    ldo: Value,
    decay: Value,
) -> None:
    """out[m, :] = out[m, :] * decay[m] + sum over steps of A[m, step] . values[step, :], 16 * columns wide.

    As `scores_tile`, except: `steps` runs on from one value block to the next, with `width` bytes to a
    step; the first column lies `shift` bytes into a step; decay: address of sixteen equal float32 a row.
    """
    a = builder.ptrtoint(a, I64)
    per_block = ir.Constant(I64, LANES if kinds[0] == f32_pointer else LANES // 2)
    num_blocks = builder.udiv(builder.add(steps, builder.sub(per_block, ir.Constant(I64, 1))), per_block)

    def generate(m: int, first: int, n: int) -> None:
        sums = _accumulators(builder, m, n)
        rows_out = [plus(builder, out, ldo, i) for i in range(m)]
        places = [[plus(builder, row, first + j, STEP_BYTES) for j in range(n)] for row in rows_out]
        for i in range(m):
            factor = load_at(builder, plus(builder, decay, i, STEP_BYTES), F32X16)
            for slot, place in zip(sums[i], places[i], strict=True):
                builder.store(builder.fmul(load_at(builder, place, F32X16), factor), slot)
        with code.for_range(builder, num_blocks, intp=I64) as outer:
            base = builder.add(load_at(builder, plus(builder, blocks, outer.index, 8), I64), shift)
            before = builder.mul(outer.index, per_block)
            left = builder.sub(steps, before)
            here = builder.select(builder.icmp_signed("<", left, per_block), left, per_block)
            with code.for_range(builder, here, intp=I64) as inner:
                at = builder.add(base, builder.mul(inner.index, width))
                b = [load_at(builder, plus(builder, at, first + j, STEP_BYTES), I32X16) for j in range(n)]
                step = builder.add(before, inner.index)
                for i in range(m):
                    row = plus(builder, plus(builder, a, lda, i), step, 4)
                    _multiply(builder, kinds[0], load_at(builder, row, I32), b, sums[i])
        for i in range(m):
            for slot, place in zip(sums[i], places[i], strict=True):
                store_at(builder, place, builder.load(slot))

    _each_shape(builder, rows, columns, generate)
