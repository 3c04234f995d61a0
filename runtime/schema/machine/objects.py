"""Open objects: which keys may still come, so that what is required and how many there may be can be met.

Every frame that is made can be completed: a key that would make it impossible is not allowed. In schema order
a declared key comes after those declared before it, and what is not declared comes last.
"""

from __future__ import annotations

import numpy as np

from treille.runtime.grammar.store import Int64s, inner, int64
from treille.runtime.schema.machine.memory import (
    Machine,
    nodes_of,
    row_of,
    tables_of,
)
from treille.runtime.schema.machine.rows import (
    A_COLUMN,
    B_COLUMN,
    BITS,
    H_ORDER,
    HIGH_COLUMN,
    K_IMPLIES,
    K_OPTIONS,
    KEY_COLUMNS,
    LIST,
    LOW_COLUMN,
    MORE,
    NO_END,
    NONE,
    O_COVERS,
    O_HAS_IMPLIED,
    O_HAS_REGIONS,
    O_HIGH,
    O_KEYS,
    O_LOW,
    O_NUM_DECLARED,
    O_NUM_EXISTS,
    O_NUM_KEYS,
    O_NUM_WORDS,
    O_REQUIRED,
    O_TABLE,
    O_USABLE,
    OBJECT,
    R_OPTIONS,
    REGION_COLUMNS,
    T_NUM_REGIONS,
    T_REGIONS,
    UNKNOWN,
    WORDS,
)

COUNTED = 1 << 32  # the number of members lies above the next declared key, in a frame's column `low`


@inner
def opened_object(machine: Machine, template: int) -> int:  # pragma: no cover
    """The frame of an object without members."""
    return row_of(machine, OBJECT, template, NONE, NONE, NONE)


@inner
def _seen(machine: Machine, frame: int) -> Int64s:  # pragma: no cover
    """Which keys were seen, `BITS` of them in a number."""
    row = nodes_of(machine)[frame]
    found = np.zeros(tables_of(machine)[row[A_COLUMN] + O_NUM_WORDS], np.int64)
    node = row[B_COLUMN]
    index = 0
    while node != NONE:
        found[index] = nodes_of(machine)[node, A_COLUMN]
        node = nodes_of(machine)[node, B_COLUMN]
        index += 1
    return found


@inner
def _missing(machine: Machine, template: int, seen: Int64s) -> Int64s:  # pragma: no cover
    """Which keys must come still, as bits; `seen` counts those that are there."""
    tables = tables_of(machine)
    first = tables[template + O_REQUIRED]
    found = tables[first : first + len(seen)].copy()
    if tables[template + O_HAS_IMPLIED]:
        for key in range(tables[template + O_NUM_KEYS]):
            if (seen[key // BITS] >> (key % BITS)) & 1:
                at = tables[tables[template + O_KEYS] + key * KEY_COLUMNS + K_IMPLIES]
                for index in range(tables[at]):
                    implied = tables[at + 1 + index]
                    found[implied // BITS] |= int64(1) << (implied % BITS)
    for word in range(len(seen)):
        found[word] &= ~seen[word]
    return found


@inner
def _count(bits: Int64s) -> int:  # pragma: no cover
    total = 0
    for word in bits:
        rest = word
        while rest:
            rest &= rest - 1
            total += 1
    return int64(total)


@inner
def _first(bits: Int64s) -> int:  # pragma: no cover
    """The first key among bits, or a number past all."""
    for index in range(len(bits)):
        if bits[index]:
            place = 0
            while not (bits[index] >> place) & 1:
                place += 1
            return int64(index * BITS + place)
    return int64(len(bits) * BITS)


@inner
def _marks_missing(machine: Machine, frame: int, more: int) -> int:  # pragma: no cover
    """How many members it takes at least to meet what `exists` no member meets yet, if one with marks `more`
    comes."""
    row = nodes_of(machine)[frame]
    wanted = tables_of(machine)[row[A_COLUMN] + O_NUM_EXISTS]
    if wanted == 0:
        return int64(0)
    met = more
    if row[HIGH_COLUMN] != NONE:
        met |= nodes_of(machine)[row[HIGH_COLUMN], B_COLUMN]
    missing = ((int64(1) << wanted) - 1) & ~met
    return int64(tables_of(machine)[tables_of(machine)[row[A_COLUMN] + O_COVERS] + missing])


@inner
def _is_small(machine: Machine, template: int) -> bool:  # pragma: no cover
    """Whether a frame needs but one number to tell which keys were seen, and nothing is to be counted but
    them."""
    tables = tables_of(machine)
    return (
        tables[template + O_NUM_WORDS] == 1
        and not tables[template + O_HAS_IMPLIED]
        and tables[template + O_NUM_EXISTS] == 0
        and tables[template + O_LOW] == 0
    )


@inner
def _small_fits(machine: Machine, frame: int, key: int) -> bool:  # pragma: no cover
    """Whether a small frame may have one more key: `key` of its own, or one of a region, if that is -1."""
    tables, row = tables_of(machine), nodes_of(machine)[frame]
    template = row[A_COLUMN]
    seen = int64(0)
    if row[B_COLUMN] != NONE:
        seen = int64(nodes_of(machine)[row[B_COLUMN], A_COLUMN])
    missing = int64(tables[tables[template + O_REQUIRED]]) & ~seen
    num_declared = int64(tables[template + O_NUM_DECLARED])
    place = num_declared
    if key >= 0:
        bit = int64(1) << key
        if not tables[tables[template + O_USABLE]] & bit or seen & bit:
            return False
        missing &= ~bit
        place = min(int64(key), num_declared)
    if tables[H_ORDER] != 0:
        if 0 <= key < num_declared and key < row[LOW_COLUMN] % COUNTED:
            return False
        # What must come still is declared later, or nowhere.
        if missing & ((int64(1) << place) - 1):
            return False
    high = tables[template + O_HIGH]
    if high == NO_END:
        return True
    least = row[LOW_COLUMN] // COUNTED + 1
    while missing:
        missing &= missing - 1
        least += 1
    return least <= high


@inner
def key_allowed(machine: Machine, frame: int, key: int) -> bool:  # pragma: no cover
    """Whether this key may come next."""
    tables = tables_of(machine)
    row = nodes_of(machine)[frame]
    template = row[A_COLUMN]
    if _is_small(machine, template):
        return _small_fits(machine, frame, key)
    word, bit = key // BITS, int64(1) << (key % BITS)
    if not tables[tables[template + O_USABLE] + word] & bit:
        return False
    ordered = tables[H_ORDER] != 0
    num_declared = tables[template + O_NUM_DECLARED]
    next_declared = row[LOW_COLUMN] % COUNTED
    if ordered and key < num_declared and key < next_declared:
        return False
    seen = _seen(machine, frame)
    if seen[word] & bit:
        return False
    seen[word] |= bit
    missing = _missing(machine, template, seen)
    if ordered and _first(missing) < min(key, num_declared):
        return False
    return _fits(machine, frame, seen, missing, key + 1 if key < num_declared else num_declared, NONE)


@inner
def _fits(
    machine: Machine, frame: int, seen: Int64s, missing: Int64s, next_declared: int, marks: int
) -> bool:  # pragma: no cover
    """Whether the number of members can be met once one more is there."""
    tables = tables_of(machine)
    template = nodes_of(machine)[frame, A_COLUMN]
    count = nodes_of(machine)[frame, LOW_COLUMN] // COUNTED + 1
    least = count + _count(missing) + _marks_missing(machine, frame, marks)
    high = tables[template + O_HIGH]
    if high != NO_END and least > high:
        return False
    low = tables[template + O_LOW]
    if least >= low or tables[template + O_HAS_REGIONS]:
        return True
    num_declared = tables[template + O_NUM_DECLARED]
    usable = tables[template + O_USABLE]
    for key in range(tables[template + O_NUM_KEYS]):
        if count >= low:
            break
        late = tables[H_ORDER] != 0 and key < num_declared and key < next_declared
        bit = int64(1) << (key % BITS)
        if not late and tables[usable + key // BITS] & bit and not seen[key // BITS] & bit:
            count += 1
    return count >= low


@inner
def others_allowed(machine: Machine, frame: int, marks: int) -> bool:  # pragma: no cover
    """Whether a key of a region may come next, with a value that meets `marks`."""
    tables = tables_of(machine)
    template = nodes_of(machine)[frame, A_COLUMN]
    if not tables[template + O_HAS_REGIONS]:
        return False
    if _is_small(machine, template):
        return _small_fits(machine, frame, int64(-1))
    seen = _seen(machine, frame)
    missing = _missing(machine, template, seen)
    num_declared = tables[template + O_NUM_DECLARED]
    if tables[H_ORDER] != 0 and _first(missing) < num_declared:
        return False
    return _fits(machine, frame, seen, missing, num_declared, marks)


@inner
def region_allowed(machine: Machine, frame: int, region: int) -> bool:  # pragma: no cover
    """Whether a key of this region may come next with some value that it can have."""
    tables = tables_of(machine)
    template = nodes_of(machine)[frame, A_COLUMN]
    regions = tables[tables[template + O_TABLE] + T_REGIONS]
    at = tables[regions + region * REGION_COLUMNS + R_OPTIONS]
    for option in range(tables[at]):
        if others_allowed(machine, frame, int64(tables[at + 2 + 2 * option])):
            return True
    return False


@inner
def any_other_allowed(machine: Machine, frame: int) -> bool:  # pragma: no cover
    """Whether a key of a region may come next with some value: of any region, where none must `exist`."""
    tables = tables_of(machine)
    template = nodes_of(machine)[frame, A_COLUMN]
    if tables[template + O_NUM_EXISTS] == 0:
        return others_allowed(machine, frame, NONE)
    for region in range(tables[tables[template + O_TABLE] + T_NUM_REGIONS]):
        if region_allowed(machine, frame, int64(region)):
            return True
    return False


@inner
def has_exists(machine: Machine, frame: int) -> bool:  # pragma: no cover
    """Whether something must `exist`, so that regions differ in what their keys are good for."""
    return tables_of(machine)[nodes_of(machine)[frame, A_COLUMN] + O_NUM_EXISTS] != 0


@inner
def may_go_on(machine: Machine, frame: int) -> bool:  # pragma: no cover
    """Whether any key may come next."""
    if any_other_allowed(machine, frame):
        return True
    template = nodes_of(machine)[frame, A_COLUMN]
    for key in range(tables_of(machine)[template + O_NUM_KEYS]):
        if key_allowed(machine, frame, key):
            return True
    return False


@inner
def may_close(machine: Machine, frame: int) -> bool:  # pragma: no cover
    """Whether the object may end."""
    template = nodes_of(machine)[frame, A_COLUMN]
    if nodes_of(machine)[frame, LOW_COLUMN] // COUNTED < tables_of(machine)[template + O_LOW]:
        return False
    if _marks_missing(machine, frame, NONE):
        return False
    return _count(_missing(machine, template, _seen(machine, frame))) == 0


@inner
def after_key(machine: Machine, frame: int, key: int) -> int:  # pragma: no cover
    """The frame with one more of its own keys."""
    row = nodes_of(machine)[frame]
    template, more = row[A_COLUMN], row[HIGH_COLUMN]
    num_declared = tables_of(machine)[template + O_NUM_DECLARED]
    low = (row[LOW_COLUMN] // COUNTED + 1) * COUNTED
    if tables_of(machine)[H_ORDER] != 0:
        low += key + 1 if key < num_declared else num_declared
    seen = _seen(machine, frame)
    seen[key // BITS] |= int64(1) << (key % BITS)
    node = int64(NONE)
    for index in range(len(seen) - 1, -1, -1):
        node = row_of(machine, WORDS, seen[index], node, NONE, NONE)
    return row_of(machine, OBJECT, template, node, low, more)


@inner
def after_other(machine: Machine, frame: int, text: int, marks: int) -> int:  # pragma: no cover
    """The frame with a key of a region, whose text is `text` (or `UNKNOWN`), and a value that meets
    `marks`."""
    row = nodes_of(machine)[frame]
    template, seen, more = row[A_COLUMN], row[B_COLUMN], row[HIGH_COLUMN]
    low = (row[LOW_COLUMN] // COUNTED + 1) * COUNTED
    if tables_of(machine)[H_ORDER] != 0:
        low += tables_of(machine)[template + O_NUM_DECLARED]
    others = int64(NONE)
    if more != NONE:
        others = int64(nodes_of(machine)[more, A_COLUMN])
        marks |= nodes_of(machine)[more, B_COLUMN]
    others = row_of(machine, LIST, text, others, NONE, NONE)
    more = row_of(machine, MORE, others, marks, NONE, NONE)
    return row_of(machine, OBJECT, template, seen, low, more)


@inner
def others_of(machine: Machine, frame: int) -> int:  # pragma: no cover
    """The list of the keys of regions that were seen."""
    more = nodes_of(machine)[frame, HIGH_COLUMN]
    return int64(NONE if more == NONE else nodes_of(machine)[more, A_COLUMN])


@inner
def options_of_key(machine: Machine, frame: int, key: int) -> int:  # pragma: no cover
    """Where the options of a key stand."""
    template = nodes_of(machine)[frame, A_COLUMN]
    return int64(tables_of(machine)[tables_of(machine)[template + O_KEYS] + key * KEY_COLUMNS + K_OPTIONS])


@inner
def has_unknown(machine: Machine, frame: int) -> bool:  # pragma: no cover
    """Whether the text of a key that was seen was left out."""
    node = others_of(machine, frame)
    return node != NONE and nodes_of(machine)[node, A_COLUMN] == UNKNOWN
