"""What values, strings and keys begin and end with: configurations, made and added to those of a step."""

from __future__ import annotations

from treille.runtime.grammar.store import TOO_DEEP, TROUBLE, Int64s, inner, int64
from treille.runtime.schema.machine import arrays, gaps, objects, texts
from treille.runtime.schema.machine.memory import (
    Machine,
    facts_of,
    nodes_of,
    recall,
    row_of,
    tables_of,
    values_of,
)
from treille.runtime.schema.machine.rows import (
    A_COLUMN,
    ARRAY,
    ASK_ITEM,
    ASK_REGION,
    ASK_VALUE,
    B_COLUMN,
    CONFIG,
    EMPTY_TEXT,
    ENDED,
    FOLLOWED,
    JOINED,
    LITERAL_AT,
    NONE,
    NUMBER_AT,
    OPENED,
    PUSHED,
    REGION_COLUMNS,
    T_IS_KEYS,
    T_NUM,
    T_NUM_REGIONS,
    T_REGIONS,
    UNKNOWN,
    V_ARRAYS,
    V_KNOWN,
    V_NUMBERS,
    V_OBJECTS,
    V_STRINGS,
    V_WORDS,
    WORD_AT,
    ask_python,
)
from treille.runtime.schema.machine.words import (
    begins_word,
    number_symbol,
)

MAX_CONFIGS = 16_384
_QUOTE, _BACKSLASH, _COMMA, _COLON = 0x22, 0x5C, 0x2C, 0x3A
_CURLY, _UNCURLY, _SQUARE, _UNSQUARE = 0x7B, 0x7D, 0x5B, 0x5D


@inner
def emit(
    machine: Machine, out: Int64s, place: int, stack: int, captured: int, escape: int
) -> None:  # pragma: no cover
    """Adds a configuration to `out`, whose first number says how many there are."""
    count = out[0] + 1
    if count == MAX_CONFIGS:
        facts_of(machine)[TROUBLE] = TOO_DEEP
        return
    out[0] = count
    out[count] = row_of(machine, CONFIG, place, stack, captured, escape)


@inner
def depth(machine: Machine, stack: int) -> int:  # pragma: no cover
    """How many objects and arrays are open."""
    depth = 0
    while stack != NONE:
        is_joined = nodes_of(machine)[stack, 0] == JOINED  # all of them are of one depth
        depth += not is_joined
        stack = nodes_of(machine)[stack, A_COLUMN if is_joined else B_COLUMN]
    return int64(depth)


@inner
def gap_after(machine: Machine, gap: int, stack: int, byte: int) -> int:  # pragma: no cover
    if byte > 0x20:
        return int64(-1)
    return gaps.gap_after(machine, gap, depth(machine, stack), byte)


@inner
def gap_done(machine: Machine, gap: int, stack: int) -> bool:  # pragma: no cover
    return gaps.gap_done(machine, gap, depth(machine, stack))


@inner
def top(machine: Machine, stack: int) -> int:  # pragma: no cover
    return int64(NONE if stack == NONE else nodes_of(machine)[stack, A_COLUMN])


@inner
def replaced(machine: Machine, stack: int, frame: int) -> int:  # pragma: no cover
    """The stack with another frame on top."""
    return row_of(machine, PUSHED, frame, int64(nodes_of(machine)[stack, B_COLUMN]), NONE, NONE)


@inner
def after_value(machine: Machine, stack: int, captured: int) -> tuple[int, int]:  # pragma: no cover
    """The stack and the captured text once a value has ended: an array whose items must differ takes it
    down."""
    frame = top(machine, stack)
    if frame == NONE or nodes_of(machine)[frame, 0] != ARRAY or not arrays.is_unique(machine, frame):
        return int64(stack), int64(captured)
    is_over = arrays.captures_first(machine, frame)
    seen = int64(UNKNOWN)
    if captured != UNKNOWN:
        seen = recall(machine, frame, captured)
        if seen < 0:
            ask_python(machine, ASK_ITEM, frame, captured)
            return int64(stack), int64(captured)
    frame = arrays.with_items(machine, frame, seen, EMPTY_TEXT, NONE)
    return replaced(machine, stack, frame), int64(NONE if is_over else captured)


@inner
def ended(machine: Machine, out: Int64s, stack: int, captured: int) -> None:  # pragma: no cover
    """A value has ended, and nothing is read of what follows."""
    if stack == NONE:
        emit(
            machine,
            out,
            row_of(machine, ENDED, gaps.AT_END * gaps.PLACES, NONE, NONE, NONE),
            NONE,
            NONE,
            NONE,
        )
    else:
        place = row_of(machine, FOLLOWED, gaps.AFTER_VALUE * gaps.PLACES, NONE, NONE, NONE)
        emit(machine, out, place, stack, captured, NONE)


@inner
def begin_string(
    machine: Machine, out: Int64s, table: int, stack: int, captured: int, others: int
) -> None:  # pragma: no cover
    """After the quote of a string or key; `others`: keys that were seen."""
    frame = top(machine, stack)
    tables = tables_of(machine)
    literals = int64(NONE)
    if tables[table + T_NUM]:
        literals = row_of(machine, LITERAL_AT, table, NONE, int64(tables[table + T_NUM]), NONE)
        if texts.is_live(machine, literals, frame):
            emit(machine, out, literals, stack, captured, NONE)
    is_keys = tables[table + T_IS_KEYS] != 0
    if is_keys and not objects.any_other_allowed(machine, frame):
        return
    is_picky = is_keys and objects.has_exists(machine, frame)
    for region in range(tables[table + T_NUM_REGIONS]):
        if is_picky and not objects.region_allowed(machine, frame, int64(region)):
            continue
        at = tables[table + T_REGIONS] + region * REGION_COLUMNS
        state = recall(machine, -2 - tables[at], 0)
        if state < 0:
            ask_python(machine, ASK_REGION, int64(tables[at]), NONE)
            return
        if is_keys:
            mark = int64(EMPTY_TEXT if captured == NONE else captured)
            place = texts.region_place(machine, table, region, state, literals, others, mark)
            if texts.is_live(machine, place, frame):
                emit(machine, out, place, stack, mark, NONE)
        else:
            place = texts.region_place(machine, table, region, state, literals, NONE, NONE)
            if texts.is_live(machine, place, frame):
                emit(machine, out, place, stack, captured, NONE)


@inner
def begin_value(
    machine: Machine, out: Int64s, value: int, stack: int, captured: int, byte: int
) -> None:  # pragma: no cover
    """The first byte of a value; `captured` has it already."""
    row = values_of(machine)[value]
    if not row[V_KNOWN]:
        ask_python(machine, ASK_VALUE, value, NONE)
        return
    tables = tables_of(machine)
    if byte == _QUOTE:
        if row[V_STRINGS]:
            begin_string(machine, out, int64(row[V_STRINGS]), stack, captured, NONE)
    elif byte == _CURLY or byte == _SQUARE:
        at = row[V_OBJECTS if byte == _CURLY else V_ARRAYS]
        opened = row_of(machine, OPENED, gaps.AFTER_OPEN * gaps.PLACES, NONE, NONE, NONE)
        for index in range(tables[at]):
            template = int64(tables[at + 1 + index])
            if byte == _CURLY:
                frame = objects.opened_object(machine, template)
            else:
                frame = arrays.opened_array(machine, template)
            emit(machine, out, opened, row_of(machine, PUSHED, frame, stack, NONE, NONE), captured, NONE)
    elif begins_word(byte) >= 0:
        word = begins_word(byte)
        if (row[V_WORDS] >> word) & 1:
            emit(machine, out, row_of(machine, WORD_AT, word, int64(1), NONE, NONE), stack, captured, NONE)
    elif row[V_NUMBERS]:
        symbol = number_symbol(byte)
        if symbol >= 0:
            following = tables[row[V_NUMBERS] + 1 + symbol]
            if following >= 0:
                place = row_of(machine, NUMBER_AT, int64(row[V_NUMBERS]), int64(following), NONE, NONE)
                emit(machine, out, place, stack, captured, NONE)
