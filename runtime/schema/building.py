"""Plans as forms: whatever has no value is left out, and what follows from the rest is not said."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

from treille.runtime.schema.forms import ArrayForm, Key, ObjectForm, Option, Region
from treille.runtime.schema.items import ArrayPlan
from treille.runtime.schema.languages import Languages
from treille.runtime.schema.members import ObjectPlan, Ways
from treille.runtime.schema.possible_arrays import longest
from treille.runtime.schema.possible_objects import object_is_possible, usable_names
from treille.runtime.schema.shapes import Work
from treille.runtime.schema.strings import Strings
from treille.runtime.schema.values import spellable

Alive = Callable[[int], bool]


def object_form(plan: ObjectPlan, alive: Alive, languages: Languages, work: Work) -> ObjectForm | None:
    """The form of a plan; None if no object is in it."""
    if not object_is_possible(plan, alive, languages, work):
        return None
    usable = usable_names(plan, alive)
    regions = []
    full = plan.high is not None and len(plan.required) >= plan.high
    for strings, ways in () if full else plan.regions:
        options = _options(ways, alive)
        if options:
            regions.append(Region(strings, options))
    places = {name: place for place, name in enumerate(plan.names)} if plan.implied else {}
    keys = tuple(
        Key(
            name,
            _option(value) if name in usable else (),
            name in plan.required,
            name in plan.declared,
            tuple(sorted(places[other] for other in plan.implied[name]))
            if name in plan.implied and name in usable
            else (),
        )
        for name, value in plan.names.items()
        if name in usable or regions
    )
    if len(keys) < len(places):
        keys = _replaced(keys, list(plan.names))
    high = plan.high
    if high is not None and not regions and high >= len(usable):
        high = None
    low = plan.low if plan.low > len(plan.required) else 0
    return ObjectForm(keys, tuple(regions), low, high, plan.num_exists)


@lru_cache(maxsize=4096)
def _option(value: int) -> tuple[Option, ...]:
    return (Option(value),)


def _replaced(keys: tuple[Key, ...], names: list[str]) -> tuple[Key, ...]:
    """The same keys, whose `implies` are places among all `names`, with places among these."""
    places = {key.name: place for place, key in enumerate(keys)}
    return tuple(
        Key(key.name, key.options, key.required, key.declared, tuple(places[names[at]] for at in key.implies))
        for key in keys
    )


def array_form(plan: ArrayPlan, alive: Alive) -> ArrayForm:
    """The form of a plan that some array is in."""
    high = longest(plan, alive)
    size = len(plan.prefix) if high is None else min(high, len(plan.prefix))
    prefix = tuple(_options(ways, alive) for ways in plan.prefix[:size])
    rest = _options(plan.rest, alive) if high is None or high > size else ()
    return ArrayForm(prefix, rest, plan.low, high, plan.contains, plan.unique)


def _options(ways: Ways, alive: Alive) -> tuple[Option, ...]:
    return tuple(Option(value, marks) for value, marks in ways if alive(value))


def merged_strings(parts: Iterable[Strings], languages: Languages) -> tuple[Strings, ...]:
    """The same union, without empty parts, and with one part of all that are but words."""
    words: set[str] = set()
    kept: list[Strings] = []
    for strings in parts:
        if strings.only is not None:
            words |= strings.only
        elif strings not in kept and not languages.is_empty(strings):
            kept.append(strings)
    if kept:
        words = {word for word in words if not any(languages.contains(strings, word) for strings in kept)}
    left = spellable(words)
    return (*kept, Strings(only=left)) if left else tuple(kept)
