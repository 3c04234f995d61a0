"""Which sets have a value at all: a least fixed point over the plans of sets, from the bottom up.

A set is known to have a value as soon as one of its plans can be met with sets that are known to have one.
What is still not known when nothing more can be learnt has none: it would take an endless value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from treille.runtime.schema.bases import EVERYTHING, NOTHING
from treille.runtime.schema.items import ArrayPlan
from treille.runtime.schema.members import ObjectPlan
from treille.runtime.schema.numbers import Numbers
from treille.runtime.schema.shapes import Words, Work
from treille.runtime.schema.strings import Strings

Ask = Callable[[int], bool]


@dataclass(frozen=True, slots=True)
class Plans:
    """A set as a union, of which the objects and arrays may turn out to be empty."""

    words: Words = frozenset()
    numbers: tuple[Numbers, ...] = ()
    strings: tuple[Strings, ...] = ()
    arrays: tuple[ArrayPlan, ...] = ()
    objects: tuple[ObjectPlan, ...] = ()


@dataclass(slots=True)
class _Open:
    """A set in question: which sets it has asked for, and who asks for it."""

    asked: set[int] = field(default_factory=set)
    askers: set[int] = field(default_factory=set)


class Inhabited:
    """Which sets have a value. `plans` gives the plans of a set, `plainly` says at sight that a set has a
    value (and False if it cannot tell), `distinct` whether arrays with unique items can be told apart (see
    `distinct.py`)."""

    def __init__(
        self,
        plans: Callable[[int], Plans],
        plainly: Callable[[int], bool],
        possible_arrays: Callable[[ArrayPlan, Ask], bool],
        possible_objects: Callable[[ObjectPlan, Ask], bool],
        work: Work,
    ) -> None:
        self._plans = plans
        self._plainly = plainly
        self._possible_arrays = possible_arrays
        self._possible_objects = possible_objects
        self._work = work
        self._known: dict[int, bool] = {EVERYTHING: True, NOTHING: False}

    def __call__(self, number: int) -> bool:
        """Whether a set has a value."""
        found = self._known.get(number)
        if found is None:
            found = self._known[number] = self._plainly(number) or self._settle(number)
        return found

    def _settle(self, number: int) -> bool:
        """Explore what the answer depends on until it is known, at last because nothing is left to
        explore."""
        sets: dict[int, _Open] = {number: _Open()}
        waiting = [number]
        while waiting:
            here = waiting.pop()
            if here in self._known:
                continue
            self._work.spend()
            state = sets[here]
            wanted: list[int] = []
            if self._possible(here, state, sets, wanted):
                self._known[here] = True
                if here == number:
                    return True
                waiting.extend(asker for asker in state.askers if asker not in self._known)
            elif wanted:
                waiting.append(here)
                waiting.extend(reversed(wanted))
        for one in sets:
            self._known.setdefault(one, False)
        return self._known[number]

    def _possible(self, here: int, state: _Open, sets: dict[int, _Open], wanted: list[int]) -> bool:
        """Whether the set has a value as far as is known. If not, `wanted` gets the sets to explore next."""

        def ask(number: int) -> bool:
            found = self._known.get(number)
            if found is None and self._plainly(number):
                found = self._known[number] = True
            if found is None:
                below = sets.get(number)
                if below is None:
                    below = sets[number] = _Open()
                    wanted.append(number)
                below.askers.add(here)
            return bool(found)

        plans = self._plans(here)
        if plans.words or plans.numbers or plans.strings:
            return True
        for array in plans.arrays:
            if self._possible_arrays(array, ask):
                return True
            if wanted:
                return False
        for plan in plans.objects:
            if self._possible_objects(plan, ask):
                return True
            if wanted:
                return False
        return False
