"""Where a schema may turn out to be too much, or cannot be enforced, only when its parts are worked out."""

from __future__ import annotations

from collections.abc import Iterator

from treille.runtime.schema.bases import ARRAY_KEYWORDS, OBJECT_KEYWORDS, REFERENCES, Base
from treille.runtime.schema.forms import Forms
from treille.runtime.schema.literals import Literals

_RISKY = frozenset(
    (
        "allOf",
        "oneOf",
        "not",
        "if",
        "dependentSchemas",
        "contains",
        "multipleOf",
        "uniqueItems",
        "patternProperties",
        "propertyNames",
        "unevaluatedProperties",
        "unevaluatedItems",
    )
)
_BELOW = (ARRAY_KEYWORDS | OBJECT_KEYWORDS) & {"properties", "additionalProperties", "items", "prefixItems"}


def simple_parts(literals: Literals, number: int) -> list[int] | None:
    """The sets of the parts of a set's values, if it has only keywords that are simple by themselves; None if
    it must be worked out to know."""
    members = literals.sets[number]
    found = _simple_parts(literals, members[0]) if len(members) == 1 else None
    return None if found is None else [literals.single(one) for one in found]


def _simple_parts(literals: Literals, literal: int) -> list[int] | None:
    base = literals.bases[literal >> 1]
    if literal & 1 or base.node is None or isinstance(base.node.schema, bool):
        return None
    keys = base.keys
    if any(key in _RISKY for key in keys):
        return None
    if len(keys) > 1 and ("anyOf" in keys or not REFERENCES.isdisjoint(keys)):
        return None
    below = list(_below(literals, base))
    if keys != ("anyOf",):
        return below
    found: list[int] = []
    for branch in below:
        if "anyOf" in literals.bases[branch >> 1].keys:
            return None  # it may lead back to itself
        parts = _simple_parts(literals, branch)
        if parts is None:
            return None
        found += parts
    return found


def _below(literals: Literals, base: Base) -> Iterator[int]:
    """The literals below one without risky keywords."""
    if base.node is None or isinstance(base.node.schema, bool):
        return
    for key in base.keys:
        value = base.node.schema[key]
        if key == "properties":
            for name in value:
                yield literals.child(base, key, name)
        elif key in ("prefixItems", "anyOf"):
            for place in range(len(value)):
                yield literals.child(base, key, place)
        elif key in _BELOW:
            yield literals.child(base, key)


def parts_of(forms: Forms) -> Iterator[int]:
    """The sets that forms name."""
    for form in forms.objects:
        for key in form.keys:
            for option in key.options:
                yield option.value
        for region in form.regions:
            for option in region.options:
                yield option.value
    for array in forms.arrays:
        for options in (*array.prefix, array.rest):
            for option in options:
                yield option.value
