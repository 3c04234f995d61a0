"""Nodes: the places of a document where a schema stands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from treille.runtime.errors import InvalidConstraint, brief_place
from treille.runtime.schema.drafts import Draft

Path = tuple[str | int, ...]

_MAX_STEP = 256  # characters of a key in a pointer: what is longer is cut


class Node:
    """A schema and where it stands.

    Equal only to itself; its public fields are settled once its document is read.

    `schema`: its keywords in the dialect of `Document`, or a boolean. It may be the caller's own mapping,
    which must not be changed. `number`: its own in the document, from 0 in order of discovery. `resource`:
    the number of the schema resource (what has one base URI) it is in. `raw`: what stands in the document.
    `depth`: how many schemas it is in.

    For the reader of documents alone: the nodes below it that apply (`_children`, by the keys of `schema`)
    and those that only references lead to (`_kept`, by the keys of `raw`), where `$ref` leads (`_target`),
    and where a dynamic reference starts and which dynamic anchor it looks for (`_start`).
    """

    __slots__ = (
        *("raw", "schema", "number", "resource", "draft", "depth"),
        *("_above", "_path", "_children", "_kept", "_target", "_start"),
    )

    def __init__(
        self, raw: Any, number: int, resource: int, draft: Draft, above: Node | None, path: Path
    ) -> None:
        self.raw = raw
        self.schema: Mapping[str, Any] | bool = raw
        self.number = number
        self.resource = resource
        self.draft = draft
        self.depth: int = 0 if above is None else above.depth + 1
        self._above = above
        self._path = path  # from the node above; of a node at the top: what its pointers begin with
        self._children: dict[Path, Node] = {}
        self._kept: dict[Path, Node] | None = None
        self._target: Node | None = None
        self._start: tuple[Node, str | None] | None = None

    @property
    def pointer(self) -> str:
        """Where it stands: a JSON Pointer (RFC 6901) after `#`, or after the URI of a metaschema.

        Keys of over 256 characters are cut.
        """
        return self.place()

    @property
    def brief(self) -> str:
        """`pointer` as messages show it: a long one without its middle."""
        return brief_place(self.pointer)

    def place(self, *below: str | int) -> str:
        """The pointer of something below it."""
        steps = [_step(token) for token in reversed(below)]
        node = self
        while node._above is not None:
            steps.extend(_step(token) for token in reversed(node._path))
            node = node._above
        return str(node._path[0]) + "".join(reversed(steps))

    def malformed(self, key: str | int, why: str) -> InvalidConstraint:
        """The error for one of its keywords."""
        return InvalidConstraint(f"{brief_place(self.place(key))}: {why}", field="schema")

    def keep(self, path: Path, node: Node) -> None:
        """Have a node below it that only references lead to."""
        if self._kept is None:
            self._kept = {}
        self._kept[path] = node

    def kept(self, path: Path) -> Node | None:
        """A node below it that only references lead to."""
        return None if self._kept is None else self._kept.get(path)

    def below(self) -> Iterable[Node]:
        """All nodes right below it."""
        return (*self._children.values(), *(self._kept or {}).values())

    def __repr__(self) -> str:
        return f"Node({self.number}, {self.pointer!r})"


def _step(token: str | int) -> str:
    if isinstance(token, str):
        token = token if len(token) <= _MAX_STEP else token[:_MAX_STEP] + "..."
        token = token.replace("~", "~0").replace("/", "~1")
    return f"/{token}"


class Places(Mapping[str, str]):
    """What is in use, and the pointer of its first place, which is worked out when it is asked for."""

    def __init__(self, found: dict[str, tuple[Node, Path]]) -> None:
        self._found = found

    def __getitem__(self, name: str) -> str:
        node, path = self._found[name]
        return node.place(*path)

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)
