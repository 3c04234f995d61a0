"""Array shapes as plans: each place with its options, and which of them count for a `contains`."""

from __future__ import annotations

from dataclasses import dataclass

from treille.runtime.errors import UnsupportedConstraint
from treille.runtime.schema.bases import NOTHING
from treille.runtime.schema.forms import Contains
from treille.runtime.schema.literals import Literals
from treille.runtime.schema.members import Ways
from treille.runtime.schema.shapes import ArrayShape, Counted, Work

MAX_CONTAINS = 5
MAX_PLACES = 20_000


@dataclass(frozen=True, slots=True)
class ArrayPlan:
    """What an `ArrayForm` says, but some of its sets may turn out to have no value."""

    prefix: tuple[Ways, ...]
    rest: Ways
    low: int
    high: int | None
    contains: tuple[Contains, ...] = ()
    unique: bool = False


class Items:
    """The array shapes of one document as plans."""

    def __init__(self, literals: Literals, work: Work) -> None:
        self._literals = literals
        self._work = work

    def plans(self, shape: ArrayShape) -> list[ArrayPlan]:
        """The plans of a shape, whose union it is. Raises `UnsupportedConstraint` if it cannot be
        enforced."""
        if shape.refusal is not None:
            raise shape.refusal
        counted = [one for one in shape.contains if one.low or one.high is not None]
        if not counted:
            prefix = tuple(((value, 0),) for value in shape.prefix)
            rest = () if shape.rest == NOTHING else ((shape.rest, 0),)
            return [ArrayPlan(prefix, rest, shape.low, shape.high, (), shape.unique)]
        if len(counted) > MAX_CONTAINS:
            reason = f"an array has more than {MAX_CONTAINS} different `contains`"
            raise UnsupportedConstraint(*counted[MAX_CONTAINS].origin, reason, field="schema")
        if any(one.high is not None and one.low > one.high for one in counted):
            return []
        size = max(len(shape.prefix), *(one.first for one in counted))
        if size > MAX_PLACES:
            raise self._work.too_much(f"more than {MAX_PLACES} items are treated one by one")
        values = [shape.prefix[place] if place < len(shape.prefix) else shape.rest for place in range(size)]
        self._work.spend(size)
        return [
            ArrayPlan(
                tuple(self._ways(value, counted, place) for place, value in enumerate(values)),
                self._ways(shape.rest, counted, size),
                max(shape.low, *(one.low for one in counted)),
                shape.high,
                tuple(Contains(one.low, one.high, one.origin) for one in counted),
                shape.unique,
            )
        ]

    def _ways(self, value: int, counted: list[Counted], place: int) -> Ways:
        """The options of a place: for each `contains` an item counts or does not."""
        ways = [(value, 0)]
        strict = 0
        for bit, one in enumerate(counted):
            if place < one.first:
                continue
            good = self._literals.single(one.literal)
            bad = self._literals.single(one.literal ^ 1)
            more = []
            for held, marks in ways:
                more.append((self._literals.meet(held, good), marks | 1 << bit))
                more.append((held if one.high is None else self._literals.meet(held, bad), marks))
            strict |= 0 if one.high is None else 1 << bit
            ways = [way for way in more if way[0] != NOTHING and not _is_too_much(way[1], counted)]
        return _undominated(ways, strict)


def _is_too_much(marks: int, counted: list[Counted]) -> bool:
    """Whether one such item is more than some `contains` allows."""
    return any(marks >> bit & 1 and one.high == 0 for bit, one in enumerate(counted))


def _undominated(ways: list[tuple[int, int]], strict: int) -> Ways:
    """Options without those of the same set that count for less, apart from counts that may be too high."""
    few = list(dict.fromkeys(ways))
    return tuple(
        (value, marks)
        for value, marks in few
        if not any(
            other == value and marks != more and marks & ~more == 0 and not (marks ^ more) & strict
            for other, more in few
        )
    )
