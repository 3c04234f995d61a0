"""Documents: a JSON Schema read, checked, its references resolved.

Whatever draft a schema is of (4, 6, 7, 2019-09, 2020-12), its nodes speak one dialect: that of 2020-12, with
`$recursiveRef` and a type for the integers of draft 4. What a draft has no keyword for is gone from
`Node.schema`, and so are formats that are not enforced and, up to draft 7, what stands beside `$ref`.
`exclusiveMinimum: true`, arrays of `items`, `additionalItems` and `dependencies` are in their later form. All
numbers are int or Decimal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

from treille.runtime.errors import InvalidConstraint, brief_place
from treille.runtime.schema.dialect import read_nodes
from treille.runtime.schema.drafts import Draft
from treille.runtime.schema.formats import FORMATS
from treille.runtime.schema.forms import Note
from treille.runtime.schema.nodes import Node, Path, Places
from treille.runtime.schema.reading import MAX_DEPTH, read_text, shown
from treille.runtime.schema.resolving import check_circles, dynamic_start, target_of
from treille.runtime.schema.scan import Scan, too_deep

__all__ = ["Document", "Draft", "Node", "Scope"]

Scope = tuple[int, ...]


class Document:
    """A schema: a mapping or boolean (which must not be changed afterwards), or JSON text. `one_spelling`:
    each number is written in one way only, so that no integer has a fraction. `documents`: other schemas, by
    the absolute URIs under which references find them; those that none leads to are not looked at.

    `patterns`: every ECMA pattern in use (of `pattern` and `patternProperties`), `formats`: every format in
    use that is enforced; both with the pointer of their first place. In use is what the root leads to, not
    what only stands among the definitions.

    Raises `InvalidConstraint` for what is no JSON, for a keyword whose value its draft does not allow, and
    for a reference in use that leads nowhere or round in a circle; `UnsupportedConstraint` for references to
    other documents, metaschemas that are not known, schemas over 256 deep and numbers of over 4000 digits.
    """

    def __init__(
        self,
        schema: object,
        *,
        formats: Literal["assert", "annotation"] = "assert",
        one_spelling: bool = False,
        documents: Mapping[str, object] | None = None,
    ) -> None:
        schema = _read(schema, "schema")
        others = {_uri(uri): _read(other, "documents") for uri, other in (documents or {}).items()}
        asserted = FORMATS if formats == "assert" else frozenset()
        self._scan = scan = Scan(asserted, one_spelling=one_spelling, documents=others)
        self.root = scan.top(schema, "", "#")
        read_nodes(scan)
        scan.claim(scan.resources[0])
        self._is_dynamic = False  # whether anything in use is a dynamic reference
        self._dynamic_names: set[str] = set()  # what those look for
        self._entered: dict[tuple[Scope, int], Scope] = {}
        self._constants: dict[tuple[type, object], Node] = {}
        self._used: set[int] = set()  # numbers of nodes
        self._patterns: dict[str, tuple[Node, Path]] = {}
        self._formats: dict[str, tuple[Node, Path]] = {}
        self._use(self.root)
        if scan.is_shared:
            _check_depth(scan.nodes)
        self.patterns: Mapping[str, str] = Places(self._patterns)
        self.formats: Mapping[str, str] = Places(self._formats)

    @property
    def notes(self) -> list[Note]:
        """What says nothing in this document, and why: at most 1000 notes, and one on how many more there
        are."""
        notes = [Note(node.pointer, key, "annotation", text) for node, key, text in self._scan.noted]
        left_out = self._scan.num_noted - len(notes)
        if left_out:
            notes.append(Note("#", "", "annotation", f"{left_out} more notes are left out"))
        return notes

    def child(self, node: Node, *path: str | int) -> Node:
        """The subschema `node.schema[path[0]][path[1]]...`, the same node every time.

        KeyError if there is none.
        """
        found = node._children.get(path) or node.kept(path)
        if found is None:
            raise KeyError(path)
        return found

    def target(self, node: Node) -> Node:
        """Where a node's `$ref` leads."""
        if node._target is None:
            self._use(node)
        return node._target or target_of(self._scan, node)

    def dynamic_target(self, node: Node, scope: Scope) -> Node:
        """Where a node's `$dynamicRef` or `$recursiveRef` leads in a dynamic scope (2020-12 core, section
        8.2.3.2; 2019-09 core, section 8.2.4.2)."""
        start, name = dynamic_start(self._scan, node)
        if name is not None:
            for number in scope:
                found = self._scan.resources[number].dynamic.get(name)
                if found is not None:
                    return found
        return start

    def enter(self, scope: Scope, node: Node) -> Scope:
        """The dynamic scope once a node is entered: the resources entered so far, outermost first, without
        those that make no difference to any dynamic reference.

        () in a document that has none.
        """
        if not self._is_dynamic:
            return ()
        key = (scope, node.resource)
        entered = self._entered.get(key)
        if entered is None:
            resources = self._scan.resources
            known = {name for number in scope for name in resources[number].dynamic}
            is_new = not resources[node.resource].dynamic.keys() <= known
            entered = self._entered[key] = (*scope, node.resource) if is_new else scope
        return entered

    def synthetic(self, schema: Mapping[str, Any]) -> Node:
        """A node for a schema of 2020-12 that is not in the document. Equal constants may share theirs."""
        value = schema.get("const", ()) if len(schema) == 1 else ()
        key = (type(value), value) if isinstance(value, (str, int, type(None))) else None
        if key is not None and key in self._constants:
            return self._constants[key]
        node = self._scan.top(dict(schema), "", "(made)#")
        read_nodes(self._scan)
        self._use(node)
        if key is not None:
            self._constants[key] = node
        return node

    def _use(self, start: Node) -> None:
        """Walk over all that applies from a node on; resolve references, gather patterns and formats."""
        scan, used, names = self._scan, self._used, self._dynamic_names
        references: list[Node] = []
        waiting = [start]
        while waiting:
            node = waiting.pop()
            if node.number not in used:
                used.add(node.number)
                waiting.extend(node._children.values())
                schema = node.schema
                if not isinstance(schema, bool):
                    if "$ref" in schema:
                        node._target = target_of(scan, node)
                        references.append(node)
                        waiting.append(node._target)
                    if "$dynamicRef" in schema or "$recursiveRef" in schema:
                        first, name = dynamic_start(scan, node)
                        self._is_dynamic = True
                        waiting.append(first)
                        names.update(() if name is None else (name,))
            if not waiting and names:
                found = [resource.dynamic.get(name) for resource in scan.resources for name in names]
                waiting.extend(node for node in found if node is not None and node.number not in used)
        check_circles(references)
        _gather(used, scan.patterns, self._patterns)
        _gather(used, scan.formats, self._formats)


def _read(schema: object, field: str) -> dict[str, Any] | bool:
    if isinstance(schema, (str, bytes)):
        schema = read_text(schema)
    if not isinstance(schema, (dict, bool)):
        message = f"{shown(schema)} is no schema, which is an object, true or false"
        raise InvalidConstraint(message, field=field)
    return schema


def _uri(uri: object) -> str:
    if not isinstance(uri, str) or not urlsplit(uri).scheme or uri.partition("#")[2]:
        message = f"{shown(uri)} names no document: an absolute URI without a fragment does"
        raise InvalidConstraint(message, field="documents")
    return uri.partition("#")[0]


def _gather(
    used: set[int], places: list[tuple[Node, Path, str]], found: dict[str, tuple[Node, Path]]
) -> None:
    for node, path, text in places:
        if node.number in used and text not in found:
            found[text] = (node, path)


def _check_depth(nodes: list[Node]) -> None:
    """For mappings that stand in several places: raise if one contains itself, or nests over 256 deep along
    the longest way to it."""
    heights: dict[Node, int] = {}
    is_open: set[Node] = set()
    trail = [node for node in reversed(nodes) if node._above is None]
    while trail:
        node = trail[-1]
        if node in heights:
            trail.pop()
        elif node in is_open:
            trail.pop()
            is_open.discard(node)
            heights[node] = 1 + max((heights[child] for child in node.below()), default=-1)
            if heights[node] > MAX_DEPTH:
                raise too_deep(node)
        else:
            is_open.add(node)
            for child in node.below():
                if child in is_open:
                    raise InvalidConstraint(
                        f"{brief_place(child.pointer)}: the schema contains itself", field="schema"
                    )
                trail.append(child)
