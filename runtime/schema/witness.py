"""Random values of a set, drawn from its forms: examples for people, and texts to test the machine with."""

from __future__ import annotations

import random
from collections.abc import Generator, Hashable, Sequence
from itertools import chain, product
from typing import TypeAlias

from treille.runtime.errors import TreilleError, UnsupportedConstraint
from treille.runtime.schema.array_plans import ENDLESS, ArrayPlan, random_array
from treille.runtime.schema.distinct import matching
from treille.runtime.schema.forms import ArrayForm, ObjectForm, Option, Sets
from treille.runtime.schema.json_text import Json, dumps
from treille.runtime.schema.numbers import Numbers
from treille.runtime.schema.object_plans import ObjectPlan, random_object
from treille.runtime.schema.region_names import RegionNames, Words
from treille.runtime.schema.smallest import Choice, Smallest
from treille.runtime.schema.strings import Strings
from treille.runtime.schema.values import canonical

MAX_MEMBERS = 1_000_000
"""Values in one witness: there is none where the smallest has more."""
SIZE = 40

_TRIES = 24  # for a value that differs from others, before one is asked for exactly
_ATTEMPTS = 40
_SIZES = (0, 6, 16, 40, 80)

Drawing: TypeAlias = Generator[tuple[int, int], Json, Json]
"""A value on its way: it yields the set and the budget of each value that it needs, and is sent the value."""


class WitnessNotFound(TreilleError):
    """A set has no value, its smallest is too large to write down, or drawing one failed again and again."""


def witness(sets: Sets, languages: Words, number: int, rng: random.Random, *, size: int = SIZE) -> Json:
    """A random value of a set: None, bool, int, Decimal, str, list, or dict with its keys in schema order.

    `size` is about how many values it may have in it; the smallest value there is may need more. For many
    witnesses of the same sets use a `Witnesses`. Raises `WitnessNotFound`.
    """
    return Witnesses(sets, languages).draw(number, rng, size=size)


def examples(sets: Sets, languages: Words, rng: random.Random, count: int) -> list[str]:
    """JSON texts of different values of a document, at most `count`, small and large; fewer where it has
    fewer or where no other was found. Raises `WitnessNotFound` if there is none."""
    drawn = Witnesses(sets, languages)
    found: dict[Hashable, str] = {}
    for at in range(6 * count):
        value = drawn.draw(sets.root, rng, size=_SIZES[at % len(_SIZES)])
        found.setdefault(canonical(value), dumps(value, spaced=True))
        if len(found) >= count:
            break
    return list(found.values())


class Witnesses:
    """Draws values of one document's sets, and keeps what it found out about them."""

    def __init__(self, sets: Sets, languages: Words) -> None:
        self._sets = sets
        self._languages = languages
        self._names = RegionNames(languages)
        self._smallest = Smallest(sets, self._names.capacity)

    def draw(self, number: int, rng: random.Random, *, size: int = SIZE) -> Json:
        """See `witness`."""
        cost = self._smallest.cost(number)
        if cost > MAX_MEMBERS:
            reason = (
                "has no value" if cost >= ENDLESS else f"has no value with fewer than {cost} values in it"
            )
            raise WitnessNotFound(f"the set {reason}")
        room = 2 * max(size, cost) + 100
        for attempt in range(_ATTEMPTS):
            source = _Source(self._sets, self._languages, self._smallest, self._names, rng)
            source.looseness = 0.0 if attempt < 2 else 0.3 * attempt / _ATTEMPTS
            try:
                return _followed(source, number, size, room << min(attempt, 4))
            except _Lost:
                continue
        raise WitnessNotFound(f"no value was found in {_ATTEMPTS} attempts")


class _Lost(Exception):
    """The choices so far lead nowhere."""


def _followed(source: _Source, number: int, size: int, room: int) -> Json:
    """Runs drawings to the end. A stack takes the place of calls, so no depth is too much for Python's.

    `room` bounds the depth, and with it (`_Lost`) choices that turn in circles; so does the number of draws.
    """
    stack: list[Drawing] = [source.value(number, size, first=True)]
    given: Json = None
    draws = 0
    while True:
        try:
            number, budget = stack[-1].send(given)
        except StopIteration as stop:
            stack.pop()
            given = stop.value
            if not stack:
                return given
            continue
        draws += 1
        if len(stack) > room or draws > 200 * room:
            raise _Lost
        stack.append(source.value(number, budget))
        given = None


class _Source:
    """Draws values as generators; see `Drawing`."""

    def __init__(
        self,
        sets: Sets,
        languages: Words,
        smallest: Smallest,
        names: RegionNames,
        rng: random.Random,
    ) -> None:
        self._sets = sets
        self._languages = languages
        self._smallest = smallest
        self._names = names
        self._rng = rng
        self.looseness = 0.0  # how often a value is not the smallest although the budget is used up

    def value(self, number: int, budget: int, *, first: bool = False) -> Drawing:
        """A value of a set. What a budget cannot pay for comes out as small as it can be; the `first` value's
        shape is any."""
        choice = self._choose(number, ENDLESS if first else budget)
        shape, budget = choice.shape, max(budget, choice.cost)
        if isinstance(shape, Numbers):
            return shape.sample(self._rng)
        if isinstance(shape, Strings):
            return self._languages.sample(shape, self._rng)
        if isinstance(shape, ArrayForm) and isinstance(choice.plan, ArrayPlan):
            return (yield from self._array(shape, choice.plan, budget))
        if isinstance(shape, ObjectForm) and isinstance(choice.plan, ObjectPlan):
            return (yield from self._object(shape, choice.plan, budget))
        return self._rng.choice(sorted(shape, key=str)) if isinstance(shape, frozenset) else None

    def _choose(self, number: int, budget: int) -> Choice:
        """A shape that the budget can pay, every type as likely as another, or one as small as any."""
        cost, best = self._smallest.cost(number), self._smallest.best(number)
        choices = self._smallest.choices(number)
        if budget <= cost and self._rng.random() >= self.looseness:
            choices = tuple(one for one in choices if one.cost <= cost)
        elif budget > cost:
            choices = tuple(one for one in choices if one.cost <= min(budget, MAX_MEMBERS))
        if not choices:
            if best is None:
                raise WitnessNotFound(f"set {number} has no value")
            return best
        kinds: dict[object, list[Choice]] = {}
        for choice in choices:
            kinds.setdefault(_kind(choice), []).append(choice)
        return self._rng.choice(self._rng.choice(list(kinds.values())))

    def _array(self, form: ArrayForm, smallest: ArrayPlan, budget: int) -> Drawing:
        plan = smallest
        if budget > smallest.cost:
            plan = random_array(form, self._smallest.cost, budget, self._rng) or smallest
        if len(plan.prefix) + sum(times for _, times in plan.rest) > MAX_MEMBERS:
            raise WitnessNotFound(f"an array has more than {MAX_MEMBERS} items")
        options = plan.options(self._rng)
        budgets = self._shared([self._smallest.cost(one.value) for one in options], budget - plan.cost)
        numbers = [one.value for one in options]
        if form.unique and len(options) > 1:
            return (yield from self._unique(numbers, budgets))
        items: list[Json] = []
        for number, share in zip(numbers, budgets, strict=True):
            items.append((yield number, share))
        return items

    def _shared(self, costs: list[int], rest: int) -> list[int]:
        """Each value's cost and a random part of the rest."""
        shares = list(costs)
        order = list(range(len(costs)))
        self._rng.shuffle(order)
        for left, at in zip(range(len(order), 0, -1), order, strict=True):
            if rest <= 0:
                break
            given = rest if left == 1 else self._rng.randint(0, min(rest, 2 * rest // left + 1))
            shares[at] += given
            rest -= given
        return shares

    def _unique(self, numbers: list[int], budgets: list[int]) -> Drawing:
        """Items that all differ. Places with few values come first and are matched with them; the others have
        more values than there are places."""
        items: list[Json] = [None] * len(numbers)
        limit = 2 * len(numbers)
        few = [one for one in dict.fromkeys(numbers) if self._sets.num_values(one, limit) < limit]
        row_of = {one: row for row, one in enumerate(few)}
        values: dict[tuple[int, Hashable], Json] = {}
        rows: list[list[Hashable]] = []
        for row, number in enumerate(few):
            every = yield from self._every(number, limit)
            self._rng.shuffle(every)
            rows.append(list(map(canonical, every)))
            values.update(zip(product((row,), rows[-1]), every, strict=True))
        known = list(dict.fromkeys(chain.from_iterable(rows)))
        index = {form: at for at, form in enumerate(known)}
        places = [at for at, one in enumerate(numbers) if one in row_of]
        self._rng.shuffle(places)
        taken = matching(
            [row_of[numbers[at]] for at in places], [[index[one] for one in row] for row in rows]
        )
        if taken is None:
            raise _Lost
        seen: dict[Hashable, Json] = {}
        for at, one in zip(places, taken, strict=True):
            items[at] = seen[known[one]] = values[row_of[numbers[at]], known[one]]
        without: dict[int, tuple[int, int]] = {}
        for at, number in enumerate(numbers):
            if number not in row_of:
                item = yield from self._other(number, budgets[at], seen, without)
                items[at] = seen[canonical(item)] = item
        return items

    def _other(
        self, number: int, budget: int, seen: dict[Hashable, Json], without: dict[int, tuple[int, int]]
    ) -> Drawing:
        """A value that is not among those `seen`. `without`: by set, the set of its values that differ from
        so many of those, the first ones."""
        for attempt in range(_TRIES):
            item = yield number, budget + attempt // 2
            if canonical(item) not in seen:
                return item
        rest, num = without.get(number, (number, 0))
        for value in list(seen.values())[num:]:
            rest = self._rest(rest, value)
        without[number] = (rest, len(seen))
        return (yield rest, budget)

    def _every(self, number: int, limit: int) -> Generator[tuple[int, int], Json, list[Json]]:
        """All values of a set that has at most `limit`."""
        forms = self._sets.forms(number)
        found: list[Json] = list(forms.words)
        if not forms.arrays and not forms.objects:
            for numbers in forms.numbers:
                found.extend(map(numbers.read, numbers.values(limit) or ()))
            for strings in forms.strings:
                found.extend(self._languages.words(strings, limit) or ())
            return found
        found = []
        while not self._sets.forms(number).is_empty and len(found) <= limit:
            item = yield number, 0
            found.append(item)
            number = self._rest(number, item)
        return found

    def _rest(self, number: int, value: Json) -> int:
        try:
            return self._sets.without(number, value)
        except UnsupportedConstraint:
            raise _Lost from None

    def _object(self, form: ObjectForm, smallest: ObjectPlan, budget: int) -> Drawing:
        plan = smallest
        if budget > smallest.cost:
            cost, capacity = self._smallest.cost, self._names.capacity
            plan = random_object(form, cost, capacity, budget, self._rng) or smallest
        if len(plan.others) > MAX_MEMBERS:
            raise WitnessNotFound(f"an object has more than {MAX_MEMBERS} members")
        places = sorted(plan.keys, key=lambda at: (not form.keys[at].declared, at))
        members = [(form.keys[at].name, plan.keys[at]) for at in places]
        taken = {key.name for key in form.keys}
        others = list(plan.others)
        self._rng.shuffle(others)
        for at, option in others:
            name = self._names.fresh(form, form.regions[at], taken, self._rng)
            if name is None:
                raise _Lost
            taken.add(name)
            members.append((name, option))
        return (yield from self._members(members, budget - plan.cost))

    def _members(self, members: Sequence[tuple[str, Option]], rest: int) -> Drawing:
        budgets = self._shared([self._smallest.cost(option.value) for _, option in members], rest)
        found: dict[str, Json] = {}
        for (name, option), share in zip(members, budgets, strict=True):
            found[name] = yield option.value, share
        return found


def _kind(choice: Choice) -> object:
    shape = choice.shape
    if isinstance(shape, frozenset):
        return "null" if None in shape else "boolean"
    return type(shape)
