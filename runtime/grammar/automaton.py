"""Deterministic automata: the byte-level `Dfa`, and how any transition table is made minimal.

A table has one row a state and one column a symbol; `-1` is no way on. Minimal tables are numbered
breadth first from state 0, so two automata accept the same language iff their arrays are equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

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


class _Partition(NamedTuple):
    """Blocks of states. Those of block b are `members[first[b]:end[b]]`, the marked ones in front.

    `place` is the inverse of `members`. `queue` holds the blocks that others are still to be split by.
    `counters`: number of blocks, length of the queue.
    """

    members: Table
    place: Table
    block: Table
    first: Table
    end: Table
    marked: Table
    queue: Table
    queued: Flags
    counters: Table


@njit(cache=True, nogil=True)
def _equivalent(table: Table, accepting: Flags, alive: Flags) -> Table:  # pragma: no cover
    """The block of each state and of the sink (Hopcroft 1971), int32 [n + 1]."""
    n, k = table.shape
    start, sources = _inverse(table, alive)
    partition = _by_acceptance(accepting)
    counters = partition.counters
    splitter = np.empty(n + 1, np.int32)
    hits = np.empty(n + 1, np.int32)
    touched = np.empty(n + 2, np.int32)
    while counters[1] > 0:
        counters[1] -= 1
        block = partition.queue[counters[1]]
        partition.queued[block] = False
        # A copy: the block itself may be split while it splits others.
        size = partition.end[block] - partition.first[block]
        splitter[:size] = partition.members[partition.first[block] : partition.end[block]]
        for symbol in range(k):
            num_hits = 0
            for target in splitter[:size]:
                for index in range(start[symbol, target], start[symbol, target + 1]):
                    hits[num_hits] = sources[symbol, index]
                    num_hits += 1
            num_touched = 0
            for state in hits[:num_hits]:
                num_touched = _mark(partition, state, touched, num_touched)
            for owner in touched[:num_touched]:
                _split(partition, owner)
    return partition.block


@njit(cache=True, nogil=True)
def _by_acceptance(accepting: Flags) -> _Partition:  # pragma: no cover
    """Two blocks: the accepting states, and the others with the sink."""
    total = len(accepting) + 1
    partition = _Partition(
        members=np.empty(total, np.int32),
        place=np.empty(total, np.int32),
        block=np.ones(total, np.int32),
        first=np.zeros(total + 1, np.int32),
        end=np.zeros(total + 1, np.int32),
        marked=np.zeros(total + 1, np.int32),
        queue=np.zeros(total + 1, np.int32),
        queued=np.zeros(total + 1, np.bool_),
        counters=np.array([2, 1], np.int32),
    )
    front, back = 0, total
    for state in range(total):
        if state < total - 1 and accepting[state]:
            place = front
            front += 1
            partition.block[state] = 0
        else:
            back -= 1
            place = back
        partition.members[place] = state
        partition.place[state] = place
    partition.end[0] = front
    partition.first[1], partition.end[1] = front, total
    smaller = 0 if front <= total - front else 1
    partition.queue[0] = smaller
    partition.queued[smaller] = True
    return partition


@njit(cache=True, nogil=True)
def _mark(partition: _Partition, state: int, touched: Table, num_touched: int) -> int:  # pragma: no cover
    """Moves a state to the front of its block; notes the block if it had none marked."""
    owner = partition.block[state]
    if partition.marked[owner] == 0:
        touched[num_touched] = owner
        num_touched += 1
    old, new = partition.place[state], partition.first[owner] + partition.marked[owner]
    other = partition.members[new]
    partition.members[old], partition.place[other] = other, old
    partition.members[new], partition.place[state] = state, new
    partition.marked[owner] += 1
    return num_touched


@njit(cache=True, nogil=True)
def _split(partition: _Partition, owner: int) -> None:  # pragma: no cover
    """Makes the marked states of a block, if they are not all of it, a block of their own."""
    first, end, counters = partition.first, partition.end, partition.counters
    cut = partition.marked[owner]
    partition.marked[owner] = 0
    if cut == end[owner] - first[owner]:
        return
    fresh = counters[0]
    counters[0] += 1
    first[fresh], end[fresh] = first[owner], first[owner] + cut
    first[owner] += cut
    for index in range(first[fresh], end[fresh]):
        partition.block[partition.members[index]] = fresh
    chosen = fresh if partition.queued[owner] or cut <= end[owner] - first[owner] else owner
    partition.queue[counters[1]] = chosen
    partition.queued[chosen] = True
    counters[1] += 1


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
