"""Whether there is an object of a plan, by what is known of the sets of its values."""

from __future__ import annotations

from collections.abc import Callable

from treille.runtime.schema.languages import Languages
from treille.runtime.schema.members import ObjectPlan
from treille.runtime.schema.shapes import Work

Ask = Callable[[int], bool]


def object_is_possible(plan: ObjectPlan, ask: Ask, languages: Languages, work: Work) -> bool:
    """Whether there is an object of a plan, if a set has a value exactly where `ask` says so."""
    if not all(ask(plan.names[name]) for name in plan.required):
        return False
    least = len(plan.required)
    if plan.high is not None and least > plan.high:
        return False
    if least >= plan.low and not plan.num_exists:
        return True
    regions = [(strings, [marks for value, marks in ways if ask(value)]) for strings, ways in plan.regions]
    regions = [region for region in regions if region[1]]
    cover = fewest_marked(plan.num_exists, [marks for _, ways in regions for marks in ways])[-1]
    if cover is None or (plan.high is not None and least + cover > plan.high):
        return False
    wanted = plan.low - least
    if wanted <= cover:
        return True
    alive = usable_names(plan, ask)
    spare = len(alive) - least
    for strings, _ in regions:
        if wanted <= spare:
            break
        inside = sum(languages.contains(strings, name) for name in plan.names)
        spare += languages.count(strings, wanted + inside) - inside
    if wanted > spare:
        return False
    return bool(regions) or size_is_possible(plan, alive, work)


def usable_names(plan: ObjectPlan, ask: Ask) -> set[str]:
    """The keys that some object of the plan has, as far as sets and `high` go."""
    usable = {name for name, value in plan.names.items() if ask(value)}
    if plan.high is not None and plan.high <= len(plan.required):
        usable &= plan.required
    for name, others in plan.implied.items():
        if name in usable and not others <= usable:
            usable.discard(name)  # `others` is closed, so that one round is enough
        elif name in usable and plan.high is not None and len(plan.required | {name} | others) > plan.high:
            usable.discard(name)
    return usable


def size_is_possible(plan: ObjectPlan, usable: set[str], work: Work) -> bool:
    """Whether some of the keys, with all that they imply, are from `low` to `high` many; there are no others.

    Raises `UnsupportedConstraint` if there are too many ways to try.
    """
    if plan.high is None or len(usable) <= plan.high:
        return len(usable) >= plan.low
    if all(
        name not in plan.implied.get(other, frozenset())
        for name, others in plan.implied.items()
        for other in others
    ):
        return True  # one by one, each after those it implies
    reached = {plan.required}
    waiting = [plan.required]
    while waiting:
        held = waiting.pop()
        if plan.low <= len(held) <= plan.high:
            return True
        for name in usable - held:
            work.spend()
            more = held | {name} | plan.implied.get(name, frozenset())
            if more <= usable and len(more) <= plan.high and more not in reached:
                reached.add(more)
                waiting.append(more)
    return False


def fewest_marked(num_marks: int, ways: list[int]) -> list[int | None]:
    """By the marks that are wanted, as bits: how many members with such marks it takes at least to have them
    all; None if they cannot."""
    found: list[int | None] = [0]
    for wanted in range(1, 1 << num_marks):
        rests = [found[wanted & ~marks] for marks in ways if wanted & marks]
        found.append(min((1 + rest for rest in rests if rest is not None), default=None))
    return found
