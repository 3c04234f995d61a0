"""From an automaton over classes of characters to one over the bytes of UTF-8.

A lattice spells all classes at once: from a lead byte down to the class of the character. Each state
of the class automaton gets a copy of the lattice in which classes are replaced by the states they
lead to; parts that come out alike are shared, so the result is minimal if the class automaton is.
Only well-formed UTF-8 has a way through: no overlong forms, no surrogates, nothing past U+10FFFF.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treille.runtime.grammar.automaton import Dfa, Table, renumber
from treille.runtime.grammar.charset import MAX_CODE_POINT, Ranges
from treille.runtime.grammar.limits import MAX_STATES, Budget
from treille.runtime.grammar.nfa import ClassDfa


@dataclass(frozen=True, slots=True, eq=False)
class _Node:
    """What may follow some bytes of a character: its `parts` are (child, continuation bytes).

    A child is a class if `is_last`, else a node. `classes`: all classes below.
    """

    is_last: bool
    parts: tuple[tuple[int, NDArray[np.int64]], ...]
    classes: tuple[int, ...]


class _Lattice:
    """The nodes, equal ones shared; `ascii` are pairs (byte, class), `leads` pairs (lead byte, node)."""

    def __init__(self, classes: Sequence[Ranges]) -> None:
        self.nodes: list[_Node] = []
        self._known: dict[tuple[bool, tuple[int, ...]], int] = {}
        self.ascii = [
            (code, column)
            for column, ranges in enumerate(classes)
            for low, high in ranges
            for code in range(low, min(high, 0x7F) + 1)
        ]
        last = self._last_bytes(classes)
        two = last[0x80 >> 6 : 0x800 >> 6].tolist()
        last[: 0x800 >> 6] = -1  # what is shorter must not be spelled longer
        third = self._level_above(last)
        three = third[: 0x10000 >> 12].tolist()
        third[: 0x10000 >> 12] = -1
        four = self._level_above(np.append(third, np.full(-len(third) % 64, -1, np.int32))).tolist()
        leads = [*enumerate(two, 0xC2), *enumerate(three, 0xE0), *enumerate(four, 0xF0)]
        self.leads = [(byte, node) for byte, node in leads if node >= 0]

    def _last_bytes(self, classes: Sequence[Ranges]) -> Table:
        """By code point // 64: the node from which one more byte tells the character, or -1."""
        nodes = np.full((MAX_CODE_POINT + 1) >> 6, -1, np.int32)
        mixed: dict[int, list[int]] = {}
        for column, ranges in enumerate(classes):
            whole = self._node([column] * 64, is_last=True)
            for low, high in ranges:
                first, end = (low + 63) >> 6, (high + 1) >> 6
                nodes[first:end] = whole
                for row in {low >> 6, high >> 6}:
                    if not first <= row < end:
                        start, stop = max(low - 64 * row, 0), min(high - 64 * row, 63) + 1
                        mixed.setdefault(row, [-1] * 64)[start:stop] = [column] * (stop - start)
        for row, children in mixed.items():
            nodes[row] = self._node(children, is_last=True)
        return nodes

    def _level_above(self, nodes: Table) -> Table:
        """By each 64 of the nodes: the node from which one more byte leads to them, or -1."""
        return np.array([self._node(row, is_last=False) for row in nodes.reshape(-1, 64).tolist()], np.int32)

    def _node(self, children: list[int], *, is_last: bool) -> int:
        if max(children) < 0:
            return -1
        key = (is_last, tuple(children))
        if key not in self._known:
            self._known[key] = len(self.nodes)
            self.nodes.append(self._made(children, is_last=is_last))
        return self._known[key]

    def _made(self, children: list[int], *, is_last: bool) -> _Node:
        places: dict[int, list[int]] = {}
        for byte, child in enumerate(children, 0x80):
            if child >= 0:
                places.setdefault(child, []).append(byte)
        parts = tuple((child, np.array(found)) for child, found in places.items())
        below = places if is_last else {one for child in places for one in self.nodes[child].classes}
        return _Node(is_last, parts, tuple(sorted(below)))


def to_bytes(dfa: ClassDfa, budget: Budget) -> Dfa:
    """The byte automaton of a minimal class automaton.

    Raises `UnsupportedConstraint` when it would have too many states or take too long.
    """
    copier = _Copier(_Lattice(dfa.classes), len(dfa.table), budget)
    rows = [copier.row(targets) for targets in dfa.table.tolist()]
    table = np.array([*rows, *copier.rows], np.int32).reshape(-1, 256)
    accepting = np.zeros(len(table), np.bool_)
    accepting[: len(dfa.accepting)] = dfa.accepting
    return Dfa(*renumber(table, accepting))


class _Copier:
    """Copies the lattice once a state; `rows` are the states in the middle of a character."""

    def __init__(self, lattice: _Lattice, num_states: int, budget: Budget) -> None:
        self.rows: list[Table] = []
        self._lattice = lattice
        self._num_states = num_states
        self._budget = budget
        self._copies: dict[tuple[int, tuple[int, ...]], int] = {}
        self._known: dict[bytes, int] = {}

    def row(self, targets: list[int]) -> Table:
        """The transitions of a state whose classes lead to `targets`."""
        self._budget.check_time()
        row = np.full(256, -1, np.int32)
        for byte, column in self._lattice.ascii:
            row[byte] = targets[column]
        for byte, node in self._lattice.leads:
            row[byte] = self._copy(node, targets)
        return row

    def _copy(self, index: int, targets: list[int]) -> int:
        node = self._lattice.nodes[index]
        key = (index, tuple(targets[column] for column in node.classes))
        if key in self._copies:
            return self._copies[key]
        row = np.full(256, -1, np.int32)
        for child, places in node.parts:
            row[places] = targets[child] if node.is_last else self._copy(child, targets)
        state = -1 if row.max() < 0 else self._shared(row)
        self._copies[key] = state
        return state

    def _shared(self, row: Table) -> int:
        key = row.tobytes()
        if key not in self._known:
            self._known[key] = self._num_states + len(self.rows)
            self.rows.append(row)
            self._budget.check_states(self._num_states + len(self.rows), MAX_STATES)
        return self._known[key]
