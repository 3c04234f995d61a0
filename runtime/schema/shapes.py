"""Shapes: what a schema asks of a value, sorted by type, before it is known which of it can be met.

A `Typed` is a union. Types do not overlap, so two unions meet type by type, and each type has its own
alternatives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from treille.runtime.errors import UnsupportedConstraint
from treille.runtime.schema.bases import EVERYTHING, NOTHING
from treille.runtime.schema.languages import Languages
from treille.runtime.schema.literals import Literals
from treille.runtime.schema.nodes import Node
from treille.runtime.schema.numbers import ANY_NUMBER, Numbers
from treille.runtime.schema.strings import Strings

Words = frozenset[bool | None]
_Part = TypeVar("_Part")

_MAX_COMPARED = 256

ALL_WORDS: Words = frozenset((None, True, False))
ANY_STRING = Strings()


@dataclass(frozen=True, slots=True)
class Rule:
    """For keys that have no entry of their own: a value is in the set of each language of `patterns` that
    has its key, and if there is none, in `rest`."""

    patterns: tuple[tuple[int, int], ...]
    rest: int


@dataclass(frozen=True, slots=True)
class Exists:
    """Some key of one of `names` has a value of set `value`."""

    names: tuple[Strings, ...]
    value: int


@dataclass(frozen=True, slots=True)
class Seen:
    """What was evaluated, for `unevaluatedProperties` and `unevaluatedItems`: keys in `names` or in a
    language of `patterns`; the first `count` items and those that hold a literal of `matching`;
    `everything`."""

    names: frozenset[str] = frozenset()
    patterns: frozenset[int] = frozenset()
    count: int = 0
    matching: frozenset[int] = frozenset()
    everything: bool = False

    def with_more(self, other: Seen) -> Seen:
        """What either has seen."""
        if self == other or other == UNSEEN:
            return self
        return Seen(
            self.names | other.names,
            self.patterns | other.patterns,
            max(self.count, other.count),
            self.matching | other.matching,
            self.everything or other.everything,
        )


UNSEEN = Seen()


@dataclass(frozen=True, slots=True)
class ObjectShape:
    """Objects: keys in `names` have a value of that set (`NOTHING`: are not there), and for others `rules`
    hold. All keys are in each of the unions of `domain`. `dependent`: keys, and those that must be there
    with them. `unordered`: those of `names` that no schema declares."""

    names: Mapping[str, int] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    domain: tuple[tuple[Strings, ...], ...] = ()
    required: frozenset[str] = frozenset()
    low: int = 0
    high: int | None = None
    exists: tuple[Exists, ...] = ()
    dependent: tuple[tuple[str, frozenset[str]], ...] = ()
    seen: Seen = UNSEEN
    unordered: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Counted:
    """From `low` to `high` of the items from place `first` on hold a literal. `origin`: see `Contains`."""

    literal: int
    low: int
    high: int | None = None
    first: int = 0
    origin: tuple[str, str] = field(default=("contains", "#"), compare=False)


@dataclass(frozen=True, slots=True)
class ArrayShape:
    """Arrays of `low` to `high` items, those of `prefix` first and then any of `rest`. `refusal`: why these
    cannot be enforced."""

    prefix: tuple[int, ...] = ()
    rest: int = EVERYTHING
    low: int = 0
    high: int | None = None
    contains: tuple[Counted, ...] = ()
    unique: bool = False
    seen: Seen = UNSEEN
    refusal: UnsupportedConstraint | None = None


@dataclass(frozen=True, slots=True)
class Typed:
    """The union of everything in it."""

    words: Words = frozenset()
    numbers: tuple[Numbers, ...] = ()
    strings: tuple[Strings, ...] = ()
    arrays: tuple[ArrayShape, ...] = ()
    objects: tuple[ObjectShape, ...] = ()


ANY_OBJECT = ObjectShape()
ANY_ARRAY = ArrayShape()
ALL = Typed(ALL_WORDS, (ANY_NUMBER,), (ANY_STRING,), (ANY_ARRAY,), (ANY_OBJECT,))
NONE = Typed()


class Work:
    """What may be done for one task: raises when too much was, or when `check` does."""

    def __init__(self, limit: int, check: Callable[[], None] | None = None) -> None:
        self._limit = limit
        self._left = limit
        self._check = check
        self._since = 0
        self.place: tuple[str, Node | str] = ("schema", "#")

    def begin(self) -> None:
        """Another task begins, with all of the limit."""
        self._left = self._limit

    def spend(self, amount: int = 1) -> None:
        """Takes note of some work. Raises `UnsupportedConstraint` for too much."""
        self._left -= amount
        self._since += amount
        if self._since >= 500:
            self._since = 0
            if self._check is not None:
                self._check()
        if self._left < 0:
            raise self.too_much("there are too many ways in which its parts can hold together")

    def too_much(self, reason: str) -> UnsupportedConstraint:
        """The error for what is past a limit, at the place that is being worked on."""
        keyword, where = self.place
        return UnsupportedConstraint(
            keyword, where if isinstance(where, str) else where.pointer, reason, field="schema"
        )


class Shapes:
    """How shapes meet."""

    def __init__(
        self, literals: Literals, languages: Languages, work: Work, *, max_alternatives: int = 4096
    ) -> None:
        self._literals = literals
        self._languages = languages
        self._work = work
        self._max_alternatives = max_alternatives
        self._matches: dict[tuple[int, str], bool] = {}

    def meet(self, one: Typed, other: Typed, *, keep: bool = False) -> Typed:
        """What is in both. `keep`: alternatives that are within others stay, since they have seen more."""
        if other is ALL or one is NONE:
            return one
        if one is ALL or other is NONE:
            return other
        numbers: tuple[Numbers, ...] = ()
        strings: tuple[Strings, ...] = ()
        arrays: tuple[ArrayShape, ...] = ()
        objects: tuple[ObjectShape, ...] = ()
        if one.numbers and other.numbers:
            numbers = self._products(one.numbers, other.numbers, ANY_NUMBER, self._meet_numbers)
        if one.strings and other.strings:
            strings = self._products(one.strings, other.strings, ANY_STRING, self._meet_strings)
        if one.arrays and other.arrays:
            arrays = self._products(one.arrays, other.arrays, ANY_ARRAY, self._meet_arrays, keep=keep)
        if one.objects and other.objects:
            objects = self._products(one.objects, other.objects, ANY_OBJECT, self.meet_objects, keep=keep)
            if not keep and len(objects) > 1:
                objects = self._widest(objects)
        return Typed(one.words & other.words, numbers, strings, arrays, objects)

    def join(self, parts: Iterable[Typed], *, keep: bool = False) -> Typed:
        """What is in any of them; `keep` as for `meet`."""
        few = [part for part in parts if part is not NONE]
        if len(few) < 2:
            return few[0] if few else NONE
        words: Words = frozenset()
        for part in few:
            words |= part.words
        return Typed(
            words,
            self._union([part.numbers for part in few], ANY_NUMBER),
            self._union([part.strings for part in few], ANY_STRING),
            self._union([part.arrays for part in few], None if keep else ANY_ARRAY),
            self._union([part.objects for part in few], None if keep else ANY_OBJECT),
        )

    def value(self, shape: ObjectShape, name: str) -> int:
        """The set of the value that a key may have."""
        found = shape.names.get(name)
        return self.ruled(shape.rules, name) if found is None else found

    def ruled(self, rules: tuple[Rule, ...], name: str) -> int:
        """The set that rules ask for the value of a key."""
        found = EVERYTHING
        for rule in rules:
            matched = False
            for pattern, value in rule.patterns:
                if self.matches(pattern, name):
                    matched = True
                    found = self._literals.meet(found, value)
            if not matched:
                found = self._literals.meet(found, rule.rest)
        return found

    def matches(self, pattern: int, name: str) -> bool:
        """Whether a key is in a language."""
        found = self._matches.get((pattern, name))
        if found is None:
            found = self._languages.contains(Strings(every=frozenset((pattern,))), name)
            self._matches[pattern, name] = found
        return found

    def _union(self, parts: list[tuple[_Part, ...]], everything: _Part | None) -> tuple[_Part, ...]:
        found: list[_Part] = []
        for part in parts:
            for one in part:
                if one == everything:
                    return (everything,)
                if not any(one is other for other in found[:8]):
                    found.append(one)
        self._bounded(len(found))
        return tuple(found)

    def _products(
        self,
        ones: tuple[_Part, ...],
        others: tuple[_Part, ...],
        everything: _Part,
        meet: Callable[[_Part, _Part], _Part | None],
        *,
        keep: bool = False,
    ) -> tuple[_Part, ...]:
        """The meets of all pairs; one that another only narrows is not narrowed if something else leaves
        it be."""
        if len(others) == 1 and others[0] == everything:
            return ones
        if len(ones) == 1 and ones[0] == everything:
            return others
        found: list[_Part] = []
        self._work.spend(len(ones) * len(others))
        for one in ones:
            narrowed: list[_Part] = []
            for other in others:
                both = meet(one, other)
                if both is None:
                    continue
                if not keep and (both is one or both == one):
                    narrowed = [one]
                    break
                narrowed.append(both)
            found.extend(narrowed)
        self._bounded(len(found))
        return tuple(found)

    def _widest(self, shapes: tuple[ObjectShape, ...]) -> tuple[ObjectShape, ...]:
        """The same union without shapes that are, as can be seen, within others."""
        if not 1 < len(shapes) <= _MAX_COMPARED:
            return shapes
        self._work.spend(len(shapes) * len(shapes) // 8)
        kept: list[ObjectShape] = []
        for shape in sorted(shapes, key=lambda one: len(one.names) + len(one.exists)):
            if not any(self._is_within(shape, other) for other in kept):
                kept.append(shape)
        return tuple(kept)

    def _is_within(self, one: ObjectShape, other: ObjectShape) -> bool:
        """Whether the objects of one shape are surely all of another too."""
        if not other.required <= one.required or (other.low > max(one.low, len(one.required))):
            return False
        if other.high is not None and (one.high is None or one.high > other.high):
            return False
        for name, value in other.names.items():
            if not self._literals.is_within(self.value(one, name), value):
                return False
        if other.rules:
            if not set(other.rules) <= set(one.rules):
                return False
            for name, value in one.names.items():
                if name not in other.names and not self._literals.is_within(
                    value, self.ruled(other.rules, name)
                ):
                    return False
        return (
            set(other.exists) <= set(one.exists)
            and set(other.domain) <= set(one.domain)
            and set(other.dependent) <= set(one.dependent)
        )

    def _bounded(self, count: int) -> None:
        if count > self._max_alternatives:
            raise self._work.too_much(f"it has more than {self._max_alternatives} alternatives of one type")

    def _meet_numbers(self, one: Numbers, other: Numbers) -> Numbers | None:
        both = one.meet(other)
        return None if both.is_empty() else both

    def _meet_strings(self, one: Strings, other: Strings) -> Strings | None:
        both = self._languages.meet(one, other)
        if both.only is not None:
            return both if both.only else None
        if both.every & both.none or (both.high is not None and both.low > both.high):
            return None
        return both

    def _meet_arrays(self, one: ArrayShape, other: ArrayShape) -> ArrayShape | None:
        prefix = tuple(
            self._literals.meet(
                one.prefix[place] if place < len(one.prefix) else one.rest,
                other.prefix[place] if place < len(other.prefix) else other.rest,
            )
            for place in range(max(len(one.prefix), len(other.prefix)))
        )
        high = _lower(one.high, other.high)
        both = ArrayShape(
            prefix,
            self._literals.meet(one.rest, other.rest),
            max(one.low, other.low),
            high,
            _merged(one.contains, other.contains),
            one.unique or other.unique,
            one.seen.with_more(other.seen),
            one.refusal or other.refusal,
        )
        return settled_array(both)

    def meet_objects(self, one: ObjectShape, other: ObjectShape) -> ObjectShape | None:
        """The objects of both shapes; None if there are none, as can be seen at once."""
        high = _lower(one.high, other.high)
        low = max(one.low, other.low)
        required = one.required | other.required
        if high is not None and max(low, len(required)) > high:
            return None
        for name in required:
            if self._literals.meet(self.value(one, name), self.value(other, name)) == NOTHING:
                return None
        self._work.spend((len(one.names) + len(other.names)) // 8)
        names = self._met_names(one, other)
        rules = _merged(one.rules, other.rules)
        if len(rules) > 1:
            rules = self._fewer(rules)
        exists = _merged(one.exists, other.exists)
        if exists and required:
            exists = tuple(part for part in exists if not self._is_met(part, required, names))
        return ObjectShape(
            names,
            rules,
            _merged(one.domain, other.domain),
            required,
            low,
            high,
            exists,
            _merged(one.dependent, other.dependent),
            one.seen.with_more(other.seen),
            _undeclared(one, other) | _undeclared(other, one),
        )

    def _is_met(self, part: Exists, required: frozenset[str], names: Mapping[str, int]) -> bool:
        """Whether a key that is required meets an `exists`, as can be seen."""
        for name in required:
            fits = name in names and self._literals.is_within(names[name], part.value)
            if fits and any(self._languages.contains(one, name) for one in part.names):
                return True
        return False

    def _met_names(self, one: ObjectShape, other: ObjectShape) -> dict[str, int]:
        meet = self._literals.meet
        names = {}
        for name, value in one.names.items():
            names[name] = meet(value, self.value(other, name))
        for name, value in other.names.items():
            if name not in names:
                names[name] = meet(self.ruled(one.rules, name), value)
        return names

    def _fewer(self, rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
        """The same rules, all without patterns as one."""
        rest = EVERYTHING
        kept = []
        for rule in rules:
            if rule.patterns:
                kept.append(rule)
            else:
                rest = self._literals.meet(rest, rule.rest)
        if rest != EVERYTHING:
            kept.append(Rule((), rest))
        return tuple(kept)


def settled_array(shape: ArrayShape) -> ArrayShape | None:
    """The shape with a length that ends before the first place where nothing may be; None if it has no
    array."""
    high = shape.high
    if NOTHING in shape.prefix:
        high = _lower(high, shape.prefix.index(NOTHING))
    elif shape.rest == NOTHING:
        high = _lower(high, len(shape.prefix))
    if high is not None and shape.low > high:
        return None
    if high == shape.high:
        return shape
    return ArrayShape(
        shape.prefix, shape.rest, shape.low, high, shape.contains, shape.unique, shape.seen, shape.refusal
    )


def _lower(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return one if other is None else other
    return min(one, other)


def _merged(one: tuple[_Part, ...], other: tuple[_Part, ...]) -> tuple[_Part, ...]:
    if not other or one == other:
        return one
    return (*one, *(part for part in other if part not in one))


def _undeclared(one: ObjectShape, other: ObjectShape) -> frozenset[str]:
    """Keys that no schema of one shape declares, nor one of the other."""
    return frozenset(name for name in one.unordered if name in other.unordered or name not in other.names)
