"""The radix tree: namespaces, locks, insertion and eviction.

**Locks.** A node is in use while a lease ends at it, or at one below it. Each node counts its own leases and
its children in use, so that a lease changes the nodes up to the first that is in use anyway.

**Order of eviction.** Unlocked leaves stand in the order that `order.py` states: a node never goes before its
children. Eviction takes pages from the end of the first leaf's edge, as many as are needed, then goes on with
the next. A page costs O(log n) for n leaves at most.

An edge is cut where a lease or another path leaves it, and stays cut: the two parts are of different
age and rank from then on. So there are at most as many nodes as cached pages, and a sequence alone is
one node.
"""

from __future__ import annotations

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
        self._lock(end)
        donor = None
        if found.donor is not None:
            donor = self._cut(found.donor, 1)
            self._lock(donor)
        return end, donor, found

    def insert(self, end: Node, run: bytes, pages: Sequence[int]) -> tuple[Node, list[int]]:
        """Give owned full pages to the tree below the locked node `end`, and move the lock to where they end.

        `run` holds the packed tokens of `pages`. Returns the new end and, for each page, the tree's page:
        where the tree already has an equal one, ours becomes free.
        """
        if not pages:
            return end, []
        if run[: self.page_bytes] not in end.children:
            self.pool.adopt(pages)
            return self._append(end, run, pages), list(pages)
        found = match(end, run, self.page_bytes, partial=False)
        node = self._cut(found.node, found.used)
        self._lock(node)
        end.locks -= 1
        known = len(found.pages)
        self.pool.give(pages[:known])
        fresh = pages[known:]
        if fresh:
            self.pool.adopt(fresh)
            node = self._append(node, run[known * self.page_bytes :], fresh)
        return node, [*found.pages, *fresh]

    def insert_tail(self, end: Node, tail: bytes, page: int, priority: int | None) -> None:
        """Give an owned, not full page to the tree below the locked node `end`, and count the use as
        `unlock` does, which must not count it for `end` again.

        It is dropped where a sibling begins with the same tokens; that sibling then counts as used now.
        Unlocked tails that it extends are dropped instead.
        """
        sibling, common = end.closest(tail)
        if sibling is not None and common == len(tail):
            self.pool.give([page])
            sibling = self._cut(sibling, 1)
            self._lock(sibling)
            self.unlock(sibling, priority)
            return
        self._drop_covered(end, tail)
        self.pool.adopt([page])
        node = Node(end, tail, tail, [page])
        end.attach(node)
        end.num_tails += 1
        self.leaves.used(node, priority)
        self.leaves.add(node)

    def unlock(self, node: Node, priority: int | None) -> None:
        """A lease that ended at the node goes. That counts as a use of this `priority`; None: as none."""
        leaves = self.leaves
        leaves.used(node, priority)
        at = node
        while True:
            at.locks -= 1
            if at.locks:
                return
            above = at.parent
            if above is None:
                self._prune(at)
                return
            self.num_locked -= len(at.pages)
            if not at.children:
                leaves.add(at)
            at = above

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
        """Hang full pages that no child begins with below the locked node `end`, and move a lock to them."""
        first = run[: self.page_bytes]
        self._drop_covered(end, first)
        self.num_locked += len(pages)
        if end.locks == 1 and end.rank == UNUSED and not end.children and end.parent is not None:
            # Only the caller's lease was ever here: the edge can grow, and a sequence alone is one node.
            end.grow(run, pages)
            return end
        node = Node(end, first, run, list(pages), locks=1)
        end.attach(node)
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

    def _lock(self, node: Node) -> None:
        """A lease ends at the node."""
        at = node
        while True:
            at.locks += 1
            above = at.parent
            if at.locks > 1 or above is None:
                return
            self.num_locked += len(at.pages)
            if not at.children:
                self.leaves.remove(at)
            at = above

    def _trim(self, leaf: Node, num_pages: int) -> None:
        """Take the last pages from an unlocked leaf, and the leaf itself with its last page."""
        keep = len(leaf.pages) - num_pages
        self.pool.reclaim(leaf.pages[keep:] if keep else leaf.pages)
        if keep:
            leaf.trim(keep, self.page_bytes)
            return
        leaves, parent = self.leaves, leaf.parent
        assert parent is not None  # roots never stand in the order of eviction
        leaves.gone(leaf, parent)
        parent.detach(leaf)
        if parent.num_tails:
            parent.num_tails -= len(leaf.key) < self.page_bytes
        if parent.parent is None:
            self._prune(parent)
        elif not parent.locks and not parent.children:
            leaves.add(parent)

    def _prune(self, node: Node) -> None:
        """Forget a namespace that has neither pages nor leases."""
        if isinstance(node, Root) and node.locks == 0 and not node.children:
            del self.roots[node.namespace]
