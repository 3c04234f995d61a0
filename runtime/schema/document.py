"""Documents: a JSON Schema read, checked, its references resolved.

Whatever draft a schema is of (4, 6, 7, 2019-09, 2020-12), its nodes speak one dialect: that of 2020-12, with
`$recursiveRef`. What a draft has no keyword for is gone from `Node.schema`, and so is what stands beside `$ref` up to
draft 7; `exclusiveMinimum: true`, arrays of `items`, `additionalItems` and `dependencies` are in their later form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from treille.runtime.errors import InvalidConstraint, UnsupportedConstraint
from treille.runtime.schema.dialect import read_nodes
from treille.runtime.schema.drafts import Draft
from treille.runtime.schema.formats import FORMATS
from treille.runtime.schema.forms import Note
from treille.runtime.schema.nodes import Node, Path, Places
from treille.runtime.schema.reading import MAX_DEPTH, read_text, shown
from treille.runtime.schema.references import (
    Resource,
    fragment_of,
    member,
    metaschema,
    pointer_tokens,
    resolve,
)
from treille.runtime.schema.scan import Scan, too_deep

__all__ = ["Document", "Draft", "Node"]

MAX_NOTES = 1000

Scope = tuple[int, ...]


class Document:
    """A schema: a mapping or boolean (which must not be changed afterwards), or JSON text.

    `patterns`: every ECMA pattern in use (of `pattern` and `patternProperties`), `formats`: every format in use that
    is enforced; both with the pointer of their first place.

    Raises `InvalidConstraint` for what is no JSON, for a keyword whose value its draft does not allow and for a
    reference that leads nowhere or round in a circle; `UnsupportedConstraint` for references to other documents,
    metaschemas that are not known, schemas over 256 deep and numbers of over 4000 digits.
    """

    def __init__(self, schema: object, *, formats: Literal["assert", "annotation"] = "assert") -> None:
        if isinstance(schema, (str, bytes)):
            schema = read_text(schema)
        if not isinstance(schema, (dict, bool)):
            raise InvalidConstraint(
                f"{shown(schema)} is no schema, which is an object, true or false", field="schema"
            )
        scan = self._scan = Scan(FORMATS if formats == "assert" else frozenset())
        self.root = scan.top(schema, "", "#")
        read_nodes(scan)
        scan.claim(scan.resources[0])
        if scan.is_shared:
            _check_depth(self.root)
        self._is_dynamic = False
        self._entered: dict[tuple[Scope, int], Scope] = {}
        self._constants: dict[tuple[type, object], Node] = {}
        self._used: set[int] = set()  # numbers of nodes that apply
        self._patterns: dict[str, tuple[Node, Path]] = {}
        self._formats: dict[str, tuple[Node, Path]] = {}
        self._use(self.root)
        self.patterns: Mapping[str, str] = Places(self._patterns)
        self.formats: Mapping[str, str] = Places(self._formats)

    @property
    def notes(self) -> list[Note]:
        """What people may want to know: what is ignored, and why. At most 1000, each keyword and text of it once a
        place."""
        noted = self._scan.noted
        notes = [Note(node.pointer, key, "annotation", text) for node, key, text in noted[:MAX_NOTES]]
        if len(noted) > MAX_NOTES:
            notes.append(Note("#", "", "annotation", f"{len(noted) - MAX_NOTES} more notes are left out"))
        return notes

    def child(self, node: Node, *path: str | int) -> Node:
        """The subschema `node.schema[path[0]][path[1]]...`, the same node every time. KeyError if there is none."""
        found = node._children.get(path)
        return node._kept[path] if found is None else found

    def target(self, node: Node) -> Node:
        """Where a node's `$ref` leads."""
        if node._target is None:
            node._target = self._resolve(node, "$ref")
            self._use(node._target)
        return node._target

    def dynamic_target(self, node: Node, scope: Scope) -> Node:
        """Where a node's `$dynamicRef` or `$recursiveRef` leads in a dynamic scope (2020-12 core, section 8.2.3.2;
        2019-09 core, section 8.2.4.2)."""
        start, name = self._dynamic_start(node)
        if name is not None:
            for number in scope:
                found = self._scan.resources[number].dynamic.get(name)
                if found is not None:
                    return found
        return start

    def enter(self, scope: Scope, node: Node) -> Scope:
        """The dynamic scope once a node is entered: the resources entered so far, outermost first, without those
        that make no difference to any dynamic reference."""
        if not self._is_dynamic:
            return ()
        key = (scope, node.resource)
        entered = self._entered.get(key)
        if entered is None:
            resources = self._scan.resources
            known = {name for number in scope for name in resources[number].dynamic}
            entered = scope if resources[node.resource].dynamic.keys() <= known else (*scope, node.resource)
            self._entered[key] = entered
        return entered

    def synthetic(self, schema: Mapping[str, Any]) -> Node:
        """A node for a schema of 2020-12 that is not in the document. Equal constants share theirs."""
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

    def _dynamic_start(self, node: Node) -> tuple[Node, str | None]:
        if node._dynamic is None:
            if node.raw.get("$recursiveRef") is not None and node.draft is Draft.D2019:
                start = self._scan.resources[node.resource].root
                node._dynamic = start, "" if "" in self._scan.resources[start.resource].dynamic else None
            else:
                start = self._resolve(node, "$dynamicRef")
                name = fragment_of(node.raw["$dynamicRef"].partition("#")[2])
                named = (
                    start.raw is not True
                    and start.raw is not False
                    and start.schema.get("$dynamicAnchor") == name
                )
                node._dynamic = start, name if name and named else None
        return node._dynamic

    def _resolve(self, node: Node, key: str) -> Node:
        reference: str = node.raw[key]
        resource = self._scan.resources[node.resource]
        uri, _, fragment = reference.partition("#")
        if uri:
            resource = self._resource(node, key, resolve(resource.uri, uri))
        fragment = fragment_of(fragment)
        if not fragment:
            return resource.root
        if fragment.startswith("/"):
            return self._pointed(node, key, resource.root, fragment)
        found = resource.anchors.get(fragment)
        if found is None:
            raise node.malformed(key, f"{shown(reference)} leads nowhere: there is no such anchor")
        return found

    def _resource(self, node: Node, key: str, uri: str) -> Resource:
        """The resource of an absolute URI: in the document, or the metaschema of a draft."""
        scan = self._scan
        if uri in scan.by_uri:
            found = scan.by_uri[uri]
            if found is None:
                raise node.malformed(key, f"two schemas of the document have the URI {shown(uri)}")
            return found
        meta = metaschema(uri)
        if meta is None:
            raise UnsupportedConstraint(
                key, node.place(key), f"{shown(uri)} is not in the document", field="schema"
            )
        top = scan.top(meta, uri, uri + "#")
        read_nodes(scan)
        scan.by_uri[uri] = scan.resources[top.resource]
        return scan.resources[top.resource]

    def _pointed(self, node: Node, key: str, root: Node, fragment: str) -> Node:
        """What a JSON Pointer leads to. If no keyword puts a schema there it is read as one all the same."""
        at, value, path = root, root.raw, list[str | int]()
        for token in pointer_tokens(fragment):
            found = member(value, token)
            if found is None:
                raise node.malformed(key, f"{shown(node.raw[key])} leads nowhere: there is no {shown(token)}")
            step, value = found
            path.append(step)
            known = self._scan.find(value)
            if known is not None:
                at, path = known, []
        if not path:
            return at
        place = tuple(path)
        if place not in at._kept:
            at._kept[place] = self._scan.add(at, value, place)
            read_nodes(self._scan)
        return at._kept[place]

    def _use(self, node: Node) -> None:
        """Walk over all that applies from a node on, resolve its references and gather its patterns and formats."""
        used, names = self._used, set[str]()
        references: list[Node] = []
        waiting = [node]
        while waiting:
            node = waiting.pop()
            if node.number in used:
                continue
            used.add(node.number)
            waiting.extend(node._children.values())
            schema = node.schema
            if schema is True or schema is False:
                continue
            if "$ref" in schema:
                node._target = self._resolve(node, "$ref")
                references.append(node)
                waiting.append(node._target)
            if "$dynamicRef" in schema or "$recursiveRef" in schema:
                start, name = self._dynamic_start(node)
                self._is_dynamic = True
                waiting.append(start)
                names.update(() if name is None else (name,))
            if not waiting and names:
                waiting.extend(self._dynamic_nodes(names))
        _check_circles(references)
        self._gather()

    def _dynamic_nodes(self, names: Iterable[str]) -> list[Node]:
        """The nodes with one of these dynamic anchors that are not in use yet."""
        found = [resource.dynamic.get(name) for resource in self._scan.resources for name in names]
        return [node for node in found if node is not None and node.number not in self._used]

    def _gather(self) -> None:
        used = self._used
        for places, found in (
            (self._scan.patterns, self._patterns),
            (self._scan.formats, self._formats),
        ):
            for node, path, text in places:
                if node.number in used and text not in found:
                    found[text] = (node, path)


def _check_circles(references: list[Node]) -> None:
    """Raise `InvalidConstraint` if following `$ref` alone never ends."""
    done: set[Node] = set()
    for start in references:
        trail: dict[Node, None] = {}
        node: Node | None = start
        while node is not None and node not in done:
            if node in trail:
                circle = list(trail)[list(trail).index(node) :]
                names = " -> ".join(each.pointer for each in (*circle[:5], node))
                raise node.malformed("$ref", f"following $ref leads round in a circle: {shorten(names)}")
            trail[node] = None
            node = node._target
        done.update(trail)


def shorten(text: str) -> str:
    return text if len(text) <= 500 else text[:500] + "..."


def _check_depth(root: Node) -> None:
    """For mappings that stand in several places: raise if one contains itself, or nests over 256 deep along the
    longest way to it."""
    height: dict[Node, int] = {}
    trail: list[Node] = [root]
    open_nodes: set[Node] = set()
    while trail:
        node = trail[-1]
        below = [*node._children.values(), *node._kept.values()]
        if node not in open_nodes and node not in height:
            open_nodes.add(node)
            for child in below:
                if child in open_nodes:
                    raise InvalidConstraint(f"{child.pointer}: the schema contains itself", field="schema")
            trail.extend(child for child in below if child not in height)
            continue
        trail.pop()
        if node not in height:
            open_nodes.discard(node)
            height[node] = 1 + max((height[child] for child in below), default=-1)
            if height[node] > MAX_DEPTH:
                raise too_deep(node)
