"""Where references lead: static ones, and where dynamic ones start.

See `references.py` for URIs and fragments.
"""

from __future__ import annotations

from collections.abc import Iterable

from treille.runtime.errors import UnsupportedConstraint
from treille.runtime.schema.dialect import read_nodes
from treille.runtime.schema.drafts import Draft
from treille.runtime.schema.nodes import Node
from treille.runtime.schema.reading import shown
from treille.runtime.schema.references import (
    MAX_URI,
    Resource,
    fragment_of,
    member,
    metaschema,
    pointer_tokens,
    resolve,
)
from treille.runtime.schema.scan import Scan

_MAX_SHOWN = 500


def target_of(scan: Scan, node: Node, key: str = "$ref") -> Node:
    """Where the reference under a keyword leads. What is found for the first time is read.

    Raises `InvalidConstraint` if there is no such place in the document, `UnsupportedConstraint` if it is in
    another that is no metaschema of a draft.
    """
    reference: str = node.raw[key]
    resource = scan.resources[node.resource]
    uri, _, fragment = reference.partition("#")
    if uri:
        if len(uri) > MAX_URI:
            raise UnsupportedConstraint(key, node.place(key), "a URI this long", field="schema")
        resource = _resource(scan, node, key, resolve(resource.uri, uri))
    fragment = fragment_of(fragment)
    if not fragment:
        return resource.root
    if fragment.startswith("/"):
        return _pointed(scan, node, key, resource.root, fragment)
    found = resource.anchors.get(fragment)
    if found is None:
        raise node.malformed(key, f"{shown(reference)} leads nowhere: there is no such anchor")
    return found


def dynamic_start(scan: Scan, node: Node) -> tuple[Node, str | None]:
    """Where the node's `$dynamicRef` or `$recursiveRef` leads as it stands, and the dynamic anchor that the
    dynamic scope is searched for (None: it is an ordinary reference)."""
    if node._start is None:
        if node.draft is Draft.D2019:
            start = scan.resources[node.resource].root
            name = "" if "" in scan.resources[start.resource].dynamic else None
        else:
            start = target_of(scan, node, "$dynamicRef")
            name = fragment_of(node.raw["$dynamicRef"].partition("#")[2])
            if isinstance(start.raw, bool) or not name or start.raw.get("$dynamicAnchor") != name:
                name = None
        node._start = start, name
    return node._start


def _resource(scan: Scan, node: Node, key: str, uri: str) -> Resource:
    """The resource of an absolute URI: in the document, or a document that came with it, which is of the same
    draft unless it names another, or the metaschema of a draft."""
    if uri in scan.by_uri:
        found = scan.by_uri[uri]
        if found is None:
            raise node.malformed(key, f"two schemas of the document have the URI {shown(uri)}")
        return found
    other, draft = scan.documents.get(uri), scan.nodes[0].draft
    if other is None:
        other, draft = metaschema(uri), Draft.D2020
    if other is None:
        reason = (
            f"{shown(uri)} is not in the document, and nothing is fetched: "
            "put that schema under $defs, or give it in documents"
        )
        raise UnsupportedConstraint(key, node.place(key), reason, field="schema")
    top = scan.top(other, uri, uri + "#", draft)
    read_nodes(scan)
    resource = scan.resources[top.resource]
    scan.by_uri[uri] = resource
    scan.claim(resource)  # by the URI that it gives itself, which may be another
    return resource


def _pointed(scan: Scan, node: Node, key: str, root: Node, fragment: str) -> Node:
    """What a JSON Pointer leads to. If no keyword puts a schema there it is read as one all the same."""
    at, value = root, root.raw
    path: list[str | int] = []
    for token in pointer_tokens(fragment):
        found = member(value, token)
        if found is None:
            raise node.malformed(key, f"{shown(node.raw[key])} leads nowhere: there is no {shown(token)}")
        step, value = found
        path.append(step)
        known = scan.find(value)
        if known is not None:
            at, path = known, []
    if not path:
        return at
    place = tuple(path)
    there = at._children.get(place) or at.kept(place)  # a boolean that a keyword put there
    if there is None or there.raw is not value:
        there = scan.add(at, value, place)
        at.keep(place, there)
        read_nodes(scan)
    return there


def check_circles(references: Iterable[Node]) -> None:
    """Raise `InvalidConstraint` if following `$ref` alone, from one of these nodes, never ends."""
    done: set[Node] = set()
    for start in references:
        trail: dict[Node, None] = {}
        node: Node | None = start
        while node is not None and node not in done:
            if node in trail:
                circle = list(trail)[list(trail).index(node) :]
                names = " -> ".join(each.pointer for each in (*circle[:5], node))
                names = names if len(names) <= _MAX_SHOWN else names[:_MAX_SHOWN] + "..."
                raise node.malformed("$ref", f"following $ref leads round in a circle: {names}")
            trail[node] = None
            node = node._target
        done.update(trail)
