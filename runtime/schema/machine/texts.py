"""Strings and keys: one of certain literals, or any other text of a region, in any spelling.

A string is followed by its decoded value, in UTF-8, whether a character is written as itself or escaped. A
text of a region is none of the table's literals and none of the keys that were seen: where one of those
could still become of it, the place carries them along (an EXTRA).
"""

from __future__ import annotations

import numpy as np

from treille.runtime.grammar.store import ACCEPTS, MIDDLE, NODE, STATUS, TRACKERS, WHOLE, inner, int64
from treille.runtime.schema.machine.languages import text_after, text_after_class
from treille.runtime.schema.machine.memory import (
    NUM_CLASSES,
    Machine,
    literals_of,
    nodes_of,
    row_of,
    tables_of,
    text_facts_of,
    text_states_of,
    troubled,
)
from treille.runtime.schema.machine.objects import key_allowed
from treille.runtime.schema.machine.rows import (
    A_COLUMN,
    B_COLUMN,
    EMPTY_TEXT,
    EXTRA,
    H_NUM_STARTS,
    H_NUMBERS,
    H_SIZES,
    H_STARTS,
    HIGH_COLUMN,
    LIST,
    LITERAL_AT,
    LOW_COLUMN,
    NONE,
    REGION_AT,
    T_ENDS,
    T_IS_KEYS,
    T_LABELS,
)

_LAST = 0x10FFFF
_MANY_LAYERS = 10_000


@inner
def byte_of(machine: Machine, table: int, literal: int, depth: int) -> int:  # pragma: no cover
    """Byte `depth` of a literal, or -1 past its end."""
    ends = tables_of(machine)[table + T_ENDS]
    first, end = tables_of(machine)[ends + literal], tables_of(machine)[ends + literal + 1]
    return int64(literals_of(machine)[first + depth] if first + depth < end else -1)


@inner
def first_at_least(
    machine: Machine, table: int, low: int, high: int, depth: int, byte: int
) -> int:  # pragma: no cover
    """The first of literals `low` to `high`, all the same up to `depth`, whose byte there is not below
    `byte`."""
    while low < high:
        middle = (low + high) // 2
        if byte_of(machine, table, middle, depth) < byte:
            low = middle + 1
        else:
            high = middle
    return int64(low)


@inner
def narrowed(machine: Machine, place: int, byte: int) -> int:  # pragma: no cover
    """The place among literals one byte further, or -1."""
    row = nodes_of(machine)[place]
    table, low, high, depth = row[A_COLUMN], row[B_COLUMN], row[LOW_COLUMN], row[HIGH_COLUMN]
    low = first_at_least(machine, table, low, high, depth, byte)
    high = first_at_least(machine, table, low, high, depth, byte + 1)
    if low == high:
        return int64(-1)
    return row_of(machine, LITERAL_AT, table, low, high, depth + 1)


@inner
def exact_literal(machine: Machine, place: int) -> int:  # pragma: no cover
    """The literal that the text so far is, or -1."""
    row = nodes_of(machine)[place]
    whole = byte_of(machine, row[A_COLUMN], row[B_COLUMN], row[HIGH_COLUMN]) < 0
    return int64(row[B_COLUMN] if whole else -1)


@inner
def label_of(machine: Machine, table: int, literal: int) -> int:  # pragma: no cover
    """Of a key, its number; of a string, whether it is one that may be."""
    return int64(tables_of(machine)[tables_of(machine)[table + T_LABELS] + literal])


@inner
def literal_allowed(machine: Machine, table: int, literal: int, frame: int) -> bool:  # pragma: no cover
    """Whether a literal may be written; `frame`: the object that it would be a key of."""
    label = label_of(machine, table, literal)
    if tables_of(machine)[table + T_IS_KEYS]:
        return key_allowed(machine, frame, label)
    return label != 0


@inner
def region_place(
    machine: Machine, table: int, region: int, state: int, literals: int, others: int, mark: int
) -> int:  # pragma: no cover
    """The place within a text of a region."""
    extra = int64(NONE)
    if literals != NONE or others != NONE or (mark != NONE and mark != EMPTY_TEXT):
        extra = row_of(machine, EXTRA, literals, others, mark, NONE)
    return row_of(machine, REGION_AT, table, region, state, extra)


@inner
def mark_of_text(machine: Machine, place: int) -> int:  # pragma: no cover
    """Where, in what is captured, the text of a place in a region begins."""
    extra = nodes_of(machine)[place, HIGH_COLUMN]
    mark = int64(NONE) if extra == NONE else int64(nodes_of(machine)[extra, LOW_COLUMN])
    return int64(EMPTY_TEXT if mark == NONE else mark)


@inner
def advanced(machine: Machine, place: int, byte: int) -> int:  # pragma: no cover
    """The place within a string after one more byte of its value, or -1."""
    nodes = nodes_of(machine)
    if nodes[place, 0] == LITERAL_AT:
        return narrowed(machine, place, byte)
    table, region, state = nodes[place, A_COLUMN], nodes[place, B_COLUMN], nodes[place, LOW_COLUMN]
    following = text_after(machine, state, byte)
    if following < 0:
        return int64(-1)
    extra = nodes[place, HIGH_COLUMN]
    if extra == NONE:
        return row_of(machine, REGION_AT, table, region, following, NONE)
    literals, others, mark = nodes[extra, A_COLUMN], nodes[extra, B_COLUMN], nodes[extra, LOW_COLUMN]
    if literals != NONE:
        literals = max(narrowed(machine, literals, byte), int64(NONE))
    left = int64(NONE)
    while others != NONE:
        text = nodes[others, A_COLUMN]
        if text > EMPTY_TEXT and nodes[text, A_COLUMN] == byte:
            left = row_of(machine, LIST, nodes[text, B_COLUMN], left, NONE, NONE)
        others = nodes[others, B_COLUMN]
    return region_place(machine, table, region, following, literals, left, mark)


@inner
def after_character(machine: Machine, place: int, point: int) -> int:  # pragma: no cover
    """The place after a character of the value, given by its code point, or -1."""
    if point < 0x80:
        return advanced(machine, place, point)
    if point < 0x800:
        place = advanced(machine, place, 0xC0 | (point >> 6))
    else:
        if point < 0x10000:
            place = advanced(machine, place, 0xE0 | (point >> 12))
        else:
            place = advanced(machine, place, 0xF0 | (point >> 18))
            if place >= 0:
                place = advanced(machine, place, 0x80 | ((point >> 12) & 0x3F))
        if place >= 0:
            place = advanced(machine, place, 0x80 | ((point >> 6) & 0x3F))
    if place < 0:
        return int64(-1)
    return advanced(machine, place, 0x80 | (point & 0x3F))


@inner
def _is_whole(machine: Machine, state: int) -> bool:  # pragma: no cover
    """Whether a state of the text store takes every text."""
    row = text_states_of(machine)[state]
    return row[MIDDLE] < 0 and row[NODE] == text_facts_of(machine)[WHOLE] and row[TRACKERS] == 0


@inner
def num_words(machine: Machine, state: int, limit: int) -> int:  # pragma: no cover
    """How many texts lead from a state to acceptance; `limit` if there are at least so many."""
    states = text_states_of(machine)
    sizes = tables_of(machine)[H_SIZES]
    num_classes = machine[NUM_CLASSES]
    ways = np.zeros(len(states), np.int64)
    now, following = np.empty(len(states), np.int64), np.empty(len(states), np.int64)
    now[0], ways[state] = state, 1
    count, total = 1, int64(0)
    for _ in range(_MANY_LAYERS):
        if count == 0:
            return total
        next_ways = np.zeros(len(states), np.int64)
        num_following = 0
        for index in range(count):
            here = now[index]
            if states[here, STATUS] & ACCEPTS:
                total = min(total + ways[here], limit)
            if total >= limit:
                return int64(limit)
            for symbol in range(num_classes):
                there = text_after_class(machine, here, symbol)
                if troubled(machine):
                    return int64(limit)
                if there >= 0:
                    if next_ways[there] == 0:
                        following[num_following] = there
                        num_following += 1
                    size = min(int64(tables_of(machine)[sizes + symbol]), limit)
                    next_ways[there] = min(next_ways[there] + ways[here] * size, limit)
        now, following = following, now
        count, ways = num_following, next_ways
    return int64(limit)


@inner
def _accepts_rest(
    machine: Machine, state: int, table: int, literal: int, depth: int
) -> bool:  # pragma: no cover
    """Whether the rest of a literal leads from a state to acceptance."""
    byte = byte_of(machine, table, literal, depth)
    while byte >= 0:
        state = text_after(machine, state, byte)
        if state < 0:
            return False
        depth += 1
        byte = byte_of(machine, table, literal, depth)
    return (text_states_of(machine)[state, STATUS] & ACCEPTS) != 0


@inner
def _accepts_text(machine: Machine, state: int, text: int) -> bool:  # pragma: no cover
    """Whether a text, as a list of bytes, leads from a state to acceptance."""
    while text > EMPTY_TEXT:
        state = text_after(machine, state, int64(nodes_of(machine)[text, A_COLUMN]))
        if state < 0:
            return False
        text = nodes_of(machine)[text, B_COLUMN]
    return (text_states_of(machine)[state, STATUS] & ACCEPTS) != 0


@inner
def _num_ruled_out(machine: Machine, place: int) -> int:  # pragma: no cover
    """How many literals and other keys a text of a region could still become."""
    nodes = nodes_of(machine)
    extra = nodes[place, HIGH_COLUMN]
    if extra == NONE:
        return int64(0)
    literals, node = nodes[extra, A_COLUMN], nodes[extra, B_COLUMN]
    count = int64(0) if literals == NONE else int64(nodes[literals, LOW_COLUMN] - nodes[literals, B_COLUMN])
    while node != NONE:
        count += 1
        node = nodes[node, B_COLUMN]
    return count


@inner
def _has_more(machine: Machine, place: int) -> bool:  # pragma: no cover
    """Whether the region has a text from here on that is not ruled out."""
    nodes = nodes_of(machine)
    state = int64(nodes[place, LOW_COLUMN])
    excluded = _num_ruled_out(machine, place)
    if excluded == 0 or _is_whole(machine, state) or text_states_of(machine)[state, MIDDLE] >= 0:
        return True
    found = num_words(machine, state, excluded + 1)
    if found > excluded:
        return True
    extra = nodes[place, HIGH_COLUMN]
    literals, node = nodes[extra, A_COLUMN], nodes[extra, B_COLUMN]
    if literals != NONE:
        row = nodes[literals]
        for literal in range(row[B_COLUMN], row[LOW_COLUMN]):
            found -= _accepts_rest(machine, state, row[A_COLUMN], literal, row[HIGH_COLUMN])
    while node != NONE:
        found -= _accepts_text(machine, state, int64(nodes[node, A_COLUMN]))
        node = nodes[node, B_COLUMN]
    return found > 0


@inner
def is_live(machine: Machine, place: int, frame: int) -> bool:  # pragma: no cover
    """Whether any string goes on from here that may be."""
    row = nodes_of(machine)[place]
    if row[0] == REGION_AT:
        return _has_more(machine, place)
    for literal in range(row[B_COLUMN], row[LOW_COLUMN]):
        if literal_allowed(machine, row[A_COLUMN], literal, frame):
            return True
    return False


@inner
def region_accepts(machine: Machine, place: int) -> bool:  # pragma: no cover
    """Whether the text so far is one of the region that is not ruled out."""
    nodes = nodes_of(machine)
    if not text_states_of(machine)[nodes[place, LOW_COLUMN], STATUS] & ACCEPTS:
        return False
    extra = nodes[place, HIGH_COLUMN]
    if extra == NONE:
        return True
    if nodes[extra, A_COLUMN] != NONE and exact_literal(machine, int64(nodes[extra, A_COLUMN])) >= 0:
        return False
    node = nodes[extra, B_COLUMN]
    while node != NONE:
        if nodes[node, A_COLUMN] == EMPTY_TEXT:
            return False
        node = nodes[node, B_COLUMN]
    return True


@inner
def is_between(machine: Machine, place: int) -> bool:  # pragma: no cover
    """Whether a place within a string is between two characters."""
    row = nodes_of(machine)[place]
    if row[0] == REGION_AT:
        return text_states_of(machine)[row[LOW_COLUMN], MIDDLE] < 0
    return not 0x80 <= byte_of(machine, row[A_COLUMN], row[LOW_COLUMN] - 1, row[HIGH_COLUMN]) < 0xC0


@inner
def _point_of(machine: Machine, table: int, literal: int, depth: int) -> int:  # pragma: no cover
    """The code point of a literal's character at byte `depth`, or -1 past its end."""
    byte = byte_of(machine, table, literal, depth)
    if byte < 0x80:
        return byte
    size = 1 if byte < 0xE0 else (2 if byte < 0xF0 else 3)
    point = byte & (0x3F >> size)
    for index in range(size):
        point = (point << 6) | (byte_of(machine, table, literal, depth + 1 + index) & 0x3F)
    return int64(point)


@inner
def _lead_of(point: int) -> int:  # pragma: no cover
    """The first byte of a character in UTF-8."""
    if point < 0x80:
        return int64(point)
    if point < 0x800:
        return int64(0xC0 | (point >> 6))
    return int64(0xE0 | (point >> 12) if point < 0x10000 else 0xF0 | (point >> 18))


@inner
def has_character(
    machine: Machine, place: int, frame: int, first: int, last: int
) -> bool:  # pragma: no cover
    """Whether a character with a code point from `first` to `last` may follow."""
    row = nodes_of(machine)[place]
    if row[0] == LITERAL_AT:
        table, low, high, depth = row[A_COLUMN], row[B_COLUMN], row[LOW_COLUMN], row[HIGH_COLUMN]
        low = first_at_least(machine, table, low, high, depth, _lead_of(first))
        high = first_at_least(machine, table, low, high, depth, _lead_of(last) + 1)
        for literal in range(low, high):
            point = _point_of(machine, table, int64(literal), depth)
            if first <= point <= last and literal_allowed(machine, table, int64(literal), frame):
                return True
        return False
    tables, state = tables_of(machine), int64(row[LOW_COLUMN])
    excluded = _num_ruled_out(machine, place)
    if excluded == 0 and _is_whole(machine, state):
        return True
    for index in range(tables[H_NUM_STARTS]):
        number = int64(tables[tables[H_NUMBERS] + index])
        begin = int64(tables[tables[H_STARTS] + index])
        if begin > last:
            break
        end = int64(_LAST)
        if index + 1 < tables[H_NUM_STARTS]:
            end = int64(tables[tables[H_STARTS] + index + 1] - 1)
        begin, end = max(begin, first), min(end, last)
        if number < 0 or begin > end or text_after_class(machine, state, number) < 0:
            continue
        if excluded == 0:
            return True
        for point in range(begin, min(end, begin + excluded) + 1):
            there = after_character(machine, place, point)
            if there >= 0 and _has_more(machine, there):
                return True
    return False
