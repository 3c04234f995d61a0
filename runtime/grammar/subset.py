"""The subset construction, in compiled loops that stop for the clock and for more room.

A deterministic state is a set of *items*. Without assertions an item is an NFA state. With them it is
an NFA state and the events that may still follow it: the end of the text, a newline that ends the
text, another newline, a word character, any other character. An assertion looks at what stands
before, which is known when the set is made, and takes events away; the next character is checked
against what is left, and the slate is clean again.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from treille.runtime.grammar.automaton import Flags, Table, minimize
from treille.runtime.grammar.limits import MAX_STATES, MAX_TABLE, Budget

# What may follow a position, as bits of an item.
EVENT_BITS = 6
END, LAST_NEWLINE, NEWLINE, ASCII_WORD, OTHER_WORD, OTHER = (1 << bit for bit in range(EVENT_BITS))
ANY = (1 << EVENT_BITS) - 1
# What stands before a position: columns of the assertion table.
START, AFTER_NEWLINE, AFTER_ASCII_WORD, AFTER_OTHER_WORD, AFTER_OTHER = range(5)

_DONE, _FULL, _PAUSED = range(3)
_STEPS = 20_000_000  # of a loop between two looks at the clock


class Machine(NamedTuple):
    """An NFA as arrays. `shift` is `EVENT_BITS` with assertions and 0 without.

    `chars`: int32 [num_edges, 2] of (set, target), those of state s from `char_start[s]`. `empties`:
    int32 [num_edges, 2] of (target, assertion), alike. `members`: bool [num_sets, num_classes].
    `events`: uint8 [num_classes], the event that each class is. `assertions`: uint8 [assertion, what
    stands before], the events allowed.
    """

    start: int
    accept: int
    shift: int
    chars: Table
    char_start: Table
    empties: Table
    empty_start: Table
    members: Flags
    events: NDArray[np.uint8]
    assertions: NDArray[np.uint8]


class _Work(NamedTuple):
    """The construction so far: `items[first[s]:first[s + 1]]` is the set of state s.

    `hashes` finds a set's state; `marks` and `scratch` belong to the set in the making. `counters`:
    states made, states done, classes done of the next one, mark in use, steps left.
    """

    table: Table
    accepting: Flags
    first: NDArray[np.int64]
    items: Table
    hashes: Table
    marks: NDArray[np.int64]
    scratch: Table
    counters: NDArray[np.int64]


@cache
def load_loops() -> None:
    """Compiles the loops, or loads them from numba's cache: once, and on no constraint's time."""
    empty = np.zeros((0, 2), np.int32)
    none = np.zeros(2, np.int32)
    machine = Machine(
        start=0,
        accept=0,
        shift=0,
        chars=empty,
        char_start=none,
        empties=empty,
        empty_start=none,
        members=np.zeros((0, 0), np.bool_),
        events=np.zeros(0, np.uint8),
        assertions=np.zeros((1, 5), np.uint8),
    )
    minimize(*explore(machine, Budget("", seconds=3600)))


def explore(machine: Machine, budget: Budget) -> tuple[Table, Flags]:
    """The table of the deterministic automaton, int32 [n, num_classes], and its accepting states."""
    num_classes = len(machine.events)
    limit = max(1, min(MAX_STATES, MAX_TABLE // max(1, num_classes)))
    num_items = (len(machine.char_start) - 1) << machine.shift
    room = min(1024, limit)
    work = _Work(
        table=np.full((room, num_classes), -1, np.int32),
        accepting=np.zeros(room, np.bool_),
        first=np.zeros(room + 1, np.int64),
        items=np.empty(1 << 15, np.int32),
        hashes=np.full(4 * room, -1, np.int32),
        marks=np.zeros(num_items, np.int64),
        scratch=np.empty((2, num_items + 1), np.int32),
        counters=np.zeros(5, np.int64),
    )
    while True:
        work.counters[4] = _STEPS
        status = int(_explore(machine, work))
        made = int(work.counters[0])
        if status == _DONE:
            return work.table[:made].copy(), work.accepting[:made].copy()
        budget.check_time()
        if status == _FULL and made == len(work.table):
            if made == limit:
                raise budget.exceeded(f"its automaton needs more than the limit of {limit} states")
            work = _with_states(work, min(limit, 2 * made))
        elif status == _FULL:
            if len(work.items) > MAX_TABLE:
                raise budget.exceeded("its automaton combines too many states")
            work = work._replace(items=np.concatenate([work.items, np.empty_like(work.items)]))


def _with_states(work: _Work, room: int) -> _Work:
    more = room - len(work.table)
    hashes = np.full(4 * room, -1, np.int32)
    work = work._replace(
        table=np.concatenate([work.table, np.full((more, work.table.shape[1]), -1, np.int32)]),
        accepting=np.concatenate([work.accepting, np.zeros(more, np.bool_)]),
        first=np.concatenate([work.first, np.zeros(more, np.int64)]),
        hashes=hashes,
    )
    _rehash(work)
    return work


@njit(cache=True, nogil=True)
def _explore(machine: Machine, work: _Work) -> int:  # pragma: no cover
    """Goes on until all states are done, room is short, or the steps are used up."""
    counters = work.counters
    num_classes = len(machine.events)
    if counters[0] == 0:
        status = _add_start(machine, work)
        if status != _DONE:
            return status
    while counters[1] < counters[0]:
        state = counters[1]
        while counters[2] < num_classes:
            if counters[4] < 0:
                return _PAUSED
            count = _read(machine, work, state, counters[2])
            if count:
                target = _state_of(machine, work, count)
                if target < 0:
                    return _FULL
                work.table[state, counters[2]] = target
            counters[2] += 1
        counters[1] += 1
        counters[2] = 0
    return _DONE


@njit(cache=True, nogil=True)
def _add_start(machine: Machine, work: _Work) -> int:  # pragma: no cover
    work.counters[3] += 1
    item = machine.start << machine.shift
    if machine.shift:
        item |= ANY
    count = _close(machine, work, item, START, 0)
    return _FULL if _state_of(machine, work, count) < 0 else _DONE


@njit(cache=True, nogil=True)
def _read(machine: Machine, work: _Work, state: int, symbol: int) -> int:  # pragma: no cover
    """Puts the set after a character of class `symbol` into the scratch; returns its size."""
    work.counters[3] += 1
    shift = machine.shift
    event = machine.events[symbol]
    before = AFTER_OTHER
    if event == NEWLINE:
        before = AFTER_NEWLINE
    elif event == ASCII_WORD:
        before = AFTER_ASCII_WORD
    elif event == OTHER_WORD:
        before = AFTER_OTHER_WORD
    count = 0
    low, high = work.first[state], work.first[state + 1]
    work.counters[4] -= high - low
    for index in range(low, high):
        item = work.items[index]
        fresh = 0
        if shift:
            allowed = item & ANY
            fresh = ANY
            if event == NEWLINE:
                if not allowed & NEWLINE:
                    fresh = END
                elif not allowed & LAST_NEWLINE:
                    fresh = ANY & ~END
                allowed &= NEWLINE | LAST_NEWLINE
            else:
                allowed &= event
            if not allowed:
                continue
        source = item >> shift
        for edge in range(machine.char_start[source], machine.char_start[source + 1]):
            if machine.members[machine.chars[edge, 0], symbol]:
                count = _close(machine, work, machine.chars[edge, 1] << shift | fresh, before, count)
    return count


@njit(cache=True, nogil=True)
def _close(machine: Machine, work: _Work, item: int, before: int, count: int) -> int:  # pragma: no cover
    """Adds what `item` reaches without reading to the scratch; only items that read or accept stay."""
    marks, mark, shift = work.marks, work.counters[3], machine.shift
    if marks[item] == mark:
        return count
    found, stack = work.scratch[0], work.scratch[1]
    marks[item] = mark
    stack[0] = item
    top = 1
    while top > 0:
        top -= 1
        item = stack[top]
        state = item >> shift
        if machine.char_start[state] < machine.char_start[state + 1] or state == machine.accept:
            found[count] = item
            count += 1
        work.counters[4] -= 1 + machine.empty_start[state + 1] - machine.empty_start[state]
        for edge in range(machine.empty_start[state], machine.empty_start[state + 1]):
            following = machine.empties[edge, 0] << shift
            if shift:
                allowed = item & ANY & machine.assertions[machine.empties[edge, 1], before]
                if not allowed:
                    continue
                following |= allowed
            if marks[following] != mark:
                marks[following] = mark
                stack[top] = following
                top += 1
    return count


@njit(cache=True, nogil=True)
def _state_of(machine: Machine, work: _Work, count: int) -> int:  # pragma: no cover
    """The state of the set in the scratch, made if need be; -1 if there is no room for it."""
    made, mark = work.counters[0], work.counters[3]
    found = work.scratch[0, :count]
    slot = _hash(found) % len(work.hashes)
    while work.hashes[slot] >= 0:
        state = work.hashes[slot]
        low, high = work.first[state], work.first[state + 1]
        if high - low == count:
            equal = True
            for index in range(low, high):
                if work.marks[work.items[index]] != mark:
                    equal = False
                    break
            if equal:
                return int(state)
        slot = (slot + 1) % len(work.hashes)
    if made == len(work.table) or work.first[made] + count > len(work.items):
        return -1
    work.hashes[slot] = made
    low = work.first[made]
    for index in range(count):
        item = found[index]
        work.items[low + index] = item
        if item >> machine.shift == machine.accept and (machine.shift == 0 or item & END):
            work.accepting[made] = True
    work.first[made + 1] = low + count
    work.counters[0] += 1
    return int(made)


@njit(cache=True, nogil=True)
def _hash(items: Table) -> np.int64:  # pragma: no cover
    """A hash of a set, the same in any order."""
    total = np.uint64(len(items))
    for item in items:
        mixed = np.uint64(item) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
        total += mixed * np.uint64(0xBF58476D1CE4E5B9)
    return np.int64(total >> np.uint64(1))


@njit(cache=True, nogil=True)
def _rehash(work: _Work) -> None:  # pragma: no cover
    for state in range(work.counters[0]):
        slot = _hash(work.items[work.first[state] : work.first[state + 1]]) % len(work.hashes)
        while work.hashes[slot] >= 0:
            slot = (slot + 1) % len(work.hashes)
        work.hashes[slot] = state
