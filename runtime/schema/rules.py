"""One rule a keyword: is its value well-formed in this draft, and what stands for it in the one dialect.

A rule takes the scan, the node, the keyword and its value, adds the schemas below to the node's children, and returns
the value that `Node.schema` has: the same object where nothing changes, or `DROPPED`. Sources: the metaschemas.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from treille.runtime.schema.drafts import DRAFTS, Draft, missing_keywords
from treille.runtime.schema.nodes import Node
from treille.runtime.schema.reading import exact_number, exact_value, shown
from treille.runtime.schema.scan import Scan

Rule = Callable[[Scan, Node, str, Any], Any]

DROPPED = object()
_TYPES = frozenset(("null", "boolean", "integer", "number", "string", "array", "object"))


def ignored(scan: Scan, node: Node, key: str, value: Any) -> Any:
    """An annotation: whatever it is, it is not read."""
    return value


def _content(scan: Scan, node: Node, key: str, value: Any) -> Any:
    scan.noted.append((node, key, "an annotation: what the string encodes is not looked at"))
    return value


def _missing(scan: Scan, node: Node, key: str, value: Any) -> Any:
    scan.noted.append((node, key, f"not a keyword of {node.draft.value}: it says nothing"))
    return DROPPED


def _type(scan: Scan, node: Node, key: str, value: Any) -> Any:
    if isinstance(value, str):
        if value in _TYPES:
            return value
        raise node.malformed(key, f"{shown(value)} is no type")
    if isinstance(value, list) and value:
        for name in value:
            if not isinstance(name, str) or name not in _TYPES:
                raise node.malformed(key, f"{shown(name)} is no type")
        if len(set(value)) == len(value):
            return value
        raise node.malformed(key, "a type is there twice")
    raise node.malformed(key, f"{shown(value)} is neither a type nor a list of types")


def _enum(scan: Scan, node: Node, key: str, value: Any) -> Any:
    if not isinstance(value, list):
        raise node.malformed(key, f"{shown(value)} is no array")
    return exact_value(value, node, key)


def _const(scan: Scan, node: Node, key: str, value: Any) -> Any:
    return exact_value(value, node, key)


def _number(scan: Scan, node: Node, key: str, value: Any) -> Any:
    number = exact_number(value, node, key)
    if number is None:
        raise node.malformed(key, f"{shown(value)} is no number")
    return number


def _factor(scan: Scan, node: Node, key: str, value: Any) -> Any:
    number = exact_number(value, node, key)
    if number is None or number <= 0:
        raise node.malformed(key, f"{shown(value)} is no number above 0")
    return number


def _bound_4(scan: Scan, node: Node, key: str, value: Any) -> Any:
    """`minimum` and `maximum` of draft 4, which `exclusiveMinimum: true` makes exclusive."""
    number = _number(scan, node, key, value)
    exclusive = _EXCLUSIVE[key]
    if node.raw.get(exclusive) is True:
        scan.more[exclusive] = number
        return DROPPED
    return number


def _exclusive_4(scan: Scan, node: Node, key: str, value: Any) -> Any:
    if not isinstance(value, bool):
        raise node.malformed(key, f"{shown(value)} is neither true nor false, as {Draft.D4.value} has it")
    if _BOUND[key] not in node.raw:
        raise node.malformed(key, f"there is no {_BOUND[key]} beside it")
    return DROPPED


_EXCLUSIVE = {"minimum": "exclusiveMinimum", "maximum": "exclusiveMaximum"}
_BOUND = {exclusive: bound for bound, exclusive in _EXCLUSIVE.items()}


def _count(scan: Scan, node: Node, key: str, value: Any) -> Any:
    if type(value) is int and 0 <= value < 1 << 63:
        return value
    number = exact_number(value, node, key)
    if isinstance(number, Decimal) and number == number.to_integral_value():
        number = int(number)
    if not isinstance(number, int) or number < 0:
        raise node.malformed(key, f"{shown(value)} is no count: an integer from 0 up")
    return number


def _flag(scan: Scan, node: Node, key: str, value: Any) -> Any:
    if isinstance(value, bool):
        return value
    raise node.malformed(key, f"{shown(value)} is neither true nor false")


def _pattern(scan: Scan, node: Node, key: str, value: Any) -> Any:
    if not isinstance(value, str):
        raise node.malformed(key, f"{shown(value)} is no string")
    scan.patterns.append((node, (key,), value))
    return value


def _format(scan: Scan, node: Node, key: str, value: Any) -> Any:
    if not isinstance(value, str):
        raise node.malformed(key, f"{shown(value)} is no string")
    if value in scan.asserted:
        scan.formats.append((node, (key,), value))
        return value
    scan.noted.append((node, key, f"an annotation: the format {shown(value)} is not enforced"))
    return DROPPED


def _required(scan: Scan, node: Node, key: str, value: Any) -> Any:
    return _names(node, key, value)


def _names(node: Node, key: str, value: Any) -> Any:
    if not isinstance(value, list):
        raise node.malformed(key, f"{shown(value)} is no array of names")
    for name in value:
        if not isinstance(name, str):
            raise node.malformed(key, f"{shown(name)} is no name")
    if len(set(value)) < len(value):
        twice = next(name for place, name in enumerate(value) if value.index(name) < place)
        raise node.malformed(key, f"{shown(twice)} is there twice")
    return value


def _reference(scan: Scan, node: Node, key: str, value: Any) -> Any:
    if not isinstance(value, str):
        raise node.malformed(key, f"{shown(value)} is no URI")
    return value


def _recursive_reference(scan: Scan, node: Node, key: str, value: Any) -> Any:
    if value != "#":
        raise node.malformed(key, f'{shown(value)} is not "#", the only value it may have')
    return value


def _recursive_anchor(scan: Scan, node: Node, key: str, value: Any) -> Any:
    resource = scan.resources[node.resource]
    if _flag(scan, node, key, value) and resource.root is node:
        resource.dynamic[""] = node
    return value


def _anchor(scan: Scan, node: Node, key: str, value: Any) -> Any:
    if not isinstance(value, str) or not value or "#" in value or "/" in value:
        raise node.malformed(key, f"{shown(value)} is no plain name")
    scan.anchor(node, key, value)
    if key == "$dynamicAnchor":
        scan.resources[node.resource].dynamic[value] = node
    return value


def _schema(scan: Scan, node: Node, key: str, value: Any) -> Any:
    path = (key,)
    node._children[path] = scan.add(node, value, path)
    return value


def _kept_schema(scan: Scan, node: Node, key: str, value: Any) -> Any:
    node._kept[(key,)] = scan.add(node, value, (key,))
    return value


def _members(node: Node, key: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise node.malformed(key, f"{shown(value)} is no object")
    for name in value:
        if not isinstance(name, str):
            raise node.malformed(key, f"{shown(name)} is no key of a JSON object")
    return value


def _schemas(scan: Scan, node: Node, key: str, value: Any) -> Any:
    children = node._children
    add = scan.add
    for name, below in _members(node, key, value).items():
        path = (key, name)
        children[path] = add(node, below, path)
    return value


def _pattern_schemas(scan: Scan, node: Node, key: str, value: Any) -> Any:
    _schemas(scan, node, key, value)
    for name in value:
        scan.patterns.append((node, (key, name), name))
    return value


def _definitions(scan: Scan, node: Node, key: str, value: Any) -> Any:
    for name, below in _members(node, key, value).items():
        path = (key, name)
        node._kept[path] = scan.add(node, below, path)
    return value


def _array(node: Node, key: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise node.malformed(key, f"{shown(value)} is no array of schemas")
    if not value:
        raise node.malformed(key, "the array has no schema")
    return value


def _schema_list(scan: Scan, node: Node, key: str, value: Any) -> Any:
    for place, below in enumerate(_array(node, key, value)):
        path = (key, place)
        node._children[path] = scan.add(node, below, path)
    return value


def _items(scan: Scan, node: Node, key: str, value: Any) -> Any:
    """Up to 2019-09: an array is what `prefixItems` is now, with `additionalItems` for the rest."""
    if not isinstance(value, list):
        return _schema(scan, node, key, value)
    for place, below in enumerate(_array(node, key, value)):
        node._children["prefixItems", place] = scan.add(node, below, (key, place))
    scan.more["prefixItems"] = value
    rest = node.raw.get("additionalItems", DROPPED)
    if rest is not DROPPED:
        node._children[(key,)] = scan.add(node, rest, ("additionalItems",))
    return rest


def _items_2020(scan: Scan, node: Node, key: str, value: Any) -> Any:
    if isinstance(value, list):
        raise node.malformed(
            key, f"an array of schemas is prefixItems in {Draft.D2020.value}, or name another $schema"
        )
    return _schema(scan, node, key, value)


def _additional_items(scan: Scan, node: Node, key: str, value: Any) -> Any:
    if not isinstance(node.raw.get("items"), list):
        node._kept[(key,)] = scan.add(node, value, (key,))  # without an array it says nothing
    return DROPPED


def _dependent_names(scan: Scan, node: Node, key: str, value: Any) -> Any:
    for names in _members(node, key, value).values():
        _names(node, key, names)
    return value


def _dependencies(scan: Scan, node: Node, key: str, value: Any) -> Any:
    """Split into the two keywords it became. Since 2019-09 the specification has it no more, and it is honoured
    all the same: the schemas that use it mean it."""
    raw = node.raw
    own = raw if "dependentRequired" not in _MISSING[node.draft] else {}
    needed = dict(_members(node, "dependentRequired", own.get("dependentRequired", {})))
    below = dict(_members(node, "dependentSchemas", own.get("dependentSchemas", {})))
    for name, what in _members(node, key, value).items():
        if isinstance(what, list):
            names = _names(node, key, what)
            needed[name] = (
                list(dict.fromkeys((*_names(node, key, needed[name]), *names))) if name in needed else names
            )
        elif name in below:
            both = {"allOf": [below[name], what]}
            below[name] = both
            node._children["dependentSchemas", name] = scan.add(node, both, (key, name))
        else:
            below[name] = what
            node._children["dependentSchemas", name] = scan.add(node, what, (key, name))
    scan.more.update({"dependentRequired": needed} if needed else {})
    scan.more.update({"dependentSchemas": below} if below else {})
    return DROPPED


def _dependent_schemas(scan: Scan, node: Node, key: str, value: Any) -> Any:
    children = node._children
    for name, below in _members(node, key, value).items():
        path = (key, name)
        child = scan.add(node, below, path)
        children.setdefault(path, child)  # unless `dependencies` has put both under this name
    return value


_COMMON: dict[str, Rule] = {
    **dict.fromkeys(
        ("$schema", "$comment", "$vocabulary", "title", "description", "default", "examples"), ignored
    ),
    **dict.fromkeys(("readOnly", "writeOnly", "deprecated"), ignored),
    **dict.fromkeys(("contentEncoding", "contentMediaType"), _content),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _number),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minContains", "maxContains"), _count),
    **dict.fromkeys(("minProperties", "maxProperties"), _count),
    **dict.fromkeys(
        ("not", "if", "then", "else", "contains", "propertyNames", "additionalProperties"), _schema
    ),
    **dict.fromkeys(("unevaluatedItems", "unevaluatedProperties"), _schema),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), _schema_list),
    **dict.fromkeys(("$anchor", "$dynamicAnchor"), _anchor),
    **dict.fromkeys(("$ref", "$dynamicRef"), _reference),
    "$id": ignored,
    "type": _type,
    "enum": _enum,
    "const": _const,
    "multipleOf": _factor,
    "uniqueItems": _flag,
    "pattern": _pattern,
    "format": _format,
    "required": _required,
    "properties": _schemas,
    "patternProperties": _pattern_schemas,
    "definitions": _definitions,
    "items": _items,
    "additionalItems": _additional_items,
    "dependencies": _dependencies,
    "dependentRequired": _dependent_names,
    "dependentSchemas": _dependent_schemas,
    "$recursiveRef": _recursive_reference,
    "$recursiveAnchor": _recursive_anchor,
}
_NEW: dict[str, Rule] = {"$defs": _definitions, "contentSchema": _kept_schema}
_OWN: dict[Draft, dict[str, Rule]] = {
    Draft.D4: {
        "id": ignored,
        **dict.fromkeys(_EXCLUSIVE, _bound_4),
        **dict.fromkeys(_BOUND, _exclusive_4),
    },
    Draft.D6: {},
    Draft.D7: {},
    Draft.D2019: _NEW,
    Draft.D2020: {**_NEW, "items": _items_2020},
}
_MISSING = {draft: missing_keywords(draft) for draft in DRAFTS}
RULES: dict[Draft, dict[str, Rule]] = {
    draft: {**_COMMON, **_OWN[draft], **dict.fromkeys(_MISSING[draft], _missing)} for draft in DRAFTS
}
