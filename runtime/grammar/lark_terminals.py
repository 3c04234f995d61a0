"""Automata of terminals as rules of the expression engine.

Every state of an automaton is a rule: the rest of the token, for the threads that go on. Where a thread has
matched, the token may end if those before it never match in what follows. That is a negated look ahead at one
more rule, "the threads of this state match", and comes to stand before whatever follows the token.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from treille.runtime.grammar import build
from treille.runtime.grammar.charset import Ranges, make_set
from treille.runtime.grammar.classes import Classes
from treille.runtime.grammar.lexing import DEAD, NOTHING_LEFT, Automaton, Leaf, Reference
from treille.runtime.grammar.normal import normalize
from treille.runtime.grammar.store import MANY, SEARCHED
from treille.runtime.grammar.tree import NOTHING, Chars, Look

MAX_INLINE = 40  # states in a row that are written out in the rule before them


class Machine(Protocol):
    """An automaton as it is written down: `conditions` of its tests, and where a state leads."""

    @property
    def conditions(self) -> tuple[Look, ...]:
        """The looks that tests ask for."""

    def ways(self, state: int) -> list[tuple[Ranges, Reference]]:
        """By set of characters, what follows; sets that lead nowhere are left out."""


class Writer(build.Program):
    """A program whose expressions are written part by part, each after what it is made of."""

    def __init__(self, known: int) -> None:
        super().__init__()
        self._searched: list[bool] = []
        self._bodies: list[Callable[[], None]] = []
        self._num_written = 0
        self.known = known

    def new_rule(self, body: Callable[[], None], *, searched: bool = False) -> int:
        """The number of a rule; `body` writes its expression, later. If `searched`, it may have no text."""
        self._bodies.append(body)
        self._searched.append(searched)
        return len(self._bodies) - 1

    def write_rules(self) -> None:
        """Writes the bodies of the new rules, and of those that they bring."""
        while self._num_written < len(self._bodies):
            self._bodies[self._num_written]()
            self.end_rule(self._num_written)
            self._num_written += 1

    def rule(self, number: int) -> None:
        """A text of a rule."""
        known = self.known | (SEARCHED if self._searched[number] else 0)
        self.code += (build._RULE, number, known)

    def sequence(self, count: int) -> None:
        """The last `count` expressions, one after the other."""
        self.code += (build._SEQUENCE, count)

    def choice(self, count: int) -> None:
        """One of the last `count` expressions."""
        self.code += (build._CHOICE, count)

    def end(self, kind: int) -> None:
        """Nothing; a token of a kind ends here."""
        self.code += (build._TERM, kind, 0)

    def parser(self, state: int) -> None:
        """An LR parser that begins in a state."""
        self.code += (build._PARSER, state)

    def any_number(self) -> None:
        """The last expression, any number of times."""
        self.code += (build._REPEAT, 0, MANY)

    def ahead(self, *, negated: bool) -> None:
        """Nothing, where a text of the last expression follows (or none does)."""
        self.code += (build._AHEAD, int(negated))


class MachineRules:
    """The rules for the states of a machine. `end` writes what stands where a token of a kind ends.

    `unsure`: the states of which it is not sure that what follows has an end (see `lark_live.py`).
    """

    def __init__(
        self,
        writer: Writer,
        machine: Machine,
        end: Callable[[int], None],
        *,
        unsure: frozenset[int] = frozenset(),
        max_inline: int = MAX_INLINE,
    ) -> None:
        self._unsure = unsure
        self._max_inline = max_inline
        self._writer = writer
        self._machine = machine
        self._end = end
        self.rests: dict[int, int] = {}
        self._matches: dict[int, int] = {}
        self._looks = [normalize(look) for look in machine.conditions]
        self._refused = [normalize(Look(look.body, look.behind, negated=True)) for look in machine.conditions]

    def write(self, reference: Reference, depth: int = 0) -> None:
        """The expression of what is left of the token, its end included."""
        writer = self._writer
        if not isinstance(reference, Leaf):
            self._write_test(reference, lambda one: self.write(one, depth))
        elif not reference.matched:
            self._write_rest(reference.state, depth)
        elif reference.state == DEAD:
            self._end(reference.kind)
        else:
            self._write_matches(reference.state)
            writer.ahead(negated=True)
            self._end(reference.kind)
            writer.sequence(2)
            self._write_rest(reference.state, depth)
            writer.choice(2)

    def _write_test(self, test: Reference, write: Callable[[Reference], None]) -> None:
        assert not isinstance(test, Leaf)
        count = 0
        for look, one in (
            (self._looks[test.condition], test.if_so),
            (self._refused[test.condition], test.if_not),
        ):
            if look != NOTHING and one != NOTHING_LEFT:
                self._writer.add(look)
                write(one)
                self._writer.sequence(2)
                count += 1
        self._writer.choice(count)

    def _write_rest(self, state: int, depth: int) -> None:
        if state == DEAD:
            self._writer.choice(0)
        elif self._is_inline(state, depth):
            self._write_ways(state, lambda one: self.write(one, depth + 1))
        else:
            if state not in self.rests:
                self.rests[state] = self._writer.new_rule(
                    lambda: self._write_ways(state, self.write), searched=state in self._unsure
                )
            self._writer.rule(self.rests[state])

    def _write_matches(self, state: int) -> None:
        if all(isinstance(one, Leaf) and one.matched for _, one in self._machine.ways(state)):
            self._write_ways(state, self._write_match)
        else:
            if state not in self._matches:
                self._matches[state] = self._writer.new_rule(
                    lambda: self._write_ways(state, self._write_match)
                )
            self._writer.rule(self._matches[state])

    def _write_match(self, reference: Reference) -> None:
        if not isinstance(reference, Leaf):
            self._write_test(reference, self._write_match)
        elif reference.matched:
            self._writer.sequence(0)
        else:
            self._write_matches(reference.state)

    def _write_ways(self, state: int, write: Callable[[Reference], None]) -> None:
        ways = self._machine.ways(state)
        for ranges, reference in ways:
            self._writer.add(Chars(ranges))
            write(reference)
            self._writer.sequence(2)
        self._writer.choice(len(ways))

    def _is_inline(self, state: int, depth: int) -> bool:
        """Whether a state is written out where it is reached: it leads straight on, to one other."""
        if depth >= self._max_inline or state in self.rests or state in self._unsure:
            return False
        ways = self._machine.ways(state)
        return len(ways) == 1 and isinstance(ways[0][1], Leaf) and ways[0][1].state != state


class Single:
    """The machine of one terminal."""

    def __init__(self, automaton: Automaton) -> None:
        self._table = automaton.table
        self._sets = sets_of(automaton.classes)
        self.conditions = automaton.conditions
        self._known: dict[int, list[tuple[Ranges, Reference]]] = {}

    def ways(self, state: int) -> list[tuple[Ranges, Reference]]:
        """See `Machine`."""
        if state not in self._known:
            self._known[state] = grouped(self._table[state], self._sets)
        return self._known[state]


def grouped(row: tuple[Reference, ...], sets: list[Ranges]) -> list[tuple[Ranges, Reference]]:
    """The classes of a row that lead to the same, as one set."""
    found: dict[Reference, list[tuple[int, int]]] = {}
    for number, reference in enumerate(row):
        if reference != NOTHING_LEFT:
            found.setdefault(reference, []).extend(sets[number])
    return [(make_set(pairs), reference) for reference, pairs in found.items()]


def sets_of(classes: Classes) -> list[Ranges]:
    """The characters of each class."""
    pairs: list[list[tuple[int, int]]] = [[] for _ in range(classes.members.shape[1])]
    ends = np.append(classes.starts[1:], 0x110000)
    for start, end, number in zip(
        classes.starts.tolist(), ends.tolist(), classes.numbers.tolist(), strict=True
    ):
        if number >= 0:
            pairs[number].append((start, end - 1))
    return [make_set(one) for one in pairs]


def looks_behind(reference: Reference, conditions: tuple[Look, ...]) -> bool:
    """Whether a reference asks for what stands before."""
    if isinstance(reference, Leaf):
        return False
    return conditions[reference.condition].behind or any(
        looks_behind(one, conditions) for one in (reference.if_so, reference.if_not)
    )
