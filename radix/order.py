"""The order of eviction: which unlocked leaf gives its pages first.

Each node has a rank, raised when a lease that ran through it ends; the lowest rank goes first, among equals
the one unlocked longest ago.

    lru        ranks stay as they are: only age counts
    lfu        how many leases have used the node
    priority   the highest priority of the leases that have used it

A lease that uses a node uses all above it, and unlocks them together: a node is never of lower rank or
unlocked longer ago than its child. So the first of the leaves is the first of all unlocked nodes, and only
leaves are kept in order; a node joins them when its last child goes. `add`, `remove` and `first` cost
O(log n) for n leaves, amortised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from operator import itemgetter
from typing import Literal, get_args

from treille.radix.node import Node

Eviction = Literal["lru", "lfu", "priority"]

_RAISED: Mapping[Eviction, Callable[[float, int], float]] = {
    "lfu": lambda rank, priority: max(rank, 0) + 1,
    "priority": max,
}
# Leaves that were locked or evicted stay in the heap until there are so many more of them than of others.
_SLACK = 16


class EvictionOrder:
    """The unlocked leaves, in the order in which they would be evicted."""

    def __init__(self, policy: Eviction) -> None:
        """Raises ValueError for a policy that does not exist."""
        if policy not in get_args(Eviction):
            raise ValueError(f"eviction must be {', '.join(get_args(Eviction))}, not {policy!r}")
        self._raised = None if policy == "lru" else _RAISED[policy]
        self._heap: list[tuple[float, int, int, Node]] = []
        self._num_leaves = 0
        self._clock = 0

    def tick(self) -> int:
        """A new time, later than all before."""
        self._clock += 1
        return self._clock

    def raise_rank(self, node: Node, priority: int) -> None:
        """A lease with this priority has used the node, which is locked."""
        if self._raised is not None:
            node.rank = self._raised(node.rank, priority)

    def add(self, node: Node) -> None:
        """The node is an unlocked leaf now; its rank and time stay until it is removed."""
        # The third only keeps nodes of equal age from being compared: all but one of them are stale.
        node.place = node.rank, node.unlocked, id(node), node
        self._num_leaves += 1
        heappush(self._heap, node.place)
        if len(self._heap) > 2 * self._num_leaves + _SLACK:
            self._heap = [entry for entry in self._heap if entry[3].place is entry]
            heapify(self._heap)

    def remove(self, node: Node) -> None:
        """The node is locked again, or gone."""
        node.place = None
        self._num_leaves -= 1

    def first(self) -> Node:
        """The leaf to evict first; there is one."""
        heap = self._heap
        while heap[0][3].place is not heap[0]:
            heappop(heap)
        return heap[0][3]

    def __iter__(self) -> Iterator[Node]:
        """All of them, in order."""
        return (entry[3] for entry in sorted(self._heap, key=itemgetter(0, 1)) if entry[3].place is entry)
