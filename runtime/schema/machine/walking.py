"""Along the states of the machine, byte by byte.

What goes one byte further is large: it is compiled by itself, once, and called by its address.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import cfunc, types

from treille.runtime.grammar.store import ACCEPTS, MIDDLE, NODE, STATUS, WHOLE, Bytes, inner, int64
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
    H_ROOT,
    HIGH_COLUMN,
    LOW_COLUMN,
    NONE,
    NOT_ASKED,
    NOWHERE,
    REGION_AT,
    SUSPECT,
    VALUE_AT,
)
from treille.runtime.schema.machine.states import after_byte, state_of_configs, twin_of


@inner
def is_free(machine: Machine, state: int) -> bool:  # pragma: no cover
    """Whether any string may go on in a state, which then leads to itself."""
    return rows_of(machine)[state, 0x7E] == state


def _step_on(address: int, state: int, byte: int, _: int) -> int:  # pragma: no cover
    return after_byte(machine_at(address), state, byte)


@cache
def steps_on() -> Any:
    """The code that goes one byte further, compiled when it is first wanted; its `address` belongs in a machine."""
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
    within = False
    while node != NONE:
        config = nodes[node, A_COLUMN]
        row = nodes[nodes[config, A_COLUMN]]
        if row[0] == REGION_AT and nodes[config, HIGH_COLUMN] == 0:
            text = text_states_of(machine)[row[LOW_COLUMN]]
            within = within or (text[NODE] == text_facts_of(machine)[WHOLE] and text[MIDDLE] < 0)
        node = nodes[node, B_COLUMN]
    if within:
        for byte in (0x7E, 0x51, 0x7A, 0x20, 0x35, 0x3C):
            following = stepped(machine, state, int64(byte))
            if following >= 0:
                following = twin_of(machine, following)
                if is_free(machine, following):
                    return following
    return int64(-1)


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
