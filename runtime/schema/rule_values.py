"""Rules for keywords that hold no schema below them: types, values, bounds, names. See `rules.py`."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from treille.runtime.schema.drafts import Draft
from treille.runtime.schema.nodes import Node
from treille.runtime.schema.reading import exact_number, exact_value, shown
from treille.runtime.schema.scan import Scan
from treille.runtime.schema.values import INTEGER_OF_4

DROPPED = object()
"""What a rule returns for a keyword that `Node.schema` does not have."""

EXCLUSIVE = {"minimum": "exclusiveMinimum", "maximum": "exclusiveMaximum"}
BOUND = {exclusive: bound for bound, exclusive in EXCLUSIVE.items()}

_TYPES = frozenset(("null", "boolean", "integer", "number", "string", "array", "object"))
_MAX_COUNT = 1 << 63


def read_annotation(scan: Scan, node: Node, key: str, value: Any) -> Any:
    """An annotation: whatever it is, it is not looked at."""
    return value


def read_content(scan: Scan, node: Node, key: str, value: Any) -> Any:
    """`contentEncoding` and `contentMediaType`, annotations since they exist."""
    scan.note(node, key, "an annotation: what the string encodes is not looked at")
    return value


def read_missing(scan: Scan, node: Node, key: str, value: Any) -> Any:
    """A keyword of other drafts."""
    scan.note(node, key, f"not a keyword of {node.draft.value}: it says nothing")
    return DROPPED


def read_type(scan: Scan, node: Node, key: str, value: Any) -> Any:
    """A type, or a list of different ones."""
    if isinstance(value, str):
        if value in _TYPES:
            return value
        raise node.malformed(key, f"{shown(value)} is no type")
    if not isinstance(value, list) or not value:
        raise node.malformed(key, f"{shown(value)} is neither a type nor a list of types")
    for name in value:
        if not isinstance(name, str) or name not in _TYPES:
            raise node.malformed(key, f"{shown(name)} is no type")
    if len(set(value)) < len(value):
        raise node.malformed(key, "a type is there twice")
    return value


def read_type_4(scan: Scan, node: Node, key: str, value: Any) -> Any:
    """The same of draft 4, whose integers are another type than those of all later drafts: 1.0 is none. Where
    nothing is spelled like that, there is no difference."""
    names = read_type(scan, node, key, value)
    if scan.one_spelling:
        return names
    if names == "integer":
        return INTEGER_OF_4
    if isinstance(names, list) and "integer" in names:
        return [INTEGER_OF_4 if name == "integer" else name for name in names]
    return names


def read_enum(scan: Scan, node: Node, key: str, value: Any) -> Any:
    """A list of values: an empty one, and one with a value twice, are clear enough."""
    if not isinstance(value, list):
        raise node.malformed(key, f"{shown(value)} is no array")
    return exact_value(value, node, key)


def read_const(scan: Scan, node: Node, key: str, value: Any) -> Any:
    """Any value."""
    return exact_value(value, node, key)


def read_number(scan: Scan, node: Node, key: str, value: Any) -> Any:
    """A number."""
    number = exact_number(value, node, key)
    if number is None:
        hint = f" ({Draft.D4.value} has it so: say so in $schema)" if isinstance(value, bool) else ""
        raise node.malformed(key, f"{shown(value)} is no number{hint}")
    return number


def read_factor(scan: Scan, node: Node, key: str, value: Any) -> Any:
    """A number above 0."""
    number = exact_number(value, node, key)
    if number is None or number <= 0:
        raise node.malformed(key, f"{shown(value)} is no number above 0")
    return number


def read_bound_4(scan: Scan, node: Node, key: str, value: Any) -> Any:
    """`minimum` and `maximum` of draft 4, which `exclusiveMinimum: true` makes exclusive."""
    number = read_number(scan, node, key, value)
    exclusive = EXCLUSIVE[key]
    if node.raw.get(exclusive) is True:
        scan.more[exclusive] = number
        return DROPPED
    return number


def read_exclusive_4(scan: Scan, node: Node, key: str, value: Any) -> Any:
    """`exclusiveMinimum` and `exclusiveMaximum` of draft 4: what they say is put where the bound is read."""
    if not isinstance(value, bool):
        raise node.malformed(key, f"{shown(value)} is neither true nor false, as {Draft.D4.value} has it")
    if BOUND[key] not in node.raw:
        raise node.malformed(key, f"there is no {BOUND[key]} beside it")
    return DROPPED


def read_count(scan: Scan, node: Node, key: str, value: Any) -> Any:
    """An integer from 0 up; 2.0 is one."""
    if type(value) is int and 0 <= value < _MAX_COUNT:
        return value
    number = exact_number(value, node, key)
    if isinstance(number, Decimal) and number == number.to_integral_value():
        number = int(number)
    if not isinstance(number, int) or number < 0:
        raise node.malformed(key, f"{shown(value)} is no integer from 0 up")
    return number


def read_flag(scan: Scan, node: Node, key: str, value: Any) -> Any:
    """True or false."""
    if not isinstance(value, bool):
        raise node.malformed(key, f"{shown(value)} is neither true nor false")
    return value


def read_pattern(scan: Scan, node: Node, key: str, value: Any) -> Any:
    """A string; whether it is an expression is for others to find."""
    if not isinstance(value, str):
        raise node.malformed(key, f"{shown(value)} is no string")
    scan.patterns.append((node, (key,), value))
    return value


def read_format(scan: Scan, node: Node, key: str, value: Any) -> Any:
    """A name. One that is not enforced goes: then it is an annotation."""
    if not isinstance(value, str):
        raise node.malformed(key, f"{shown(value)} is no string")
    if value in scan.asserted:
        scan.formats.append((node, (key,), value))
        return value
    scan.note(node, key, f"an annotation: the format {shown(value)} is not enforced")
    return DROPPED


def read_names(scan: Scan, node: Node, key: str, value: Any) -> Any:
    """A list of different strings, as `required` is."""
    if not isinstance(value, list):
        raise node.malformed(key, f"{shown(value)} is no array of names")
    for name in value:
        if not isinstance(name, str):
            raise node.malformed(key, f"{shown(name)} is no name")
    if len(set(value)) < len(value):
        seen: set[str] = set()
        twice = next(name for name in value if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise node.malformed(key, f"{shown(twice)} is there twice")
    return value


def read_reference(scan: Scan, node: Node, key: str, value: Any) -> Any:
    """A URI reference."""
    if not isinstance(value, str):
        raise node.malformed(key, f"{shown(value)} is no URI")
    return value


def read_recursive_reference(scan: Scan, node: Node, key: str, value: Any) -> Any:
    """`#`, the one value that 2019-09 allows."""
    if value != "#":
        raise node.malformed(key, f'{shown(value)} is not "#", the only value it may have')
    return value


def read_recursive_anchor(scan: Scan, node: Node, key: str, value: Any) -> Any:
    """A flag of the root of a resource."""
    resource = scan.resources[node.resource]
    if read_flag(scan, node, key, value) and resource.root is node:
        resource.dynamic[""] = node
    return value


def read_anchor(scan: Scan, node: Node, key: str, value: Any) -> Any:
    """A plain name, which is the node's in its resource from now on."""
    if not isinstance(value, str) or not value or "#" in value or "/" in value:
        raise node.malformed(key, f"{shown(value)} is no plain name")
    scan.anchor(node, key, value)
    if key == "$dynamicAnchor":
        scan.resources[node.resource].dynamic[value] = node
    return value
