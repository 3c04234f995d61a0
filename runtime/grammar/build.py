"""From a tree to a store: the tree is flattened into a program of numbers, which compiled code runs."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numba import njit

from treille.runtime.errors import UnsupportedConstraint
from treille.runtime.grammar import charset
from treille.runtime.grammar.algebra import both, concat, everything, look, negation, repeat, united
from treille.runtime.grammar.charset import Ranges
from treille.runtime.grammar.classes import Classes, classes_of
from treille.runtime.grammar.lalr_steps import parsed
from treille.runtime.grammar.store import (
    BEHIND,
    BEHINDS,
    CHARS,
    EMPTY,
    EPSILON,
    LEAD,
    MANY,
    NONE,
    NULLABLE,
    NUM_MEMOS,
    NUM_NODES,
    NUM_STATES,
    RULE,
    RULES,
    SEARCHED,
    STACK,
    STEPS,
    TERM,
    TOO_DEEP,
    TROUBLE,
    VECTOR,
    WHOLE,
    Flags,
    Int64s,
    Store,
    grafted,
    int64,
    intern,
    rehash,
)
from treille.runtime.grammar.tree import Chars, Choice, Look, Repeat, Sequence, Tree

MAX_PARTS = 200_000  # numbers in a program
MAX_ROOM = 1 << 20  # expressions
_SHORT_RUN = 8  # characters of one set that are not yet counted
MAX_TRACKERS = 62
# What a program may say.
_CHARS, _STRING, _SEQUENCE, _CHOICE, _REPEAT, _AHEAD, _BEHIND, _RULE, _TERM, _PARSER, _IS_RULE = range(11)
_BOTH, _NEGATION = 11, 12

NO_LEXER = np.zeros(0, np.int64)


class Program:
    """A tree, or the rules of a grammar, as numbers; its sets of characters are numbered as they come."""

    def __init__(self) -> None:
        self.code: list[int] = []
        self.sets: list[Ranges] = [charset.SCALARS]
        self.num_rules = 0
        self.uses_any = False
        self._by_id: dict[int, int] = {}
        self._by_content: dict[Ranges, int] = {charset.SCALARS: 0}
        self._kept: list[Ranges] = []  # an id stays its object's own while the object is alive

    def set_number(self, ranges: Ranges) -> int:
        """The number of a set. Large sets are mostly the same objects: the id spares the hash."""
        number = self._by_id.get(id(ranges))
        if number is None:
            number = self._by_content.setdefault(ranges, len(self.sets))
            if number == len(self.sets):
                self.sets.append(ranges)
            self.uses_any |= number == 0
            self._by_id[id(ranges)] = number
            self._kept.append(ranges)
        return number

    def add(self, tree: Tree) -> None:
        """Adds a tree: what it leaves is one expression. Raises `UnsupportedConstraint` past the limit."""
        self._write(tree, self.code)

    def apart(self, tree: Tree) -> list[int]:
        """The code of a tree that is not added, but for its sets; else as `add`."""
        code: list[int] = []
        self._write(tree, code)
        return code

    def _write(self, tree: Tree, code: list[int]) -> None:
        if isinstance(tree, Chars):
            code += (_CHARS, self.set_number(tree.ranges))
        elif isinstance(tree, Sequence):
            numbers = [self.set_number(part.ranges) for part in tree.parts if isinstance(part, Chars)]
            if len(numbers) == len(tree.parts) > _SHORT_RUN and len(set(numbers)) == 1:
                code += (_CHARS, numbers[0], _REPEAT, len(numbers), len(numbers))
            elif len(numbers) == len(tree.parts) > 1:
                code += (_STRING, len(numbers), *numbers)
            else:
                for part in tree.parts:
                    self._write(part, code)
                code += (_SEQUENCE, len(tree.parts))
        elif isinstance(tree, Choice):
            for option in tree.options:
                self._write(option, code)
            code += (_CHOICE, len(tree.options))
        elif isinstance(tree, Repeat):
            self._write(tree.body, code)
            bounds = (tree.low, MANY if tree.high is None else tree.high)
            code += (_REPEAT, *(min(bound, MANY) for bound in bounds))
        elif isinstance(tree, Look):
            self._write(tree.body, code)
            code += (_BEHIND if tree.behind else _AHEAD, int(tree.negated))
        else:
            raise TypeError(f"not a part of a pattern: {tree!r}")
        if len(code) > MAX_PARTS:
            raise UnsupportedConstraint("pattern", "offset 0", f"it has more than {MAX_PARTS} parts")

    def end_rule(self, number: int) -> None:
        """What was added last is the body of a rule."""
        self.code += (_IS_RULE, number)
        self.num_rules = max(self.num_rules, number + 1)


def intersection(every: Iterable[list[int]], none: Iterable[list[int]]) -> Int64s:
    """The program of the texts that are in all of `every` and in none of `none`. Those are programs of whole
    texts, whose sets are numbered together."""
    code: list[int] = []
    count = 0
    for one in every:
        code += one
        count += 1
    for one in none:
        code += (*one, _NEGATION, 0)
        count += 1
    if count != 1:
        code += (_BOTH, count)
    return np.array(code, np.int64)


class Blueprint:
    """What a store is made of: immutable, and enough to make a fresh one at any time.

    `start` is the first expression, `trackers` the trackers before any text, `num_fixed` the rows that
    every store made from it has in common, `used_bytes` bool [256] the bytes that a text may have.
    """

    def __init__(self, program: Program, lexer: Int64s = NO_LEXER) -> None:
        self.classes: Classes = classes_of(program.sets)
        self.lexer = lexer
        code = np.array(program.code, np.int64)
        room = 256
        while room < 2 * len(code):
            room *= 2
        while True:
            store = empty_store(self.classes, lexer, program.num_rules, num_nodes=room, num_states=1)
            self.start, self.trackers = assemble(store, code)
            if self.start >= 0:
                break
            if store.facts[TROUBLE] == TOO_DEEP or room >= MAX_ROOM:
                raise UnsupportedConstraint("pattern", "offset 0", "it is too large, or nested too deeply")
            room *= 2
        if self.trackers < 0:
            raise UnsupportedConstraint("look-behind", "offset 0", f"there are more than {MAX_TRACKERS}")
        self.used_bytes = _used_bytes(self.classes, program)
        self.num_fixed = int(store.facts[NUM_NODES])
        self._nodes = store.nodes[: self.num_fixed]
        self._facts = store.facts
        self._facts[[NUM_STATES, NUM_MEMOS]] = 0

    @property
    def nbytes(self) -> int:
        """Memory of the arrays."""
        return self._nodes.nbytes + sum(array.nbytes for array in self.classes)

    def store(self, num_nodes: int, num_states: int, possible: Flags) -> Store:
        """A fresh store with room for so many. `possible`: bool [256]; a character of which not every byte
        is possible is taken to be in no text."""
        room = 256
        while room < max(num_nodes, 2 * self.num_fixed):
            room *= 2
        made = empty_store(self.classes, self.lexer, 0, num_nodes=room, num_states=num_states)
        made = made._replace(facts=self._facts.copy())
        made.nodes[: self.num_fixed] = self._nodes
        rehash(made, made.memo)
        if not possible.all():
            lead = made.facts[LEAD:RULES]
            lead[~possible] = -1
            below = made.below.copy()
            below[-1] = below[lead[0x80:][lead[0x80:] >= 0]].any(axis=0)
            below[-1, lead[:0x80][lead[:0x80] >= 0]] = True
            made = made._replace(below=below)
        return made


def _used_bytes(classes: Classes, program: Program) -> Flags:
    members = classes.members if program.uses_any else classes.members[1:]
    symbols: Flags = np.any(members, axis=0)
    used = np.zeros(256, np.bool_)
    used[:0x80] = symbols[classes.lead[:0x80]]
    leads = classes.lead[0xC2:0xF5]
    used[0xC2:0xF5] = np.any(classes.below[leads] & symbols, axis=1)
    used[0x80:0xC0] = used[0xC2:].any()
    return used


def empty_store(classes: Classes, lexer: Int64s, num_rules: int, *, num_nodes: int, num_states: int) -> Store:
    """A store without expressions; `num_nodes` is a power of two."""
    facts = np.zeros(RULES + num_rules, np.int64)
    facts[LEAD:RULES] = classes.lead
    return Store(
        nodes=np.empty((num_nodes, 7), np.int64),
        buckets=np.full(2 * num_nodes, -1, np.int64),
        memo=np.full((2 * num_nodes, 3), -1, np.int64),
        members=classes.members,
        states=np.empty((num_states, 6), np.int64),
        rows=np.empty((num_states, 256), np.int32),
        facts=facts,
        lattice=classes.lattice,
        below=classes.below,
        lexer=lexer,
    )


@grafted
def _chars(store: Store, number: int) -> int:  # pragma: no cover
    """One character of a set; nothing, if the set is empty."""
    if not store.members[number].any():
        return EMPTY
    return intern(store, CHARS, number, NONE, NONE, NONE, NONE)


@njit(cache=True, nogil=True)
def assemble(store: Store, code: Int64s) -> tuple[int, int]:  # pragma: no cover
    """Runs a program: the expression that is left and the trackers' list. A first -1 asks for more room, a
    second one says that there are too many trackers."""
    counters = store.facts
    counters[STEPS] = 1 << 60
    intern(store, EMPTY, NONE, NONE, NONE, NONE, NONE)
    intern(store, EPSILON, NONE, NONE, NONE, NONE, NULLABLE)
    counters[WHOLE] = repeat(store, intern(store, CHARS, NONE, NONE, NONE, NONE, NONE), NONE, MANY)
    stack = np.empty(len(code) + 1, np.int64)
    trackers = np.empty(MAX_TRACKERS, np.int64)
    num_trackers, top, at = 0, 0, 0
    while at < len(code):
        what, count = code[at], code[at + 1]
        at += 2
        if what == _CHARS:
            stack[top] = (
                intern(store, CHARS, count, NONE, NONE, NONE, NONE) if store.members[count].any() else EMPTY
            )
            top += 1
        elif what == _STRING:
            result = int64(EPSILON)
            for index in range(at + count - 1, at - 1, -1):
                result = concat(store, _chars(store, code[index]), result)
            at += count
            stack[top] = result
            top += 1
        elif what == _SEQUENCE or what == _CHOICE:
            result = int64(EPSILON if what == _SEQUENCE else EMPTY)
            for index in range(top - 1, top - count - 1, -1):
                if what == _SEQUENCE:
                    result = concat(store, stack[index], result)
            if what == _CHOICE:
                result = united(store, stack[top - count : top])
            top -= count
            stack[top] = result
            top += 1
        elif what == _REPEAT:
            stack[top - 1] = repeat(store, stack[top - 1], count, code[at])
            at += 1
        elif what == _AHEAD:
            condition = concat(store, stack[top - 1], everything(store))
            if count:
                condition = negation(store, condition)
            stack[top - 1] = look(store, condition, int64(EPSILON))
        elif what == _BEHIND:
            tracker = concat(store, everything(store), stack[top - 1])
            index = 0
            while index < num_trackers and trackers[index] != tracker:
                index += 1
            if index == MAX_TRACKERS:
                return int64(EMPTY), int64(-1)
            trackers[index] = tracker
            num_trackers = max(num_trackers, index + 1)
            stack[top - 1] = intern(store, BEHIND, index, count, NONE, NONE, BEHINDS | SEARCHED)
        elif what == _RULE:
            stack[top] = intern(store, RULE, count, NONE, NONE, NONE, code[at])
            at += 1
            top += 1
        elif what == _TERM:
            stack[top] = intern(store, TERM, count, NONE, NONE, NONE, code[at])
            at += 1
            top += 1
        elif what == _PARSER:
            stack[top] = parsed(store, intern(store, STACK, count, EMPTY, NONE, NONE, NONE))
            top += 1
        elif what == _BOTH:
            result = everything(store)
            for index in range(top - count, top):
                result = both(store, result, stack[index])
            top -= count
            stack[top] = result
            top += 1
        elif what == _NEGATION:
            stack[top - 1] = negation(store, stack[top - 1])
        else:
            top -= 1
            store.facts[RULES + count] = stack[top]
        if counters[TROUBLE]:
            return int64(-1), int64(EMPTY)
    listed = int64(EMPTY)
    for index in range(num_trackers - 1, -1, -1):
        listed = intern(store, VECTOR, trackers[index], listed, NONE, NONE, NONE)
    if counters[TROUBLE]:
        return int64(-1), int64(EMPTY)
    return stack[0], listed
