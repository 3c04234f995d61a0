"""The radix tree: namespaces, locks, insertion and eviction.

**Order of eviction.** A node is in use while a lease locks it, and was last used when its last lock went.
Unlocked leaves stand in the order that `order.py` states: a node never goes before its children. Eviction
takes pages from the end of the first leaf's edge, as many as are needed, then goes on with the next. A page
costs O(log n) for n leaves at most.

An edge is cut where a lease or another path leaves it, and stays cut: the two parts are of different
age and rank from then on. So there are at most as many nodes as cached pages, and a sequence alone is
one node.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence

from treille.radix.host import HostTier
from treille.radix.node import TOKEN_BYTES, UNUSED, Match, Node, Root, match
from treille.radix.order import Eviction, EvictionOrder
from treille.radix.pool import PagePool


class RadixTree:
    """Trees over packed tokens, one a namespace, that hold cached pages of `pool`.

    Callers check their arguments; methods here always succeed.
    """

    def __init__(self, pool: PagePool, page_size: int, eviction: Eviction) -> None:
        self.pool = pool
        self.page_bytes = page_size * TOKEN_BYTES
        self.num_locked = 0
        self.roots: dict[Hashable, Root] = {}
        self.leaves = EvictionOrder(eviction)

    def find(self, namespace: Hashable, query: bytes) -> Match | None:
        """The longest cached prefix of the packed tokens, or None for an empty namespace. Changes nothing."""
        root = self.roots.get(namespace)
        return None if root is None else match(root, query, self.page_bytes)

    def acquire(self, namespace: Hashable, query: bytes) -> tuple[Node, Node | None, Match]:
        """Lock the longest cached prefix.

        Returns the node it ends at, the one-page node of the partial page if there is one, and the match.
        """
        root = self.roots.get(namespace)
        if root is None:
            root = self.roots[namespace] = Root(namespace)
        found = match(root, query, self.page_bytes)
        end = self._cut(found.node, found.used)
        self._lock(end, None)
        donor = None
        if found.donor is not None:
            donor = self._cut(found.donor, 1)
            self._lock(donor, donor.parent)
        return end, donor, found

    def insert(self, end: Node, run: bytes, pages: Sequence[int]) -> tuple[Node, list[int]]:
        """Give owned full pages to the tree below the locked node `end`, and move the lock to where they end.

        `run` holds the packed tokens of `pages`. Returns the new end and, for each page, the tree's page:
        where the tree already has an equal one, ours becomes free.
        """
        found = match(end, run, self.page_bytes, partial=False)
        node = found.node
        if node is not end:
            node = self._cut(node, found.used)
            self._lock(node, end)
        known = len(found.pages)
        self.pool.give(pages[:known])
        fresh = pages[known:]
        if fresh:
            self.pool.adopt(fresh)
            node = self._append(node, run[known * self.page_bytes :], fresh)
        return node, [*found.pages, *fresh]

    def insert_tail(self, end: Node, tail: bytes, page: int, priority: int | None) -> None:
        """Give an owned, not full page to the tree below the locked node `end`, and count the use as
        `unlock` does.

        It is dropped where a sibling begins with the same tokens; that sibling then counts as used now.
        Unlocked tails that it extends are dropped instead.
        """
        place = bisect_left(end.order, tail)
        if place < len(end.order) and end.order[place].startswith(tail):
            self.pool.give([page])
            sibling = self._cut(end.children[end.order[place]], 1)
            self._lock(sibling, end)
            self.unlock(sibling, end, priority)
            return
        self._drop_covered(end, tail)
        self.pool.adopt([page])
        node = Node(end, tail, [page])
        end.attach(tail, node)
        end.num_tails += 1
        if priority is not None:
            self.leaves.raise_rank(node, priority)
        node.unlocked = self.leaves.tick()
        self.leaves.add(node)

    def unlock(self, node: Node, stop: Node | None, priority: int | None) -> None:
        """Take one lock from each node from `node` up to, not including, `stop` (None: up to the root).

        That counts as a use by a lease of this `priority`; None: as none.
        """
        now = self.leaves.tick()
        at: Node | None = node
        while at is not None and at is not stop:
            at.locks -= 1
            if priority is not None:
                self.leaves.raise_rank(at, priority)
            if at.parent is None:
                self._prune(at)
            elif at.locks == 0:
                self.num_locked -= len(at.pages)
                at.unlocked = now
                if not at.children:
                    self.leaves.add(at)
            at = at.parent

    def evict(self, num_pages: int, host: HostTier | None = None) -> None:
        """Free pages in the order stated above, and show them to `host` first; as many are unlocked."""
        while num_pages > 0:
            node = self.leaves.first()
            taken = min(num_pages, len(node.pages))
            num_pages -= taken
            if host is not None:
                host.keep(node, taken)
            self._trim(node, taken)

    def _append(self, end: Node, run: bytes, pages: Sequence[int]) -> Node:
        """Hang full pages that no child begins with below the locked node `end`; they get one lock."""
        first = run[: self.page_bytes]
        self._drop_covered(end, first)
        self.num_locked += len(pages)
        if end.locks == 1 and end.rank == UNUSED and not end.children and end.parent is not None:
            # Only the caller's lease was ever here: the edge can grow, and a sequence alone is one node.
            end.tokens += run
            end.pages.extend(pages)
            return end
        node = Node(end, run, list(pages), locks=1)
        end.attach(first, node)
        return node

    def _drop_covered(self, parent: Node, key: bytes) -> None:
        """Drop the unlocked tails below `parent` that a new child with this key extends."""
        if not parent.num_tails:
            return
        for length in range(TOKEN_BYTES, len(key), TOKEN_BYTES):
            tail = parent.children.get(key[:length])
            if tail is not None and tail.locks == 0:
                self._trim(tail, 1)

    def _cut(self, node: Node, at: int) -> Node:
        """The node that ends after page `at` of this node's edge; the caller locks it at once."""
        if at == len(node.pages):
            return node
        return node.split(at, self.page_bytes)

    def _lock(self, node: Node, stop: Node | None) -> None:
        at: Node | None = node
        while at is not None and at is not stop:
            if at.locks == 0 and at.parent is not None:
                self.num_locked += len(at.pages)
                if not at.children:
                    self.leaves.remove(at)
            at.locks += 1
            at = at.parent

    def _trim(self, leaf: Node, num_pages: int) -> None:
        """Take the last pages from an unlocked leaf, and the leaf itself with its last page."""
        keep = len(leaf.pages) - num_pages
        self.pool.reclaim(leaf.pages[keep:])
        if keep:
            del leaf.pages[keep:]
            del leaf.tokens[keep * self.page_bytes :]
            del leaf.digests[keep:]
            return
        self.leaves.remove(leaf)
        parent = leaf.parent
        assert parent is not None  # roots never stand in the order of eviction
        parent.detach(bytes(leaf.tokens[: self.page_bytes]))
        parent.num_tails -= len(leaf.tokens) < self.page_bytes
        if parent.parent is None:
            self._prune(parent)
        elif not parent.locks and not parent.children:
            self.leaves.add(parent)

    def _prune(self, node: Node) -> None:
        """Forget a namespace that has neither pages nor leases."""
        if isinstance(node, Root) and node.locks == 0 and not node.children:
            del self.roots[node.namespace]
