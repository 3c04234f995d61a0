"""Nodes: the places of a document where a schema stands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from treille.runtime.errors import InvalidConstraint
from treille.runtime.schema.drafts import Draft

Path = tuple[str | int, ...]


class Node:
    """A schema and where it stands. Equal only to itself; its public fields are settled once its document is read.

    `schema`: its keywords in the dialect of `Document`, or a boolean. It may be the caller's own mapping, which
    must not be changed. `number`: its own in the document, from 0 in order of discovery. `resource`: the number of
    the schema resource (what has one base URI) it is in.
    """

    __slots__ = (
        "_above", "_children", "_dynamic", "_kept", "_path", "_target", "depth", "draft", "number", "raw", "resource", "schema",
    )  # fmt: skip

    def __init__(
        self, raw: Any, number: int, resource: int, draft: Draft, above: Node | None, path: Path
    ) -> None:
        self.raw = raw  # as the document has it: a mapping or a boolean
        self.schema: Mapping[str, Any] | bool = raw
        self.number = number
        self.resource = resource
        self.draft = draft
        self.depth: int = 0 if above is None else above.depth + 1
        self._above = above
        self._path = path  # from the node above; of a node at the top: what its pointers begin with
        self._children: dict[Path, Node] = {}  # by the keys of `schema`
        self._kept: dict[
            Path, Node
        ] = {}  # schemas below it that do not apply by themselves, by the keys of `raw`
        self._target: Node | None = None  # of `$ref`
        self._dynamic: tuple[Node, str | None] | None = (
            None  # where to start, and the dynamic anchor to look for
        )

    @property
    def pointer(self) -> str:
        """Where it stands: a JSON Pointer (RFC 6901) with `#` in front; after the URI, in a metaschema."""
        return self.place()

    def place(self, *below: str | int) -> str:
        """The pointer of something below it."""
        parts: list[str] = [step(token) for token in below]
        node = self
        while node._above is not None:
            parts[:0] = [step(token) for token in node._path]
            node = node._above
        return "".join((str(node._path[0]), *parts))

    def malformed(self, key: str | int, why: str) -> InvalidConstraint:
        """The error for one of its keywords."""
        return InvalidConstraint(f"{self.place(key)}: {why}", field="schema")

    def __repr__(self) -> str:
        return f"Node({self.number}, {self.pointer!r})"


def step(token: str | int) -> str:
    """A token of a JSON Pointer, with the slash before it."""
    return f"/{token}" if isinstance(token, int) else "/" + token.replace("~", "~0").replace("/", "~1")


class Places(Mapping[str, str]):
    """What is in use and the pointer of its first place, which is worked out when it is asked for."""

    def __init__(self, found: dict[str, tuple[Node, Path]]) -> None:
        self._found = found

    def __getitem__(self, name: str) -> str:
        node, path = self._found[name]
        return node.place(*path)

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)
