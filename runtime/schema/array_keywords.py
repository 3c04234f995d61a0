"""The keywords of arrays as shapes."""

from __future__ import annotations

from collections.abc import Iterator

from treille.runtime.errors import UnsupportedConstraint
from treille.runtime.schema.bases import (
    EVERYTHING,
    TRUE,
    Base,
    Schema,
    bounds,
    origin,
    schema_of,
)
from treille.runtime.schema.drafts import Draft
from treille.runtime.schema.literals import Literals
from treille.runtime.schema.shapes import (
    UNSEEN,
    ArrayShape,
    Counted,
    Seen,
    settled_array,
)


class ArrayKeywords:
    """The array keywords of the schemas of one document."""

    def __init__(self, literals: Literals) -> None:
        self._literals = literals

    def hold(self, base: Base, *, track: bool) -> ArrayShape | None:
        schema = schema_of(base)
        keys = base.keys
        single, child = self._literals.single, self._literals.child
        prefix: tuple[int, ...] = ()
        if "prefixItems" in keys:
            prefix = tuple(single(child(base, "prefixItems", at)) for at in range(len(schema["prefixItems"])))
        rest = single(child(base, "items")) if "items" in keys else EVERYTHING
        low, high = bounds(schema, "minItems", "maxItems")
        contains: tuple[Counted, ...] = ()
        matching: frozenset[int] = frozenset()
        if "contains" in keys:
            least, most = _counts(schema)
            literal = child(base, "contains")
            if least or most is not None:
                contains = (Counted(literal, least, most, origin=origin(base, "contains")),)
            if base.node is not None and base.node.draft is Draft.D2020:
                matching = frozenset((literal,))
        seen = Seen(count=len(prefix), matching=matching, everything="items" in keys) if track else UNSEEN
        return settled_array(
            ArrayShape(prefix, rest, low, high, contains, bool(schema.get("uniqueItems")), seen)
        )

    def failures(self, base: Base) -> Iterator[ArrayShape]:
        node = base.node
        schema = schema_of(base)
        keys = base.keys
        single, child = self._literals.single, self._literals.child
        low, high = bounds(schema, "minItems", "maxItems")
        if low:
            yield ArrayShape(high=low - 1)
        if high is not None:
            yield ArrayShape(low=high + 1)
        size = len(schema["prefixItems"]) if "prefixItems" in keys else 0
        for place in range(size):
            literal = child(base, "prefixItems", place)
            if literal != TRUE:
                yield _at(place, single(literal ^ 1))
        if "items" in keys and child(base, "items") != TRUE:
            other = Counted(child(base, "items") ^ 1, 1, first=size, origin=origin(base, "items"))
            yield ArrayShape(contains=(other,), low=size + 1)
        if "contains" in keys:
            least, most = _counts(schema)
            literal = child(base, "contains")
            if least:
                fewer = Counted(literal, 0, least - 1, origin=origin(base, "contains"))
                yield ArrayShape(contains=(fewer,))
            if most is not None:
                more = Counted(literal, most + 1, origin=origin(base, "contains"))
                yield ArrayShape(contains=(more,), low=most + 1)
        if "uniqueItems" in keys and schema["uniqueItems"] and node is not None:
            reason = "that two items are equal, no matter which, cannot be enforced"
            refusal = UnsupportedConstraint("uniqueItems", node.place("uniqueItems"), reason, field="schema")
            yield ArrayShape(low=2, refusal=refusal)


def _at(place: int, value: int) -> ArrayShape:
    return ArrayShape((*(EVERYTHING,) * place, value), low=place + 1)


def _counts(schema: Schema) -> tuple[int, int | None]:
    most = schema.get("maxContains")
    return int(schema.get("minContains", 1)), None if most is None else int(most)
