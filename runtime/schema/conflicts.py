"""Why a schema has no value, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations

from treille.runtime.schema.bases import FALSE, NOTHING, Base
from treille.runtime.schema.inhabited import Plans
from treille.runtime.schema.literals import Literals
from treille.runtime.schema.values import ANY_KIND, INTEGER_OF_4, KINDS, OBJECT, kind_of, mask_of

_MAX_STEPS = 32
_MAX_NODES = 200
_SHOWN = 8
_PAIRS = (
    ("minimum", "maximum"),
    ("minLength", "maxLength"),
    ("minItems", "maxItems"),
    ("minProperties", "maxProperties"),
)
Fact = tuple[int, str]  # kinds that are let through, and the words for why


def conflict(
    literals: Literals, plans: Callable[[int], Plans], inhabited: Callable[[int], bool], number: int
) -> str:
    """The reason why a set has no value, as well as it can be told: a pair of keywords that contradict
    each other, or the schemas that do not go together, in the part of the value that cannot be."""
    place = ""
    seen: set[int] = set()
    for _ in range(_MAX_STEPS):
        reason = _direct(literals, number)
        if reason is not None:
            break
        seen.add(number)
        step = _part_without_value(plans(number), inhabited)
        if step is None:
            reason = _together(literals, number)
            break
        place, number = place + step[0], step[1]
        if number in seen:
            pointers = _pointers(literals, number)
            reason = f"a value would have to contain another such value, and so on without end ({pointers})"
            break
    where = f" at {place[1:]} of the value" if place else ""
    return f"no value satisfies the schema{where}: {reason or _together(literals, number)}"


def _part_without_value(plans: Plans, inhabited: Callable[[int], bool]) -> tuple[str, int] | None:
    """A part that a value must have, and cannot."""
    for plan in plans.objects:
        for name in sorted(plan.required):
            if not inhabited(plan.names[name]):
                return f"/{name}", plan.names[name]
    for array in plans.arrays:
        for place, ways in enumerate((*array.prefix, array.rest)):
            if place >= array.low:
                break
            if ways and not any(inhabited(value) for value, _ in ways):
                return f"/{place}", ways[0][0]
    return None


def _direct(literals: Literals, number: int) -> str | None:
    """Two facts that contradict each other at sight."""
    if number == NOTHING:
        return "it allows nothing"
    facts: list[Fact] = []
    for base in _bases(literals, number):
        facts.extend(_facts(base))
        crossed = _crossed(base) or _needless(literals, base)
        if crossed is not None:
            return crossed
    for one, other in combinations(facts[:64], 2):
        if not one[0] & other[0]:
            return f"{one[1]} and {other[1]}"
    return None


def _bases(literals: Literals, number: int) -> Iterator[Base]:
    """The schemas that must all hold."""
    waiting = [literal for literal in literals.sets[number] if not literal & 1]
    seen = set(waiting)
    while waiting and len(seen) < _MAX_NODES:
        base = literals.bases[waiting.pop(0) >> 1]
        if base.node is None or isinstance(base.node.schema, bool):
            continue
        yield base
        more = []
        if "$ref" in base.keys:
            more.append(literals.of_node(literals.document.target(base.node), base.scope))
        if "allOf" in base.keys:
            more.extend(literals.child(base, "allOf", at) for at in range(len(base.node.schema["allOf"])))
        for literal in more:
            if not literal & 1 and literal not in seen:
                seen.add(literal)
                waiting.append(literal)


def _facts(base: Base) -> Iterator[Fact]:
    if base.node is None or isinstance(base.node.schema, bool):
        return
    schema = base.node.schema
    if "type" in base.keys:
        types = schema["type"] if isinstance(schema["type"], str) else " or ".join(schema["type"])
        yield mask_of(schema["type"]), f"type {types} at {base.node.brief}"
    if "const" in base.keys:
        yield kind_of(schema["const"]), f"const {_named(kind_of(schema['const']))} at {base.node.brief}"
    if "enum" in base.keys:
        mask = 0
        for value in schema["enum"]:
            mask |= kind_of(value)
        yield mask & ANY_KIND, f"enum {_named(mask)} at {base.node.brief}"


def _named(mask: int) -> str:
    """The kinds of a mask, in words."""
    names = [name for name, kind in KINDS.items() if name not in ("number", INTEGER_OF_4) and kind & mask]
    if mask & KINDS["number"] & ~KINDS["integer"]:
        names.append("number")
    return "of " + " or ".join(names)


def _crossed(base: Base) -> str | None:
    if base.node is None or isinstance(base.node.schema, bool):
        return None
    for low, high in _PAIRS:
        if low in base.keys and high in base.keys and base.node.schema[low] > base.node.schema[high]:
            least, most = base.node.schema[low], base.node.schema[high]
            return f"{low} {least} is above {high} {most} at {base.node.brief}"
    return None


def _needless(literals: Literals, base: Base) -> str | None:
    """A part that must be there and that no value is allowed for."""
    if (
        base.node is None
        or isinstance(base.node.schema, bool)
        or mask_of(base.node.schema.get("type", ())) != OBJECT
    ):
        return None
    closed = "additionalProperties" in base.keys and "patternProperties" not in base.keys
    closed = closed and literals.child(base, "additionalProperties") == FALSE
    for name in base.node.schema.get("required", ()):
        if name in base.node.schema.get("properties", ()):
            if literals.child(base, "properties", name) == FALSE:
                return f"{name!r} is required at {base.node.brief}, and its schema allows nothing"
        elif closed:
            return f"{name!r} is required at {base.node.brief}, and additionalProperties rules it out"
    return None


def _together(literals: Literals, number: int) -> str:
    """The schemas that do not go together, or the keywords of the one that contradicts itself."""
    bases = [base for base in _bases(literals, number) if base.node is not None]
    if len(bases) == 1 and len(literals.sets[number]) == 1 and bases[0].node is not None:
        keys = ", ".join(bases[0].keys[:_SHOWN])
        if len(bases[0].keys) == 1:
            return f"{keys} at {bases[0].node.brief} cannot hold"
        return f"{keys} at {bases[0].node.brief} cannot hold together"
    return f"these cannot hold together: {_pointers(literals, number)}"


def _pointers(literals: Literals, number: int) -> str:
    """The places of the schemas of a set and of all that they refer to."""
    found = [base.node.brief for base in _bases(literals, number) if base.node is not None]
    found += ["not " + literals.pointer(one) for one in literals.sets[number] if one & 1]
    shown = list(dict.fromkeys(found)) or ["#"]
    return ", ".join(shown[:_SHOWN]) + (", ..." if len(shown) > _SHOWN else "")
