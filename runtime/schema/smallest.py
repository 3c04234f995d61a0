"""How large the smallest value of a set is, and how to choose so that one comes out."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TypeAlias

from treille.runtime.schema.array_plans import ENDLESS, ArrayPlan, Cost, smallest_array
from treille.runtime.schema.forms import ArrayForm, ObjectForm, Sets
from treille.runtime.schema.numbers import Numbers
from treille.runtime.schema.object_plans import Capacity, ObjectPlan, smallest_object
from treille.runtime.schema.strings import Strings

Word: TypeAlias = frozenset[bool | None]
Shape: TypeAlias = Word | Numbers | Strings | ArrayForm | ObjectForm
Plan: TypeAlias = ArrayPlan | ObjectPlan | None


@dataclass(frozen=True, slots=True)
class Choice:
    """One shape of a set, what its smallest value costs, and the plan for that (None for scalars)."""

    shape: Shape
    cost: int
    plan: Plan = None


class Smallest:
    """The least fixed point of what values cost: 1 each, and what is in them. Worked out as far as it is
    asked for; sets that name each other are brought down together, from "no value" until nothing changes.

    That no two items are equal is left out of account, so a cost may be too low where `unique` is asked.
    """

    def __init__(self, sets: Sets, capacity: Capacity) -> None:
        self._sets = sets
        self._capacity = capacity
        self._best: dict[int, Choice | None] = {}
        self._choices: dict[int, tuple[Choice, ...]] = {}

    def cost(self, number: int) -> int:
        """How many values the smallest value of a set has in it, with itself; `ENDLESS` if there is none."""
        if number not in self._best:
            self._settle(number)
        return _cost_of(self._best[number])

    def best(self, number: int) -> Choice | None:
        """The shape with the smallest value: every set that its plan names has a smaller cost than this."""
        self.cost(number)
        return self._best[number]

    def choices(self, number: int) -> tuple[Choice, ...]:
        """Every shape of a set that has a value."""
        found = self._choices.get(number)
        if found is None:
            every = self._evaluated(number, self.cost)
            found = self._choices[number] = tuple(one for one in every if one.cost < ENDLESS)
        return found

    def _settle(self, number: int) -> None:
        """Gives costs to a set and all that it may need."""
        waiting = deque([number])
        queued = {number}
        askers: dict[int, set[int]] = {number: set()}
        self._best[number] = None
        while waiting:
            current = waiting.popleft()
            queued.discard(current)
            fresh: list[int] = []

            def cost(asked: int, current: int = current, fresh: list[int] = fresh) -> int:
                if asked not in self._best:
                    self._best[asked] = None
                    askers[asked] = set()
                    fresh.append(asked)
                if asked in askers:
                    askers[asked].add(current)
                return _cost_of(self._best[asked])

            found = self._cheapest(current, cost)
            waiting.extend(fresh)
            queued.update(fresh)
            if _cost_of(found) < _cost_of(self._best[current]):
                self._best[current] = found
                again = [one for one in askers[current] if one not in queued]
                waiting.extend(again)
                queued.update(again)

    def _cheapest(self, number: int, cost: Cost) -> Choice | None:
        forms = self._sets.forms(number)
        scalars: tuple[Shape, ...] = (*forms.numbers, *forms.strings)
        if forms.words or scalars:
            return Choice(forms.words or scalars[0], 1)
        return min(self._evaluated(number, cost), key=lambda one: one.cost, default=None)

    def _evaluated(self, number: int, cost: Cost) -> list[Choice]:
        forms = self._sets.forms(number)
        found = [Choice(frozenset((one,)), 1) for one in sorted(forms.words, key=str)]
        found += [Choice(numbers, 1) for numbers in forms.numbers]
        found += [Choice(strings, 1) for strings in forms.strings]
        for array in forms.arrays:
            plan = smallest_array(array, cost)
            found.append(Choice(array, plan.cost if plan else ENDLESS, plan))
        for form in forms.objects:
            members = smallest_object(form, cost, self._capacity)
            found.append(Choice(form, min(members.cost, ENDLESS) if members else ENDLESS, members))
        return found


def _cost_of(choice: Choice | None) -> int:
    return ENDLESS if choice is None else choice.cost
