"""`Programs`: every pattern and format of a document as a program for one store, and intersections of them.

All languages tell the same classes of characters apart, so each intersection of some of them can be one more
expression in the same store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache

from treille.runtime.errors import InvalidConstraint, UnsupportedConstraint
from treille.runtime.grammar.build import Program, intersection
from treille.runtime.grammar.charset import SCALARS
from treille.runtime.grammar.classes import Classes, classes_of
from treille.runtime.grammar.limits import Budget
from treille.runtime.grammar.normal import normalize, whole_text
from treille.runtime.grammar.parse_ecma import parse_ecma, search_tree
from treille.runtime.grammar.store import Int64s
from treille.runtime.grammar.tree import ANY, NOTHING, Repeat, Tree
from treille.runtime.schema.formats import NARROWED, format_tree
from treille.runtime.schema.lengths import fitted, lengths_of
from treille.runtime.schema.strings import Strings


class Programs:
    """The languages of one document, numbered as they are given, formats after patterns.

    If `patterns` and `formats` say where each stands (a mapping to JSON Pointers), so do errors. Raises
    `InvalidConstraint` (with the offset) for what is no pattern, and `UnsupportedConstraint` for what cannot
    be enforced exactly. `are_any`: the languages of which it is known whether they have every string.
    """

    def __init__(self, patterns: Iterable[str], formats: Iterable[str], budget: Budget | None = None) -> None:
        self.are_any: dict[int, bool] = {}
        self._places: list[str] = []
        self._trees: list[Tree] = []
        self._codes: list[list[int]] = []
        self._program = Program()
        self.patterns = self._numbered(patterns, lambda text: _pattern_tree(text, budget))
        self.formats = self._numbered(formats, _format_tree)
        self._narrowed = {self.formats[name]: NARROWED[name] for name in self.formats if name in NARROWED}
        if budget is not None:
            budget.check_time()
        self.classes = classes_of(self._program.sets) if self._trees else _trivial_classes()

    def _numbered(self, names: Iterable[str], tree_of: Callable[[str], Tree]) -> dict[str, int]:
        numbers: dict[str, int] = {}
        places: Mapping[str, str] = names if isinstance(names, Mapping) else {}
        for name in names:
            if name in numbers:
                continue
            place = places.get(name, "")
            try:
                tree = tree_of(name)
                code = self._program.apart(tree)
            except InvalidConstraint as error:
                raise _invalid(error, place) from None
            except UnsupportedConstraint as error:
                raise _unsupported(error, place) from None
            numbers[name] = len(self._trees)
            self._trees.append(tree)
            self._codes.append(code)
            self._places.append(place)
        return numbers

    def alone(self, number: int) -> Int64s:
        """The program of one language."""
        return intersection((self._codes[number],), ())

    def without(self, number: int) -> Int64s:
        """The program of all that is not in one language."""
        return intersection((), (self._codes[number],))

    def lacks_empty(self, number: int) -> bool:
        """Whether the empty text is plainly not in a language."""
        return lengths_of(self._trees[number])[0] > 0

    def regular(self, strings: Strings) -> Int64s:
        """The program of the regular part: `every`, `none`, `low`, `high`."""
        low, high = strings.low, strings.high
        codes = {one: self._codes[one] for one in sorted(strings.every) if not self.are_any.get(one)}
        extra: list[list[int]] = []
        if high is not None and low > high:
            extra.append(self._program.apart(NOTHING))
        elif low or high is not None:
            for number in codes:
                tree = fitted(self._trees[number], low, high)
                if tree is not None:
                    codes[number] = self._program.apart(tree)
                    break
            else:
                extra.append(self._program.apart(Repeat(ANY, low, high)))
        return intersection([*codes.values(), *extra], [self._codes[one] for one in sorted(strings.none)])

    def check_exact(self, numbers: Iterable[int]) -> None:
        """Raises `UnsupportedConstraint` if the complement of one of these languages is not known."""
        for number in numbers:
            if number in self._narrowed:
                reason = f"what is not of this format is not known exactly: it has {self._narrowed[number]}"
                raise UnsupportedConstraint("format", self._places[number] or "#", reason, field="schema")

    def place(self, strings: Strings) -> str:
        """Where a language of a set stands."""
        places = (self._places[number] for number in sorted(strings.every | strings.none))
        return next((place for place in places if place), "#")


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
