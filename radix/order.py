"""The order of eviction: which unlocked node gives its pages first.

Each node has a rank, raised when a lease that ran through it ends; the lowest rank goes first, among equals
the one unlocked longest ago.

    lru        ranks stay as they are: only age counts
    lfu        how many leases have used the node
    priority   the highest priority of the leases that have used it

A lease that uses a node uses all above it, so a node's rank is never below its child's; and a path is
unlocked from its end to its root. So under each policy a node stands before its parent, and the first is
always a leaf. `add`, `remove` and `first` cost O(log r) for r different ranks, amortised; O(1) for lru.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from typing import Literal, get_args

from treille.radix.node import Node

Eviction = Literal["lru", "lfu", "priority"]

_RAISED: Mapping[Eviction, Callable[[float, int], float]] = {
    "lru": lambda rank, priority: rank,
    "lfu": lambda rank, priority: max(rank, 0) + 1,
    "priority": max,
}
# Ranks that no node has any more stay in the heap until they are so many more than those in use.
_SLACK = 16


class EvictionOrder:
    """The unlocked nodes, in the order in which they would be evicted."""

    def __init__(self, policy: Eviction) -> None:
        """Raises ValueError for a policy that does not exist."""
        if policy not in get_args(Eviction):
            raise ValueError(f"eviction must be {', '.join(get_args(Eviction))}, not {policy!r}")
        self._raised = _RAISED[policy]
        self._levels: dict[float, OrderedDict[Node, None]] = {}
        self._heap: list[float] = []

    def raise_rank(self, node: Node, priority: int) -> None:
        """A lease with this priority has used the node, which is locked."""
        node.rank = self._raised(node.rank, priority)

    def add(self, node: Node) -> None:
        """The node is unlocked now; its rank stays until it is removed."""
        level = self._levels.get(node.rank)
        if level is None:
            level = self._levels[node.rank] = OrderedDict()
            heappush(self._heap, node.rank)
            if len(self._heap) > 2 * len(self._levels) + _SLACK:
                self._heap = list(self._levels)
                heapify(self._heap)
        level[node] = None

    def remove(self, node: Node) -> None:
        """The node is locked again, or gone."""
        level = self._levels[node.rank]
        del level[node]
        if not level:
            del self._levels[node.rank]

    def first(self) -> Node:
        """The node to evict first; there is one."""
        while self._heap[0] not in self._levels:
            heappop(self._heap)
        return next(iter(self._levels[self._heap[0]]))

    def __iter__(self) -> Iterator[Node]:
        """All of them, in order."""
        for rank in sorted(self._levels):
            yield from self._levels[rank]
