"""Along the states of the machine, byte by byte.

What goes one byte further is large: it is compiled by itself, once, and called by its address.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import cfunc, types

from treille.runtime.grammar.store import ACCEPTS, MIDDLE, NODE, STATUS, TRACKERS, WHOLE, Bytes, inner, int64
from treille.runtime.schema.machine import gaps
from treille.runtime.schema.machine.memory import (
    SELF,
    STEPS_ON,
    Machine,
    call,
    machine_at,
    nodes_of,
    row_of,
    rows_of,
    states_of,
    tables_of,
    text_facts_of,
    text_states_of,
    troubled,
)
from treille.runtime.schema.machine.rows import (
    A_COLUMN,
    B_COLUMN,
    CONFIG,
    EMPTY_TEXT,
    H_ROOT,
    HIGH_COLUMN,
    LITERAL_AT,
    LOW_COLUMN,
    NONE,
    NOT_ASKED,
    NOWHERE,
    REGION_AT,
    SUSPECT,
    VALUE_AT,
)
from treille.runtime.schema.machine.states import (
    FREE,
    TWIN,
    after_byte,
    mark_next_bytes,
    state_of_configs,
    twin_of,
)


@inner
def is_free(machine: Machine, state: int) -> bool:  # pragma: no cover
    """Whether any string may go on in a state, which then leads to itself."""
    return states_of(machine)[state, FREE] != 0


def _step_on(address: int, state: int, byte: int, _: int) -> int:  # pragma: no cover
    return after_byte(machine_at(address), state, byte)


@cache
def steps_on() -> Any:
    """The code that goes one byte further, compiled when it is first wanted; its `address` belongs in a
    machine."""
    return cfunc(types.int64(types.int64, types.int64, types.int64, types.int64), cache=True)(_step_on)


@inner
def stepped(machine: Machine, state: int, byte: int) -> int:  # pragma: no cover
    """The state after one more byte, `NOWHERE` or `SUSPECT`."""
    known = int64(rows_of(machine)[state, byte])
    if known != NOT_ASKED:
        return known
    return call(machine[STEPS_ON], machine[SELF], state, byte, int64(0))


@inner
def base_of(machine: Machine, state: int) -> int:  # pragma: no cover
    """The free state that most characters lead to from a state within a string, or -1."""
    nodes = nodes_of(machine)
    node = states_of(machine)[state, NODE]
    region = int64(-1)
    while node != NONE:
        config = nodes[node, A_COLUMN]
        row = nodes[nodes[config, A_COLUMN]]
        if row[0] == REGION_AT:
            if region >= 0 or nodes[config, HIGH_COLUMN] != 0:
                return int64(-1)
            region = int64(nodes[config, A_COLUMN])
            text = text_states_of(machine)[row[LOW_COLUMN]]
            if text[NODE] != text_facts_of(machine)[WHOLE] or text[TRACKERS] != 0 or text[MIDDLE] >= 0:
                return int64(-1)
        elif row[0] != LITERAL_AT or nodes[config, HIGH_COLUMN] != 0:
            return int64(-1)
        node = nodes[node, B_COLUMN]
    if region < 0:
        return int64(-1)
    # The bytes with which nothing but the region goes on.
    marked = np.zeros(256, np.int32)
    node = states_of(machine)[state, NODE]
    while node != NONE:
        place = int64(nodes[nodes[node, A_COLUMN], A_COLUMN])
        if nodes[place, 0] == LITERAL_AT:
            mark_next_bytes(machine, marked, place)
        node = nodes[node, B_COLUMN]
    extra = nodes[region, HIGH_COLUMN]
    if extra != NONE:
        if nodes[extra, A_COLUMN] != NONE:
            mark_next_bytes(machine, marked, int64(nodes[extra, A_COLUMN]))
        other = nodes[extra, B_COLUMN]
        while other != NONE:
            if nodes[other, A_COLUMN] > EMPTY_TEXT:
                marked[nodes[nodes[other, A_COLUMN], A_COLUMN]] = NOT_ASKED
            other = nodes[other, B_COLUMN]
    marked[0x22], marked[0x5C] = NOT_ASKED, NOT_ASKED
    probe = int64(0x7E)
    while probe >= 0x20 and marked[probe] != 0:
        probe -= 1
    if probe < 0x20:
        return int64(-1)
    free = stepped(machine, state, probe)
    if free < 0 or troubled(machine):
        return int64(-1)
    free = twin_of(machine, free)
    if not is_free(machine, free):
        return int64(-1)
    rows = rows_of(machine)
    if states_of(machine)[state, TWIN] == state:
        for byte in range(0x20, 256):
            if marked[byte] == 0 and rows[state, byte] == NOT_ASKED:
                rows[state, byte] = rows[free, byte]
    return free


@inner
def after_bytes(machine: Machine, state: int, data: Bytes, first: int, end: int) -> int:  # pragma: no cover
    """The state after `data[first:end]`, or a negative number."""
    here = int64(state)
    for index in range(first, end):
        following = stepped(machine, here, int64(data[index]))
        if following < 0:
            return following
        here = following
    return here


@inner
def only_byte(machine: Machine, state: int) -> int:  # pragma: no cover
    """The one byte that may follow; -1 if none may, -2 if there is a choice, of which stopping is one."""
    only = int64(-1)
    accepts = (states_of(machine)[state, STATUS] & ACCEPTS) != 0
    for byte in range(256):
        following = stepped(machine, state, byte)
        if following != NOWHERE:
            if only >= 0 or accepts or following == SUSPECT:
                return int64(-2)
            only = int64(byte)
    return only


@inner
def forced(machine: Machine, state: int, out: Bytes) -> int:  # pragma: no cover
    """Writes the bytes that must follow into `out`, uint8, at most its length; returns how many."""
    count = 0
    here = int64(state)
    while count < len(out):
        byte = only_byte(machine, here)
        if byte < 0 or troubled(machine):
            break
        out[count] = byte
        count += 1
        here = stepped(machine, here, byte)
    return int64(count)


@inner
def start(machine: Machine) -> int:  # pragma: no cover
    """The state of the empty text."""
    place = row_of(machine, VALUE_AT, int64(tables_of(machine)[H_ROOT]), gaps.ROOT * gaps.PLACES, NONE, NONE)
    configs = np.empty(1, np.int64)
    configs[0] = row_of(machine, CONFIG, place, NONE, NONE, NONE)
    return state_of_configs(machine, configs)
