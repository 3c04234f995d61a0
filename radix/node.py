"""Nodes of the radix tree, and the walk that finds the longest cached prefix.

Token ids are handled as packed bytes, eight a token: a page's key hashes fast, a long edge compares
with one memcmp, and a token that is no integer is refused before anything changes. A node's edge
holds one or more full pages; a *tail* is a node of one page that is not full. Children are found by the bytes
of their first page, so that of an edge of one page nothing else need be read. Where they are many, the same
keys are also kept sorted, because the key that shares the longest prefix with a query stands next to the
query's place in sorted order.

Most of the time that a walk takes goes to memory that is in no cache of the processor: a node is as few
objects as can be.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Hashable, Sequence
from math import inf
from typing import NamedTuple

TOKEN_BYTES = array("q").itemsize
UNUSED = -inf  # the rank of a node that no lease has used to its end
FEW = 8  # children whose keys are not kept sorted


def pack(tokens: Sequence[int]) -> bytes:
    """The token ids as native 64-bit integers. TypeError or OverflowError for what is no such integer."""
    if isinstance(tokens, array) and tokens.typecode == "q":
        return tokens.tobytes()
    if isinstance(tokens, bytes | bytearray):  # a sequence of small integers, not packed already
        tokens = list(tokens)
    return array("q", tokens).tobytes()


def common_prefix(a: bytes, start: int, b: bytes | bytearray) -> int:
    """Length in bytes of the longest common prefix of a[start:] and b, cut to whole tokens."""
    if a[start : start + TOKEN_BYTES] != b[:TOKEN_BYTES]:
        return 0  # as it mostly is where paths part
    low, high = 0, min(len(a) - start, len(b)) // TOKEN_BYTES
    while low < high:
        middle = (low + high + 1) // 2
        i, j = low * TOKEN_BYTES, middle * TOKEN_BYTES
        if a[start + i : start + j] == b[i:j]:
            low = middle
        else:
            high = middle - 1
    return low * TOKEN_BYTES


class Node:
    """One edge of the tree and what hangs below it.

    `tokens` are the packed tokens of `pages`, `key` those of the first page, by which the parent finds this
    node: one object, where there is one page. `locks` counts the leases that end here, those whose partial
    page this is, and the children that have locks. A lease always ends at the end of an edge. `rank`,
    `unlocked` (the time when the last lease that ended here went) and `place` are the order of eviction's.
    `order` has the children's keys, sorted, once they are more than `FEW`; `num_tails` counts those that are
    tails. `digests`, of the first pages or of none, are the second tier's.
    """

    __slots__ = (
        "children",
        "digests",
        "key",
        "locks",
        "num_tails",
        "order",
        "pages",
        "parent",
        "place",
        "rank",
        "tokens",
        "unlocked",
    )

    def __init__(
        self,
        parent: Node | None,
        key: bytes,
        tokens: bytes | bytearray,
        pages: list[int],
        *,
        locks: int = 0,
    ) -> None:
        self.parent = parent
        self.key = key
        self.tokens = key if len(tokens) == len(key) else tokens
        self.pages = pages
        self.locks = locks
        self.rank = UNUSED
        self.digests: list[bytes] | None = None
        self.num_tails = 0
        self.unlocked = 0
        self.place: tuple[float, int, int, Node] | None = None
        self.children: dict[bytes, Node] = {}
        self.order: list[bytes] | None = None

    def attach(self, child: Node) -> None:
        """Hang a child below this node; no child has its key yet."""
        self.children[child.key] = child
        if self.order is not None:
            insort(self.order, child.key)
        elif len(self.children) > FEW:
            self.order = sorted(self.children)

    def detach(self, child: Node) -> None:
        """Take a child away."""
        del self.children[child.key]
        if self.order is not None:
            del self.order[bisect_left(self.order, child.key)]
            if not self.order:
                self.order = None

    def grow(self, run: bytes, pages: Sequence[int]) -> None:
        """Make the edge longer by full pages and their packed tokens."""
        if not isinstance(self.tokens, bytearray):
            self.tokens = bytearray(self.tokens)
        self.tokens += run
        self.pages.extend(pages)

    def trim(self, keep: int, page_bytes: int) -> None:
        """Make the edge shorter: its first `keep` pages stay, at least one."""
        del self.pages[keep:]
        self.tokens = self.key if keep == 1 else self.tokens[: keep * page_bytes]
        if self.digests is not None:
            del self.digests[keep:]

    def split(self, at: int, page_bytes: int) -> Node:
        """Cut the edge before page `at` (0 < at < len(pages)); the new node above is returned.

        This node stays the lower part, so that leases that end here still do.
        """
        assert self.parent is not None  # a root has no pages, so no place to cut
        cut = at * page_bytes
        upper = Node(self.parent, self.key, self.tokens[:cut], self.pages[:at], locks=int(self.locks > 0))
        if self.digests is not None:
            upper.digests, self.digests = self.digests[:at], self.digests[at:]
        self.parent.children[self.key] = upper
        self.parent = upper
        self.key = bytes(self.tokens[cut : cut + page_bytes])
        self.tokens = self.key if at == len(self.pages) - 1 else self.tokens[cut:]
        self.pages = self.pages[at:]
        upper.attach(self)
        return upper

    def closest(self, rest: bytes) -> tuple[Node | None, int]:
        """The child whose first page shares most with `rest` (at most a page), and how many bytes."""
        order = sorted(self.children) if self.order is None else self.order
        place = bisect_left(order, rest)
        best, length = None, 0
        for key in order[max(place - 1, 0) : place + 1]:
            common = common_prefix(rest, 0, key)
            if common > length:
                best, length = self.children[key], common
        return best, length


class Root(Node):
    """The root of one namespace: no pages of its own; `locks` counts the namespace's leases."""

    __slots__ = ("namespace",)

    def __init__(self, namespace: Hashable) -> None:
        super().__init__(None, b"", b"", [])
        self.namespace = namespace


class Match(NamedTuple):
    """Where a query leaves the tree.

    The first `used` pages of `node`'s edge match (all of them, unless it leaves inside the edge), `pages`
    are all full pages on the way there. `donor_tokens` more tokens match the page that follows: the
    first page of `donor`, or page `used` of `node` itself if `donor is node`.
    """

    node: Node
    used: int
    pages: list[int]
    donor: Node | None
    donor_tokens: int

    @property
    def all_pages(self) -> list[int]:
        """`pages`, and the one that the partial match can be copied from."""
        if self.donor is None:
            return self.pages
        return [*self.pages, self.donor.pages[self.used if self.donor is self.node else 0]]


def match(start: Node, query: bytes, page_bytes: int, *, partial: bool = True) -> Match:
    """Follow the packed tokens down from the end of `start`'s edge. Changes nothing.

    `partial=False` looks for full pages only.
    """
    node, place = start, 0
    pages: list[int] = []
    last = len(query) - page_bytes  # a tail's key is shorter than a page, so only full pages are found
    while place <= last:
        child = node.children.get(query[place : place + page_bytes])
        if child is None:
            break
        edge = child.pages
        if len(edge) == 1:
            place += page_bytes
        elif query.startswith(child.tokens, place):
            place += len(child.tokens)
        else:
            length = common_prefix(query, place, child.tokens)
            used, left = divmod(length, page_bytes)
            pages += edge[:used]
            return Match(child, used, pages, child if left else None, left // TOKEN_BYTES)
        pages += edge
        node = child
    donor, length = None, 0
    if partial and node.children and place < len(query):
        donor, length = node.closest(query[place : place + page_bytes])
    return Match(node, len(node.pages), pages, donor, length // TOKEN_BYTES)
