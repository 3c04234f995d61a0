"""From an automaton over classes of characters to one over the bytes of UTF-8.

A lattice spells all classes at once: from a lead byte down to the class of the character. Each state
of the class automaton gets a copy of the lattice in which classes are replaced by the states they
lead to; parts that come out alike are shared, so the result is minimal if the class automaton is.
Only well-formed UTF-8 has a way through: no overlong forms, no surrogates, nothing past U+10FFFF.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treille.runtime.grammar.automaton import Dfa, Table, renumber
from treille.runtime.grammar.limits import MAX_STATES, Budget
from treille.runtime.grammar.nfa import ClassDfa

# Lead bytes and code points of the sequences of 2, 3 and 4 bytes.
_LENGTHS = ((0xC2, 0xDF, 0x80, 0x7FF), (0xE0, 0xEF, 0x800, 0xFFFF), (0xF0, 0xF4, 0x10000, 0x10FFFF))


@dataclass(frozen=True, slots=True, eq=False)
class _Node:
    """What may follow some bytes of a character. `parts`: (child, its continuation bytes); a child is
    a class if `last`, else a node. `classes`: all classes below."""

    last: bool
    parts: tuple[tuple[int, NDArray[np.int64]], ...]
    classes: tuple[int, ...]


class _Lattice:
    """Nodes, equal ones shared, and per lead byte the node (or for ASCII the class) that it leads to."""

    def __init__(self, dfa: ClassDfa) -> None:
        self.nodes: list[_Node] = []
        self._known: dict[tuple[int, tuple[int, ...]], int] = {}
        self._uniforms: dict[tuple[int, int], int] = {}
        self._segments = sorted(
            (low, high, column) for column, ranges in enumerate(dfa.classes) for low, high in ranges
        )
        self._lows = [low for low, _, _ in self._segments]
        self.ascii: list[tuple[int, int]] = []
        for byte in range(128):
            column = self._class_at(byte)
            if column >= 0:
                self.ascii.append((byte, column))
        self.leads: list[tuple[int, int]] = []
        for depth, (first, last, low, high) in enumerate(_LENGTHS, start=1):
            for byte in range(first, last + 1):
                payload = byte & (0x3F >> depth)
                node = self._node(depth, payload << 6 * depth, low, high)
                if node >= 0:
                    self.leads.append((byte, node))

    def _class_at(self, code: int) -> int:
        index = bisect_right(self._lows, code) - 1
        if index >= 0 and self._segments[index][1] >= code:
            return self._segments[index][2]
        return -1

    def _last_of(self, code: int) -> int:
        """The last code point of the segment that `code` is in."""
        return self._segments[bisect_right(self._lows, code) - 1][1]

    def _is_empty(self, low: int, high: int) -> bool:
        index = bisect_right(self._lows, high) - 1
        return index < 0 or self._segments[index][1] < low

    def _node(self, depth: int, base: int, low: int, high: int) -> int:
        """The node for the code points from `base` that `depth` more bytes tell apart; -1 if none."""
        step = 1 << 6 * (depth - 1)
        column = self._class_at(base)
        if column >= 0 and low <= base and self._last_of(base) >= base + 64 * step - 1 <= high:
            return self._uniform(depth, column)
        children = []
        for index in range(64):
            start = base + index * step
            if start + step - 1 < low or start > high or self._is_empty(start, start + step - 1):
                children.append(-1)
            elif depth == 1:
                children.append(self._class_at(start))
            else:
                children.append(self._node(depth - 1, start, low, high))
        return -1 if max(children) < 0 else self._shared(depth, children)

    def _uniform(self, depth: int, column: int) -> int:
        """The node under which every character is of one class."""
        if depth == 1:
            return self._shared(1, [column] * 64)
        if (depth, column) not in self._uniforms:
            self._uniforms[depth, column] = self._shared(depth, [self._uniform(depth - 1, column)] * 64)
        return self._uniforms[depth, column]

    def _shared(self, depth: int, children: list[int]) -> int:
        key = (depth, tuple(children))
        if key not in self._known:
            self._known[key] = len(self.nodes)
            self.nodes.append(self._made(depth == 1, children))
        return self._known[key]

    def _made(self, last: bool, children: list[int]) -> _Node:  # noqa: FBT001
        array = np.array(children)
        values = [int(value) for value in np.unique(array) if value >= 0]
        parts = tuple((value, np.flatnonzero(array == value) + 0x80) for value in values)
        below = values if last else {one for value in values for one in self.nodes[value].classes}
        return _Node(last, parts, tuple(sorted(below)))


def to_bytes(dfa: ClassDfa, budget: Budget) -> Dfa:
    """The byte automaton of a minimal class automaton.

    Raises `UnsupportedConstraint` when it would have too many states or take too long.
    """
    copier = _Copier(_Lattice(dfa), len(dfa.table), budget)
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
            row[places] = targets[child] if node.last else self._copy(child, targets)
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
