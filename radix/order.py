"""The order of eviction: which unlocked leaf gives its pages first.

Each node has a rank, raised when a lease that ran through it ends; the lowest rank goes first, among equals
the one unlocked longest ago.

    lru        ranks stay as they are: only age counts
    lfu        how many leases have used the node
    priority   the highest priority of the leases that have used it

A lease that uses a node uses all above it, but its end alone takes note: what a node is owed by its children
it is given as each of them goes. Since a node never goes before its children, only unlocked leaves need to be
kept in order; a node joins them when its last child goes.

Most leaves join as the last in order: those stand in a queue, the others in a heap. Leaves that were locked
or evicted are left in both until there are as many of them as of others. `add`, `remove` and `first` cost
O(log n) for n leaves, amortised.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from heapq import heappop, heappush
from operator import itemgetter
from typing import Literal, get_args

from treille.radix.node import UNUSED, Node

Eviction = Literal["lru", "lfu", "priority"]

# What a node's rank becomes when a lease of a priority has used it, and when a child goes.
_RAISED: Mapping[Eviction, Callable[[float, int], float]] = {
    "lfu": lambda rank, priority: max(rank, 0) + 1,
    "priority": max,
}
_JOINED: Mapping[Eviction, Callable[[float, float], float]] = {
    "lfu": lambda rank, child: max(rank, 0) + max(child, 0) if max(rank, child) > UNUSED else UNUSED,
    "priority": max,
}
_SLACK = 16  # so many stale entries are always allowed

Place = tuple[float, int, int, Node]


class EvictionOrder:
    """The unlocked leaves, in the order in which they would be evicted."""

    def __init__(self, policy: Eviction) -> None:
        """Raises ValueError for a policy that does not exist."""
        if policy not in get_args(Eviction):
            raise ValueError(f"eviction must be {', '.join(get_args(Eviction))}, not {policy!r}")
        self._raised = None if policy == "lru" else _RAISED[policy]
        self._joined = None if policy == "lru" else _JOINED[policy]
        self._queue: deque[Place] = deque()
        self._heap: list[Place] = []
        self._num_leaves = 0
        self._clock = 0

    def tick(self) -> int:
        """A new time, later than all before."""
        self._clock += 1
        return self._clock

    def used(self, node: Node, priority: int | None) -> None:
        """A lease with this priority that ended at the node has gone; None: one that counts for age alone."""
        self._clock += 1
        node.unlocked = self._clock
        if priority is not None and self._raised is not None:
            node.rank = self._raised(node.rank, priority)

    def joined(self, rank: float, below: float) -> float:
        """What the rank of a node becomes when a child of rank `below` goes."""
        return rank if self._joined is None else self._joined(rank, below)

    def add(self, node: Node) -> None:
        """The node is an unlocked leaf now; its rank and time stay until it is removed."""
        # The third only keeps nodes of equal age from being compared: all but one of them are stale.
        place = node.place = node.rank, node.unlocked, id(node), node
        queue = self._queue
        self._num_leaves += 1
        if not queue or queue[-1] < place:
            queue.append(place)
        else:
            heappush(self._heap, place)
        if len(queue) + len(self._heap) > 2 * self._num_leaves + _SLACK:
            self._queue = deque(self._places())
            self._heap = []

    def remove(self, node: Node) -> None:
        """The node is locked again, or gone."""
        node.place = None
        self._num_leaves -= 1

    def gone(self, node: Node, parent: Node) -> None:
        """A leaf is dropped: its parent counts as used when it was."""
        node.place = None
        self._num_leaves -= 1
        if node.unlocked > parent.unlocked:
            parent.unlocked = node.unlocked
        if self._joined is not None:
            parent.rank = self._joined(parent.rank, node.rank)

    def first(self) -> Node:
        """The leaf to evict first; there is one."""
        queue, heap = self._queue, self._heap
        while queue and queue[0][3].place is not queue[0]:
            queue.popleft()
        while heap and heap[0][3].place is not heap[0]:
            heappop(heap)
        if queue and (not heap or queue[0] < heap[0]):
            return queue[0][3]
        return heap[0][3]

    def __iter__(self) -> Iterator[Node]:
        """All of them, in order."""
        return (place[3] for place in self._places())

    def _places(self) -> list[Place]:
        living = [place for place in (*self._queue, *self._heap) if place[3].place is place]
        living.sort(key=itemgetter(0, 1))
        return living
