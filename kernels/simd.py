"""Sixteen float32 lanes as a numba type, and the few operations that the kernels are written in.

Loops over plain scalars are vectorised by LLVM at its own discretion, and a tile of accumulators kept in
an array stays in memory. Vectors as values avoid both. On a machine with narrower registers LLVM splits
each of them, so nothing here depends on AVX-512.

Memory is addressed by pointers whose element type says how a lane is stored: `CPointer(float32)` as it
is, `CPointer(uint16)` as bfloat16, the upper half of a float32, rounded to nearest even.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.typing.templates import Signature
from numba.extending import intrinsic, models, register_model

LANES = 16

I16 = ir.IntType(16)
I32 = ir.IntType(32)
I64 = ir.IntType(64)
F32 = ir.FloatType()
F32X16 = ir.VectorType(F32, LANES)
I32X16 = ir.VectorType(I32, LANES)
I16X16 = ir.VectorType(I16, LANES)

Emitter = Any  # numba's (signature, code generator) pair; numba has no types of its own
Value = ir.Value

# 2 ** f on [-0.5, 0.5]: degree 6, least maximum relative error (2e-9, so that rounding decides), low power
# first. As float32 the first coefficient is 1: the likeliest key's weight is exact.
EXP2 = (
    1.0000000005541674,
    0.693147205737267,
    0.24022646890627686,
    0.055503287769699566,
    0.009618488957805349,
    0.0013399931217650224,
    0.0001534581181636701,
)
LOG2_E = 1.4426950408889634


class _F32x16(types.Type):
    def __init__(self) -> None:
        super().__init__(name="f32x16")


f32x16 = _F32x16()
f32_pointer = types.CPointer(types.float32)
bf16_pointer = types.CPointer(types.uint16)


@register_model(_F32x16)
class _F32x16Model(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, dmm: Any, fe_type: types.Type) -> None:
        super().__init__(dmm, fe_type, F32X16)


# --- building blocks for code generators; also used by tile.py ---


def constant(vector: ir.VectorType, value: float) -> ir.Constant:
    return ir.Constant(vector, [value] * vector.count)


def splat(builder: ir.IRBuilder, scalar: Value) -> Value:
    """All lanes equal to `scalar` (float32 or int32)."""
    vector = ir.VectorType(scalar.type, LANES)
    empty = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(empty, scalar, ir.Constant(I32, 0))
    return builder.shuffle_vector(first, empty, ir.Constant(I32X16, [0] * LANES))


def call(builder: ir.IRBuilder, name: str, result: ir.Type, *args: Value) -> Value:
    """Calls an LLVM intrinsic (or any external function) by its full name."""
    kind = ir.FunctionType(result, [arg.type for arg in args])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), args)


def pointer(builder: ir.IRBuilder, address: Value, kind: ir.Type) -> Value:
    return builder.inttoptr(address, kind.as_pointer())


def load_at(builder: ir.IRBuilder, address: Value, kind: ir.Type) -> Value:
    """An unaligned load from an int64 address."""
    return builder.load(pointer(builder, address, kind), align=2 if kind is I16X16 else 4)


def store_at(builder: ir.IRBuilder, address: Value, value: Value) -> None:
    """An unaligned store to an int64 address."""
    builder.store(value, pointer(builder, address, value.type), align=2 if value.type == I16X16 else 4)


def widened(builder: ir.IRBuilder, halves: Value) -> Value:
    """bfloat16 bits to float32, exactly."""
    return builder.bitcast(builder.shl(builder.zext(halves, I32X16), constant(I32X16, 16)), F32X16)


def narrowed(builder: ir.IRBuilder, value: Value) -> Value:
    """float32 to bfloat16 bits, to nearest even; a NaN stays one."""
    bits = builder.bitcast(value, I32X16)
    odd = builder.and_(builder.lshr(bits, constant(I32X16, 16)), constant(I32X16, 1))
    rounded = builder.add(builder.add(bits, constant(I32X16, 0x7FFF)), odd)
    is_nan = builder.fcmp_unordered("uno", value, value)
    kept = builder.select(is_nan, builder.or_(bits, constant(I32X16, 0x400000)), rounded)
    return builder.trunc(builder.lshr(kept, constant(I32X16, 16)), I16X16)


def exp2_of(builder: ir.IRBuilder, x: Value) -> Value:
    """2 ** x: exactly 0 below -126, the value at 127 above it."""
    floor, ceiling = constant(F32X16, -126.0), constant(F32X16, 127.0)
    too_small = builder.fcmp_ordered("<", x, floor)
    bounded = call(builder, "llvm.maxnum.v16f32", F32X16, x, floor)
    bounded = call(builder, "llvm.minnum.v16f32", F32X16, bounded, ceiling)
    whole = call(builder, "llvm.rint.v16f32", F32X16, bounded)
    part = builder.fsub(bounded, whole)
    result = constant(F32X16, EXP2[-1])
    for coefficient in EXP2[-2::-1]:
        result = call(builder, "llvm.fma.v16f32", F32X16, result, part, constant(F32X16, coefficient))
    exponent = builder.add(builder.fptosi(whole, I32X16), constant(I32X16, 127))
    power = builder.bitcast(builder.shl(exponent, constant(I32X16, 23)), F32X16)
    return builder.select(too_small, constant(F32X16, 0.0), builder.fmul(result, power))


# --- memory ---


def _lane_bytes(kind: types.Type) -> int:
    return 4 if kind == f32_pointer else 2


@intrinsic
def f32_at(typingctx: Any, address: Any) -> Emitter:
    """The float32 pointer at an int64 address."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Signature, args: list[Value]) -> Value:
        return builder.inttoptr(args[0], context.get_value_type(f32_pointer))

    return f32_pointer(types.int64), emit


@intrinsic
def bf16_at(typingctx: Any, address: Any) -> Emitter:
    """The bfloat16 pointer at an int64 address."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Signature, args: list[Value]) -> Value:
        return builder.inttoptr(args[0], context.get_value_type(bf16_pointer))

    return bf16_pointer(types.int64), emit


@intrinsic
def like(typingctx: Any, base: Any, address: Any) -> Emitter:
    """A pointer of `base`'s type at an int64 address: how a kernel written once serves both dtypes."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Signature, args: list[Value]) -> Value:
        return builder.inttoptr(args[1], context.get_value_type(base))

    return base(base, types.int64), emit


@intrinsic
def is_bf16(typingctx: Any, base: Any) -> Emitter:
    """Whether the pointer's elements are bfloat16; known when compiled."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Signature, args: list[Value]) -> Value:
        return ir.Constant(ir.IntType(1), int(base == bf16_pointer))

    return types.boolean(base), emit


@intrinsic
def address_of(typingctx: Any, base: Any, index: Any) -> Emitter:
    """The int64 address of element `index`."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Signature, args: list[Value]) -> Value:
        width = _lane_bytes(signature.args[0])
        return builder.add(builder.ptrtoint(args[0], I64), builder.mul(args[1], ir.Constant(I64, width)))

    return types.int64(base, types.int64), emit


@intrinsic
def load(typingctx: Any, base: Any, index: Any) -> Emitter:
    """Elements `index` to `index + 15`, as float32."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Signature, args: list[Value]) -> Value:
        width = _lane_bytes(signature.args[0])
        address = builder.add(builder.ptrtoint(args[0], I64), builder.mul(args[1], ir.Constant(I64, width)))
        if width == 4:
            return load_at(builder, address, F32X16)
        return widened(builder, load_at(builder, address, I16X16))

    return f32x16(base, types.int64), emit


@intrinsic
def store(typingctx: Any, base: Any, index: Any, value: Any) -> Emitter:
    """Writes sixteen lanes to elements `index` to `index + 15`, rounded where the memory is bfloat16."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Signature, args: list[Value]) -> Value:
        width = _lane_bytes(signature.args[0])
        address = builder.add(builder.ptrtoint(args[0], I64), builder.mul(args[1], ir.Constant(I64, width)))
        store_at(builder, address, args[2] if width == 4 else narrowed(builder, args[2]))
        return context.get_dummy_value()

    return types.void(base, types.int64, f32x16), emit


@intrinsic
def store_pairs(typingctx: Any, target: Any, low: Any, high: Any) -> Emitter:
    """Sixteen words at address `target`: bfloat16 from address `low` beside those from address `high`."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Signature, args: list[Value]) -> Value:
        lower, upper = (builder.zext(load_at(builder, arg, I16X16), I32X16) for arg in args[1:])
        words = builder.or_(lower, builder.shl(upper, constant(I32X16, 16)))
        store_at(builder, args[0], words)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), emit


def _word(kind: ir.Type, numba_type: types.Type) -> Any:
    """A pair of intrinsics that read and write one scalar at an int64 address plus an index."""

    @intrinsic
    def read(typingctx: Any, address: Any, index: Any) -> Emitter:
        def emit(context: Any, builder: ir.IRBuilder, signature: Signature, args: list[Value]) -> Value:
            place = builder.gep(pointer(builder, args[0], kind), [args[1]])
            return builder.load(place)

        return numba_type(types.int64, types.int64), emit

    @intrinsic
    def write(typingctx: Any, address: Any, index: Any, value: Any) -> Emitter:
        def emit(context: Any, builder: ir.IRBuilder, signature: Signature, args: list[Value]) -> Value:
            builder.store(args[2], builder.gep(pointer(builder, args[0], kind), [args[1]]))
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, numba_type), emit

    return read, write


read_i64, write_i64 = _word(I64, types.int64)
read_i32, write_i32 = _word(I32, types.int32)
read_i16, write_i16 = _word(I16, types.int16)
read_f32, write_f32 = _word(F32, types.float32)
read_f64, write_f64 = _word(ir.DoubleType(), types.float64)


@intrinsic
def fetch_add(typingctx: Any, address: Any, amount: Any) -> Emitter:
    """Adds to the int64 at `address` as one step among threads; returns what stood there before."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Signature, args: list[Value]) -> Value:
        return builder.atomic_rmw("add", pointer(builder, args[0], I64), args[1], "monotonic")

    return types.int64(types.int64, types.int64), emit


def stack_room(size: int) -> Any:
    """An intrinsic without arguments: the address of `size` uninitialised bytes of the calling function's
    stack, aligned to 64. Each place in the source that calls it has room of its own.
    """

    @intrinsic
    def room(typingctx: Any) -> Emitter:
        def emit(context: Any, builder: ir.IRBuilder, signature: Signature, args: list[Value]) -> Value:
            with builder.goto_entry_block():  # numba's own helper would fill it with zeros
                place = builder.alloca(ir.ArrayType(ir.IntType(8), size))
            place.align = 64
            return builder.ptrtoint(place, I64)

        return types.int64(), emit

    return room


# --- arithmetic ---


def _binary(generate: Callable[[ir.IRBuilder, Value, Value], Value]) -> Any:
    @intrinsic
    def operation(typingctx: Any, left: Any, right: Any) -> Emitter:
        def emit(context: Any, builder: ir.IRBuilder, signature: Signature, args: list[Value]) -> Value:
            return generate(builder, args[0], args[1])

        return f32x16(f32x16, f32x16), emit

    return operation


def _unary(result: types.Type, generate: Callable[[ir.IRBuilder, Value], Value]) -> Any:
    @intrinsic
    def operation(typingctx: Any, value: Any) -> Emitter:
        def emit(context: Any, builder: ir.IRBuilder, signature: Signature, args: list[Value]) -> Value:
            return generate(builder, args[0])

        return result(types.float32 if value == types.float32 else f32x16), emit

    return operation


add = _binary(lambda builder, a, b: builder.fadd(a, b))
sub = _binary(lambda builder, a, b: builder.fsub(a, b))
mul = _binary(lambda builder, a, b: builder.fmul(a, b))
div = _binary(lambda builder, a, b: builder.fdiv(a, b))
maximum = _binary(lambda builder, a, b: call(builder, "llvm.maxnum.v16f32", F32X16, a, b))
exp2 = _unary(f32x16, exp2_of)
spread = _unary(f32x16, splat)
total = _unary(types.float32, lambda builder, x: _folded(builder, x, "fadd"))
largest = _unary(types.float32, lambda builder, x: _folded(builder, x, "max"))


def _folded(builder: ir.IRBuilder, value: Value, how: str) -> Value:
    """One scalar from sixteen lanes, by halving: the same order on every machine."""
    for half in (8, 4, 2, 1):
        order = ir.Constant(I32X16, [(lane + half) % LANES for lane in range(LANES)])
        other = builder.shuffle_vector(value, value, order)
        if how == "fadd":
            value = builder.fadd(value, other)
        else:
            value = call(builder, "llvm.maxnum.v16f32", F32X16, value, other)
    return builder.extract_element(value, ir.Constant(I32, 0))


@intrinsic
def fma(typingctx: Any, a: Any, b: Any, c: Any) -> Emitter:
    """a * b + c, rounded once."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Signature, args: list[Value]) -> Value:
        return call(builder, "llvm.fma.v16f32", F32X16, *args)

    return f32x16(f32x16, f32x16, f32x16), emit


@intrinsic
def rounded(typingctx: Any, base: Any, value: Any) -> Emitter:
    """The value as it would be read back from memory like `base`."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Signature, args: list[Value]) -> Value:
        if signature.args[0] == f32_pointer:
            return args[1]
        return widened(builder, narrowed(builder, args[1]))

    return f32x16(base, f32x16), emit


@intrinsic
def keep(typingctx: Any, value: Any, low: Any, high: Any, other: Any) -> Emitter:
    """Lanes `low <= lane < high` of `value`, the others from `other`."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Signature, args: list[Value]) -> Value:
        lanes = ir.Constant(I32X16, list(range(LANES)))
        low, high = (splat(builder, builder.trunc(arg, I32)) for arg in args[1:3])
        inside = builder.and_(builder.icmp_signed(">=", lanes, low), builder.icmp_signed("<", lanes, high))
        return builder.select(inside, args[0], args[3])

    return f32x16(f32x16, types.int64, types.int64, f32x16), emit


# --- parts of a vector, for lengths that are no multiple of sixteen ---


_vector_room = stack_room(4 * LANES)


@njit
def load_part(base: Any, index: int, count: int) -> Any:
    """The first `count` lanes of `load`; the others are zero."""
    room = _vector_room()
    for lane in range(LANES):
        write_i32(room, lane, np.int32(0))
    _copy(base, room, address_of(base, index), count)
    return load(like(base, room), 0)


@njit
def store_part(base: Any, index: int, value: Any, count: int) -> None:
    """The first `count` lanes of `store`."""
    room = _vector_room()
    store(like(base, room), 0, value)
    _copy(base, address_of(base, index), room, count)


@njit
def _copy(base: Any, target: int, source: int, count: int) -> None:
    for lane in range(count):
        if is_bf16(base):
            write_i16(target, lane, read_i16(source, lane))
        else:
            write_i32(target, lane, read_i32(source, lane))
