"""Rules for keywords that hold schemas: what stands below a node. See `rules.py`."""

from __future__ import annotations

from typing import Any

from treille.runtime.schema.drafts import Draft, missing_keywords
from treille.runtime.schema.nodes import Node
from treille.runtime.schema.reading import shown
from treille.runtime.schema.rule_values import DROPPED, read_names
from treille.runtime.schema.scan import Scan

_SPLIT_HERE = frozenset(draft for draft in Draft if "dependentSchemas" not in missing_keywords(draft))


def read_schema(scan: Scan, node: Node, key: str, value: Any) -> Any:
    """A schema."""
    path = (key,)
    node._children[path] = scan.add(node, value, path)
    return value


def read_kept_schema(scan: Scan, node: Node, key: str, value: Any) -> Any:
    """A schema that does not apply, like that of `contentSchema`."""
    node.keep((key,), scan.add(node, value, (key,)))
    return value


def read_schemas(scan: Scan, node: Node, key: str, value: Any) -> Any:
    """Schemas by name."""
    children = node._children
    add = scan.add
    for name, below in _members(node, key, value).items():
        path = (key, name)
        children[path] = add(node, below, path)
    return value


def read_pattern_schemas(scan: Scan, node: Node, key: str, value: Any) -> Any:
    """Schemas by expression."""
    read_schemas(scan, node, key, value)
    for name in value:
        scan.patterns.append((node, (key, name), name))
    return value


def read_definitions(scan: Scan, node: Node, key: str, value: Any) -> Any:
    """Schemas by name, for references to lead to."""
    for name, below in _members(node, key, value).items():
        path = (key, name)
        node.keep(path, scan.add(node, below, path))
    return value


def read_schema_list(scan: Scan, node: Node, key: str, value: Any) -> Any:
    """One or more schemas."""
    for place, below in enumerate(_schemas(node, key, value)):
        path = (key, place)
        node._children[path] = scan.add(node, below, path)
    return value


def read_items(scan: Scan, node: Node, key: str, value: Any) -> Any:
    """`items` up to 2019-09: an array is what `prefixItems` is now, with `additionalItems` for the rest."""
    if not isinstance(value, list):
        return read_schema(scan, node, key, value)
    for place, below in enumerate(_schemas(node, key, value)):
        node._children["prefixItems", place] = scan.add(node, below, (key, place))
    scan.more["prefixItems"] = value
    rest = node.raw.get("additionalItems", DROPPED)
    if rest is not DROPPED:
        node._children[(key,)] = scan.add(node, rest, ("additionalItems",))
    return rest


def read_items_2020(scan: Scan, node: Node, key: str, value: Any) -> Any:
    """`items` since 2020-12."""
    if isinstance(value, list):
        hint = f"prefixItems in {Draft.D2020.value} (earlier drafts have it so: name one in $schema)"
        raise node.malformed(key, f"an array of schemas is {hint}")
    return read_schema(scan, node, key, value)


def read_additional_items(scan: Scan, node: Node, key: str, value: Any) -> Any:
    """What `read_items` has put in its place; without an array of items it says nothing."""
    if not isinstance(node.raw.get("items"), list):
        node.keep((key,), scan.add(node, value, (key,)))
    return DROPPED


def read_dependent_names(scan: Scan, node: Node, key: str, value: Any) -> Any:
    """`dependentRequired`: names by name."""
    for names in _members(node, key, value).values():
        read_names(scan, node, key, names)
    return value


def read_dependent_schemas(scan: Scan, node: Node, key: str, value: Any) -> Any:
    """`dependentSchemas`: schemas by name, unless `dependencies` had one for the name, and has put both
    there."""
    for name, below in _members(node, key, value).items():
        path = (key, name)
        node._children.setdefault(path, scan.add(node, below, path))
    return value


def read_dependencies(scan: Scan, node: Node, key: str, value: Any) -> Any:
    """Split into the two keywords it became.

    Since 2019-09 the specification has it no more, and it is honoured all the same: who writes it means it,
    and the later metaschemas still allow it.
    """
    own = node.raw if node.draft in _SPLIT_HERE else {}
    needed = dict(_members(node, "dependentRequired", own.get("dependentRequired", {})))
    below = dict(_members(node, "dependentSchemas", own.get("dependentSchemas", {})))
    for name, what in _members(node, key, value).items():
        if isinstance(what, list):
            names = read_names(scan, node, key, what)
            known = read_names(scan, node, "dependentRequired", needed.get(name, []))
            needed[name] = list(dict.fromkeys((*known, *names)))
        else:
            below[name] = {"allOf": [below[name], what]} if name in below else what
            node._children["dependentSchemas", name] = scan.add(node, below[name], (key, name))
    scan.more.update({"dependentRequired": needed} if needed else {})
    scan.more.update({"dependentSchemas": below} if below else {})
    return DROPPED


def _members(node: Node, key: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise node.malformed(key, f"{shown(value)} is no object")
    for name in value:
        if not isinstance(name, str):
            raise node.malformed(key, f"{shown(name)} is no key of a JSON object")
    return value


def _schemas(node: Node, key: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise node.malformed(key, f"{shown(value)} is no array of schemas")
    if not value:
        raise node.malformed(key, "the array has no schema")
    return value
