"""Minimal automata, fast where every cycle is a loop at one state, as in most automata of number texts."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from treille.runtime.grammar.automaton import Flags, Table, minimize

_DEAD, _SELF, _NEW = -1, -2, -3


def smallest(table: Table, accepting: Flags) -> tuple[Table, Flags] | None:
    """The minimal automaton of the same language; None for the empty one.

    `table`: int32 [n, k]; `accepting`: bool [n]; the start is state 0 before and after. As by `minimize`,
    numbered breadth first.
    """
    order = _finished(table)
    if not len(order):
        return minimize(table, accepting)
    small, final = _folded(table, accepting, order)
    return (small, final) if len(final) else None


@njit(cache=True, nogil=True)
def _finished(table: Table) -> Table:  # pragma: no cover
    """The states that state 0 leads to, each after all it leads to; none if a cycle is more than a loop."""
    n, k = table.shape
    colour = np.zeros(n, np.int8)
    place = np.zeros(n, np.int32)
    stack = np.empty(n, np.int32)
    order = np.empty(n, np.int32)
    count, top = 0, 1
    stack[0], colour[0] = 0, 1
    while top > 0:
        state = stack[top - 1]
        symbol = place[state]
        if symbol == k:
            colour[state] = 2
            order[count] = state
            count += 1
            top -= 1
            continue
        place[state] += 1
        target = table[state, symbol]
        if target < 0 or target == state or colour[target] == 2:
            continue
        if colour[target] == 1:
            return order[:0]
        colour[target] = 1
        stack[top] = target
        top += 1
    return order[:count]


@njit(cache=True, nogil=True)
def _folded(table: Table, accepting: Flags, order: Table) -> tuple[Table, Flags]:  # pragma: no cover
    """One state for all that take the same texts; states come after those that they lead to.

    Two states are one if their rows are, where a loop is a loop; or if one leads to the other and their rows
    are the same once its own loops are taken for that step. Nothing else can be: of two states that take the
    same texts, one with a loop where the other has none, the other leads to a third that takes the same.
    """
    n, k = table.shape
    size = 16
    while size < 2 * len(order):
        size *= 2
    slots = np.full(size, -1, np.int32)
    number = np.full(n, _DEAD, np.int32)
    rows = np.empty((len(order), k), np.int32)
    final = np.empty(len(order), np.bool_)
    row = np.empty(k, np.int32)
    count = 0
    for state in order:
        alive = accepting[state]
        mixed = np.int64(accepting[state])
        for symbol in range(k):
            target = table[state, symbol]
            row[symbol] = _SELF if target == state else _DEAD if target < 0 else number[target]
            alive |= row[symbol] >= 0
            mixed = (mixed ^ (mixed >> np.int64(31))) * np.int64(0x5851F42D4C957F2D) + row[symbol]
        if not alive:
            continue
        found = _follower(rows, final, row, accepting[state])
        if found == _NEW:
            slot = (mixed ^ (mixed >> np.int64(32))) & (size - 1)
            while slots[slot] >= 0:
                other = slots[slot]
                if final[other] == accepting[state] and np.array_equal(rows[other], row):
                    break
                slot = (slot + 1) & (size - 1)
            if slots[slot] < 0:
                slots[slot] = count
                rows[count] = row
                final[count] = accepting[state]
                count += 1
            found = slots[slot]
        number[state] = found
    if number[0] < 0:
        return rows[:0].copy(), final[:0].copy()
    return _from_start(rows[:count], final[:count], number[0])


@njit(cache=True, nogil=True)
def _follower(rows: Table, final: Flags, row: Table, accepting: np.bool_) -> int:  # pragma: no cover
    """The state among those a row leads to that takes the same texts, or `_NEW`."""
    k = len(row)
    before = -1
    for target in row:
        if target < 0 or target == before or final[target] != accepting:
            continue
        before = target
        same = True
        for symbol in range(k):
            mine = target if row[symbol] == _SELF else row[symbol]
            other = target if rows[target, symbol] == _SELF else rows[target, symbol]
            if mine != other:
                same = False
                break
        if same:
            return int(target)
    return _NEW


@njit(cache=True, nogil=True)
def _from_start(rows: NDArray[np.int32], final: Flags, start: int) -> tuple[Table, Flags]:  # pragma: no cover
    """The states that the start leads to, it first."""
    count, k = rows.shape
    number = np.full(count, -1, np.int32)
    queue = np.empty(count, np.int32)
    queue[0], number[start] = start, 0
    end = 1
    at = 0
    while at < end:
        for symbol in range(k):
            target = rows[queue[at], symbol]
            if target >= 0 and number[target] < 0:
                number[target] = end
                queue[end] = target
                end += 1
        at += 1
    table = np.full((end, k), -1, np.int32)
    accepting = np.empty(end, np.bool_)
    for place in range(end):
        accepting[place] = final[queue[place]]
        for symbol in range(k):
            target = rows[queue[place], symbol]
            if target >= 0:
                table[place, symbol] = number[target]
            elif target == _SELF:
                table[place, symbol] = place
    return table, accepting
