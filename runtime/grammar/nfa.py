"""Nondeterministic automata over characters, and their determinisation.

Edges carry sets of characters, nothing, or an assertion about the neighbouring characters (an anchor
or a word boundary). The characters are grouped into *classes* that no edge tells apart, so the
determinised table has a column a class, not a column a character.

How assertions are followed is told in `subset.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from treille.runtime.grammar import charset
from treille.runtime.grammar.automaton import Flags, Table
from treille.runtime.grammar.charset import Ranges
from treille.runtime.grammar.limits import MAX_NFA_ITEMS, MAX_NFA_STATES, MAX_TABLE, Budget
from treille.runtime.grammar.subset import (
    AFTER_ASCII_WORD,
    AFTER_NEWLINE,
    AFTER_OTHER_WORD,
    ANY,
    ASCII_WORD,
    END,
    EVENT_BITS,
    LAST_NEWLINE,
    NEWLINE,
    OTHER,
    OTHER_WORD,
    START,
    Machine,
    explore,
)


class Assertion(IntEnum):
    """What an edge may ask of its place in the text, with the names of `re`."""

    BEGIN = 1
    BEGIN_LINE = 2
    END = 3
    END_LINE = 4
    END_TEXT = 5
    BOUNDARY = 6
    NOT_BOUNDARY = 7
    ASCII_BOUNDARY = 8
    NOT_ASCII_BOUNDARY = 9


@dataclass(frozen=True, slots=True, eq=False)
class ClassDfa:
    """A deterministic automaton over classes of characters: `table` int32 [n, k], `classes` k sets."""

    table: Table
    accepting: Flags
    classes: tuple[Ranges, ...]


class Nfa:
    """An automaton in the making: states are numbers, edges are added, one state accepts."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.num_states = 0
        self.has_assertions = False
        self._sets: dict[Ranges, int] = {}
        self._chars: list[tuple[int, int, int]] = []
        self._empties: list[tuple[int, int, int]] = []

    def add_state(self) -> int:
        """A new state's number."""
        self.num_states += 1
        self.budget.check_states(self.num_states, MAX_NFA_STATES)
        if self.num_states % 1024 == 0:
            self.budget.check_time()
        return self.num_states - 1

    def add_chars(self, source: int, chars: Ranges, target: int) -> None:
        """An edge that reads one character of a set."""
        self._chars.append((source, self._sets.setdefault(chars, len(self._sets)), target))

    def add_empty(self, source: int, target: int, assertion: Assertion | None = None) -> None:
        """An edge that reads nothing, and may be taken where the assertion holds."""
        self.has_assertions |= assertion is not None
        self._empties.append((source, target, 0 if assertion is None else int(assertion)))

    def determinize(self, start: int, accept: int) -> ClassDfa:
        """The subset construction, within the budget."""
        shift = EVENT_BITS if self.has_assertions else 0
        self.budget.check_states(self.num_states << shift, MAX_NFA_ITEMS)
        classes, members = _partition(list(self._sets), self.budget, split_words=self.has_assertions)
        chars, char_start = _compressed(self._chars, self.num_states)
        empties, empty_start = _compressed(self._empties, self.num_states)
        machine = Machine(
            start=start,
            accept=accept,
            shift=shift,
            chars=chars,
            char_start=char_start,
            empties=empties,
            empty_start=empty_start,
            members=members,
            events=np.array([_event(one) if self.has_assertions else OTHER for one in classes], np.uint8),
            assertions=_assertion_table(),
        )
        table, accepting = explore(machine, self.budget)
        return ClassDfa(table, accepting, classes)


def _compressed(edges: list[tuple[int, int, int]], num_states: int) -> tuple[Table, Table]:
    """Edges (source, x, y) as rows (x, y) by source, and where each source's rows start."""
    array = np.array(edges, np.int32).reshape(-1, 3)
    array = array[np.argsort(array[:, 0], kind="stable")]
    start = np.zeros(num_states + 1, np.int32)
    np.cumsum(np.bincount(array[:, 0], minlength=num_states), out=start[1:])
    return np.ascontiguousarray(array[:, 1:]), start


def _partition(sets: list[Ranges], budget: Budget, *, split_words: bool) -> tuple[tuple[Ranges, ...], Flags]:
    """Classes of characters that the sets do not tell apart; `members` [num_sets, num_classes]."""
    num_sets = len(sets)
    if split_words:
        word, ascii_word = (charset.category("w", ascii_only=ascii_only) for ascii_only in (False, True))
        sets = [*sets, charset.NEWLINE, word, ascii_word]
    # By code point, the sets that begin or end there, as bits.
    flips: dict[int, int] = {}
    for index, ranges in enumerate(sets):
        for low, high in ranges:
            flips[low] = flips.get(low, 0) ^ (1 << index)
            flips[high + 1] = flips.get(high + 1, 0) ^ (1 << index)
    groups: dict[int, list[tuple[int, int]]] = {}
    signature, low = 0, 0
    wanted = (1 << num_sets) - 1
    for point in sorted(flips):
        if signature & wanted:
            groups.setdefault(signature, []).append((low, point - 1))
            if len(groups) * num_sets > MAX_TABLE:
                raise budget.exceeded("it tells too many kinds of characters apart")
        signature ^= flips[point]
        low = point
    width = (len(sets) + 7) // 8
    packed = b"".join(bits.to_bytes(width, "little") for bits in groups)
    rows = np.frombuffer(packed, np.uint8).reshape(len(groups), width)
    members = np.unpackbits(rows, axis=1, count=num_sets, bitorder="little").T
    budget.check_time()
    return tuple(charset.make_set(pairs) for pairs in groups.values()), np.ascontiguousarray(
        members, np.bool_
    )


def _event(ranges: Ranges) -> int:
    """The event that a character of a class is; with `split_words` they all are the same."""
    first = chr(ranges[0][0])
    if first == "\n":
        return NEWLINE
    if re.match(r"\w", first, re.ASCII):
        return ASCII_WORD
    return OTHER_WORD if re.match(r"\w", first) else OTHER


def _assertion_table() -> NDArray[np.uint8]:
    """Events allowed after, by assertion and by what stands before: uint8 [10, 5]."""
    rows = np.zeros((10, 5), np.uint8)
    rows[0] = ANY
    rows[Assertion.BEGIN, START] = ANY
    rows[Assertion.BEGIN_LINE, [START, AFTER_NEWLINE]] = ANY
    rows[Assertion.END] = END | LAST_NEWLINE
    rows[Assertion.END_LINE] = END | LAST_NEWLINE | NEWLINE
    rows[Assertion.END_TEXT] = END
    # Whether the empty text has a non-boundary depends on the version of Python.
    nowhere = 0 if re.fullmatch(r"\B", "") else END
    for yes, no, word, before in (
        (
            Assertion.BOUNDARY,
            Assertion.NOT_BOUNDARY,
            ASCII_WORD | OTHER_WORD,
            (AFTER_ASCII_WORD, AFTER_OTHER_WORD),
        ),
        (Assertion.ASCII_BOUNDARY, Assertion.NOT_ASCII_BOUNDARY, ASCII_WORD, (AFTER_ASCII_WORD,)),
    ):
        for column in range(5):
            rows[yes, column] = ANY & ~word if column in before else word
            rows[no, column] = ANY & ~rows[yes, column]
        rows[no, START] &= ANY & ~nowhere
    return rows
