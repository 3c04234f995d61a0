"""LLVM instructions on vectors of sixteen float32: what `simd.py` and `tile.py` write their code with."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import cgutils
from numba.core.registry import cpu_target

LANES = 16

I16 = ir.IntType(16)
I32 = ir.IntType(32)
I64 = ir.IntType(64)
F32 = ir.FloatType()
F64 = ir.DoubleType()
F32X16 = ir.VectorType(F32, LANES)
I32X16 = ir.VectorType(I32, LANES)
I16X16 = ir.VectorType(I16, LANES)
F64X8 = ir.VectorType(F64, 8)
I64X8 = ir.VectorType(I64, 8)

# llvmlite and numba carry few annotations: their values are Any, and these names say which are meant.
Builder = Any
Value = Any
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


# 2 ** f on [-0.5, 0.5] in float64: the series of exp(f log 2), to 4e-18.
DOUBLE_EXP2 = tuple(math.log(2) ** k / math.factorial(k) for k in range(14))
ROUNDER = 1.5 * 2.0**52


class _BFloat(ir.Type):  # type: ignore[misc]
    """LLVM's bfloat, which llvmlite has no class for."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat)

    def __hash__(self) -> int:
        return hash(_BFloat)


BFLOAT = _BFloat()
BF16X32 = ir.VectorType(BFLOAT, 2 * LANES)
DOT_NAME = "llvm.x86.avx512bf16.dpbf16ps.512"
NARROW_NAME = "llvm.x86.avx512bf16.cvtneps2bf16.512"


@lru_cache(maxsize=16)
def has_feature(name: str) -> bool:
    """Whether numba compiles for a processor with this feature (its own, unless NUMBA_CPU_* say another)."""
    features: str = cpu_target.target_context.codegen().magic_tuple()[2]
    return f"+{name}" in features.split(",")


@lru_cache(maxsize=1)
def has_bf16() -> bool:
    """Whether the processor rounds to bfloat16 and multiplies pairs of it (AVX512-BF16), and this LLVM
    knows the instructions by the types above.
    """
    if not has_feature("avx512bf16"):
        return False
    module = ir.Module()
    ir.Function(module, ir.FunctionType(F32X16, [F32X16, BF16X32, BF16X32]), DOT_NAME)
    ir.Function(module, ir.FunctionType(ir.VectorType(BFLOAT, LANES), [F32X16]), NARROW_NAME)
    try:
        llvm.parse_assembly(str(module)).verify()
    except RuntimeError:
        return False
    return True


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


def ask_for(builder: Builder, address: Value) -> None:
    """Asks for the cache line at an int64 address, to be read soon, no closer than the second-level cache."""
    read, level, data = (ir.Constant(I32, number) for number in (0, 2, 1))
    place = builder.inttoptr(address, ir.IntType(8).as_pointer())
    call(builder, "llvm.prefetch.p0", ir.VoidType(), place, read, level, data)


def widened(builder: Builder, halves: Value) -> Value:
    """bfloat16 bits to float32, exactly."""
    return builder.bitcast(builder.shl(builder.zext(halves, I32X16), constant(I32X16, 16)), F32X16)


def narrowed(builder: Builder, value: Value) -> Value:
    """float32 to bfloat16 bits, to nearest even; a NaN stays one. (The instruction, where there is one,
    takes what is too small for a normal number for 0.)
    """
    if has_bf16():
        return builder.bitcast(call(builder, NARROW_NAME, ir.VectorType(BFLOAT, LANES), value), I16X16)
    bits = builder.bitcast(value, I32X16)
    odd = builder.and_(builder.lshr(bits, constant(I32X16, 16)), constant(I32X16, 1))
    rounded = builder.add(builder.add(bits, constant(I32X16, 0x7FFF)), odd)
    is_nan = builder.fcmp_unordered("uno", value, value)
    kept = builder.select(is_nan, builder.or_(bits, constant(I32X16, 0x400000)), rounded)
    return builder.trunc(builder.lshr(kept, constant(I32X16, 16)), I16X16)


def double_two_to(builder: Builder, x: Value) -> Value:
    """2 ** x of eight float64 up to 0, to the last bit or two; exactly 0 from -1000 downwards."""

    def every(value: float) -> Value:
        return constant(F64X8, value)

    moved = builder.fadd(x, every(ROUNDER))  # its lowest bits are the nearest whole number
    part = builder.fsub(x, builder.fsub(moved, every(ROUNDER)))
    result = every(DOUBLE_EXP2[-1])
    for coefficient in DOUBLE_EXP2[-2::-1]:
        result = call(builder, "llvm.fma.v8f64", F64X8, result, part, every(coefficient))
    exponent = builder.shl(builder.bitcast(moved, I64X8), constant(I64X8, 52))
    power = builder.bitcast(builder.add(builder.bitcast(result, I64X8), exponent), F64X8)
    return builder.select(builder.fcmp_ordered(">", x, every(-1000.0)), power, every(0.0))


def folded(builder: Builder, value: Value, join: Callable[[Value, Value], Value]) -> Value:
    """One scalar from sixteen lanes, by halving: the same order on every machine."""
    for half in (8, 4, 2, 1):
        order = ir.Constant(I32X16, [(lane + half) % LANES for lane in range(LANES)])
        value = join(value, builder.shuffle_vector(value, value, order))
    return builder.extract_element(value, ir.Constant(I32, 0))


def two_to(builder: Builder, x: Value) -> Value:
    """2 ** x: exactly 0 from -126.5 downwards, the value at 127 above it."""
    floor, ceiling = constant(F32X16, -127.0), constant(F32X16, 127.0)
    bounded = call(builder, "llvm.maxnum.v16f32", F32X16, x, floor)
    bounded = call(builder, "llvm.minnum.v16f32", F32X16, bounded, ceiling)
    whole = call(builder, "llvm.rint.v16f32", F32X16, bounded)
    part = builder.fsub(bounded, whole)
    result = constant(F32X16, EXP2[-1])
    for coefficient in EXP2[-2::-1]:
        result = call(builder, "llvm.fma.v16f32", F32X16, result, part, constant(F32X16, coefficient))
    exponent = builder.add(builder.fptosi(whole, I32X16), constant(I32X16, 127))  # 0 means the number 0
    power = builder.bitcast(builder.shl(exponent, constant(I32X16, 23)), F32X16)
    return builder.fmul(result, power)
