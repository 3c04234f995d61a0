"""Whether there is an array of a plan, by what is known of the sets of its items."""

from __future__ import annotations

from collections.abc import Callable

from treille.runtime.schema.forms import Contains
from treille.runtime.schema.items import ArrayPlan
from treille.runtime.schema.members import Ways
from treille.runtime.schema.shapes import Work

Ask = Callable[[int], bool]


def longest(plan: ArrayPlan, ask: Ask, *, enough: int | None = None) -> int | None:
    """The most items that an array of the plan may have (None: any number), as far as each item has a
    value; counted up to `enough` only, if it is given."""
    for place, ways in enumerate(plan.prefix):
        if place == plan.high or place == enough:
            return place
        if not any(ask(value) for value, _ in ways):
            return place
    size = len(plan.prefix)
    if plan.high == size or enough == size:
        return size
    return plan.high if any(ask(value) for value, _ in plan.rest) else size


def length_is_possible(plan: ArrayPlan, ask: Ask) -> bool:
    """Whether there is an array of the plan, leaving aside what `contains` and `unique` ask."""
    if plan.high is not None and plan.low > plan.high:
        return False
    most = longest(plan, ask, enough=plan.low)
    return most is None or most >= plan.low


def counts_are_possible(plan: ArrayPlan, ask: Ask, work: Work) -> bool:
    """Whether some array of the plan has the counts that its `contains` ask for, leaving aside `unique`.
    Raises `UnsupportedConstraint` if too much would have to be tried."""
    if not length_is_possible(plan, ask):
        return False
    most = longest(plan, ask)
    if len(plan.contains) == 1:
        return _one_count_is_possible(plan, plan.contains[0], ask, most)
    return _all_counts_are_possible(plan, ask, most, work)


def _one_count_is_possible(plan: ArrayPlan, one: Contains, ask: Ask, most: int | None) -> bool:
    least_counted = most_counted = 0  # of the items so far
    for place, ways in enumerate(plan.prefix):
        if place >= plan.low and _overlap(least_counted, most_counted, one):
            return True
        if place == most:
            return False
        may, must = _may_count(ways, ask)
        most_counted += may
        least_counted += must
    may, must = _may_count(plan.rest, ask) if most is None or most > len(plan.prefix) else (False, False)
    more = max(plan.low - len(plan.prefix), 0)
    room = None if most is None else most - len(plan.prefix)
    if may:
        more = max(more, one.low - most_counted)
    if room is not None and more > room:
        more = room
    if more < plan.low - len(plan.prefix):
        return False
    return _overlap(least_counted + must * more, most_counted + may * more, one)


def _overlap(least: int, most: int, one: Contains) -> bool:
    return most >= one.low and (one.high is None or least <= one.high)


def _may_count(ways: Ways, ask: Ask) -> tuple[bool, bool]:
    """Whether an item may count, and whether it must."""
    alive = [marks for value, marks in ways if ask(value)]
    return any(alive), bool(alive) and all(alive)


def _all_counts_are_possible(plan: ArrayPlan, ask: Ask, most: int | None, work: Work) -> bool:
    caps = [one.low if one.high is None else max(one.low, one.high + 1) for one in plan.contains]
    states = {(0,) * len(caps)}
    length = 0
    while True:
        if length >= plan.low and any(_fit(counts, plan.contains) for counts in states):
            return True
        if most is not None and length >= most:
            return False
        ways = plan.prefix[length] if length < len(plan.prefix) else plan.rest
        marks = {held for value, held in ways if ask(value)}
        after = {_counted(counts, held, caps) for counts in states for held in marks}
        after = {counts for counts in after if not _exceed(counts, plan.contains)}
        work.spend(len(after) + 1)
        if not after:
            return False
        if after == states and length >= len(plan.prefix):  # more items change nothing any more
            return any(_fit(counts, plan.contains) for counts in states)
        states = after
        length += 1


def _counted(counts: tuple[int, ...], marks: int, caps: list[int]) -> tuple[int, ...]:
    return tuple(min(caps[bit], count + (marks >> bit & 1)) for bit, count in enumerate(counts))


def _fit(counts: tuple[int, ...], contains: tuple[Contains, ...]) -> bool:
    enough = all(count >= one.low for count, one in zip(counts, contains, strict=True))
    return enough and not _exceed(counts, contains)


def _exceed(counts: tuple[int, ...], contains: tuple[Contains, ...]) -> bool:
    return any(one.high is not None and count > one.high for count, one in zip(counts, contains, strict=True))
