"""The tile of a quantised linear layer: a few rows of int16 times a panel of int8 or int4, in int32.

The inputs come in groups. Within a group everything is whole numbers, so sums are exact; behind it the sum,
times the scale of the row's group and (int4) those of the weights' group, is added to the float32 sums in
memory; so is (int4) the sum of the row's group times the weights' offsets. Pairs of neighbouring inputs share
a 32-bit word of the row and meet a word of each of sixteen outputs: one multiply-add instruction on x86.

A panel holds, group by group, for int4 the group's sixteen scales and sixteen offsets (bfloat16), then steps
of 64 bytes:

    int8    [2, 16, 2]  pairs of inputs, outputs, the two of a pair
    int4    [16, 2, 4]  outputs, the two of a pair, pairs of inputs: lowest bits first
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir
from numba import types

from treille.kernels.instructions import (
    F32,
    F32X16,
    I16,
    I16X16,
    I32,
    I32X16,
    I64,
    LANES,
    Builder,
    Value,
    ask_for,
    call,
    code,
    constant,
    has_feature,
    load_at,
    splat,
    store_at,
    widened,
)
from treille.kernels.simd import Kinds, f32x16, operation
from treille.kernels.tile import ROW_CHOICES, STEP_BYTES, plus

GROUP = 32  # inputs that share a scale
HEAD_BYTES = 2 * 2 * LANES  # of an int4 group: scales and offsets
I16X32 = ir.VectorType(I16, 2 * LANES)
I8X32 = ir.VectorType(ir.IntType(8), 2 * LANES)
HIGHEST = 32767.0  # of a row's numbers


def pairs_of(bits: int) -> int:
    """Pairs of inputs to a step."""
    return 16 // bits


def group_bytes(bits: int) -> int:
    """Bytes of a group of a panel."""
    return GROUP * LANES * bits // 8 + (HEAD_BYTES if bits == 4 else 0)


@operation(lambda *kinds: types.void(*[types.int64] * 9))
def integer_tile(
    builder: Builder,
    kinds: Kinds,
    bits: Value,
    panel: Value,
    rows_at: Value,
    row_bytes: Value,
    scales: Value,
    rows: Value,
    groups: Value,
    out: Value,
    ahead: Value,
) -> None:
    """out[m, lane] = sum over groups of scales[m, group, 0] * (rows[m, group] . panel [group, lane]); where
    the panel has scales, times those, and scales[m, group, 1] times its offsets beside it.

    bits: 8 or 4; panel: its address; rows_at: address of the first row, int16, `row_bytes` to a row; scales:
    address of float32 [rows, groups, 2]; rows: one of ROW_CHOICES; out: address of float32 [rows, 16];
    ahead: address of a panel that is asked for on the way. One panel at a time, so that memory is read in a
    single stream: with more of them one row was slower.
    """
    done = builder.append_basic_block("integers_done")
    switch = builder.switch(builder.add(builder.mul(bits, ir.Constant(I64, 8)), rows), done)
    for width in (8, 4):
        for m in ROW_CHOICES:
            block = builder.append_basic_block(f"integers_{width}_{m}")
            switch.add_case(ir.Constant(I64, width * 8 + m), block)
            builder.position_at_end(block)
            _tile(builder, width, m, (panel, rows_at, row_bytes, scales, groups, out, ahead))
            builder.branch(done)
    builder.position_at_end(done)


def _tile(builder: Builder, bits: int, m: int, given: Sequence[Value]) -> None:
    panel, rows_at, row_bytes, scales, groups, out, ahead = given
    rows = [builder.add(rows_at, builder.mul(row_bytes, ir.Constant(I64, i))) for i in range(m)]
    scale_bytes = builder.mul(groups, ir.Constant(I64, 8))
    scale_rows = [builder.add(scales, builder.mul(scale_bytes, ir.Constant(I64, i))) for i in range(m)]
    places = [plus(builder, out, i, STEP_BYTES) for i in range(m)]
    for place in places:
        store_at(builder, place, constant(F32X16, 0.0))
    slots = [code.alloca_once(builder, I32X16) for _ in range(m)]
    head = group_bytes(bits) - GROUP * LANES * bits // 8
    with code.for_range(builder, groups, intp=I64) as outer:
        for slot in slots:
            builder.store(constant(I32X16, 0), slot)
        here = plus(builder, panel, outer.index, group_bytes(bits))
        for line in range(0, group_bytes(bits), 64):
            ask_for(builder, plus(builder, plus(builder, ahead, outer.index, group_bytes(bits)), line))
        words = [plus(builder, row, outer.index, 2 * GROUP) for row in rows]
        steps = ir.Constant(I64, GROUP // 2 // pairs_of(bits))
        with code.for_range(builder, steps, intp=I64) as inner:
            step = plus(builder, plus(builder, here, inner.index, STEP_BYTES), head)
            first = builder.mul(inner.index, ir.Constant(I64, pairs_of(bits)))
            for pair in range(pairs_of(bits)):
                weights = _pair_of_weights(builder, bits, step, pair)
                index = builder.add(first, ir.Constant(I64, pair))
                for row, slot in zip(words, slots, strict=True):
                    word = splat(builder, load_at(builder, plus(builder, row, index, 4), I32))
                    products = _products(builder, builder.bitcast(word, I16X32), weights)
                    builder.store(builder.add(builder.load(slot), products), slot)
        heads = [
            widened(builder, load_at(builder, plus(builder, here, at), I16X16))
            for at in range(0, head, 2 * LANES)
        ]
        for slot, scale_row, place in zip(slots, scale_rows, places, strict=True):
            at = plus(builder, scale_row, outer.index, 8)
            scale, summed = (splat(builder, load_at(builder, plus(builder, at, i, 4), F32)) for i in (0, 1))
            value = builder.sitofp(builder.load(slot), F32X16)
            total = load_at(builder, place, F32X16)
            if heads:
                value = builder.fmul(value, heads[0])
                total = call(builder, "llvm.fma.v16f32", F32X16, summed, heads[1], total)
            store_at(builder, place, call(builder, "llvm.fma.v16f32", F32X16, value, scale, total))


def _pair_of_weights(builder: Builder, bits: int, step: Value, pair: int) -> Value:
    """The weights of a pair of inputs as int16: two for each of sixteen outputs."""
    if bits == 8:
        place = builder.add(step, ir.Constant(I64, pair * 2 * LANES))
        return builder.sext(load_at(builder, place, I8X32), I16X32)
    halves = builder.bitcast(load_at(builder, step, I32X16), I16X32)
    if pair:
        halves = builder.lshr(halves, constant(I16X32, 4 * pair))
    return builder.and_(halves, constant(I16X32, 15)) if pair < pairs_of(bits) - 1 else halves


def _products(builder: Builder, left: Value, right: Value) -> Value:
    """Products of int16, neighbours added: [32] -> [16] int32."""
    if has_feature("avx512bw"):
        return call(builder, "llvm.x86.avx512.pmaddw.d.512", I32X16, left, right)
    if has_feature("avx2"):
        eight = ir.VectorType(I32, LANES // 2)
        low, high = (
            call(
                builder,
                "llvm.x86.avx2.pmadd.wd",
                eight,
                _part(builder, left, half, LANES),
                _part(builder, right, half, LANES),
            )
            for half in (0, 1)
        )
        return builder.shuffle_vector(low, high, ir.Constant(I32X16, list(range(LANES))))
    words = [builder.bitcast(value, I32X16) for value in (left, right)]
    half = constant(I32X16, 16)
    lower = [builder.ashr(builder.shl(word, half), half) for word in words]
    upper = [builder.ashr(word, half) for word in words]
    return builder.add(builder.mul(*lower), builder.mul(*upper))


def _part(builder: Builder, value: Value, part: int, size: int) -> Value:
    order = ir.Constant(ir.VectorType(I32, size), list(range(part * size, (part + 1) * size)))
    return builder.shuffle_vector(value, value, order)


@operation(lambda value, factor: f32x16(f32x16, types.float32))
def nearest(builder: Builder, kinds: Kinds, value: Value, factor: Value) -> Value:
    """value * factor as whole numbers: to nearest even, at most 32767 either way."""
    scaled = builder.fmul(value, splat(builder, factor))
    bounded = call(builder, "llvm.maxnum.v16f32", F32X16, scaled, constant(F32X16, -HIGHEST))
    bounded = call(builder, "llvm.minnum.v16f32", F32X16, bounded, constant(F32X16, HIGHEST))
    return call(builder, "llvm.rint.v16f32", F32X16, bounded)


@operation(lambda address, value: types.void(types.int64, f32x16))
def store_integers(builder: Builder, kinds: Kinds, address: Value, value: Value) -> None:
    """Writes whole numbers as sixteen int16 to an address."""
    store_at(builder, address, builder.trunc(builder.fptosi(value, I32X16), I16X16))
