"""White space between the tokens of a JSON text (RFC 8259, section 2): how much of it is allowed where.

A gap is one number: where it is (the place, times `PLACES`) and how far it has come.
"""

from __future__ import annotations

from treille.runtime.grammar.store import fixed, grafted, inner, int64
from treille.runtime.schema.machine.memory import (
    Machine,
    literals_of,
    tables_of,
)
from treille.runtime.schema.machine.rows import (
    H_FIXED,
    H_GAPS,
)

# Options in the head of `tables`.
COMPACT, FLEXIBLE, ANY, FIXED = 0, 1, 2, 3
PLACES = fixed(1 << 16)
# Where a gap is.
ROOT, AFTER_OPEN, AFTER_COMMA, AFTER_COLON, BEFORE_COLON, AFTER_VALUE, AT_END = range(7)

# Flexible white space: one or two blanks; or at most two line ends, and an indentation after them. How far
# it has come: blanks, or line ends (times `_LINES`), or blanks of the indentation past `_INDENT`.
MAX_BLANKS = fixed(2)
MAX_LINE_ENDS = fixed(2)
MAX_INDENT = fixed(40)
_LINES, _INDENT = fixed(128), fixed(1024)


@inner
def gap_after(machine: Machine, gap: int, depth: int, byte: int) -> int:  # pragma: no cover
    """The gap with one more byte of white space, or -1 where it may not be. `depth`: open objects and
    arrays."""
    if byte != 0x20 and byte != 0x0A and byte != 0x0D and byte != 0x09:
        return int64(-1)
    mode = tables_of(machine)[H_GAPS]
    place, done = gap // PLACES, gap % PLACES
    if mode == ANY:
        return int64(gap)
    if mode == COMPACT or place == ROOT or place == AT_END:
        return int64(-1)
    if mode == FIXED:
        return int64(gap + 1 if _fixed_byte(machine, place, depth, done) == byte else -1)
    if byte == 0x20 or byte == 0x09:
        if done < _LINES:
            return int64(gap + 1 if done < MAX_BLANKS else -1)
        if done < _INDENT:
            return int64(place * PLACES + _INDENT + 1)
        return int64(gap + 1 if done < _INDENT + MAX_INDENT else -1)
    return int64(gap + _LINES if done % _LINES == 0 and done < MAX_LINE_ENDS * _LINES else -1)


@inner
def gap_done(machine: Machine, gap: int, depth: int) -> bool:  # pragma: no cover
    """Whether the gap may end here."""
    return tables_of(machine)[H_GAPS] != FIXED or _fixed_byte(machine, gap // PLACES, depth, gap % PLACES) < 0


@grafted
def _fixed_byte(machine: Machine, place: int, depth: int, index: int) -> int:  # pragma: no cover
    """Byte `index` of the fixed white space at a place, or -1 past its end."""
    tables = tables_of(machine)
    first, size = int64(0), int64(0)
    lines = False
    if place == AFTER_COMMA:
        first, size, lines = int64(tables[H_FIXED + 1]), int64(tables[H_FIXED + 2]), True
    elif place == AFTER_COLON:
        first, size = int64(tables[H_FIXED + 3]), int64(tables[H_FIXED + 4])
    elif place == AFTER_OPEN:
        lines = True
    elif place == AFTER_VALUE:
        lines, depth = True, depth - 1
    if index < size:
        return int64(literals_of(machine)[first + index])
    if lines and tables[H_FIXED] >= 0 and index < size + 1 + depth * tables[H_FIXED]:
        return int64(0x0A if index == size else 0x20)
    return int64(-1)
