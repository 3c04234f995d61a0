"""One byte further: what every configuration of a state becomes, and the state that they make together.

A configuration is only made if a text leads from it to the end, so every state does. Where that depends on a
text that was left out (see `simplified`), the step is a `SUSPECT` and the byte must be looked at again with
the text.
"""

from __future__ import annotations

import numpy as np

from treille.runtime.grammar.store import Int64s, inner, int64
from treille.runtime.schema.machine import arrays, gaps, objects, texts
from treille.runtime.schema.machine.beginnings import (
    after_value,
    begin_string,
    begin_value,
    emit,
    ended,
    gap_after,
    gap_done,
    replaced,
    top,
)
from treille.runtime.schema.machine.escapes import BEGUN, after_escape, escape_is_live, may_escape
from treille.runtime.schema.machine.memory import (
    Machine,
    nodes_of,
    row_of,
    tables_of,
    troubled,
)
from treille.runtime.schema.machine.rows import (
    A_COLUMN,
    ARRAY,
    B_COLUMN,
    BYTE,
    COLON_AT,
    EMPTY_TEXT,
    ENDED,
    FOLLOWED,
    H_CAPTURED,
    H_GAPS,
    H_SUSPECT,
    HIGH_COLUMN,
    JOINED,
    KEY_AT,
    LITERAL_AT,
    LOW_COLUMN,
    NONE,
    NUMBER_AT,
    O_TABLE,
    OBJECT,
    OPENED,
    R_OPTIONS,
    REGION_AT,
    REGION_COLUMNS,
    T_IS_KEYS,
    T_REGIONS,
    UNKNOWN,
    VALUE_AT,
    WORD_AT,
    extended,
)
from treille.runtime.schema.machine.words import (
    NUM_SYMBOLS,
    number_symbol,
    word_byte,
    word_length,
)

_QUOTE, _BACKSLASH, _COMMA, _COLON = 0x22, 0x5C, 0x2C, 0x3A
_CURLY, _UNCURLY, _SQUARE, _UNSQUARE = 0x7B, 0x7D, 0x5B, 0x5D


@inner
def _begin_item(
    machine: Machine, out: Int64s, stack: int, captured: int, byte: int
) -> None:  # pragma: no cover
    """The next item of an array, each way it may be: its first byte, or where `byte` is a comma the gap
    before it. `captured` does not have the byte yet."""
    frame = top(machine, stack)
    is_unique = arrays.is_unique(machine, frame)
    if byte == _COMMA and is_unique and arrays.left_out(machine, frame):
        tables_of(machine)[H_SUSPECT] = 1
        return
    at = arrays.options_of_item(machine, frame)
    seen = arrays.seen_items(machine, frame)
    for option in range(tables_of(machine)[at]):
        value, marks = (
            int64(tables_of(machine)[at + 1 + 2 * option]),
            int64(tables_of(machine)[at + 2 + 2 * option]),
        )
        following = arrays.after_item(machine, frame, marks)
        if following < 0:
            continue
        begun = int64(captured)
        if is_unique and captured == NONE:
            # What others capture is captured with them, so that all have the same text and can be joined.
            begun = int64(tables_of(machine)[H_CAPTURED])
        if byte == _COMMA:
            begun = extended(machine, begun, byte)
        if is_unique:
            begun = int64(EMPTY_TEXT if begun == NONE else begun)
            following = arrays.with_items(machine, following, seen, begun, int64(captured == NONE))
        above = replaced(machine, stack, following)
        if byte == _COMMA:
            place = row_of(machine, VALUE_AT, value, gaps.AFTER_COMMA * gaps.PLACES, NONE, NONE)
            emit(machine, out, place, above, begun, NONE)
        else:
            begin_value(machine, out, value, above, extended(machine, begun, byte), byte)


@inner
def _close(machine: Machine, out: Int64s, stack: int, captured: int, byte: int) -> None:  # pragma: no cover
    """The end of the object or array on top, if it may end. `captured` has the byte already."""
    frame = top(machine, stack)
    if nodes_of(machine)[frame, 0] == OBJECT:
        if byte != _UNCURLY or not objects.may_close(machine, frame):
            return
    elif byte != _UNSQUARE or not arrays.may_close(machine, frame):
        return
    below = int64(nodes_of(machine)[stack, B_COLUMN])
    while below != NONE and nodes_of(machine)[below, 0] == JOINED:
        one, text = after_value(machine, int64(nodes_of(machine)[below, A_COLUMN]), captured)
        ended(machine, out, one, text)
        below = int64(nodes_of(machine)[below, B_COLUMN])
        if below == NONE:
            return
    below, text = after_value(machine, below, captured)
    ended(machine, out, below, text)


@inner
def _is_past_choice(machine: Machine, gap: int) -> bool:  # pragma: no cover
    """Whether white space at a gap does not tell any more what comes behind it."""
    return gap % gaps.PLACES != 0 or tables_of(machine)[H_GAPS] != gaps.FIXED


@inner
def _may_close(machine: Machine, stack: int) -> bool:  # pragma: no cover
    """Whether the object or array on top may end."""
    frame = top(machine, stack)
    if nodes_of(machine)[frame, 0] == OBJECT:
        return objects.may_close(machine, frame)
    return arrays.may_close(machine, frame)


@inner
def _may_go_on(machine: Machine, stack: int) -> bool:  # pragma: no cover
    """Whether the object or array on top may have another member."""
    frame = top(machine, stack)
    if nodes_of(machine)[frame, 0] == OBJECT:
        return objects.may_go_on(machine, frame)
    return arrays.may_go_on(machine, frame)


@inner
def _followed(
    machine: Machine, out: Int64s, gap: int, stack: int, captured: int, byte: int
) -> None:  # pragma: no cover
    """After a value in an object or array. `captured` does not have the byte yet."""
    more = extended(machine, captured, byte)
    following = gap_after(machine, gap, stack, byte)
    # Fixed white space after a value is what comes before the end.
    if following >= 0 and (_is_past_choice(machine, gap) or _may_close(machine, stack)):
        emit(machine, out, row_of(machine, FOLLOWED, following, NONE, NONE, NONE), stack, more, NONE)
    if byte == _COMMA:
        if gap % gaps.PLACES and tables_of(machine)[H_GAPS] == gaps.FIXED:
            return
        frame = top(machine, stack)
        if nodes_of(machine)[frame, 0] == ARRAY:
            _begin_item(machine, out, stack, captured, byte)
        elif objects.may_go_on(machine, frame):
            place = row_of(machine, KEY_AT, gaps.AFTER_COMMA * gaps.PLACES, NONE, NONE, NONE)
            emit(machine, out, place, stack, more, NONE)
    elif (byte == _UNCURLY or byte == _UNSQUARE) and gap_done(machine, gap, stack):
        _close(machine, out, stack, more, byte)


@inner
def _begin_key(machine: Machine, out: Int64s, stack: int, captured: int) -> None:  # pragma: no cover
    """After the quote of a key."""
    frame = top(machine, stack)
    table = int64(tables_of(machine)[nodes_of(machine)[frame, A_COLUMN] + O_TABLE])
    begin_string(machine, out, table, stack, captured, objects.others_of(machine, frame))


@inner
def _opened(
    machine: Machine, out: Int64s, gap: int, stack: int, captured: int, byte: int
) -> None:  # pragma: no cover
    """After { or [. `captured` does not have the byte yet."""
    following = gap_after(machine, gap, stack, byte)
    if following >= 0:
        # Fixed white space after an opening is what comes before a member.
        if _is_past_choice(machine, gap) or _may_go_on(machine, stack):
            place = row_of(machine, OPENED, following, NONE, NONE, NONE)
            emit(machine, out, place, stack, extended(machine, captured, byte), NONE)
    elif byte == _UNCURLY or byte == _UNSQUARE:
        if not (gap % gaps.PLACES and tables_of(machine)[H_GAPS] == gaps.FIXED):
            _close(machine, out, stack, extended(machine, captured, byte), byte)
    elif gap_done(machine, gap, stack):
        if nodes_of(machine)[top(machine, stack), 0] == ARRAY:
            _begin_item(machine, out, stack, captured, byte)
        elif byte == _QUOTE:
            _begin_key(machine, out, stack, extended(machine, captured, byte))


@inner
def _text_of(machine: Machine, captured: int, mark: int) -> int:  # pragma: no cover
    """The decoded text between a mark and the end of what is captured, as a list of bytes from the first."""
    nodes = nodes_of(machine)
    count = 0
    node = captured
    while node != mark and node > EMPTY_TEXT:
        count += 1
        node = nodes[node, B_COLUMN]
    raw = np.empty(count, np.int64)
    node = captured
    for index in range(count - 1, -1, -1):
        raw[index] = nodes[node, A_COLUMN]
        node = nodes[node, B_COLUMN]
    decoded = np.empty(count + 1, np.int64)
    size, escape = 0, int64(0)
    for byte in raw:
        if escape == 0:
            if byte == _BACKSLASH:
                escape = int64(BEGUN)
            else:
                decoded[size] = byte
                size += 1
            continue
        escape, point = after_escape(escape, byte)
        if point < 0:
            continue
        if point < 0x80:
            decoded[size] = point
            size += 1
            continue
        tail = 1 if point < 0x800 else (2 if point < 0x10000 else 3)
        decoded[size] = (0xF00 >> tail) & 0xFF | (point >> (6 * tail))
        size += 1
        for rest in range(tail - 1, -1, -1):
            decoded[size] = 0x80 | ((point >> (6 * rest)) & 0x3F)
            size += 1
    text = int64(EMPTY_TEXT)
    for index in range(size - 1, -1, -1):
        text = row_of(machine, BYTE, decoded[index], text, NONE, NONE)
    return text


@inner
def _end_key(
    machine: Machine, out: Int64s, place: int, stack: int, captured: int
) -> None:  # pragma: no cover
    """The closing quote of a key. `captured` does not have it yet."""
    nodes, tables = nodes_of(machine), tables_of(machine)
    frame = top(machine, stack)
    table = int64(nodes[place, A_COLUMN])
    is_literal = nodes[place, 0] == LITERAL_AT
    text, following = int64(NONE), int64(NONE)
    if is_literal:
        literal = texts.exact_literal(machine, place)
        if literal < 0 or not texts.literal_allowed(machine, table, literal, frame):
            return
        key = texts.label_of(machine, table, literal)
        at = objects.options_of_key(machine, frame, key)
        following = objects.after_key(machine, frame, key)
    else:
        if not texts.region_accepts(machine, place):
            return
        if objects.has_unknown(machine, frame):
            tables_of(machine)[H_SUSPECT] = 1
            return
        mark = texts.mark_of_text(machine, place)
        text = int64(UNKNOWN) if captured == UNKNOWN else _text_of(machine, captured, mark)
        if mark == EMPTY_TEXT:
            captured = int64(NONE)
        at = int64(tables[tables[table + T_REGIONS] + nodes[place, B_COLUMN] * REGION_COLUMNS + R_OPTIONS])
    more = extended(machine, captured, _QUOTE)
    for option in range(tables[at]):
        value, marks = int64(tables[at + 1 + 2 * option]), int64(tables[at + 2 + 2 * option])
        if not is_literal:
            if not objects.others_allowed(machine, frame, marks):
                continue
            following = objects.after_other(machine, frame, text, marks)
        colon = row_of(machine, COLON_AT, value, gaps.BEFORE_COLON * gaps.PLACES, NONE, NONE)
        emit(machine, out, colon, replaced(machine, stack, following), more, NONE)


@inner
def _end_string(
    machine: Machine, out: Int64s, place: int, stack: int, captured: int
) -> None:  # pragma: no cover
    """The closing quote of a string value. `captured` does not have it yet."""
    table = int64(nodes_of(machine)[place, A_COLUMN])
    if nodes_of(machine)[place, 0] == LITERAL_AT:
        literal = texts.exact_literal(machine, place)
        if literal < 0 or texts.label_of(machine, table, literal) == 0:
            return
    elif not texts.region_accepts(machine, place):
        return
    stack, captured = after_value(machine, stack, extended(machine, captured, _QUOTE))
    ended(machine, out, stack, captured)


@inner
def _in_string(
    machine: Machine, out: Int64s, place: int, stack: int, captured: int, escape: int, byte: int
) -> None:  # pragma: no cover
    """Within a string or key."""
    frame = top(machine, stack)
    following = int64(-1)
    if escape == 0:
        if byte == _QUOTE:
            if tables_of(machine)[nodes_of(machine)[place, A_COLUMN] + T_IS_KEYS]:
                _end_key(machine, out, place, stack, captured)
            else:
                _end_string(machine, out, place, stack, captured)
            return
        if byte == _BACKSLASH:
            if texts.is_between(machine, place) and escape_is_live(machine, place, frame, BEGUN):
                emit(machine, out, place, stack, extended(machine, captured, byte), BEGUN)
            return
        if byte < 0x20:
            return
        following = texts.advanced(machine, place, byte)
    else:
        further, point = after_escape(escape, byte)
        if further < 0:
            return
        if further > 0:
            if escape_is_live(machine, place, frame, further):
                emit(machine, out, place, stack, extended(machine, captured, byte), further)
            return
        if not may_escape(machine, escape, point):
            return
        following = texts.after_character(machine, place, point)
    if following >= 0 and texts.is_live(machine, following, frame):
        emit(machine, out, following, stack, extended(machine, captured, byte), NONE)


@inner
def _in_number(
    machine: Machine, out: Int64s, place: int, stack: int, captured: int, byte: int
) -> None:  # pragma: no cover
    """Within a number, or behind it: only what follows tells that it has ended."""
    row = nodes_of(machine)[place]
    automaton, state = int64(row[A_COLUMN]), int64(row[B_COLUMN])
    symbol = number_symbol(byte)
    if symbol >= 0:
        following = int64(tables_of(machine)[automaton + 1 + state * NUM_SYMBOLS + symbol])
        if following >= 0:
            place = row_of(machine, NUMBER_AT, automaton, following, NONE, NONE)
            emit(machine, out, place, stack, extended(machine, captured, byte), NONE)
        return
    if not number_ends(machine, automaton, state):
        return
    if stack == NONE:
        _spaced(machine, out, gaps.AT_END * gaps.PLACES, byte)
        return
    stack, captured = after_value(machine, stack, captured)
    if troubled(machine):  # there may be no stack
        return
    _followed(machine, out, gaps.AFTER_VALUE * gaps.PLACES, stack, captured, byte)


@inner
def number_ends(machine: Machine, automaton: int, state: int) -> bool:  # pragma: no cover
    """Whether a number may end in a state of its automaton."""
    count = tables_of(machine)[automaton]
    return tables_of(machine)[automaton + 1 + count * NUM_SYMBOLS + state] != 0


@inner
def _spaced(machine: Machine, out: Int64s, gap: int, byte: int) -> None:  # pragma: no cover
    """White space after the whole text."""
    following = gap_after(machine, gap, NONE, byte)
    if following >= 0:
        emit(machine, out, row_of(machine, ENDED, following, NONE, NONE, NONE), NONE, NONE, NONE)


@inner
def go_on(machine: Machine, out: Int64s, config: int, byte: int) -> None:  # pragma: no cover
    """What a configuration becomes with one more byte."""
    row = nodes_of(machine)[config]
    place, stack, captured, escape = row[A_COLUMN], row[B_COLUMN], row[LOW_COLUMN], row[HIGH_COLUMN]
    row = nodes_of(machine)[place]
    kind, a, b = row[0], row[A_COLUMN], row[B_COLUMN]
    if kind == LITERAL_AT or kind == REGION_AT:
        _in_string(machine, out, place, stack, captured, escape, byte)
    elif kind == NUMBER_AT:
        _in_number(machine, out, place, stack, captured, byte)
    elif kind == FOLLOWED:
        _followed(machine, out, a, stack, captured, byte)
    elif kind == OPENED:
        _opened(machine, out, a, stack, captured, byte)
    elif kind == VALUE_AT:
        more = extended(machine, captured, byte)
        following = gap_after(machine, b, stack, byte)
        if following >= 0:
            emit(machine, out, row_of(machine, VALUE_AT, a, following, NONE, NONE), stack, more, NONE)
        elif gap_done(machine, b, stack):
            begin_value(machine, out, a, stack, more, byte)
    elif kind == KEY_AT:
        more = extended(machine, captured, byte)
        following = gap_after(machine, a, stack, byte)
        if following >= 0:
            emit(machine, out, row_of(machine, KEY_AT, following, NONE, NONE, NONE), stack, more, NONE)
        elif byte == _QUOTE and gap_done(machine, a, stack):
            _begin_key(machine, out, stack, more)
    elif kind == COLON_AT:
        more = extended(machine, captured, byte)
        following = gap_after(machine, b, stack, byte)
        if following >= 0:
            emit(machine, out, row_of(machine, COLON_AT, a, following, NONE, NONE), stack, more, NONE)
        elif byte == _COLON and gap_done(machine, b, stack):
            place = row_of(machine, VALUE_AT, a, gaps.AFTER_COLON * gaps.PLACES, NONE, NONE)
            emit(machine, out, place, stack, more, NONE)
    elif kind == WORD_AT:
        if word_byte(a, b) == byte:
            more = extended(machine, captured, byte)
            if b + 1 < word_length(a):
                emit(machine, out, row_of(machine, WORD_AT, a, b + 1, NONE, NONE), stack, more, NONE)
            else:
                stack, more = after_value(machine, stack, more)
                ended(machine, out, stack, more)
    elif kind == ENDED:
        _spaced(machine, out, a, byte)
