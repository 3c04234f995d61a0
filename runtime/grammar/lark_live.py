"""Which rests of tokens can always be completed, whatever follows them in the grammar.

A lexer makes dead ends of its own: within `#[^\\n]*`, ignored, no text goes on where the grammar wants a name
on the same line. The engine finds such ends by searching; but to search from every state of a grammar is to
look for a whole text again and again. What is shown here spares the search. A token may be followed by
characters that do not make it longer. If for every terminal that may come next (at once, or after an ignored
one) there is a way to begin among those characters, from which the same can be said, then every rest of a
text in which only such tokens are left has an end. Where that cannot be shown, the rest is to be searched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from treille.runtime.grammar.cfg import Body, Cfg, Either, Join, RuleRef, Star, TermRef
from treille.runtime.grammar.charset import Ranges, union
from treille.runtime.grammar.classes import classes_of
from treille.runtime.grammar.lark_terminals import Machine, Single
from treille.runtime.grammar.lexing import DEAD, Automaton, Leaf, Reference, leaves_of, one_wide
from treille.runtime.grammar.limits import Budget
from treille.runtime.grammar.normal import empty_way, normalize
from treille.runtime.grammar.tree import (
    EMPTY_TEXT,
    Chars,
    Choice,
    Look,
    Repeat,
    Tree,
)
from treille.runtime.grammar.tree import (
    Sequence as SequenceTree,
)


class _Walk:
    """By terminal, what may come next, ignored ones left out: a bit each, the last is the end of the text."""

    def __init__(self, cfg: Cfg, num_terminals: int, budget: Budget) -> None:
        self._cfg = cfg
        self._budget = budget
        self._end = 1 << num_terminals
        self.after_terminal = [0] * num_terminals
        self._after_rule = [0] * len(cfg.bodies)
        self._first = [0] * len(cfg.bodies)
        self._changed = True

    def run(self) -> None:
        """Until nothing changes."""
        while self._changed:
            self._changed = False
            # Rules mostly use later ones: from the last to the first they are known sooner.
            for number in range(len(self._cfg.bodies) - 1, -1, -1):
                self._budget.check_time()
                first, _ = self._firsts(self._cfg.bodies[number])
                self._changed |= first != self._first[number]
                self._first[number] = first
        self._changed = True
        while self._changed:
            self._changed = False
            self._visit(self._cfg.start, self._end)
            for number, body in enumerate(self._cfg.bodies):
                self._budget.check_time()
                self._visit(body, self._after_rule[number])

    def firsts_of_start(self) -> int:
        """The terminals that a text may begin with."""
        return self._firsts(self._cfg.start)[0]

    def _firsts(self, body: Body) -> tuple[int, bool]:
        """The terminals that a body may begin with, and whether it may be empty."""
        match body:
            case TermRef(index):
                return 1 << index, False
            case RuleRef(index):
                return self._first[index], False
            case Star(inner):
                return self._firsts(inner)[0], True
            case Either(options):
                found = [self._firsts(option) for option in options]
                return _union(first for first, _ in found), any(empty for _, empty in found)
            case Join(parts):
                total = 0
                for part in parts:
                    first, empty = self._firsts(part)
                    total |= first
                    if not empty:
                        return total, False
                return total, True

    def _visit(self, body: Body, after: int) -> None:
        match body:
            case TermRef(index):
                self._changed |= self._add(self.after_terminal, index, after)
            case RuleRef(index):
                self._changed |= self._add(self._after_rule, index, after)
            case Star(inner):
                self._visit(inner, after | self._firsts(inner)[0])
            case Either(options):
                for option in options:
                    self._visit(option, after)
            case Join(parts):
                for part in reversed(parts):
                    self._visit(part, after)
                    first, empty = self._firsts(part)
                    after = first | (after if empty else 0)

    @staticmethod
    def _add(known: list[int], index: int, more: int) -> bool:
        before = known[index]
        known[index] |= more
        return known[index] != before


def _union(masks: Iterable[int]) -> int:
    total = 0
    for mask in masks:
        total |= mask
    return total


Ways = dict[int, list[tuple[Ranges, Reference]]]


def explored(machine: Machine, starts: Iterable[Reference]) -> Ways:
    """The ways of every state that can be reached."""
    found: Ways = {DEAD: []}
    todo = [leaf.state for start in starts for leaf in leaves_of(start)]
    while todo:
        state = todo.pop()
        if state not in found:
            found[state] = machine.ways(state)
            todo.extend(leaf.state for _, one in found[state] for leaf in leaves_of(one))
    return found


class _Endings:
    """By state of a machine and kind of token, the characters before which a token may end, sooner or later.

    Sets of characters are bits of the classes in `letters`; one more bit is the end of the text.
    """

    def __init__(self, conditions: Sequence[Look], ways: Ways, letters: _Letters) -> None:
        self._conditions = conditions
        self._letters = letters
        self.rows = {
            state: [(letters.bits(ranges), one) for ranges, one in row] for state, row in ways.items()
        }
        self.known: dict[int, dict[int, int]] = {state: {} for state in self.rows}
        # By what a step leads to. Both grow until nothing changes.
        self._values: dict[Reference, dict[int, int]] = {
            one: {} for row in self.rows.values() for _, one in row
        }
        changed = True
        while changed:
            changed = False
            for reference, value in self._values.items():
                changed |= _grow(value, self.of(reference))
            for state, row in self.rows.items():
                for _, reference in row:
                    changed |= _grow(self.known[state], self._values[reference])

    def of(self, reference: Reference, guard: int = -1) -> dict[int, int]:
        """By kind, what may follow a token of which this is left, if the next character is in `guard`."""
        if not isinstance(reference, Leaf):
            if_so, if_not = self._letters.asked(self._conditions[reference.condition])
            yes, no = self.of(reference.if_so, guard & if_so), self.of(reference.if_not, guard & if_not)
            if self._conditions[reference.condition].behind:
                return {kind: yes[kind] & no[kind] for kind in yes.keys() & no.keys()}
            return {kind: yes.get(kind, 0) | no.get(kind, 0) for kind in yes.keys() | no.keys()}
        found: dict[int, int] = {}
        if guard & self._letters.all == self._letters.all:
            found = dict(self.known[reference.state])
        else:
            for bits, one in self.rows[reference.state]:
                if bits & guard:
                    _grow(found, self._values[one])
        if reference.matched:
            longer = _union(bits for bits, _ in self.rows[reference.state])
            ending = self._letters.all & guard & ~longer
            found[reference.kind] = found.get(reference.kind, 0) | ending
        return found

    def beginnings(self, reference: Reference) -> dict[int, int]:
        """By first character of a token that begins here, the characters that may follow the token."""
        if not isinstance(reference, Leaf):
            look = self._conditions[reference.condition]
            if_so, if_not = self._letters.asked(look)
            yes = {bit: end for bit, end in self.beginnings(reference.if_so).items() if bit & if_so}
            no = {bit: end for bit, end in self.beginnings(reference.if_not).items() if bit & if_not}
            if look.behind:
                return {bit: yes[bit] & no[bit] for bit in yes.keys() & no.keys()}
            return yes | no
        found: dict[int, int] = {}
        for bits, one in self.rows[reference.state]:
            ending = _union(self._values[one].values())
            for bit in _each(bits):
                found[bit] = ending
        return found


def _grow(known: dict[int, int], more: Mapping[int, int]) -> bool:
    """Adds sets to sets; whether anything changed."""
    changed = False
    for kind, ending in more.items():
        before = known.get(kind, 0)
        known[kind] = before | ending
        changed |= known[kind] != before
    return changed


def _each(bits: int) -> Iterable[int]:
    while bits:
        yield bits & -bits
        bits &= bits - 1


class _Letters:
    """Characters in classes, and sets of them as bits."""

    def __init__(self, sets: Iterable[Ranges]) -> None:
        self._sets = list(dict.fromkeys(sets))
        self._places = {one: number for number, one in enumerate(self._sets)}
        members = classes_of(self._sets).members
        self._bits = [_union(1 << int(one) for one in np.flatnonzero(row)) for row in members]
        self.end = 1 << members.shape[1]
        self.all = 2 * self.end - 1

    def bits(self, ranges: Ranges) -> int:
        """A set that was given at the beginning, or, with it, all that it may touch."""
        return self._bits[self._places[ranges]]

    def asked(self, look: Look) -> tuple[int, int]:
        """The next characters (or the end) with which a look is sure to hold, and sure not to."""
        if look.behind:
            return self.all, self.all
        body = normalize(look.body)
        if empty_way(body) == EMPTY_TEXT:
            return self.all, 0
        first = self.bits(first_set(body))
        return (first if one_wide(body) is not None else 0), self.all & ~first


class Completable:
    """What can be shown for the terminals of a grammar, each by itself."""

    def __init__(
        self,
        cfg: Cfg,
        automata: Sequence[Automaton],
        ignored: Iterable[int],
        budget: Budget,
        more: Sequence[Ranges] = (),
    ) -> None:
        self._budget = budget
        machines = [Single(one) for one in automata]
        ways = []
        for one, auto in zip(machines, automata, strict=True):
            budget.check_time()
            ways.append(explored(one, [auto.start]))
        looks = [look for auto in automata for look in auto.conditions]
        self.letters = _Letters([*sets_in(ways, looks), *more])
        self._end = 1 << len(automata)
        walk = _Walk(cfg, len(automata), budget)
        walk.run()
        self._after = walk.after_terminal
        used = _union(self._after) | walk.firsts_of_start()
        self._ignored = frozenset(ignored)
        for index in self._ignored:
            self._after[index] = used
        self._endings = [
            _Endings(auto.conditions, one, self.letters) for auto, one in zip(automata, ways, strict=True)
        ]
        self._begun = [one.beginnings(auto.start) for one, auto in zip(self._endings, automata, strict=True)]
        self._behind_ignored: dict[int, int] = {}
        self._good = [_union(one) for one in self._begun]
        self._settle()
        self.is_shown = all(self._good[index] for index in range(len(automata)) if used >> index & 1)

    def _settle(self) -> None:
        """Drops the ways to begin a token after which nothing is sure, until none is left."""
        before: list[int] = []
        while before != self._good:
            before = self._good
            self._good = [
                _union(bit for bit, ending in begun.items() if self.is_sure(ending, [index]))
                for index, begun in enumerate(self._begun)
            ]

    def is_sure(self, ending: int, tokens: Iterable[int]) -> bool:
        """Whether whatever may come after one of the tokens can, after a token with this ending."""
        self._budget.check_time()
        if ending not in self._behind_ignored:
            self._behind_ignored[ending] = ending | _union(
                after for index in self._ignored for bit, after in self._begun[index].items() if bit & ending
            )
        reached = self._behind_ignored[ending]
        after = _union(self._after[token] for token in tokens)
        if after & self._end and not reached & self.letters.end:
            return False
        return all(reached & good for index, good in enumerate(self._good) if after >> index & 1)

    def unsure(self, terminal: int) -> frozenset[int]:
        """The states of a terminal's automaton from which it is not sure that a text has an end."""
        known = self._endings[terminal].known
        return frozenset(
            state
            for state, ending in known.items()
            if state != DEAD and not self.is_sure(ending.get(0, 0), [terminal])
        )


def unsure_states(
    shown: Completable, conditions: Sequence[Look], ways: Ways, tokens_of: Mapping[int, Sequence[int]]
) -> frozenset[int]:
    """The same for a machine of several terminals; `tokens_of`: by kind of match, what tokens it may be.

    Its sets (`sets_in`) must be among those that `shown` was given.
    """
    found = _Endings(conditions, ways, shown.letters).known
    return frozenset(
        state
        for state, endings in found.items()
        if not all(shown.is_sure(ending, tokens_of[kind]) for kind, ending in endings.items())
    )


def sets_in(ways: Iterable[Ways], conditions: Iterable[Look]) -> list[Ranges]:
    """The sets of characters that ways and conditions tell apart."""
    sets = [ranges for one in ways for row in one.values() for ranges, _ in row]
    return sets + [first_set(normalize(look.body)) for look in conditions if not look.behind]


def first_set(tree: Tree) -> Ranges:
    """The characters that a text of a tree may begin with, or more."""
    if isinstance(tree, Chars):
        return tree.ranges
    if isinstance(tree, Choice):
        return union(*map(first_set, tree.options))
    if isinstance(tree, Repeat):
        return first_set(tree.body)
    if isinstance(tree, SequenceTree):
        found: Ranges = ()
        for part in tree.parts:
            found = union(found, first_set(part))
            if _reads(part):
                break
        return found
    return ()


def _reads(tree: Tree) -> bool:
    """Whether every text of a tree has a character."""
    if isinstance(tree, SequenceTree):
        return any(map(_reads, tree.parts))
    if isinstance(tree, Choice):
        return all(map(_reads, tree.options))
    return isinstance(tree, Chars) or (isinstance(tree, Repeat) and tree.low > 0 and _reads(tree.body))
