"""Sixteen float32 lanes as a numba type, and the few operations that the kernels are written in.

Loops over plain scalars are vectorised by LLVM at its own discretion, and a tile of accumulators kept in
an array stays in memory. Vectors as values avoid both. On a machine with narrower registers LLVM splits
each of them, so nothing here depends on AVX-512.

Memory is addressed by pointers whose element type says how a lane is stored: `CPointer(float32)` as it
is, `CPointer(uint16)` as bfloat16, the upper half of a float32, rounded to nearest even.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import Signature, signature
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

LANES = 16

I16 = ir.IntType(16)
I32 = ir.IntType(32)
I64 = ir.IntType(64)
F32 = ir.FloatType()
F64 = ir.DoubleType()
F32X16 = ir.VectorType(F32, LANES)
I32X16 = ir.VectorType(I32, LANES)
I16X16 = ir.VectorType(I16, LANES)

# llvmlite and numba carry no annotations: their values are Any, and these names say which are meant.
Builder = Any
Value = Any
Kinds = Any  # numba types of an operation's arguments
_numba: Any = types
code: Any = cgutils

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


@register_model(_F32x16)
class _F32x16Model(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Any) -> None:
        super().__init__(dmm, fe_type, F32X16)  # type: ignore[no-untyped-call]


f32x16 = _F32x16()
f32_pointer, bf16_pointer = _numba.CPointer(types.float32), _numba.CPointer(types.uint16)


def operation(typed: Callable[..., Any]) -> Callable[[Callable[..., Value]], Any]:
    """Makes a function that compiled code can call from one that writes LLVM instructions.

    `typed(*argument types)` gives numba's signature; the function gets the builder, the argument types and
    the arguments' values, and returns a value, or None for an operation without one.
    """

    def decorate(generate: Callable[..., Value]) -> Any:
        def define(typingctx: Any, *kinds: Any) -> Any:
            def emit(context: Any, builder: Builder, typed_as: Any, args: Any) -> Value:
                result = generate(builder, typed_as.args, *args)
                return context.get_dummy_value() if result is None else result

            return typed(*kinds), emit

        define.__name__, define.__doc__ = generate.__name__, generate.__doc__
        first, _, *arguments = signature(generate).parameters.values()
        define.__signature__ = Signature([first, *arguments])  # type: ignore[attr-defined]
        return intrinsic(define)

    return decorate


# --- for functions that write instructions ---


def constant(vector: Any, value: float) -> Value:
    return ir.Constant(vector, [value] * vector.count)


def splat(builder: Builder, scalar: Value) -> Value:
    """All lanes equal to `scalar` (float32 or int32)."""
    empty = ir.Constant(ir.VectorType(scalar.type, LANES), ir.Undefined)
    first = builder.insert_element(empty, scalar, ir.Constant(I32, 0))
    return builder.shuffle_vector(first, empty, ir.Constant(I32X16, [0] * LANES))


def call(builder: Builder, name: str, result: Any, *args: Value) -> Value:
    """Calls one of LLVM's intrinsic functions."""
    kind = ir.FunctionType(result, [arg.type for arg in args])
    return builder.call(code.get_or_insert_function(builder.module, kind, name), args)


def load_at(builder: Builder, address: Value, kind: Any) -> Value:
    """An unaligned load from an int64 address."""
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=2 if kind is I16X16 else 4)


def store_at(builder: Builder, address: Value, value: Value) -> None:
    """An unaligned store to an int64 address."""
    place = builder.inttoptr(address, value.type.as_pointer())
    builder.store(value, place, align=2 if value.type == I16X16 else 4)


def _element(builder: Builder, kind: Any, base: Value, index: Value) -> Value:
    width = ir.Constant(I64, 4 if kind == f32_pointer else 2)
    return builder.add(builder.ptrtoint(base, I64), builder.mul(index, width))


def _typed_pointer(builder: Builder, kind: Any, address: Value) -> Value:
    return builder.inttoptr(address, (F32 if kind == f32_pointer else I16).as_pointer())


def _widened(builder: Builder, halves: Value) -> Value:
    """bfloat16 bits to float32, exactly."""
    return builder.bitcast(builder.shl(builder.zext(halves, I32X16), constant(I32X16, 16)), F32X16)


def _narrowed(builder: Builder, value: Value) -> Value:
    """float32 to bfloat16 bits, to nearest even; a NaN stays one."""
    bits = builder.bitcast(value, I32X16)
    odd = builder.and_(builder.lshr(bits, constant(I32X16, 16)), constant(I32X16, 1))
    rounded = builder.add(builder.add(bits, constant(I32X16, 0x7FFF)), odd)
    is_nan = builder.fcmp_unordered("uno", value, value)
    kept = builder.select(is_nan, builder.or_(bits, constant(I32X16, 0x400000)), rounded)
    return builder.trunc(builder.lshr(kept, constant(I32X16, 16)), I16X16)


def _folded(builder: Builder, value: Value, join: Callable[[Value, Value], Value]) -> Value:
    """One scalar from sixteen lanes, by halving: the same order on every machine."""
    for half in (8, 4, 2, 1):
        order = ir.Constant(I32X16, [(lane + half) % LANES for lane in range(LANES)])
        value = join(value, builder.shuffle_vector(value, value, order))
    return builder.extract_element(value, ir.Constant(I32, 0))


# --- memory ---


@operation(lambda address: f32_pointer(types.int64))
def f32_at(builder: Builder, kinds: Kinds, address: Value) -> Value:
    """The float32 pointer at an int64 address."""
    return _typed_pointer(builder, f32_pointer, address)


@operation(lambda address: bf16_pointer(types.int64))
def bf16_at(builder: Builder, kinds: Kinds, address: Value) -> Value:
    """The bfloat16 pointer at an int64 address."""
    return _typed_pointer(builder, bf16_pointer, address)


@operation(lambda base, address: base(base, types.int64))
def like(builder: Builder, kinds: Kinds, base: Value, address: Value) -> Value:
    """A pointer of `base`'s type at an int64 address: how a kernel written once serves both dtypes."""
    return _typed_pointer(builder, kinds[0], address)


@operation(lambda base: types.boolean(base))
def is_bf16(builder: Builder, kinds: Kinds, base: Value) -> Value:
    """Whether the pointer's elements are bfloat16; known when compiled."""
    return ir.Constant(ir.IntType(1), int(kinds[0] == bf16_pointer))


@operation(lambda base, index: types.int64(base, types.int64))
def address_of(builder: Builder, kinds: Kinds, base: Value, index: Value) -> Value:
    """The int64 address of element `index`."""
    return _element(builder, kinds[0], base, index)


@operation(lambda base, index: f32x16(base, types.int64))
def load(builder: Builder, kinds: Kinds, base: Value, index: Value) -> Value:
    """Elements `index` to `index + 15`, as float32."""
    address = _element(builder, kinds[0], base, index)
    if kinds[0] == f32_pointer:
        return load_at(builder, address, F32X16)
    return _widened(builder, load_at(builder, address, I16X16))


@operation(lambda base, index, value: types.void(base, types.int64, f32x16))
def store(builder: Builder, kinds: Kinds, base: Value, index: Value, value: Value) -> None:
    """Writes sixteen lanes to elements `index` to `index + 15`, rounded where the memory is bfloat16."""
    address = _element(builder, kinds[0], base, index)
    store_at(builder, address, value if kinds[0] == f32_pointer else _narrowed(builder, value))


@operation(lambda target, low, high: types.void(types.int64, types.int64, types.int64))
def store_pairs(builder: Builder, kinds: Kinds, target: Value, low: Value, high: Value) -> None:
    """Sixteen words at address `target`: bfloat16 from address `low` beside those from address `high`."""
    lower, upper = (builder.zext(load_at(builder, half, I16X16), I32X16) for half in (low, high))
    store_at(builder, target, builder.or_(lower, builder.shl(upper, constant(I32X16, 16))))


def _scalar(kind: Any, number: Any) -> tuple[Any, Any]:
    """Operations that read and write one scalar, `index` scalars beyond an int64 address."""

    @operation(lambda address, index: number(types.int64, types.int64))
    def read(builder: Builder, kinds: Kinds, address: Value, index: Value) -> Value:
        return builder.load(builder.gep(builder.inttoptr(address, kind.as_pointer()), [index]))

    @operation(lambda address, index, value: types.void(types.int64, types.int64, number))
    def write(builder: Builder, kinds: Kinds, address: Value, index: Value, value: Value) -> None:
        builder.store(value, builder.gep(builder.inttoptr(address, kind.as_pointer()), [index]))

    return read, write


read_i64, write_i64 = _scalar(I64, types.int64)
read_i32, write_i32 = _scalar(I32, types.int32)
read_i16, write_i16 = _scalar(I16, types.int16)
read_f32, write_f32 = _scalar(F32, types.float32)
read_f64, write_f64 = _scalar(F64, types.float64)


@operation(lambda address, amount: types.int64(types.int64, types.int64))
def fetch_add(builder: Builder, kinds: Kinds, address: Value, amount: Value) -> Value:
    """Adds to the int64 at `address` as one step among threads; returns what stood there before."""
    place = builder.inttoptr(address, I64.as_pointer())
    return builder.atomic_rmw("add", place, amount, "monotonic")


def stack_room(size: int) -> Any:
    """An operation without arguments: the address of `size` uninitialised bytes of the calling function's
    stack, aligned to 64. Each place in the source that calls it has room of its own.
    """

    @operation(lambda: types.int64())
    def room(builder: Builder, kinds: Kinds) -> Value:
        with builder.goto_entry_block():  # numba's own helper would fill it with zeros
            place = builder.alloca(ir.ArrayType(ir.IntType(8), size))
        place.align = 64
        return builder.ptrtoint(place, I64)

    return room


# --- arithmetic ---


def _unary(kinds: Any) -> Any:
    return f32x16(f32x16)


def _binary(left: Any, right: Any) -> Any:
    return f32x16(f32x16, f32x16)


@operation(_binary)
def add(builder: Builder, kinds: Kinds, a: Value, b: Value) -> Value:
    return builder.fadd(a, b)


@operation(_binary)
def sub(builder: Builder, kinds: Kinds, a: Value, b: Value) -> Value:
    return builder.fsub(a, b)


@operation(_binary)
def mul(builder: Builder, kinds: Kinds, a: Value, b: Value) -> Value:
    return builder.fmul(a, b)


@operation(_binary)
def div(builder: Builder, kinds: Kinds, a: Value, b: Value) -> Value:
    return builder.fdiv(a, b)


@operation(_binary)
def maximum(builder: Builder, kinds: Kinds, a: Value, b: Value) -> Value:
    return call(builder, "llvm.maxnum.v16f32", F32X16, a, b)


@operation(lambda a, b, c: f32x16(f32x16, f32x16, f32x16))
def fma(builder: Builder, kinds: Kinds, a: Value, b: Value, c: Value) -> Value:
    """a * b + c, rounded once."""
    return call(builder, "llvm.fma.v16f32", F32X16, a, b, c)


@operation(_unary)
def exp2(builder: Builder, kinds: Kinds, x: Value) -> Value:
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


@operation(lambda value: f32x16(types.float32))
def spread(builder: Builder, kinds: Kinds, value: Value) -> Value:
    """All lanes equal to a float32."""
    return splat(builder, value)


@operation(lambda value: types.float32(f32x16))
def total(builder: Builder, kinds: Kinds, value: Value) -> Value:
    """The sum of the lanes."""
    return _folded(builder, value, builder.fadd)


@operation(lambda value: types.float32(f32x16))
def largest(builder: Builder, kinds: Kinds, value: Value) -> Value:
    """The greatest lane; NaNs are passed over."""
    return _folded(builder, value, lambda a, b: call(builder, "llvm.maxnum.v16f32", F32X16, a, b))


@operation(lambda base, value: f32x16(base, f32x16))
def rounded(builder: Builder, kinds: Kinds, base: Value, value: Value) -> Value:
    """The value as it would be read back from memory like `base`."""
    return value if kinds[0] == f32_pointer else _widened(builder, _narrowed(builder, value))


@operation(lambda value, low, high, other: f32x16(f32x16, types.int64, types.int64, f32x16))
def keep(builder: Builder, kinds: Kinds, value: Value, low: Value, high: Value, other: Value) -> Value:
    """Lanes `low <= lane < high` of `value`, the others from `other`."""
    lanes = ir.Constant(I32X16, list(range(LANES)))
    first, last = (splat(builder, builder.trunc(bound, I32)) for bound in (low, high))
    inside = builder.and_(builder.icmp_signed(">=", lanes, first), builder.icmp_signed("<", lanes, last))
    return builder.select(inside, value, other)


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
