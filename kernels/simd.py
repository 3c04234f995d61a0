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
from numba.extending import intrinsic, models, register_model

from treille.kernels.instructions import (
    F32,
    F32X16,
    F64,
    F64X8,
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
    double_two_to,
    folded,
    load_at,
    narrowed,
    splat,
    store_at,
    two_to,
    widened,
)

Kinds = Any  # numba types of an operation's arguments
_numba: Any = types
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


def _element(builder: Builder, kind: Any, base: Value, index: Value) -> Value:
    width = ir.Constant(I64, 4 if kind == f32_pointer else 2)
    return builder.add(builder.ptrtoint(base, I64), builder.mul(index, width))


def _typed_pointer(builder: Builder, kind: Any, address: Value) -> Value:
    return builder.inttoptr(address, (F32 if kind == f32_pointer else I16).as_pointer())


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
    return widened(builder, load_at(builder, address, I16X16))


@operation(lambda base, index, value: types.void(base, types.int64, f32x16))
def store(builder: Builder, kinds: Kinds, base: Value, index: Value, value: Value) -> None:
    """Writes sixteen lanes to elements `index` to `index + 15`, rounded where the memory is bfloat16."""
    address = _element(builder, kinds[0], base, index)
    store_at(builder, address, value if kinds[0] == f32_pointer else narrowed(builder, value))


@operation(lambda target, low, high: types.void(types.int64, types.int64, types.int64))
def store_pairs(builder: Builder, kinds: Kinds, target: Value, low: Value, high: Value) -> None:
    """Sixteen words at address `target`: bfloat16 from address `low` beside those from address `high`."""
    lower, upper = (builder.zext(load_at(builder, half, I16X16), I32X16) for half in (low, high))
    store_at(builder, target, builder.or_(lower, builder.shl(upper, constant(I32X16, 16))))


@operation(lambda address: types.void(types.int64))
def prefetch(builder: Builder, kinds: Kinds, address: Value) -> None:
    """See `instructions.ask_for`."""
    ask_for(builder, address)


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
    return builder.atomic_rmw("add", place, amount, "acq_rel")


@operation(lambda address: types.int64(types.int64))
def read_shared(builder: Builder, kinds: Kinds, address: Value) -> Value:
    """The int64 at `address`, which other threads change, and after it all that they wrote before."""
    return builder.load_atomic(builder.inttoptr(address, I64.as_pointer()), "acquire", 8)


@operation(lambda function, block: types.void(types.int64, types.int64))
def call_worker(builder: Builder, kinds: Kinds, function: Value, block: Value) -> None:
    """Calls the worker at an address with its block (see `parallel.py`)."""
    kind = ir.FunctionType(ir.VoidType(), [I64])
    builder.call(builder.inttoptr(function, kind.as_pointer()), [block])


@operation(lambda function: types.int64(types.int64))
def call_number(builder: Builder, kinds: Kinds, function: Value) -> Value:
    """What the C function `int f(void)` at an address returns."""
    kind = ir.FunctionType(I32, [])
    return builder.sext(builder.call(builder.inttoptr(function, kind.as_pointer()), []), I64)


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
    """2 ** x: exactly 0 from -126.5 downwards, the value at 127 above it."""
    return two_to(builder, x)


@operation(lambda value: f32x16(types.float32))
def spread(builder: Builder, kinds: Kinds, value: Value) -> Value:
    """All lanes equal to a float32."""
    return splat(builder, value)


@operation(lambda value: types.float32(f32x16))
def total(builder: Builder, kinds: Kinds, value: Value) -> Value:
    """The sum of the lanes."""
    return folded(builder, value, builder.fadd)


@operation(lambda value: types.float32(f32x16))
def largest(builder: Builder, kinds: Kinds, value: Value) -> Value:
    """The greatest lane; NaNs are passed over."""
    return folded(builder, value, lambda a, b: call(builder, "llvm.maxnum.v16f32", F32X16, a, b))


@operation(lambda base, value: f32x16(base, f32x16))
def rounded(builder: Builder, kinds: Kinds, base: Value, value: Value) -> Value:
    """The value as it would be read back from memory like `base`."""
    return value if kinds[0] == f32_pointer else widened(builder, narrowed(builder, value))


@operation(lambda value, low, high, other: f32x16(f32x16, types.int64, types.int64, f32x16))
def keep(builder: Builder, kinds: Kinds, value: Value, low: Value, high: Value, other: Value) -> Value:
    """Lanes `low <= lane < high` of `value`, the others from `other`."""
    lanes = ir.Constant(I32X16, list(range(LANES)))
    first, last = (splat(builder, builder.trunc(bound, I32)) for bound in (low, high))
    inside = builder.and_(builder.icmp_signed(">=", lanes, first), builder.icmp_signed("<", lanes, last))
    return builder.select(inside, value, other)


@operation(_binary)
def maximum_or_nan(builder: Builder, kinds: Kinds, a: Value, b: Value) -> Value:
    """The greater of each pair of lanes; NaN where either is."""
    unordered = builder.fcmp_unordered("uno", a, b)
    greater = builder.select(builder.fcmp_ordered(">", a, b), a, b)
    return builder.select(unordered, constant(F32X16, float("nan")), greater)


@operation(lambda value: types.boolean(f32x16))
def any_nan(builder: Builder, kinds: Kinds, value: Value) -> Value:
    """Whether a lane is NaN."""
    lanes = builder.fcmp_unordered("uno", value, value)
    bits = builder.bitcast(lanes, I16)
    return builder.icmp_unsigned("!=", bits, ir.Constant(I16, 0))


@operation(lambda value, bits, other: f32x16(f32x16, types.int64, f32x16))
def chosen(builder: Builder, kinds: Kinds, value: Value, bits: Value, other: Value) -> Value:
    """Lane i of `value` where bit i of `bits` is set, else of `other`."""
    lanes = builder.bitcast(builder.trunc(bits, I16), ir.VectorType(ir.IntType(1), LANES))
    return builder.select(lanes, value, other)


@operation(
    lambda base, top, scale, count: types.float64(f32_pointer, types.float64, types.float64, types.int64)
)
def weight_of(builder: Builder, kinds: Kinds, base: Value, top: Value, scale: Value, count: Value) -> Value:
    """The sum of 2 ** ((x - top) * scale), in float64, over the first `count` (a multiple of 16) numbers."""
    half = LANES // 2
    slots = [code.alloca_once(builder, F64X8) for _ in range(2)]
    for slot in slots:
        builder.store(constant(F64X8, 0.0), slot)
    start = builder.ptrtoint(base, I64)
    tops, scales = (_eight(builder, value) for value in (top, scale))
    with code.for_range(builder, builder.udiv(count, ir.Constant(I64, LANES)), intp=I64) as loop:
        values = load_at(builder, builder.add(start, builder.mul(loop.index, ir.Constant(I64, 64))), F32X16)
        for number, slot in enumerate(slots):
            lanes = ir.Constant(ir.VectorType(I32, half), list(range(number * half, (number + 1) * half)))
            part = builder.fpext(builder.shuffle_vector(values, values, lanes), F64X8)
            weight = double_two_to(builder, builder.fmul(builder.fsub(part, tops), scales))
            builder.store(builder.fadd(builder.load(slot), weight), slot)
    sums = builder.fadd(*(builder.load(slot) for slot in slots))
    for step in (4, 2, 1):
        order = ir.Constant(ir.VectorType(I32, half), [(lane + step) % half for lane in range(half)])
        sums = builder.fadd(sums, builder.shuffle_vector(sums, sums, order))
    return builder.extract_element(sums, ir.Constant(I32, 0))


def _eight(builder: Builder, scalar: Value) -> Value:
    empty = ir.Constant(F64X8, ir.Undefined)
    first = builder.insert_element(empty, scalar, ir.Constant(I32, 0))
    return builder.shuffle_vector(
        first, empty, ir.Constant(ir.VectorType(I32, LANES // 2), [0] * (LANES // 2))
    )


# --- vectors at the end of a row, whose length need not be a multiple of sixteen ---

_vector_room = stack_room(4 * LANES)


@njit(forceinline=True)
def load_some(base: Any, index: int, count: int) -> Any:
    """`load`, but no more than `count` elements are read; the lanes beyond are zero."""
    return load(base, index) if count >= LANES else _load_few(base, index, count)


@njit(forceinline=True)
def store_some(base: Any, index: int, value: Any, count: int) -> None:
    """`store`, but no more than `count` elements are written."""
    if count >= LANES:
        store(base, index, value)
    else:
        _store_few(base, index, value, count)


@njit(forceinline=True)
def store_as(kind: Any, out: int, wide: int, index: int, value: Any, count: int) -> None:
    """`store_some` to address `out` in the precision of `kind`; with `wide` as float32, the same numbers."""
    if wide:
        store_some(f32_at(out), index, rounded(like(kind, 0), value), count)
    else:
        store_some(like(kind, out), index, value, count)


@njit
def _load_few(base: Any, index: int, count: int) -> Any:
    room = _vector_room()
    for lane in range(LANES):
        write_i32(room, lane, np.int32(0))
    _copy(base, room, address_of(base, index), count)
    return load(like(base, room), 0)


@njit
def _store_few(base: Any, index: int, value: Any, count: int) -> None:
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
