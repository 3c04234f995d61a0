"""The second tier: full pages that were evicted move to slots of host memory, and back when they match.

A page in a slot is found by its namespace and a digest of all tokens up to its end: BLAKE2b, chained page by
page, so that no tokens can be made to look like others. Deeper pages of a path are evicted first, so the
slot filled longest ago holds a page that nothing else here is the prefix of; it is what a full tier drops.
A page that comes back leaves its slot: it is in one place at a time, unless it was computed anew meanwhile.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from hashlib import blake2b
from typing import Protocol

from treille.radix.errors import PageError
from treille.radix.node import Node, Root

Key = tuple[Hashable, bytes]


class HostMemory(Protocol):
    """Copies pages; the runtime's part of the tier."""

    def store(self, page: int, slot: int) -> None:
        """Copy a page of the pool to a slot; the page may be overwritten afterwards."""
        ...

    def load(self, slot: int, page: int) -> None:
        """Copy a slot back to a page; the slot may be overwritten afterwards."""
        ...


class HostTier:
    """Which page is in which slot. Costs O(1) a page, and a digest of its tokens."""

    def __init__(self, memory: HostMemory, num_slots: int, page_bytes: int) -> None:
        """`page_bytes` are the packed tokens of a page. Raises ValueError without a slot."""
        if num_slots < 1:
            raise ValueError(f"host memory needs at least one slot, not {num_slots}")
        self.num_slots = num_slots
        self._memory = memory
        self._page_bytes = page_bytes
        self._slots: OrderedDict[Key, int] = OrderedDict()
        self._free = list(range(num_slots - 1, -1, -1))

    @property
    def num_used(self) -> int:
        """Slots that hold a page."""
        return len(self._slots)

    def keep(self, node: Node, num_pages: int) -> None:
        """Store the last pages of an edge, which are about to be evicted; of a tail nothing."""
        if len(node.tokens) % self._page_bytes:
            return
        namespace = _namespace(node)
        digests = self._digests(node)
        for at in range(len(node.pages) - 1, len(node.pages) - num_pages - 1, -1):
            key = namespace, digests[at]
            if key in self._slots:
                self._slots.move_to_end(key)
                continue
            if not self._free:
                if not self._slots:
                    return  # all slots are on their way back
                self._free.append(self._slots.popitem(last=False)[1])
            self._memory.store(node.pages[at], self._free[-1])
            self._slots[key] = self._free.pop()

    def follow(self, namespace: Hashable, node: Node | None, used: int, run: bytes) -> list[Key]:
        """The pages in slots that go on with the packed tokens `run` after `used` pages of a node's edge
        (None: at the start). Changes nothing."""
        if not self._slots or len(run) < self._page_bytes:
            return []
        last = b"" if node is None or not node.pages else self._digests(node)[used - 1]
        found: list[Key] = []
        for start in range(0, len(run) - self._page_bytes + 1, self._page_bytes):
            last = _digest(last, run[start : start + self._page_bytes])
            if (namespace, last) not in self._slots:
                break
            found.append((namespace, last))
        return found

    def take(self, keys: Sequence[Key]) -> list[int]:
        """The slots of these pages, which are not found any more until `give` is told."""
        return [self._slots.pop(key) for key in keys]

    def load(self, slots: Sequence[int], pages: Sequence[int]) -> None:
        """Copy taken slots to pages of the pool."""
        for slot, page in zip(slots, pages, strict=True):
            self._memory.load(slot, page)

    def give(self, slots: Sequence[int]) -> None:
        """Make taken slots free."""
        self._free.extend(reversed(slots))

    def clear(self) -> None:
        """Forget every page."""
        self._free.extend(self._slots.values())
        self._slots.clear()

    def check(self) -> None:
        """Raise PageError if a slot is lost, or is in two places."""
        if sorted([*self._free, *self._slots.values()]) != list(range(self.num_slots)):
            raise PageError("a slot of host memory is lost, or is in two places")

    def _digests(self, node: Node) -> list[bytes]:
        """For each page of an edge, the digest of all tokens up to its end. Kept on the nodes."""
        size = self._page_bytes
        missing: list[Node] = []
        at: Node | None = node
        while at is not None and len(at.digests or ()) < len(at.pages):
            missing.append(at)
            at = at.parent
        for one in reversed(missing):
            found = one.digests = one.digests or []
            above = found or (one.parent.digests if one.parent is not None else None)
            last = above[-1] if above else b""
            for start in range(len(found) * size, len(one.tokens), size):
                last = _digest(last, bytes(one.tokens[start : start + size]))
                found.append(last)
        return node.digests or []


def _digest(above: bytes, page: bytes) -> bytes:
    return blake2b(above + page, digest_size=32).digest()


def _namespace(node: Node) -> Hashable:
    while node.parent is not None:
        node = node.parent
    if not isinstance(node, Root):
        raise PageError("a node hangs below no root")
    return node.namespace
