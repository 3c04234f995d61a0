"""Which option each place of an array takes, so that its length and its `contains` are right."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from treille.runtime.schema.forms import ArrayForm, Option

ENDLESS = 1 << 62
"""The cost of what has no value, or none known yet."""
MAX_SEARCH = 50_000  # states that an exact search looks at

Cost = Callable[[int], int]  # of the smallest value of a set, by its number


@dataclass(frozen=True, slots=True)
class ArrayPlan:
    """Options for the first places, then so many items of each of `rest`, in any order. `cost`: 1 and what
    the smallest values of the items cost together."""

    prefix: tuple[Option, ...]
    rest: tuple[tuple[Option, int], ...]
    cost: int

    def options(self, rng: random.Random) -> list[Option]:
        """The option of each item."""
        rest = [option for option, times in self.rest for _ in range(times)]
        rng.shuffle(rest)
        return [*self.prefix, *rest]


def smallest_array(form: ArrayForm, cost: Cost) -> ArrayPlan | None:
    """A plan that costs little; the least, where the choice that offers itself at each place does not do.
    None if there is none, or if it was not found in time."""
    return _Filling(form, cost).fill(form.low) or _search(form, cost)


def random_array(form: ArrayForm, cost: Cost, budget: int, rng: random.Random) -> ArrayPlan | None:
    """A plan of at most this cost, drawn at random; None if no draw was a plan."""
    smallest = min((cost(option.value) for option in form.rest), default=1)
    for _ in range(4):
        spread = rng.choice((1, 3, 8, 24))
        room = max(0, budget - 1 - form.low * smallest) // smallest
        length = min(form.low + rng.randint(0, min(spread, room)), longest(form))
        found = _Filling(form, cost, rng).fill(length)
        if found and found.cost <= budget:
            return found
    return None


def longest(form: ArrayForm) -> int:
    """How many items there may be at most, or `ENDLESS`: what an empty place and the lack of a rest leave."""
    high = ENDLESS if form.high is None else form.high
    for place, options in enumerate(form.prefix):
        if not options:
            return min(high, place)
    return high if form.rest else min(high, len(form.prefix))


class _Filling:
    """An array while its places are given options, one after the other: the cheapest, or with `rng` any."""

    def __init__(self, form: ArrayForm, cost: Cost, rng: random.Random | None = None) -> None:
        self._form = form
        self._cost = cost
        self._rng = rng
        self._longest = longest(form)
        self._counts = [0] * len(form.contains)
        self._prefix: list[Option] = []
        self._rest: dict[Option, int] = {}
        self._length = 0

    def fill(self, length: int) -> ArrayPlan | None:
        """A plan of about `length` items; None where the choices lead nowhere."""
        form = self._form
        for options in form.prefix[: max(length, form.low)]:
            fitting = self._fitting(options)
            if not fitting:
                break
            self._prefix.append(self._choose(fitting))
            self._count(self._prefix[-1], 1)
        while self._unmet():
            if self._length < len(form.prefix):
                fitting = self._fitting(form.prefix[self._length])
                if not fitting:
                    return None
                self._prefix.append(self._choose(self._useful(fitting) or fitting))
                self._count(self._prefix[-1], 1)
                continue
            fitting = self._useful(self._fitting(form.rest))
            if not fitting:
                return None
            option = self._choose(fitting)
            need = min(form.contains[at].low - self._counts[at] for at in self._gains(option))
            self._add(option, need)
        while self._length < length and self._length >= len(form.prefix):
            fitting = self._fitting(form.rest)
            if not fitting:
                break
            self._add(self._choose(fitting), length - self._length)
        if self._length < form.low or self._length > self._longest:
            return None
        cost = 1 + sum(self._cost(option.value) for option in self._prefix)
        cost += sum(self._cost(option.value) * times for option, times in self._rest.items())
        return ArrayPlan(tuple(self._prefix), tuple(self._rest.items()), min(cost, ENDLESS))

    def _fitting(self, options: Sequence[Option]) -> list[Option]:
        """Those that have a value and take no count past its limit."""
        if self._length >= self._longest:
            return []
        return [one for one in options if self._spare(one) > 0 and self._cost(one.value) < ENDLESS]

    def _spare(self, option: Option) -> int:
        """How many items of an option no `contains` would mind."""
        highs = [
            one.high - self._counts[at]
            for at, one in enumerate(self._form.contains)
            if one.high is not None and option.marks >> at & 1
        ]
        return min(highs, default=ENDLESS)

    def _unmet(self) -> bool:
        return any(count < one.low for count, one in zip(self._counts, self._form.contains, strict=True))

    def _gains(self, option: Option) -> list[int]:
        """The places of `contains` that still lack items and that an option gives one."""
        return [
            at
            for at, one in enumerate(self._form.contains)
            if option.marks >> at & 1 and self._counts[at] < one.low
        ]

    def _useful(self, options: list[Option]) -> list[Option]:
        return [one for one in options if self._gains(one)]

    def _choose(self, options: list[Option]) -> Option:
        if self._rng is not None:
            return self._rng.choice(options)
        return min(options, key=lambda one: self._cost(one.value) / (1 + len(self._gains(one))))

    def _add(self, option: Option, times: int) -> None:
        """Adds items of the rest: all, or at random a part of them."""
        times = min(times, self._spare(option), self._longest - self._length)
        if self._rng is not None:
            times = self._rng.randint(1, max(1, times // 4))
        self._rest[option] = self._rest.get(option, 0) + times
        self._count(option, times)

    def _count(self, option: Option, times: int) -> None:
        self._length += times
        for at in range(len(self._counts)):
            self._counts[at] += times * (option.marks >> at & 1)


State = tuple[
    int, tuple[int, ...]
]  # how many items there are, and how many of them count for each `contains`


def _search(form: ArrayForm, cost: Cost) -> ArrayPlan | None:
    """The cheapest plan, by Dijkstra's algorithm. More than `low` items and one for each that must count are
    never needed after the prefix. None if there is none, or after `MAX_SEARCH` states."""
    end = max(form.low, len(form.prefix)) + sum(one.low for one in form.contains)
    end = min(end, longest(form))
    begin: State = (0, (0,) * len(form.contains))
    best: dict[State, int] = {begin: 1}
    came: dict[State, tuple[State, Option]] = {}
    queue: list[tuple[int, State]] = [(1, begin)]
    done: set[State] = set()
    while queue and len(done) < MAX_SEARCH:
        spent, state = heapq.heappop(queue)
        if state in done:
            continue
        done.add(state)
        length, counts = state
        if length >= form.low and all(c >= one.low for c, one in zip(counts, form.contains, strict=True)):
            return _traced(form, came, state, spent)
        for option in _options_at(form, length) if length < end else ():
            after = _counted(form, counts, option.marks)
            price = spent + cost(option.value)
            following = (length + 1, after or ())
            if after is not None and price < min(best.get(following, ENDLESS), ENDLESS):
                best[following] = price
                came[following] = (state, option)
                heapq.heappush(queue, (price, following))
    return None


def _options_at(form: ArrayForm, length: int) -> tuple[Option, ...]:
    return form.prefix[length] if length < len(form.prefix) else form.rest


def _counted(form: ArrayForm, counts: tuple[int, ...], marks: int) -> tuple[int, ...] | None:
    """The counts after an item, as far as they matter; None if one is past its limit."""
    after = []
    for at, (count, one) in enumerate(zip(counts, form.contains, strict=True)):
        count += marks >> at & 1
        if one.high is not None and count > one.high:
            return None
        after.append(min(count, one.low) if one.high is None else count)
    return tuple(after)


def _traced(form: ArrayForm, came: dict[State, tuple[State, Option]], state: State, cost: int) -> ArrayPlan:
    chosen = list(_backwards(came, state))[::-1]
    split = len(form.prefix)
    rest: dict[Option, int] = {}
    for option in chosen[split:]:
        rest[option] = rest.get(option, 0) + 1
    return ArrayPlan(tuple(chosen[:split]), tuple(rest.items()), cost)


def _backwards(came: dict[State, tuple[State, Option]], state: State) -> Iterator[Option]:
    while state in came:
        state, option = came[state]
        yield option
