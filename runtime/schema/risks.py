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
        "uniqueItems",
        "patternProperties",
        "propertyNames",
        "unevaluatedProperties",
        "unevaluatedItems",
    )
)
_BELOW = (ARRAY_KEYWORDS | OBJECT_KEYWORDS) & {"properties", "additionalProperties", "items", "prefixItems"}


def is_risky(literals: Literals, root: int) -> bool:
    """Whether any set of a root has more than keywords that are simple by themselves."""
    seen: set[int] = set()
    waiting = list(literals.sets[root])
    if len(waiting) > 1:
        return True
    while waiting:
        literal = waiting.pop()
        if literal in seen:
            continue
        seen.add(literal)
        base = literals.bases[literal >> 1]
        if base.node is None or isinstance(base.node.schema, bool):
            continue
        if literal & 1 or any(key in _RISKY for key in base.keys):
            return True
        if len(base.keys) > 1 and ("anyOf" in base.keys or not REFERENCES.isdisjoint(base.keys)):
            return True
        below = list(_below(literals, base))
        if base.keys == ("anyOf",) and any("anyOf" in literals.bases[one >> 1].keys for one in below):
            return True  # it may lead back to itself
        waiting.extend(below)
    return False


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
