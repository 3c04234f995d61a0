"""What is found while a document is read: its nodes, its resources and their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from treille.runtime.errors import InvalidConstraint, UnsupportedConstraint
from treille.runtime.schema.drafts import OLD, Draft, draft_named
from treille.runtime.schema.nodes import Node, Path
from treille.runtime.schema.reading import MAX_DEPTH, shown
from treille.runtime.schema.references import MAX_URI, Resource, resolve

MAX_NOTES = 1000

_BOOLEANS_IN_4 = frozenset(("additionalProperties", "additionalItems"))


class Scan:
    """What has been found so far. `asserted`: the names of formats that are enforced. `one_spelling`: each
    number is spelled in one way only. `documents`: others that references may lead to, by their URIs."""

    def __init__(
        self,
        asserted: frozenset[str],
        *,
        one_spelling: bool = False,
        documents: Mapping[str, Any] | None = None,
    ) -> None:
        self.documents = documents or {}
        self.asserted = asserted
        self.one_spelling = one_spelling
        self.nodes: list[Node] = []
        self.resources: list[Resource] = []
        self.by_uri: dict[str, Resource | None] = {}  # None: more than one claims it
        self.noted: list[tuple[Node, str, str]] = []  # node, keyword, text: the first `MAX_NOTES`
        self.num_noted = 0
        self.patterns: list[tuple[Node, Path, str]] = []
        self.formats: list[tuple[Node, Path, str]] = []
        self.more: dict[str, Any] = {}  # keywords that rules add to the node being scanned
        self.num_read = 0  # nodes whose keywords have been read
        self.is_shared = False  # whether Python holds a mapping once that stands in several places
        self._by_raw: dict[int, Node] = {}
        self._elsewhere: dict[
            tuple[int, int], Node
        ] = {}  # the same mapping in another resource, by its number

    def top(self, raw: Any, uri: str, prefix: str, draft: Draft = Draft.D2020) -> Node:
        """A node above all others and a resource of its own: a document, a metaschema, a synthetic schema.
        It is of `draft` unless it says of which."""
        number = len(self.resources)
        node = Node(raw, len(self.nodes), number, draft, None, (prefix,))
        self.nodes.append(node)
        self.resources.append(Resource(number, uri, draft, node))
        if isinstance(raw, dict):
            self._by_raw[id(raw)] = node
        return node

    def add(self, above: Node, raw: Any, path: Path) -> Node:
        """The node of a schema below another. Raises if it is none, or nests too deep."""
        kind = type(raw)
        known = None
        if kind is bool:
            if above.draft is Draft.D4 and path[0] not in _BOOLEANS_IN_4:
                raise self._no_schema(above, raw, path)
        elif kind is dict or isinstance(raw, dict):
            known = self._by_raw.get(id(raw))
            if known is not None:
                self.is_shared = True
                if known._above is None or known._above.resource == above.resource:
                    return known
                found = self._elsewhere.get((id(raw), above.resource))
                if found is not None:
                    return found
        else:
            raise self._no_schema(above, raw, path)
        nodes = self.nodes
        node = Node(raw, len(nodes), above.resource, above.draft, above, path)
        if node.depth > MAX_DEPTH:
            raise too_deep(node)
        nodes.append(node)
        if known is not None:
            self._elsewhere[id(raw), above.resource] = node
        elif kind is not bool:
            self._by_raw[id(raw)] = node
        return node

    def _no_schema(self, above: Node, raw: Any, path: Path) -> InvalidConstraint:
        what = "" if above.draft is Draft.D4 else ", which is an object, true or false"
        return InvalidConstraint(f"{above.place(*path)}: {shown(raw)} is no schema{what}", field="schema")

    def note(self, node: Node, key: str, text: str) -> None:
        """Have something to tell people about a keyword."""
        self.num_noted += 1
        if self.num_noted <= MAX_NOTES:
            self.noted.append((node, key, text))

    def find(self, raw: Any) -> Node | None:
        """The node of a mapping of the document, if it is a schema."""
        return self._by_raw.get(id(raw)) if isinstance(raw, dict) else None

    def identify(self, node: Node, raw: Mapping[str, Any]) -> None:
        """Settle the draft and the resource of a node that may start one."""
        is_top = node._above is None
        draft = node.draft
        if "$schema" in raw and (is_top or isinstance(raw.get("$id", raw.get("id")), str)):
            named = raw["$schema"]
            if not isinstance(named, str):
                raise node.malformed("$schema", f"{shown(named)} is no URI")
            found = draft_named(named, node.place("$schema"))
            if found is None:
                self.note(node, "$schema", f"{shown(named)} names no draft: read as {draft.value}")
            draft = found or draft
        key = "id" if draft is Draft.D4 else "$id"
        if is_top:
            node.draft = self.resources[node.resource].draft = draft
        if key in raw and not ("$ref" in raw and draft in OLD):
            if not isinstance(raw[key], str):
                raise node.malformed(key, f"{shown(raw[key])} is no URI")
            self._name(node, raw[key], draft, key)

    def _name(self, node: Node, identity: str, draft: Draft, key: str) -> None:
        resource = self.resources[node.resource]
        if len(identity) > MAX_URI:
            raise UnsupportedConstraint(key, node.place(key), "a URI this long", field="schema")
        uri, _, fragment = resolve(resource.uri, identity).partition("#")
        if node._above is None:
            resource.uri = uri
        elif uri != resource.uri:
            resource = Resource(len(self.resources), uri, draft, node)
            self.resources.append(resource)
            node.resource = resource.number
            node.draft = draft
            self.claim(resource)
        if fragment and draft not in OLD:
            self.note(node, key, "its fragment names nothing since 2019-09 ($anchor does)")
        elif fragment and not fragment.startswith("/"):
            self.anchor(node, key, fragment)

    def claim(self, resource: Resource) -> None:
        """Let references find a resource by its URI."""
        known = self.by_uri.get(resource.uri, resource)
        self.by_uri[resource.uri] = resource if known is resource else None

    def anchor(self, node: Node, key: str, name: str) -> None:
        """Give a node a plain name in its resource."""
        known = self.resources[node.resource].anchors.setdefault(name, node)
        if known is not node:
            raise node.malformed(key, f"the anchor {shown(name)} is also at {known.pointer}")


def too_deep(node: Node) -> UnsupportedConstraint:
    """The error for a node that nests too deep."""
    key = str(node._path[0])
    reason = f"schemas nest over {MAX_DEPTH} deep"
    return UnsupportedConstraint(key, node.pointer, reason, field="schema")
