"""`Expressions`: every pattern and format of a document in one store, and intersections of them.

All languages tell the same classes of characters apart, so each intersection of some of them is one more
expression in the store; it is assembled when it is first asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache
from typing import TypeVar, cast

from treille.runtime.errors import InvalidConstraint, UnsupportedConstraint
from treille.runtime.grammar.arena import Arena, ArenaFull
from treille.runtime.grammar.build import (
    MAX_TRACKERS,
    NO_LEXER,
    Program,
    assemble,
    empty_store,
    intersection,
)
from treille.runtime.grammar.charset import SCALARS
from treille.runtime.grammar.classes import Classes, classes_of
from treille.runtime.grammar.limits import Budget
from treille.runtime.grammar.normal import normalize, whole_text
from treille.runtime.grammar.parse_ecma import parse_ecma, search_tree
from treille.runtime.grammar.states import IS_LIVE, START
from treille.runtime.grammar.tree import ANY, NOTHING, Repeat, Tree
from treille.runtime.schema.formats import NARROWED, format_tree
from treille.runtime.schema.lengths import fitted, lengths_of
from treille.runtime.schema.strings import Strings

_FEW_NODES, _FEW_STATES = 256, 16  # of a store to begin with

Expression = tuple[int, int]
"""The row of an expression, and that of its trackers before any text."""

_Part = tuple[frozenset[int], frozenset[int], int, int | None]
_Answer = TypeVar("_Answer")


class Expressions:
    """The languages of one document, numbered as they are given, formats after patterns.

    If `patterns` and `formats` say where each stands (a mapping to JSON Pointers), so do errors. Raises
    `InvalidConstraint` (with the offset) for what is no pattern, and `UnsupportedConstraint` for what cannot
    be enforced exactly. The latter comes from every question too, past the limits of the regular engine.

    The regular part of a `Strings` is all that is said in `every`, `none`, `low` and `high`.
    """

    def __init__(self, patterns: Iterable[str], formats: Iterable[str], budget: Budget | None = None) -> None:
        self._places: list[str] = []
        self._trees: list[Tree] = []
        self._codes: list[list[int]] = []
        self._are_any: dict[int, bool] = {}
        self._narrowed: dict[int, str] = {}
        self._program = Program()
        self.patterns = self._numbered(patterns, lambda text: _pattern_tree(text, budget))
        self.formats = self._numbered(formats, _format_tree)
        self._narrowed = {self.formats[name]: NARROWED[name] for name in self.formats if name in NARROWED}
        if budget is not None:
            budget.check_time()
        self.classes = classes_of(self._program.sets) if self._trees else _trivial_classes()
        store = empty_store(self.classes, NO_LEXER, 0, num_nodes=_FEW_NODES, num_states=_FEW_STATES)
        self.arena = Arena(store, -1, None)
        self._everything = self._assembled(())[0]
        self._found: dict[_Part, Expression] = {}
        self._states: dict[_Part, int] = {}

    def _numbered(self, names: Iterable[str], tree_of: Callable[[str], Tree]) -> dict[str, int]:
        numbers: dict[str, int] = {}
        places: Mapping[str, str] = names if isinstance(names, Mapping) else {}
        for name in names:
            if name in numbers:
                continue
            place = places.get(name, "")
            try:
                tree = tree_of(name)
                self._program.add(tree)
            except InvalidConstraint as error:
                raise _invalid(error, place) from None
            except UnsupportedConstraint as error:
                raise _unsupported(error, place) from None
            numbers[name] = len(self._trees)
            self._trees.append(tree)
            self._codes.append(self._program.taken())
            self._places.append(place)
        return numbers

    def state(self, strings: Strings) -> int:
        """The state of the regular part before any text, dead or alive."""
        part = _regular(strings)
        found = self._states.get(part)
        if found is None:
            node, trackers = self.expression(strings)
            found = self.asked(strings, lambda: self.arena.ask(START, node, trackers, -1))
            self._states[part] = found
        return found

    def is_any(self, strings: Strings) -> bool:
        """Whether the regular part is plainly any string."""
        if not (strings.every or strings.none or strings.low or strings.high is not None):
            return True
        return self.expression(strings)[0] == self._everything

    def is_live(self, strings: Strings) -> bool:
        """Whether any string is in the regular part."""
        state = self.state(strings)
        return bool(self.asked(strings, lambda: self.arena.ask(IS_LIVE, state)))

    def expression(self, strings: Strings) -> Expression:
        """The expression of the regular part."""
        part = _regular(strings)
        found = self._found.get(part)
        if found is None:
            self.check_exact(strings.none)
            found = self.asked(strings, lambda: self._assembled(*self._programs(part)))
            if found[1] < 0:
                reason = f"the patterns of one string have more than {MAX_TRACKERS}"
                raise UnsupportedConstraint("look-behind", self._place(strings), reason, field="schema")
            self._found[part] = found
        return found

    def check_exact(self, numbers: Iterable[int]) -> None:
        """Raises `UnsupportedConstraint` if the complement of one of these languages is not known."""
        for number in numbers:
            if number in self._narrowed:
                reason = f"what is not of this format is not known exactly: it has {self._narrowed[number]}"
                raise UnsupportedConstraint("format", self._places[number] or "#", reason, field="schema")

    def _programs(self, part: _Part) -> tuple[list[list[int]], list[list[int]]]:
        every, none, low, high = part
        codes = {number: self._codes[number] for number in sorted(every) if not self._is_any(number)}
        extra: list[list[int]] = []
        if high is not None and low > high:
            extra.append(self._code(NOTHING))
        elif low or high is not None:
            for number in codes:
                tree = fitted(self._trees[number], low, high)
                if tree is not None:
                    codes[number] = self._code(tree)
                    break
            else:
                extra.append(self._code(Repeat(ANY, low, high)))
        return [*codes.values(), *extra], [self._codes[number] for number in sorted(none)]

    def _code(self, tree: Tree) -> list[int]:
        """The program of a tree in which there is no new set."""
        self._program.add(tree)
        return self._program.taken()

    def _assembled(self, every: Iterable[list[int]], none: Iterable[list[int]] = ()) -> Expression:
        # `run` hands on what the compiled code gives, which here is a pair.
        return cast(Expression, self.arena.run(assemble, intersection(every, none)))

    def _is_any(self, number: int) -> bool:
        """Whether a language has every string, as that of the pattern `.*`."""
        found = self._are_any.get(number)
        if found is None:
            found = lengths_of(self._trees[number])[0] == 0 and self._has_all(self._codes[number])
            self._are_any[number] = found
        return found

    def _has_all(self, code: list[int]) -> bool:
        arena = self.arena
        if not arena.accepts(arena.ask(START, *self._assembled((code,)), -1)):
            return False
        return not arena.ask(IS_LIVE, arena.ask(START, *self._assembled((), (code,)), -1))

    def asked(self, strings: Strings, question: Callable[[], _Answer]) -> _Answer:
        """The answer to a question of a set. Past the limits, raises `UnsupportedConstraint` with a place."""
        try:
            return question()
        except ArenaFull:
            reason = "it needs too many states"
        except UnsupportedConstraint as error:
            reason = error.reason
        raise UnsupportedConstraint("pattern", self._place(strings), reason, field="schema")

    def _place(self, strings: Strings) -> str:
        places = (self._places[number] for number in sorted(strings.every | strings.none))
        return next((place for place in places if place), "#")


def _regular(strings: Strings) -> _Part:
    return strings.every, strings.none, strings.low, strings.high


@cache
def _trivial_classes() -> Classes:
    return classes_of([SCALARS])


def _pattern_tree(pattern: str, budget: Budget | None) -> Tree:
    return whole_text(normalize(search_tree(parse_ecma(pattern, budget=budget))))


@lru_cache(maxsize=64)
def _format_tree(name: str) -> Tree:
    return whole_text(normalize(format_tree(name)))


def _invalid(error: InvalidConstraint, place: str) -> InvalidConstraint:
    """An error of a pattern as one of the schema that it is in."""
    found = InvalidConstraint(f"{place}: {error}" if place else str(error), field="schema")
    found.offset = error.offset
    return found


def _unsupported(error: UnsupportedConstraint, place: str) -> UnsupportedConstraint:
    reason = f"{error.reason} ({error.path} of the pattern)" if place else error.reason
    return UnsupportedConstraint(error.keyword, place or error.path, reason, field="schema")
