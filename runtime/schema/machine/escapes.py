"""Escapes within JSON strings (RFC 8259, section 7), and whether a character can still become of one.

An escape is one number: how far it has come (`PHASE` of it), and the digits so far. 0: none.
"""

from __future__ import annotations

from treille.runtime.grammar.store import grafted, inner, int64
from treille.runtime.schema.machine.memory import (
    Machine,
    tables_of,
)
from treille.runtime.schema.machine.rows import H_CODED, H_ESCAPED
from treille.runtime.schema.machine.texts import has_character

# How far it has come: after \, after \u and 0 to 3 digits, after a high surrogate, after its \, then as
# before.
BEGUN, HIGH, HIGH_BEGUN, LOW = 1, 6, 7, 8
PHASE = 16
_QUOTE, _BACKSLASH, _SLASH = 0x22, 0x5C, 0x2F


@grafted
def _digit(byte: int) -> int:  # pragma: no cover
    if 0x30 <= byte <= 0x39:
        return int64(byte - 0x30)
    lower = byte | 0x20
    return int64(lower - 0x57 if 0x61 <= lower <= 0x66 else -1)


@grafted
def _short(byte: int) -> int:  # pragma: no cover
    """The character that a backslash and this byte stand for, or -1."""
    if byte == _QUOTE or byte == _BACKSLASH or byte == _SLASH:
        return int64(byte)
    if byte == 0x62:
        return int64(8)
    if byte == 0x66:
        return int64(12)
    if byte == 0x6E:
        return int64(10)
    if byte == 0x72:
        return int64(13)
    return int64(9 if byte == 0x74 else -1)


@inner
def after_escape(escape: int, byte: int) -> tuple[int, int]:  # pragma: no cover
    """The escape after one more byte, and the character it has become: (-1, -1) where the byte may not be,
    (0, character) at the end, (escape, -1) before."""
    phase, value = escape % PHASE, escape // PHASE
    none = int64(-1)
    if phase == BEGUN:
        if byte == 0x75:
            return int64(BEGUN + 1), none
        point = _short(byte)
        return (int64(0) if point >= 0 else none), point
    if phase == HIGH:
        return int64(escape + 1 if byte == _BACKSLASH else -1), none
    if phase == HIGH_BEGUN:
        return int64(escape + 1 if byte == 0x75 else -1), none
    digit = _digit(byte)
    if digit < 0:
        return none, none
    value = value * 16 + digit
    if phase == BEGUN + 4:
        if 0xD800 <= value < 0xDC00:
            return int64(value * PHASE + HIGH), none
        if 0xDC00 <= value < 0xE000:
            return none, none
        return int64(0), int64(value)
    if phase == LOW + 3:
        high, low = value >> 16, value & 0xFFFF
        if not 0xDC00 <= low < 0xE000:
            return none, none
        return int64(0), int64(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))
    return int64(value * PHASE + phase + 1), none


@inner
def may_escape(machine: Machine, escape: int, point: int) -> bool:  # pragma: no cover
    """Whether a character may be written as the escape that this one has become with its last byte."""
    at = tables_of(machine)[H_ESCAPED if escape % PHASE == BEGUN else H_CODED]
    for index in range(tables_of(machine)[at]):
        if tables_of(machine)[at + 1 + 2 * index] <= point <= tables_of(machine)[at + 2 + 2 * index]:
            return True
    return False


@inner
def _has_escapable(
    machine: Machine, place: int, frame: int, which: int, first: int, last: int
) -> bool:  # pragma: no cover
    """Whether a character from `first` to `last` may follow that is among those of the head `which`."""
    at = tables_of(machine)[which]
    for index in range(tables_of(machine)[at]):
        begin = max(first, int64(tables_of(machine)[at + 1 + 2 * index]))
        end = min(last, int64(tables_of(machine)[at + 2 + 2 * index]))
        if begin <= end and has_character(machine, place, frame, begin, end):
            return True
    return False


@inner
def _has_coded(machine: Machine, place: int, frame: int, first: int, last: int) -> bool:  # pragma: no cover
    return _has_escapable(machine, place, frame, H_CODED, first, last)


@inner
def escape_is_live(machine: Machine, place: int, frame: int, escape: int) -> bool:  # pragma: no cover
    """Whether the escape can become a character that may follow."""
    phase, value = escape % PHASE, escape // PHASE
    if phase == BEGUN:
        return _has_escapable(machine, place, frame, H_ESCAPED, int64(0), int64(0x10FFFF))
    if phase < HIGH:
        shift = 4 * (BEGUN + 5 - phase)
        first, last = value << shift, ((value + 1) << shift) - 1
        if first < 0xD800 and _has_coded(machine, place, frame, first, min(last, int64(0xD7FF))):
            return True
        if last >= 0xE000 and _has_coded(machine, place, frame, max(first, int64(0xE000)), last):
            return True
        first, last = max(first, int64(0xD800)), min(last, int64(0xDBFF))
        if first > last:
            return False
        first, last = _paired(first, int64(0xDC00)), _paired(last, int64(0xDFFF))
        return _has_coded(machine, place, frame, first, last)
    if phase < LOW + 1:
        high = value
        return _has_coded(machine, place, frame, _paired(high, int64(0xDC00)), _paired(high, int64(0xDFFF)))
    digits = phase - LOW
    shift = 4 * (4 - digits)
    high = value >> (4 * digits)
    low = value & ((1 << (4 * digits)) - 1)
    first, last = max(low << shift, int64(0xDC00)), min(((low + 1) << shift) - 1, int64(0xDFFF))
    return first <= last and _has_coded(machine, place, frame, _paired(high, first), _paired(high, last))


@grafted
def _paired(high: int, low: int) -> int:  # pragma: no cover
    return int64(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))
