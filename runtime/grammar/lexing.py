"""How much of a text a terminal takes, as an automaton.

`re.match(terminal, text, at)` takes neither the longest match nor any match: it takes the one that its
search finds first, by the order of alternatives and by what repeats prefer. Here a state is the list of the
places in the pattern where that search may be, the preferred first, as in a virtual machine with ordered
threads (Pike; Cox 2010). When a thread matches, those after it in the list are dropped: they will never be
asked. Those before it go on, and if one of them matches later, its match counts instead.

So a terminal may end where a thread matches, *provided* that the threads left in the list never match in
what follows. That condition, and the looks inside of terminals, ask about text that is not there yet: a step
leads to a *reference*, which is a state, or the test of a condition and a reference for each answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from treille.runtime.errors import UnsupportedConstraint
from treille.runtime.grammar.charset import SCALARS, Ranges
from treille.runtime.grammar.classes import Classes, classes_of
from treille.runtime.grammar.tree import Chars, Choice, Look, Repeat, Tree
from treille.runtime.grammar.tree import Sequence as SequenceTree

MAX_INSTRUCTIONS = 20_000
MAX_STATES = 2_000
MAX_STEPS = 1_000_000
MAX_MERGED = 40_000  # states times classes: above, equal states are not sought

DEAD = 0  # the state without threads


@dataclass(frozen=True, slots=True)
class Leaf:
    """The threads of `state` go on; if `matched`, one that they come before has just matched.

    `kind` tells what the match is of, where several terminals are tried at once.
    """

    state: int
    matched: bool
    kind: int = 0


@dataclass(frozen=True, slots=True)
class Test:
    """`condition` decides; its number."""

    condition: int
    if_so: Reference
    if_not: Reference


Reference = Leaf | Test

NOTHING_LEFT = Leaf(DEAD, False)


@dataclass(frozen=True, slots=True, eq=False)
class Automaton:
    """`table[state][class]`: where one more character leads; `start`: where the terminal begins.

    `conditions` are looks, none negated; `classes` the characters that are told apart.
    """

    classes: Classes
    conditions: tuple[Look, ...]
    start: Reference
    table: tuple[tuple[Reference, ...], ...]

    @property
    def is_empty(self) -> bool:
        """Whether no text at all is a match."""
        return self.start == NOTHING_LEFT


@lru_cache(maxsize=2048)
def automaton_of(tree: Tree) -> Automaton:
    """The automaton of a terminal. Raises `UnsupportedConstraint` if it becomes too large."""
    return _Determinizer(_Program(tree)).automaton()


@dataclass(slots=True)
class _Char:
    ranges: int
    then: int


@dataclass(slots=True)
class _Split:
    options: tuple[int, ...]


@dataclass(slots=True)
class _Loop:
    """One more turn or on; no turn after one that began at the same place, as `re` has it."""

    group: int
    body: int
    leave: int
    lazy: bool


@dataclass(slots=True)
class _Enter:
    """A loop begins: none of its turns has begun yet."""

    group: int
    then: int


@dataclass(slots=True)
class _Ask:
    condition: int
    negated: bool
    then: int


_Instruction = _Char | _Split | _Loop | _Enter | _Ask | None


class _Program:
    """A tree as instructions; number 0 (None) is the match."""

    def __init__(self, tree: Tree) -> None:
        self.code: list[_Instruction] = [None]
        self.sets: list[Ranges] = [SCALARS]
        self.conditions: list[Look] = []
        self._set_numbers: dict[Ranges, int] = {SCALARS: 0}
        self._chars: dict[tuple[int, int], int] = {}
        self._num_groups = 0
        self.start = self._compile(tree, 0)

    def _add(self, instruction: _Instruction) -> int:
        if len(self.code) >= MAX_INSTRUCTIONS:
            raise _too_large(f"it has more than {MAX_INSTRUCTIONS} parts, its repeats written out")
        self.code.append(instruction)
        return len(self.code) - 1

    def _set(self, ranges: Ranges) -> int:
        number = self._set_numbers.setdefault(ranges, len(self.sets))
        if number == len(self.sets):
            self.sets.append(ranges)
        return number

    def _compile(self, tree: Tree, then: int) -> int:
        """Where to begin, to match the tree and go on at `then`."""
        if isinstance(tree, Chars):
            key = self._set(tree.ranges), then
            if key not in self._chars:
                self._chars[key] = self._add(_Char(*key))
            return self._chars[key]
        if isinstance(tree, SequenceTree):
            for part in reversed(tree.parts):
                then = self._compile(part, then)
            return then
        if isinstance(tree, Choice):
            return self._add(_Split(tuple([self._compile(option, then) for option in tree.options])))
        if isinstance(tree, Repeat):
            return self._compile_repeat(tree, then)
        positive = Look(tree.body, tree.behind, negated=False)
        if positive not in self.conditions:
            self.conditions.append(positive)
        if tree.behind and one_wide(tree.body) is not None:
            self._set(one_wide(tree.body) or ())
        return self._add(_Ask(self.conditions.index(positive), tree.negated, then))

    def _compile_repeat(self, tree: Repeat, then: int) -> int:
        group = self._num_groups
        self._num_groups += 1
        if tree.high is None:
            loop = _Loop(group, 0, then, tree.lazy)
            first = self._add(loop)
            loop.body = self._compile(tree.body, first)
        else:
            first = then
            for _ in range(tree.high - tree.low):
                first = self._add(_Loop(group, self._compile(tree.body, first), then, tree.lazy))
        if first != then:
            first = self._add(_Enter(group, first))
        for _ in range(tree.low):
            first = self._compile(tree.body, first)
        return first


def one_wide(tree: Tree) -> Ranges | None:
    """The set of characters that a tree of one character is, or None."""
    if isinstance(tree, Chars):
        return tree.ranges
    if isinstance(tree, SequenceTree) and len(tree.parts) == 1:
        return one_wide(tree.parts[0])
    return None


class _UndecidedError(Exception):
    """The threads depend on a condition."""

    def __init__(self, condition: int) -> None:
        super().__init__(condition)
        self.condition = condition


Threads = tuple[int, ...]
Answers = tuple[tuple[int, bool], ...]


class _Determinizer:
    """From a program to its automaton."""

    def __init__(self, program: _Program) -> None:
        self._program = program
        self._classes = classes_of(program.sets)
        self._steps = 0
        self._order: list[Threads] = [()]
        self._states: dict[Threads, int] = {(): DEAD}
        self._known: dict[tuple[Threads, Answers], Reference] = {}
        members = self._classes.members
        behind = [
            (index, program.sets.index(ranges))
            for index, look in enumerate(program.conditions)
            if look.behind and (ranges := one_wide(look.body)) is not None
        ]
        # By class of the character before: which looks behind hold.
        self._behind: list[Answers] = [
            tuple((index, bool(members[number, one])) for index, number in behind)
            for one in range(members.shape[1])
        ]

    def automaton(self) -> Automaton:
        """Explores every state."""
        start = self._follow((self._program.start,), ())
        table: Table = [(NOTHING_LEFT,) * len(self._behind)]
        while len(table) < len(self._order):
            table.append(self._row(self._order[len(table)]))
        table = _merged(_without_dead_ends(start, table))
        start, table = table[-1][0], table[:-1]
        return Automaton(self._classes, tuple(self._program.conditions), start, tuple(table))

    def _row(self, threads: Threads) -> tuple[Reference, ...]:
        members = self._classes.members
        chars = [one for thread in threads if isinstance(one := self._program.code[thread], _Char)]
        row: list[Reference] = []
        for number, holds in enumerate(self._behind):
            following = tuple(dict.fromkeys(one.then for one in chars if members[one.ranges, number]))
            row.append(self._follow(following, holds) if following else NOTHING_LEFT)
        return tuple(row)

    def _follow(self, places: Threads, answers: Answers) -> Reference:
        """The threads that begin at these places, in order, by the conditions that are not answered."""
        key = places, answers
        if key not in self._known:
            try:
                threads, matched = self._threads(places, dict(answers))
                self._known[key] = Leaf(self._state(threads), matched)
            except _UndecidedError as undecided:
                index = undecided.condition
                if_so = self._follow(places, (*answers, (index, True)))
                if_not = self._follow(places, (*answers, (index, False)))
                self._known[key] = if_so if if_so == if_not else Test(index, if_so, if_not)
        return self._known[key]

    def _state(self, threads: Threads) -> int:
        state = self._states.setdefault(threads, len(self._order))
        if state == len(self._order):
            if state >= MAX_STATES:
                raise _too_large(f"its automaton needs more than {MAX_STATES} states")
            self._order.append(threads)
        return state

    def _threads(self, places: Threads, answers: Mapping[int, bool]) -> tuple[Threads, bool]:
        """Where a search from these places would read, in its order, up to the first match."""
        found: dict[int, None] = {}
        seen: set[tuple[int, frozenset[int]]] = set()
        # The groups are loops of which a turn has begun right here.
        todo = [(place, frozenset[int]()) for place in reversed(places)]
        while todo:
            place, begun = todo.pop()
            if (place, begun) in seen:
                continue
            seen.add((place, begun))
            self._steps += 1
            if self._steps > MAX_STEPS:
                raise _too_large(f"its automaton takes more than {MAX_STEPS} steps to make")
            one = self._program.code[place]
            if one is None:
                return tuple(found), True
            if isinstance(one, _Char):
                found[place] = None
            elif isinstance(one, _Split):
                todo.extend((option, begun) for option in reversed(one.options))
            elif isinstance(one, _Enter):
                todo.append((one.then, begun - {one.group}))
            elif isinstance(one, _Loop):
                ways = [(one.leave, begun)]
                if one.group not in begun:
                    ways.insert(0 if not one.lazy else 1, (one.body, begun | {one.group}))
                todo.extend(reversed(ways))
            else:
                if one.condition not in answers:
                    raise _UndecidedError(one.condition)
                if answers[one.condition] != one.negated:
                    todo.append((one.then, begun))
        return tuple(found), False


Table = list[tuple[Reference, ...]]


def _without_dead_ends(start: Reference, table: Table) -> Table:
    """The table, and `start` as a last row of its own, where states that never match are the dead one."""
    leaves = [{leaf for one in set(row) for leaf in leaves_of(one)} for row in table]
    alive = {state for state, row in enumerate(leaves) if any(leaf.matched for leaf in row)}
    size = -1
    while size != len(alive):
        size = len(alive)
        alive |= {state for state, row in enumerate(leaves) if any(leaf.state in alive for leaf in row)}
    kept = [state for state in range(len(table)) if state == DEAD or state in alive]
    names = {state: number for number, state in enumerate(kept)}
    renamed = _renaming(names)
    return [tuple(map(renamed, table[state])) for state in kept] + [(renamed(start),)]


def _merged(table: Table) -> Table:
    """The table with equal states made one (Moore 1956); the last row is not a state's."""
    *rows, last = table
    blocks = [0] * len(rows)
    if len(rows) * len(rows[0]) > MAX_MERGED:
        return table
    num_blocks = 1
    while True:
        renamed = _renaming(dict(enumerate(blocks)))
        keys: dict[tuple[int, tuple[Reference, ...]], int] = {}
        blocks = [
            keys.setdefault((block, tuple(map(renamed, row))), len(keys))
            for block, row in zip(blocks, rows, strict=True)
        ]
        if len(keys) == num_blocks:
            break
        num_blocks = len(keys)
    renamed = _renaming(dict(enumerate(blocks)))
    firsts = dict(zip(reversed(blocks), reversed(rows), strict=True))
    return [tuple(map(renamed, firsts[block])) for block in range(num_blocks)] + [(renamed(last[0]),)]


def _renaming(names: Mapping[int, int]) -> Callable[[Reference], Reference]:
    """A function that gives the states of a reference new numbers; those that have none are dead."""
    known: dict[Reference, Reference] = {}

    def renamed(one: Reference) -> Reference:
        if one not in known:
            if isinstance(one, Leaf):
                known[one] = Leaf(names.get(one.state, DEAD), one.matched, one.kind)
            else:
                if_so, if_not = renamed(one.if_so), renamed(one.if_not)
                known[one] = if_so if if_so == if_not else Test(one.condition, if_so, if_not)
        return known[one]

    return renamed


def leaves_of(one: Reference) -> list[Leaf]:
    """Every state that a reference may be."""
    return [one] if isinstance(one, Leaf) else [*leaves_of(one.if_so), *leaves_of(one.if_not)]


def _too_large(reason: str) -> UnsupportedConstraint:
    return UnsupportedConstraint("terminal", "offset 0", reason)
