"""Sets: conjunctions of literals, each as one number.

Equal ones have the same number, and what contradicts itself at sight is `NOTHING`.
"""

from __future__ import annotations

from collections.abc import Iterable

from treille.runtime.errors import UnsupportedConstraint
from treille.runtime.schema.bases import EVERYTHING, FALSE, NOTHING, TRUE
from treille.runtime.schema.document import Document
from treille.runtime.schema.summaries import Summaries
from treille.runtime.schema.values import ANY_KIND, kind_of_canonical


class Literals(Summaries):
    """The literals and sets of one document; `sets[number]` has the literals of a set in order."""

    def __init__(self, document: Document, *, max_sets: int = 200_000) -> None:
        super().__init__(document)
        self.sets: list[tuple[int, ...]] = [(), (FALSE,)]
        self._max_sets = max_sets
        self._numbers: dict[tuple[int, ...], int] = {(): EVERYTHING, (FALSE,): NOTHING}
        self._singles: dict[int, int] = {TRUE: EVERYTHING, FALSE: NOTHING}
        self._meets: dict[tuple[int, int], int] = {}

    def single(self, literal: int) -> int:
        """The set of one literal."""
        found = self._singles.get(literal)
        if found is None:
            found = self._singles[literal] = self._numbered((literal,))
        return found

    def meet(self, one: int, other: int) -> int:
        """The set of what is in both sets."""
        if one == other or other == EVERYTHING:
            return one
        if one == EVERYTHING:
            return other
        if one == NOTHING or other == NOTHING:
            return NOTHING
        key = (one, other) if one < other else (other, one)
        found = self._meets.get(key)
        if found is None:
            found = self._meets[key] = self.together((*self.sets[one], *self.sets[other]))
        return found

    def is_within(self, one: int, other: int) -> bool:
        """Whether the values of a set are surely all in another."""
        if one in (other, NOTHING) or other == EVERYTHING:
            return True
        return set(self.sets[other]) <= set(self.sets[one])

    def together(self, literals: Iterable[int]) -> int:
        """The set of what holds all of these literals."""
        wanted = set(literals)
        if len(wanted) > 1:
            wanted = {self.first_alike(literal) for literal in wanted}
        wanted.discard(TRUE)
        if FALSE in wanted or any(literal ^ 1 in wanted for literal in wanted):
            return NOTHING
        if len(wanted) > 1:
            wanted = self._plainer(wanted)
        if len(wanted) == 1:
            return self.single(wanted.pop())
        return self._numbered(tuple(sorted(wanted)))

    def _numbered(self, key: tuple[int, ...]) -> int:
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.sets)
            self.sets.append(key)
            if found > self._max_sets:
                reason = f"its parts meet in more than {self._max_sets} ways"
                raise UnsupportedConstraint("schema", self.pointer(key[0]), reason, field="schema")
        return found

    def _plainer(self, wanted: set[int]) -> set[int]:
        """The same conjunction without what is implied at sight, or `FALSE` alone if nothing is left."""
        mask, values = ANY_KIND, None
        for literal in wanted:
            summary = self.summary(literal)
            if not literal & 1:
                mask &= summary.mask
                if summary.values is not None:
                    values = summary.values if values is None else values & summary.values
            elif summary.exact and summary.values is None:
                mask &= ~summary.mask
        if values is not None:
            for literal in wanted:
                summary = self.summary(literal)
                if literal & 1 and summary.exact and summary.values is not None:
                    values -= summary.values
            values = frozenset(value for value in values if kind_of_canonical(value) & mask)
        if not mask or values == frozenset():
            return {FALSE}
        return self._without_implied(wanted)

    def _without_implied(self, wanted: set[int]) -> set[int]:
        left = set(wanted)
        for literal in sorted(wanted, reverse=True):
            summary = self.summary(literal)
            mask = ANY_KIND
            for other in left:
                if other != literal and not other & 1:
                    mask &= self.summary(other).mask
            if literal & 1:
                implied = not summary.mask & mask
            else:
                implied = summary.exact and summary.values is None and not mask & ~summary.mask
            if implied:
                left.discard(literal)
        return left
