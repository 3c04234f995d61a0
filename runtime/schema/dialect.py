"""Every schema of a document checked, and put in one dialect: 2020-12 with `$recursiveRef`.

One pass over a list that grows; nothing calls itself.
"""

from __future__ import annotations

from typing import Any

from treille.runtime.errors import InvalidConstraint
from treille.runtime.schema.drafts import OLD
from treille.runtime.schema.nodes import Node
from treille.runtime.schema.reading import shown
from treille.runtime.schema.rule_values import DROPPED, read_annotation
from treille.runtime.schema.rules import RULES
from treille.runtime.schema.scan import Scan


def read_nodes(scan: Scan) -> None:
    """Read the nodes that are new, and those below them.

    Raises `InvalidConstraint` or `UnsupportedConstraint` for the first fault.
    """
    nodes = scan.nodes
    while scan.num_read < len(nodes):
        node = nodes[scan.num_read]
        scan.num_read += 1
        raw = node.raw
        if raw is True or raw is False:
            continue
        if "$id" in raw or "id" in raw or "$schema" in raw:
            scan.identify(node, raw)
        if "$ref" in raw and node.draft in OLD:
            _read_reference(scan, node, raw)
        else:
            _read_keywords(scan, node, raw)


def _read_keywords(scan: Scan, node: Node, raw: dict[str, Any]) -> None:
    rules = RULES[node.draft]
    changed: dict[str, Any] | None = None
    for key, value in raw.items():
        rule = rules.get(key)
        if rule is read_annotation:
            continue
        if rule is None:
            _check_key(node, key)
            scan.note(node, key, "not a keyword: it says nothing")
            continue
        new = rule(scan, node, key, value)
        if new is not value:
            if changed is None:
                changed = {}
            changed[key] = new
    if changed is not None:
        kept = {**raw, **changed, **scan.more}
        node.schema = {key: value for key, value in kept.items() if value is not DROPPED}
        scan.more = {}


def _read_reference(scan: Scan, node: Node, raw: dict[str, Any]) -> None:
    """In drafts 4 to 7 nothing beside `$ref` counts. Definitions are kept, for references into them."""
    rules = RULES[node.draft]
    for key, value in raw.items():
        if key in ("$ref", "definitions"):
            rules[key](scan, node, key, value)
        elif rules.get(key) is not read_annotation:
            _check_key(node, key)
            scan.note(node, key, f"ignored beside $ref, as {node.draft.value} has it")
    if len(raw) > 1:
        node.schema = {"$ref": raw["$ref"]}


def _check_key(node: Node, key: object) -> None:
    if not isinstance(key, str):
        message = f"{node.pointer}: {shown(key)} is no key of a JSON object"
        raise InvalidConstraint(message, field="schema")
