"""States of the machine: sets of configurations, and the door that Python asks through.

A state's row has, by byte, the state that follows: -1 nowhere, -2 not asked yet, -3 it depends on a text
that was left out. Most bytes lead nowhere from most places; those rows are filled in when the state is made.
"""

from __future__ import annotations

import numpy as np

from treille.runtime.grammar.store import (
    ACCEPTS,
    AGREES,
    BITS,
    COUNTED,
    FULL,
    KNOWN,
    LIVE,
    MANY,
    MIDDLE,
    NODE,
    NUM_STATES,
    SEEN,
    STATE_AT,
    STATUS,
    TRACKERS,
    TROUBLE,
    WHOLE,
    Int32s,
    Int64s,
    inner,
    int64,
)
from treille.runtime.schema.machine import gaps
from treille.runtime.schema.machine.joining import joined, without_marks
from treille.runtime.schema.machine.languages import text_widened
from treille.runtime.schema.machine.memory import (
    Machine,
    configs_of,
    facts_of,
    nodes_of,
    row_of,
    rows_of,
    states_of,
    tables_of,
    text_facts_of,
    text_nodes_of,
    text_states_of,
    troubled,
    values_of,
)
from treille.runtime.schema.machine.rows import (
    A_COLUMN,
    B_COLUMN,
    COLON_AT,
    CONFIG,
    EMPTY_TEXT,
    ENDED,
    EXTRA,
    FOLLOWED,
    H_CAPTURED,
    H_GAPS,
    H_SUSPECT,
    HIGH_COLUMN,
    KEY_AT,
    LIST,
    LITERAL_AT,
    LOW_COLUMN,
    NONE,
    NOT_ASKED,
    NOWHERE,
    NUMBER_AT,
    OBJECT,
    OPENED,
    REGION_AT,
    STATE,
    SUSPECT,
    UNKNOWN,
    V_ARRAYS,
    V_KNOWN,
    V_NUMBERS,
    V_OBJECTS,
    V_STRINGS,
    V_WORDS,
    VALUE_AT,
    WORD_AT,
)
from treille.runtime.schema.machine.steps import go_on, number_ends
from treille.runtime.schema.machine.texts import byte_of, first_at_least
from treille.runtime.schema.machine.words import NUM_SYMBOLS, number_symbol, word_byte

TWIN = TRACKERS  # the column of a state for the one without captured texts; -1: not known yet
FREE = SEEN  # and for whether any string may go on there, so that it leads to itself
GAP = BITS  # and for the gap that it is in, if that alone says what white space may follow; else 0
_QUOTE, _BACKSLASH = 0x22, 0x5C


@inner
def state_of_configs(machine: Machine, configs: Int64s) -> int:  # pragma: no cover
    """The state of some configurations; overwrites them. `NOWHERE`, and trouble noted, if there is no
    room."""
    if len(configs) > 1:
        configs = configs[: joined(machine, configs)]
        configs.sort()
    node = int64(NONE)
    last = int64(-1)
    for index in range(len(configs) - 1, -1, -1):
        if configs[index] != last:
            last = configs[index]
            node = row_of(machine, LIST, last, node, NONE, NONE)
    key = row_of(machine, STATE, node, NONE, NONE, NONE)
    if troubled(machine):
        return int64(NOWHERE)
    state = nodes_of(machine)[key, STATE_AT]
    if state >= 0:
        return int64(state)
    state = int64(facts_of(machine)[NUM_STATES])
    if state == len(states_of(machine)):
        facts_of(machine)[TROUBLE] = FULL
        return int64(NOWHERE)
    facts_of(machine)[NUM_STATES] = state + 1
    nodes_of(machine)[key, STATE_AT] = state
    row = states_of(machine)[state]
    row[:] = 0
    row[NODE], row[STATUS], row[TWIN] = node, LIVE, state
    row[GAP] = _gap_of(machine, node)
    one = node
    while one != NONE:
        if nodes_of(machine)[nodes_of(machine)[one, A_COLUMN], LOW_COLUMN] > NONE:
            row[TWIN] = -1
        if _may_end(machine, int64(nodes_of(machine)[one, A_COLUMN])):
            row[STATUS] = LIVE | ACCEPTS
        one = nodes_of(machine)[one, B_COLUMN]
    _prepare_row(machine, state, node)
    return state


@inner
def _gap_of(machine: Machine, node: int) -> int:  # pragma: no cover
    """The gap that all of some configurations are in, where white space is flexible; else 0."""
    nodes = nodes_of(machine)
    gap = int64(-1)
    if tables_of(machine)[H_GAPS] != gaps.FLEXIBLE:
        return int64(0)
    while node != NONE:
        config = nodes[node, A_COLUMN]
        place = nodes[nodes[config, A_COLUMN]]
        kind = place[0]
        here = int64(0)
        if kind == FOLLOWED or kind == OPENED or kind == KEY_AT:
            here = int64(place[A_COLUMN])
        elif kind == VALUE_AT or kind == COLON_AT:
            here = int64(place[B_COLUMN])
        if here == 0 or nodes[config, LOW_COLUMN] > NONE or (gap >= 0 and gap != here):
            return int64(0)
        gap = here
        node = nodes[node, B_COLUMN]
    return gap


@inner
def _may_end(machine: Machine, config: int) -> bool:  # pragma: no cover
    """Whether the text is complete in a configuration."""
    nodes = nodes_of(machine)
    place = nodes[config, A_COLUMN]
    if nodes[place, 0] == ENDED:
        return True
    if nodes[place, 0] != NUMBER_AT or nodes[config, B_COLUMN] != NONE:
        return False
    return number_ends(machine, int64(nodes[place, A_COLUMN]), int64(nodes[place, B_COLUMN]))


@inner
def mark_next_bytes(machine: Machine, row: Int32s, place: int) -> None:  # pragma: no cover
    """Marks the bytes that some literal goes on with."""
    literal = nodes_of(machine)[place]
    table, low, high, depth = literal[A_COLUMN], literal[B_COLUMN], literal[LOW_COLUMN], literal[HIGH_COLUMN]
    byte = int64(0)
    while byte < 256:
        low = first_at_least(machine, table, low, high, depth, byte)
        if low == high:
            break
        byte = byte_of(machine, table, low, depth)
        row[byte] = NOT_ASKED
        byte += 1


@inner
def _prepare_row(machine: Machine, state: int, node: int) -> None:  # pragma: no cover
    """Fills in the bytes that lead nowhere for sure, and where a free string leads to itself."""
    nodes = nodes_of(machine)
    row = rows_of(machine)[state]
    row[:] = NOWHERE
    alone = nodes[node, B_COLUMN] == NONE
    while node != NONE:
        config = nodes[node, A_COLUMN]
        place, escape = nodes[config, A_COLUMN], nodes[config, HIGH_COLUMN]
        kind = nodes[place, 0]
        if kind == REGION_AT or kind == LITERAL_AT:
            if escape != 0:
                row[0x21:0x7B] = NOT_ASKED
            elif kind == LITERAL_AT:
                row[_QUOTE], row[_BACKSLASH] = NOT_ASKED, NOT_ASKED
                mark_next_bytes(machine, row, place)
            else:
                row[0x20:] = NOT_ASKED
                if alone and _is_free(machine, config):
                    states_of(machine)[state, FREE] = 1
                    row[0x20:0x80] = state
                    row[_QUOTE], row[_BACKSLASH] = NOT_ASKED, NOT_ASKED
        elif kind == WORD_AT:
            row[word_byte(nodes[place, A_COLUMN], nodes[place, B_COLUMN])] = NOT_ASKED
        else:
            _mark_first_bytes(machine, row, place, int64(nodes[config, B_COLUMN]))
        node = nodes[node, B_COLUMN]


@inner
def _mark_first_bytes(machine: Machine, row: Int32s, place: int, stack: int) -> None:  # pragma: no cover
    """Marks the bytes that may follow a place outside of strings."""
    nodes, tables = nodes_of(machine), tables_of(machine)
    kind, a = nodes[place, 0], int64(nodes[place, A_COLUMN])
    spaced = tables[H_GAPS] != gaps.COMPACT
    is_object = stack != NONE and nodes[nodes[stack, A_COLUMN], 0] == OBJECT
    if kind == NUMBER_AT:
        at = a + 1 + nodes[place, B_COLUMN] * NUM_SYMBOLS
        for byte in range(0x2B, 0x66):
            symbol = number_symbol(byte)
            if symbol >= 0 and tables[at + symbol] >= 0:
                row[byte] = NOT_ASKED
        if not number_ends(machine, a, int64(nodes[place, B_COLUMN])):
            return
        kind = int64(FOLLOWED if stack != NONE else ENDED)
    if spaced:
        row[0x09], row[0x0A], row[0x0D], row[0x20] = NOT_ASKED, NOT_ASKED, NOT_ASKED, NOT_ASKED
    if kind == FOLLOWED:
        row[0x2C] = NOT_ASKED
        row[0x7D if is_object else 0x5D] = NOT_ASKED
    elif kind == COLON_AT:
        row[0x3A] = NOT_ASKED
    elif kind == KEY_AT or (kind == OPENED and is_object):
        row[_QUOTE] = NOT_ASKED
        if kind == OPENED:
            row[0x7D] = NOT_ASKED
    elif kind == OPENED or kind == VALUE_AT:
        if kind == OPENED:
            row[0x5D] = NOT_ASKED
        # Another configuration may have marked more: nothing is taken back.
        known = kind == VALUE_AT and values_of(machine)[a, V_KNOWN] != 0
        value = values_of(machine)[a if known else 0]
        if not known or value[V_NUMBERS]:
            row[0x2D] = NOT_ASKED
            row[0x30:0x3A] = NOT_ASKED
        if not known or value[V_STRINGS]:
            row[_QUOTE] = NOT_ASKED
        if not known or tables[value[V_OBJECTS]]:
            row[0x7B] = NOT_ASKED
        if not known or tables[value[V_ARRAYS]]:
            row[0x5B] = NOT_ASKED
        if not known or value[V_WORDS]:
            row[0x66], row[0x6E], row[0x74] = NOT_ASKED, NOT_ASKED, NOT_ASKED


@inner
def _is_free(machine: Machine, config: int) -> bool:  # pragma: no cover
    """Whether any string at all may go on here, and nothing of it is kept."""
    nodes = nodes_of(machine)
    row = nodes[config]
    if row[LOW_COLUMN] != NONE and row[LOW_COLUMN] != UNKNOWN:
        return False
    place = row[A_COLUMN]
    if nodes[place, 0] != REGION_AT or row[HIGH_COLUMN] != 0:
        return False
    extra = nodes[place, HIGH_COLUMN]
    if extra != NONE and (nodes[extra, A_COLUMN] != NONE or nodes[extra, B_COLUMN] != NONE):
        return False
    state = text_states_of(machine)[nodes[place, LOW_COLUMN]]
    return state[NODE] == text_facts_of(machine)[WHOLE] and state[TRACKERS] == 0 and state[MIDDLE] < 0


@inner
def _captured_in(machine: Machine, state: int) -> int:  # pragma: no cover
    """The text that configurations of a state capture, `NONE` if none does."""
    nodes = nodes_of(machine)
    node = states_of(machine)[state, NODE]
    while node != NONE:
        if nodes[nodes[node, A_COLUMN], LOW_COLUMN] > NONE:
            return int64(nodes[nodes[node, A_COLUMN], LOW_COLUMN])
        node = nodes[node, B_COLUMN]
    return int64(NONE)


@inner
def after_byte(machine: Machine, state: int, byte: int) -> int:  # pragma: no cover
    """The state after one more byte, `NOWHERE` or `SUSPECT`; noted in the state's row, if there was no
    trouble."""
    known = int64(rows_of(machine)[state, byte])
    if known != NOT_ASKED:
        return known
    out = configs_of(machine)
    out[0] = 0
    tables_of(machine)[H_SUSPECT] = 0
    tables_of(machine)[H_CAPTURED] = _captured_in(machine, state)
    node = int64(states_of(machine)[state, NODE])
    while node != NONE:
        go_on(machine, out, int64(nodes_of(machine)[node, A_COLUMN]), byte)
        node = int64(nodes_of(machine)[node, B_COLUMN])
    if troubled(machine):
        return int64(NOWHERE)
    following = int64(NOWHERE)
    if tables_of(machine)[H_SUSPECT]:
        following = int64(SUSPECT)
    elif out[0]:
        following = state_of_configs(machine, out[1 : out[0] + 1])
        if troubled(machine):
            return int64(NOWHERE)
    rows_of(machine)[state, byte] = following
    return following


@inner
def _without_counts(machine: Machine, place: int) -> tuple[int, int]:  # pragma: no cover
    """A place within a string in which long counts are endless, and how many characters ahead it agrees."""
    nodes = nodes_of(machine)
    if nodes[place, 0] != REGION_AT:
        return int64(place), int64(MANY)
    state = int64(nodes[place, LOW_COLUMN])
    if not text_nodes_of(machine)[text_states_of(machine)[state, NODE], KNOWN] & COUNTED:
        return int64(place), int64(MANY)
    wide = text_widened(machine, state)
    if wide == state:
        return int64(place), int64(MANY)
    agrees = int64(text_facts_of(machine)[AGREES])
    table, region, extra = nodes[place, A_COLUMN], nodes[place, B_COLUMN], nodes[place, HIGH_COLUMN]
    return row_of(machine, REGION_AT, table, region, wide, extra), agrees


@inner
def _without_mark(machine: Machine, place: int) -> int:  # pragma: no cover
    """A place within a string without where, in what is captured, its text begins."""
    nodes = nodes_of(machine)
    if nodes[place, 0] != REGION_AT or nodes[place, HIGH_COLUMN] == NONE:
        return int64(place)
    row = nodes[nodes[place, HIGH_COLUMN]]
    if row[LOW_COLUMN] <= EMPTY_TEXT:
        return int64(place)
    extra = row_of(machine, EXTRA, int64(row[A_COLUMN]), int64(row[B_COLUMN]), UNKNOWN, NONE)
    table, region, state = nodes[place, A_COLUMN], nodes[place, B_COLUMN], nodes[place, LOW_COLUMN]
    return row_of(machine, REGION_AT, table, region, state, extra)


@inner
def simpler(machine: Machine, state: int, count_too: int) -> int:  # pragma: no cover
    """The state in which captured texts are left out and, where `count_too`, long counts are endless; how
    many characters ahead those agree is noted in `facts[AGREES]`."""
    nodes = nodes_of(machine)
    node = int64(states_of(machine)[state, NODE])
    facts_of(machine)[AGREES] = MANY
    count = 0
    one = node
    while one != NONE:
        count += 1
        one = nodes[one, B_COLUMN]
    configs = np.empty(count, np.int64)
    same = True
    for index in range(count):
        config = int64(nodes[node, A_COLUMN])
        row = nodes[config]
        place, stack, captured, escape = row[A_COLUMN], row[B_COLUMN], row[LOW_COLUMN], row[HIGH_COLUMN]
        if count_too:
            place, agrees = _without_counts(machine, place)
            facts_of(machine)[AGREES] = min(facts_of(machine)[AGREES], agrees)
        if captured != NONE:
            captured = UNKNOWN
            place = _without_mark(machine, place)
            stack = without_marks(machine, stack)
        configs[index] = row_of(machine, CONFIG, place, stack, captured, escape)
        same = same and configs[index] == config
        node = int64(nodes[node, B_COLUMN])
    if same or troubled(machine):
        return int64(state)
    return state_of_configs(machine, configs)


@inner
def twin_of(machine: Machine, state: int) -> int:  # pragma: no cover
    """The state in which captured texts are left out: many share it. What follows it is the same but where it
    says `SUSPECT`."""
    known = int64(states_of(machine)[state, TWIN])
    if known >= 0:
        return known
    twin = simpler(machine, state, int64(0))
    if not troubled(machine):
        states_of(machine)[state, TWIN] = twin
    return twin
