"""Which keys an object has, and with which option each, so that counts, `required` and marks are right."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass

from treille.runtime.schema.array_plans import ENDLESS, Cost
from treille.runtime.schema.forms import ObjectForm, Option, Region

Capacity = Callable[[ObjectForm, Region], int]  # how many members a region can give, or some large number

_SHARES = (0.0, 0.2, 0.5, 0.5, 0.8, 1.0)
_EXTRAS = (0, 0, 0, 0, 1, 1, 2, 4)


@dataclass(frozen=True, slots=True)
class ObjectPlan:
    """The places in `keys` that are there, and members of regions (by place in `regions`). `cost`: 1 and what
    the smallest values of the members cost together."""

    keys: dict[int, Option]
    others: tuple[tuple[int, Option], ...]
    cost: int


def smallest_object(form: ObjectForm, cost: Cost, capacity: Capacity) -> ObjectPlan | None:
    """A plan that costs little; None if none was found."""
    found = _Choosing(form, cost, capacity).choose(ENDLESS)
    if found is None:
        for seed in range(64 if form.low or form.num_exists else 0):
            found = _Choosing(form, cost, capacity, random.Random(seed)).choose(ENDLESS)
            if found:
                break
    return found


def random_object(
    form: ObjectForm, cost: Cost, capacity: Capacity, budget: int, rng: random.Random
) -> ObjectPlan | None:
    """A plan of at most this cost, drawn at random; None if no draw was a plan."""
    for _ in range(4):
        found = _Choosing(form, cost, capacity, rng).choose(budget)
        if found and found.cost <= budget:
            return found
    return None


class _Choosing:
    """An object while its members are chosen: as cheap as offers itself, or with `rng` any."""

    def __init__(
        self, form: ObjectForm, cost: Cost, capacity: Capacity, rng: random.Random | None = None
    ) -> None:
        self._form = form
        self._cost = cost
        self._capacity = capacity
        self._rng = rng
        self._high = ENDLESS if form.high is None else form.high
        self._keys: dict[int, Option] = {}
        self._others: list[tuple[int, Option]] = []
        self._used = [0] * len(form.regions)
        self._spent = 1

    def choose(self, budget: int) -> ObjectPlan | None:
        """A plan; None where the choices lead nowhere. What nobody asks for is added within the budget."""
        form = self._form
        for place, key in enumerate(form.keys):
            if key.required and not self._add_group(place, budget):
                return None
        if not self._add_marked():
            return None
        if self._rng is not None:
            self._add_optional(budget, self._rng)
        if not self._add_missing(budget):
            return None
        if self._rng is not None:
            for _ in range(self._rng.choice(_EXTRAS)):
                self._add_other(budget)
        if not form.low <= self._count <= self._high:
            return None
        return ObjectPlan(self._keys, tuple(self._others), self._spent)

    @property
    def _count(self) -> int:
        return len(self._keys) + len(self._others)

    def _add_group(self, place: int, budget: int) -> bool:
        """Adds a key and what it implies; False, with nothing added, if that is too much or cannot be."""
        group = [at for at in (place, *self._form.keys[place].implies) if at not in self._keys]
        chosen: dict[int, Option] = {}
        room = budget - self._spent
        for at in dict.fromkeys(group):
            option = self._pick(self._form.keys[at].options, room)
            if option is None:
                return False
            chosen[at] = option
            room -= self._cost(option.value)
        if self._count + len(chosen) > self._high or (room < 0 and budget < ENDLESS):
            return False
        self._keys.update(chosen)
        self._spent += sum(self._cost(option.value) for option in chosen.values())
        return True

    def _pick(self, options: tuple[Option, ...], room: int) -> Option | None:
        """An option with a value that fits in `room`, if one does, else the cheapest; None: there is none."""
        known = [one for one in options if self._cost(one.value) < ENDLESS]
        if not known:
            return None
        fitting = [one for one in known if self._cost(one.value) <= room]
        if self._rng is not None and fitting:
            return self._rng.choice(fitting)
        return min(known, key=lambda one: self._cost(one.value))

    def _add_marked(self) -> bool:
        """Adds members of regions until each mark has one."""
        wanted = (1 << self._form.num_exists) - 1
        marked = [
            (at, option)
            for at, region in enumerate(self._form.regions)
            for option in region.options
            if option.marks & wanted and self._cost(option.value) < ENDLESS
        ]
        while self._rng is not None and wanted and self._count < self._high:
            useful = [one for one in marked if one[1].marks & wanted and self._has_room(one[0])]
            if not useful:
                return False
            at, option = self._rng.choice(useful)
            self._add_member(at, option)
            wanted &= ~option.marks
        for at, option in _cover(wanted, marked, self._cost) or ():
            if not self._has_room(at):
                return False
            self._add_member(at, option)
            wanted &= ~option.marks
        return not wanted and self._count <= self._high

    def _add_optional(self, budget: int, rng: random.Random) -> None:
        share = rng.choice(_SHARES)
        places = [at for at, key in enumerate(self._form.keys) if key.options and at not in self._keys]
        rng.shuffle(places)
        for place in places:
            if self._spent >= budget:
                return
            if place not in self._keys and rng.random() < share:
                self._add_group(place, budget)

    def _add_missing(self, budget: int) -> bool:
        """Adds members until there are `low`."""
        form = self._form
        if self._count >= form.low:
            return True
        places = [at for at, key in enumerate(form.keys) if key.options and at not in self._keys]
        prices: dict[int, int] = {}
        limit = ENDLESS  # what a member of a region costs, if there is one: keys that cost more come last
        if self._rng is None:
            prices = {at: self._price(form.keys[at].options) for at in places}
            places.sort(key=prices.__getitem__)
            limit = min(
                (self._price(one.options) for one in self._form.regions if one.options), default=ENDLESS
            )
        else:
            self._rng.shuffle(places)
        for place in places:
            while self._count < self._form.low and (
                self._rng.random() < 0.5 if self._rng else prices[place] >= limit
            ):
                if not self._add_other(ENDLESS):
                    break
            if self._count >= self._form.low:
                return True
            if place not in self._keys:
                self._add_group(place, ENDLESS)
        while self._count < self._form.low:
            if not self._add_other(ENDLESS):
                return False
        return True

    def _price(self, options: tuple[Option, ...]) -> int:
        return min(self._cost(option.value) for option in options)

    def _add_other(self, budget: int) -> bool:
        """Adds one member of a region, if there is one."""
        if self._count >= self._high:
            return False
        open_places = [at for at, one in enumerate(self._form.regions) if one.options and self._has_room(at)]
        room = budget - self._spent
        found = [
            (at, option)
            for at in open_places
            if (option := self._pick(self._form.regions[at].options, room)) is not None
            and self._cost(option.value) <= room
        ]
        if not found:
            return False
        at, option = (
            self._rng.choice(found) if self._rng else min(found, key=lambda one: self._cost(one[1].value))
        )
        self._add_member(at, option)
        return True

    def _has_room(self, at: int) -> bool:
        return self._used[at] < self._capacity(self._form, self._form.regions[at])

    def _add_member(self, at: int, option: Option) -> None:
        self._used[at] += 1
        self._others.append((at, option))
        self._spent += self._cost(option.value)


def _cover(wanted: int, marked: list[tuple[int, Option]], cost: Cost) -> list[tuple[int, Option]] | None:
    """The fewest members that have all the wanted marks, the cheapest of those; None if there are none."""
    by_marks: dict[int, tuple[int, Option]] = {}
    for one in marked:
        marks = one[1].marks & wanted
        if marks not in by_marks or cost(one[1].value) < cost(by_marks[marks][1].value):
            by_marks[marks] = one
    queue: list[tuple[int, int, int]] = [(0, 0, wanted)]
    came: dict[int, tuple[int, int]] = {}  # by what is left: what was before, and the marks then chosen
    best = {wanted: (0, 0)}
    while queue:
        num, spent, left = heapq.heappop(queue)
        if not left:
            chosen: list[tuple[int, Option]] = []
            while left != wanted:
                left, marks = came[left]
                chosen.append(by_marks[marks])
            return chosen
        for marks, (_, option) in by_marks.items():
            after = left & ~marks
            price = (num + 1, spent + cost(option.value))
            if after != left and price < best.get(after, (ENDLESS, 0)):
                best[after] = price
                came[after] = (left, marks)
                heapq.heappush(queue, (*price, after))
    return None
