"""Nodes of the radix tree, and the walk that finds the longest cached prefix.

Token ids are handled as packed bytes, eight a token: a page's key hashes fast, a long edge compares
with one memcmp, and a token that is no integer is refused before anything changes. A node's edge
holds one or more full pages; a *tail* is a node of one page that is not full. Children are found by the bytes
of their first page. The same keys are also kept sorted, because the key that shares the longest prefix
with a query stands next to the query's place in sorted order.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Hashable, Sequence
from math import inf
from typing import NamedTuple

TOKEN_BYTES = array("q").itemsize
UNUSED = -inf  # the rank of a node that no lease has used to its end


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

    `tokens` are the packed tokens of `pages`. `locks` counts the leases whose path runs through or ends
    here, and those whose partial page this is. A lease always ends at the end of an edge. `rank`, `unlocked`
    (the time when the last lock went) and `place` are the order of eviction's. `num_tails` counts the
    children that are tails. `digests`, of the first pages or of none, are the second tier's.
    """

    __slots__ = (
        "children",
        "digests",
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
        tokens: bytes | bytearray,
        pages: list[int],
        *,
        locks: int = 0,
        rank: float = UNUSED,
    ) -> None:
        self.parent = parent
        self.tokens = bytearray(tokens)
        self.pages = pages
        self.locks = locks
        self.rank = rank
        self.digests: list[bytes] = []
        self.num_tails = 0
        self.unlocked = 0
        self.place: tuple[float, int, int, Node] | None = None
        self.children: dict[bytes, Node] = {}
        self.order: list[bytes] = []

    def attach(self, key: bytes, child: Node) -> None:
        """Hang a child below this node; no child has this key yet."""
        self.children[key] = child
        insort(self.order, key)

    def detach(self, key: bytes) -> None:
        """Take the child with this key away."""
        del self.children[key]
        del self.order[bisect_left(self.order, key)]

    def split(self, at: int, page_bytes: int) -> Node:
        """Cut the edge before page `at` (0 < at < len(pages)); the new node above is returned.

        This node stays the lower part, so that leases that end here still do.
        """
        assert self.parent is not None  # a root has no pages, so no place to cut
        cut = at * page_bytes
        upper = Node(self.parent, self.tokens[:cut], self.pages[:at], locks=self.locks, rank=self.rank)
        upper.unlocked = self.unlocked
        upper.digests, self.digests = self.digests[:at], self.digests[at:]
        self.parent.children[bytes(upper.tokens[:page_bytes])] = upper
        self.parent = upper
        self.tokens = self.tokens[cut:]
        self.pages = self.pages[at:]
        upper.attach(bytes(self.tokens[:page_bytes]), self)
        return upper

    def closest(self, rest: bytes) -> tuple[Node | None, int]:
        """The child whose first page shares most with `rest` (at most a page), and how many bytes."""
        best, length = None, 0
        place = bisect_left(self.order, rest)
        for key in self.order[max(place - 1, 0) : place + 1]:
            common = common_prefix(rest, 0, key)
            if common > length:
                best, length = self.children[key], common
        return best, length


class Root(Node):
    """The root of one namespace: no pages of its own; `locks` counts the namespace's leases."""

    __slots__ = ("namespace",)

    def __init__(self, namespace: Hashable) -> None:
        super().__init__(None, b"", [])
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
    while True:
        rest = query[place : place + page_bytes]
        # A tail's key is shorter than a page, so only full pages can be found here.
        child = node.children.get(rest) if len(rest) == page_bytes else None
        if child is None:
            donor, length = node.closest(rest) if partial and node.order and rest else (None, 0)
            return Match(node, len(node.pages), pages, donor, length // TOKEN_BYTES)
        if not query.startswith(child.tokens, place):
            length = common_prefix(query, place, child.tokens)
            used, left = divmod(length, page_bytes)
            pages.extend(child.pages[:used])
            return Match(child, used, pages, child if left else None, left // TOKEN_BYTES)
        place += len(child.tokens)
        pages.extend(child.pages)
        node = child
