"""Deterministic automata: the byte-level `Dfa`, and how any transition table is made minimal.

A table has one row a state and one column a symbol; `-1` is no way on. Minimal tables are numbered
breadth first from state 0, so two automata accept the same language iff their arrays are equal.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

Table = NDArray[np.int32]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Dfa:
    """A minimal automaton over bytes. From every state there is a way to acceptance; 0 is the start.

    `transitions`: int32 [num_states, 256], -1 where the byte is not allowed. `accepting`: bool
    [num_states]. Both are read-only.
    """

    transitions: Table
    accepting: Flags

    def __post_init__(self) -> None:
        if self.transitions.shape != (len(self.accepting), 256) or not len(self.accepting):
            raise ValueError(
                f"transitions have shape {self.transitions.shape} for {len(self.accepting)} states"
            )
        self.transitions.flags.writeable = False
        self.accepting.flags.writeable = False

    @property
    def num_states(self) -> int:
        """States, the start included."""
        return len(self.accepting)

    @property
    def nbytes(self) -> int:
        """Memory of the arrays."""
        return self.transitions.nbytes + self.accepting.nbytes

    def run(self, data: bytes, state: int = 0) -> int | None:
        """The state after `data`, or None where a byte of it is not allowed."""
        transitions = self.transitions
        for byte in data:
            state = int(transitions[state, byte])
            if state < 0:
                return None
        return state

    def accepts(self, data: bytes) -> bool:
        """Whether `data` is in the language."""
        state = self.run(data)
        return state is not None and bool(self.accepting[state])


def minimize(table: Table, accepting: Flags) -> tuple[Table, Flags] | None:
    """The minimal automaton of the same language, without dead states; None for the empty language.

    `table`: int32 [n, k]; `accepting`: bool [n]; the start is state 0 before and after.
    """
    alive = _alive(table, accepting)
    if not alive[0]:
        return None
    small, final = _renumbered(table, accepting, alive, _equivalent(table, accepting, alive))
    return small, final


def renumber(table: Table, accepting: Flags) -> tuple[Table, Flags]:
    """The same automaton, which must be minimal and without dead states, numbered breadth first."""
    everything = np.ones(len(accepting), np.bool_)
    small, final = _renumbered(table, accepting, everything, np.arange(len(accepting) + 1, dtype=np.int32))
    return small, final


@njit(cache=True, nogil=True)
def _alive(table: Table, accepting: Flags) -> Flags:  # pragma: no cover
    """Which states have a way to acceptance: backwards from the accepting ones."""
    n, k = table.shape
    start = np.zeros(n + 1, np.int64)
    for state in range(n):
        for symbol in range(k):
            if table[state, symbol] >= 0:
                start[table[state, symbol] + 1] += 1
    for state in range(n):
        start[state + 1] += start[state]
    place = start[:-1].copy()
    sources = np.empty(start[n], np.int32)
    for state in range(n):
        for symbol in range(k):
            target = table[state, symbol]
            if target >= 0:
                sources[place[target]] = state
                place[target] += 1
    alive = accepting.copy()
    stack = np.empty(n, np.int32)
    top = 0
    for state in range(n):
        if accepting[state]:
            stack[top] = state
            top += 1
    while top > 0:
        top -= 1
        target = stack[top]
        for index in range(start[target], start[target + 1]):
            source = sources[index]
            if not alive[source]:
                alive[source] = True
                stack[top] = source
                top += 1
    return alive


@njit(cache=True, nogil=True)
def _inverse(table: Table, alive: Flags) -> tuple[Table, Table]:  # pragma: no cover
    """Predecessors by symbol, in compressed rows; missing and dead targets are the sink, state n."""
    n, k = table.shape
    start = np.zeros((k, n + 2), np.int32)
    sources = np.empty((k, n + 1), np.int32)
    for symbol in range(k):
        row = start[symbol]
        for state in range(n + 1):
            target = n if state == n else table[state, symbol]
            if target < 0 or (target < n and not alive[target]):
                target = n
            row[target + 1] += 1
        for state in range(n + 1):
            row[state + 1] += row[state]
        place = row[:-1].copy()
        for state in range(n + 1):
            target = n if state == n else table[state, symbol]
            if target < 0 or (target < n and not alive[target]):
                target = n
            sources[symbol, place[target]] = state
            place[target] += 1
    return start, sources


@njit(cache=True, nogil=True)
def _equivalent(table: Table, accepting: Flags, alive: Flags) -> Table:  # pragma: no cover
    """The block of each state and of the sink (Hopcroft 1971), int32 [n + 1]."""
    n, k = table.shape
    total = n + 1
    inverse_start, inverse = _inverse(table, alive)
    members = np.empty(total, np.int32)
    block = np.zeros(total, np.int32)
    first = np.zeros(total + 1, np.int32)
    end = np.zeros(total + 1, np.int32)
    count = 0
    for state in range(total):
        if state < n and accepting[state]:
            members[count] = state
            count += 1
    num_blocks = 1
    end[0] = count
    tail = count
    for state in range(total):
        if state == n or not accepting[state]:
            members[tail] = state
            block[state] = 1
            tail += 1
    first[1], end[1] = count, total
    num_blocks = 2
    place = np.empty(total, np.int32)
    for index in range(total):
        place[members[index]] = index
    marked = np.zeros(total + 1, np.int32)
    queued = np.zeros(total + 1, np.bool_)
    queue = np.empty(total + 1, np.int32)
    queue[0] = 0 if count <= total - count else 1
    queued[queue[0]] = True
    waiting = 1
    snapshot = np.empty(total, np.int32)
    touched = np.empty(total + 1, np.int32)
    hits = np.empty(total, np.int32)
    while waiting > 0:
        waiting -= 1
        splitter = queue[waiting]
        queued[splitter] = False
        size = end[splitter] - first[splitter]
        for index in range(size):
            snapshot[index] = members[first[splitter] + index]
        for symbol in range(k):
            num_hits = 0
            for index in range(size):
                target = snapshot[index]
                for at in range(inverse_start[symbol, target], inverse_start[symbol, target + 1]):
                    hits[num_hits] = inverse[symbol, at]
                    num_hits += 1
            num_touched = 0
            for index in range(num_hits):
                state = hits[index]
                owner = block[state]
                if marked[owner] == 0:
                    touched[num_touched] = owner
                    num_touched += 1
                swap = first[owner] + marked[owner]
                other = members[swap]
                members[place[state]] = other
                place[other] = place[state]
                members[swap] = state
                place[state] = swap
                marked[owner] += 1
            for index in range(num_touched):
                owner = touched[index]
                cut = marked[owner]
                marked[owner] = 0
                if cut == end[owner] - first[owner]:
                    continue
                fresh = num_blocks
                num_blocks += 1
                first[fresh], end[fresh] = first[owner], first[owner] + cut
                first[owner] += cut
                for at in range(first[fresh], end[fresh]):
                    block[members[at]] = fresh
                smaller = fresh if cut <= end[owner] - first[owner] else owner
                chosen = fresh if queued[owner] else smaller
                queue[waiting] = chosen
                queued[chosen] = True
                waiting += 1
    return block


@njit(cache=True, nogil=True)
def _renumbered(
    table: Table, accepting: Flags, alive: Flags, block: Table
) -> tuple[Table, Flags]:  # pragma: no cover
    """One state a block, numbered breadth first; dead targets become -1."""
    n, k = table.shape
    number = np.full(n + 2, -1, np.int32)
    speaker = np.empty(n + 1, np.int32)
    number[block[0]] = 0
    speaker[0] = 0
    count = 1
    at = 0
    while at < count:
        for symbol in range(k):
            target = table[speaker[at], symbol]
            if target >= 0 and alive[target] and number[block[target]] < 0:
                number[block[target]] = count
                speaker[count] = target
                count += 1
        at += 1
    small = np.full((count, k), -1, np.int32)
    final = np.zeros(count, np.bool_)
    for state in range(count):
        final[state] = accepting[speaker[state]]
        for symbol in range(k):
            target = table[speaker[state], symbol]
            if target >= 0 and alive[target]:
                small[state, symbol] = number[block[target]]
    return small, final
