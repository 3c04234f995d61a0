"""The values of sets that have few, one by one; and whether items that must differ can."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

from treille.runtime.errors import UnsupportedConstraint
from treille.runtime.schema.forms import ArrayForm, Forms, ObjectForm, Option
from treille.runtime.schema.items import ArrayPlan
from treille.runtime.schema.languages import Languages
from treille.runtime.schema.members import Ways
from treille.runtime.schema.possible_arrays import Ask, counts_are_possible, length_is_possible
from treille.runtime.schema.shapes import Work
from treille.runtime.schema.values import canonical

MAX_VALUES = 10_000
MAX_NESTED = 16  # arrays with unique items, within each other, of which each must be counted


class _Many:
    """Stands for a value of which there are endlessly many others to choose."""


MANY = _Many()


class _Partial(NamedTuple):
    """An array or object of which some is known; `endless`: it can be completed in endlessly many ways."""

    parts: tuple[
        tuple[Hashable, object], ...
    ]  # (canonical form, value) of each item, or (key, value) of each member
    counts: tuple[int, ...]
    endless: bool


@dataclass(slots=True)
class _Found:
    values: dict[Hashable, object]
    limit: int

    def add(self, value: object) -> bool:
        """Whether there are not yet `limit` values."""
        self.values.setdefault(canonical(value), value)
        return len(self.values) < self.limit

    def add_all(self, values: Iterable[object]) -> bool:
        """The same, for several."""
        return all(self.add(value) for value in values)


class Counting:
    """The values of small sets of one document."""

    def __init__(self, forms: Callable[[int], Forms], languages: Languages, work: Work) -> None:
        self._forms = forms
        self._languages = languages
        self._work = work
        self._open: list[int] = []
        self._barrier = 0
        self._depth = 0
        self._known: dict[tuple[int, int], list[object] | None] = {}

    def values(self, number: int, limit: int) -> list[object] | None:
        """All values of a set if they are fewer than `limit`, else None.

        Raises `UnsupportedConstraint` where that takes too much, or depends on itself.
        """
        if limit <= 0:
            return None
        key = (number, limit)
        if key not in self._known:
            if number in self._open:
                if number in self._open[: self._barrier]:
                    raise self._work.too_much("how many values an item may have depends on itself")
                return None  # a value of the set lies within another one, and so on
            self._open.append(number)
            try:
                self._known[key] = self._values(self._forms(number), limit)
            finally:
                self._open.pop()
        return self._known[key]

    def _values(self, forms: Forms, limit: int) -> list[object] | None:
        found = _Found({}, limit)
        for word in forms.words:
            if not found.add(word):
                return None
        for numbers in forms.numbers:
            some = numbers.values(min(limit, MAX_VALUES))
            if some is None and numbers.count(limit) < limit:
                raise self._too_many()
            if some is None or not found.add_all(map(numbers.read, some)):
                return None
        for strings in forms.strings:
            words = self._languages.words(strings, min(limit, MAX_VALUES))
            if words is None and self._languages.count(strings, limit) < limit:
                raise self._too_many()
            if words is None or not found.add_all(words):
                return None
        for array in forms.arrays:
            if not self._add_arrays(array, found):
                return None
        for form in forms.objects:
            if not self._add_objects(form, found):
                return None
        return list(found.values.values())

    def _choices(self, options: tuple[Option, ...], limit: int) -> list[tuple[int, list[object] | None]]:
        return [(option.marks, self.values(option.value, limit)) for option in options]

    def _add_arrays(self, form: ArrayForm, found: _Found) -> bool:
        bounded = form.unique or any(one.high is not None for one in form.contains)
        if form.high is None and form.rest and not bounded:
            return False
        partials = [_Partial((), (0,) * len(form.contains), False)]
        length = 0
        if form.low > MAX_VALUES:
            raise self._work.too_much(f"arrays of over {MAX_VALUES} items would have to be counted")
        while partials:
            if length >= form.low:
                for one in partials:
                    enough = zip(form.contains, one.counts, strict=True)
                    if not all(bound.low <= count for bound, count in enough):
                        continue
                    if one.endless or not found.add([value for _, value in one.parts]):
                        return False
            if form.high is not None and length >= form.high:
                return True
            options = form.prefix[length] if length < len(form.prefix) else form.rest
            partials = self._longer(form, partials, self._choices(options, found.limit))
            length += 1
        return True

    def _longer(
        self, form: ArrayForm, partials: list[_Partial], choices: list[tuple[int, list[object] | None]]
    ) -> list[_Partial]:
        longer: dict[tuple[object, ...], _Partial] = {}
        for one in partials:
            for marks, values in choices:
                counts = tuple(count + (marks >> bit & 1) for bit, count in enumerate(one.counts))
                if any(
                    bound.high is not None and count > bound.high
                    for bound, count in zip(form.contains, counts, strict=True)
                ):
                    continue
                for value in (MANY,) if values is None else values:
                    shown = None if value is MANY else canonical(value)
                    if (
                        form.unique
                        and value is not MANY
                        and any(shown == old for old, other in one.parts if other is not MANY)
                    ):
                        continue
                    parts = (*one.parts, (shown, value))
                    new = _Partial(parts, counts, one.endless or value is MANY)
                    longer[tuple(old for old, _ in parts), counts, new.endless] = new
            self._bounded(len(longer))
        return list(longer.values())

    def _add_objects(self, form: ObjectForm, found: _Found) -> bool:
        least = sum(key.required for key in form.keys)
        if form.num_exists or (form.regions and (form.high is None or form.high > least)):
            for region in form.regions:
                if self._languages.count(region.names, found.limit + len(form.keys)) >= found.limit + len(
                    form.keys
                ):
                    return False
            raise self._too_many()
        partials = [_Partial((), (), False)]
        for key in form.keys:
            if not key.options:
                continue
            more = [] if key.required else list(partials)
            for _, values in self._choices(key.options, found.limit):
                for one in partials:
                    for value in (MANY,) if values is None else values:
                        more.append(
                            _Partial((*one.parts, (key.name, value)), (), one.endless or value is MANY)
                        )
                    self._bounded(len(more))
            partials = more
        for one in partials:
            names = {name for name, _ in one.parts}
            if not form.low <= len(names) or (form.high is not None and len(names) > form.high):
                continue
            implied = (at for key in form.keys if key.name in names for at in key.implies)
            if not all(form.keys[at].name in names for at in implied):
                continue
            if one.endless or not found.add({str(name): value for name, value in one.parts}):
                return False
        return True

    def _too_many(self) -> UnsupportedConstraint:
        return self._work.too_much(f"over {MAX_VALUES} values would have to be told apart")

    def _bounded(self, count: int) -> None:
        self._work.spend()
        if count > MAX_VALUES:
            raise self._too_many()

    def array_is_possible(self, plan: ArrayPlan, ask: Ask, many: Callable[[int, int, Ask], bool]) -> bool:
        """Whether there is an array of a plan, if a set has a value exactly where `ask` says so. `many`:
        whether a set surely has so many values."""
        possible = (
            counts_are_possible(plan, ask, self._work) if plan.contains else length_is_possible(plan, ask)
        )
        if not possible or not plan.unique or plan.low < 2:
            return possible
        places = [
            plan.prefix[at] if at < len(plan.prefix) else plan.rest
            for at in range(min(plan.low, len(plan.prefix) + 1))
        ]
        sets = {value for ways in places for value, _ in ways if ask(value)}
        if all(many(value, plan.low, ask) for value in sets):
            return True
        with self._nested():
            if plan.contains:
                return self._counted_apart(plan, ask)
            return self._matched(plan, ask)

    @contextmanager
    def _nested(self) -> Iterator[None]:
        barrier, self._barrier = self._barrier, len(self._open)
        self._depth += 1
        try:
            if self._depth > MAX_NESTED:
                raise self._work.too_much("arrays with unique items are too deep within each other")
            yield
        finally:
            self._depth -= 1
            self._barrier = barrier

    def _matched(self, plan: ArrayPlan, ask: Ask) -> bool:
        """Whether the first `low` items can all be different: each item with few values needs one of its
        own (the others find one last)."""
        taken: dict[Hashable, int] = {}
        wanted: list[list[Hashable]] = []
        size = len(plan.prefix)
        for at in range(min(plan.low, size)):
            values = self._of_ways(plan.prefix[at], ask, plan.low)
            if values is not None:
                wanted.append(values)
        if plan.low > size:
            values = self._of_ways(plan.rest, ask, plan.low)
            if values is not None:
                if len(values) < plan.low - size:
                    return False
                wanted.extend([values] * (plan.low - size))
        return all(self._match(place, wanted, taken) for place in range(len(wanted)))

    def _match(self, place: int, wanted: list[list[Hashable]], taken: dict[Hashable, int]) -> bool:
        """Give a place a value, moving others if need be (an augmenting path of a bipartite matching)."""
        tried: dict[
            Hashable, tuple[int, tuple[Hashable, ...]]
        ] = {}  # who would take a value, and what it has now
        waiting: deque[tuple[int, tuple[Hashable, ...]]] = deque([(place, ())])
        while waiting:
            here, has = waiting.popleft()
            for value in wanted[here]:
                self._work.spend()
                if value in tried:
                    continue
                tried[value] = here, has
                if value not in taken:
                    while True:
                        taker, old = tried[value]
                        taken[value] = taker
                        if not old:
                            return True
                        value = old[0]
                waiting.append((taken[value], (value,)))
        return False

    def _of_ways(self, ways: Ways, ask: Ask, limit: int) -> list[Hashable] | None:
        found: set[Hashable] = set()
        for number, _ in ways:
            if ask(number):
                values = self.values(number, limit)
                if values is None:
                    return None
                found.update(canonical(value) for value in values)
        return list(found)

    def _counted_apart(self, plan: ArrayPlan, ask: Ask) -> bool:
        """The same for arrays with `contains`: look for one."""

        def alive(ways: Ways) -> tuple[Option, ...]:
            return tuple(Option(value, marks) for value, marks in ways if ask(value))

        form = ArrayForm(
            tuple(alive(ways) for ways in plan.prefix),
            alive(plan.rest),
            plan.low,
            plan.high,
            plan.contains,
            unique=True,
        )
        return not self._add_arrays(replace(form), _Found({}, 1))
