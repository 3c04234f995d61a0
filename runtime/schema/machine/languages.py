"""Questions about string languages. The regular engine that answers them is large: it is compiled by itself,
once, and called by its address, or everything that asks would be compiled with it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from numba import cfunc, types

from treille.runtime.grammar.derive import transfer
from treille.runtime.grammar.masks import allows_slice
from treille.runtime.grammar.states import after_byte, live_after, state_of, widened
from treille.runtime.grammar.store import MIDDLE, NODE, TRACKERS, TROUBLE, fixed, inner, int64
from treille.runtime.schema.expressions import NUM_FIXED
from treille.runtime.schema.machine.memory import (
    ANSWERS,
    SELF,
    Machine,
    call,
    machine_at,
    safe_of,
    symbols_of,
    text_of,
    text_rows_of,
)

_AFTER_BYTE, _LIVE_AFTER, _WIDENED, _STATE, _SLICE, _MOVED = (fixed(one) for one in range(6))
_SHARED = fixed(NUM_FIXED)
NOT_ASKED = -2


def _answer(address: int, what: int, x: int, y: int) -> int:  # pragma: no cover
    machine = machine_at(address)
    store = text_of(machine)
    if what == _AFTER_BYTE:
        return after_byte(store, x, y)
    if what == _LIVE_AFTER:
        return live_after(store, x, y)
    if what == _WIDENED:
        return widened(store, x)
    if what == _STATE:
        return state_of(store, x, y, int64(-1))
    if what == _MOVED:
        source = text_of(machine_at(x))
        row = source.states[y]
        node = transfer(source, store, row[NODE], _SHARED)
        trackers = transfer(source, store, row[TRACKERS], _SHARED)
        return int64(-1) if store.facts[TROUBLE] else state_of(store, node, trackers, row[MIDDLE])
    symbols, safe = symbols_of(machine), safe_of(machine)
    for index in range(len(symbols)):
        if safe[index] and allows_slice(store, x, symbols[index]):
            return int64(index)
    return int64(-1)


@cache
def answers() -> Any:
    """The code that answers, compiled when it is first wanted; its `address` belongs in a machine."""
    return cfunc(types.int64(types.int64, types.int64, types.int64, types.int64), cache=True)(_answer)


@inner
def text_after(machine: Machine, state: int, byte: int) -> int:  # pragma: no cover
    """The live state of the string languages after one more byte, or -1."""
    known = int64(text_rows_of(machine)[state, byte])
    if known != NOT_ASKED:
        return known
    return call(machine[ANSWERS], machine[SELF], _AFTER_BYTE, state, byte)


@inner
def text_after_class(machine: Machine, state: int, symbol: int) -> int:  # pragma: no cover
    """The live state after a character of a class, or -1."""
    return call(machine[ANSWERS], machine[SELF], _LIVE_AFTER, state, symbol)


@inner
def text_widened(machine: Machine, state: int) -> int:  # pragma: no cover
    """The state in which long counts are endless; how many characters ahead it agrees is in its facts."""
    return call(machine[ANSWERS], machine[SELF], _WIDENED, state, int64(0))


@inner
def text_state(machine: Machine, node: int, trackers: int) -> int:  # pragma: no cover
    """The state of an expression with trackers, between two characters."""
    return call(machine[ANSWERS], machine[SELF], _STATE, node, trackers)


@inner
def text_moved(machine: Machine, source: Machine, state: int) -> int:  # pragma: no cover
    """The state that is a state of another machine's text store."""
    return call(machine[ANSWERS], machine[SELF], _MOVED, source[SELF], state)


@inner
def slice_allowed(machine: Machine, state: int) -> int:  # pragma: no cover
    """The first slice of plain text that a state allows as a whole, or -1."""
    return call(machine[ANSWERS], machine[SELF], _SLICE, state, int64(0))
