"""The prefix cache: what the scheduler sees of the tree and the pool.

A sequence's life: `acquire` its known tokens, `allocate` pages for the rest, `publish` each time that pages
have filled, `release` at the end. Not thread-safe: one thread owns it. Every method succeeds whole or
changes nothing. Counts are in pages unless a name says tokens. Tokens may be any sequence of integers below
2**63; an `array("q")` is read fastest.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from treille.radix.audit import check_tree
from treille.radix.edges import Edge, edges_below, first_edges, path_to
from treille.radix.errors import OutOfPages, PageError, PinLimit
from treille.radix.host import HostMemory, HostTier, Key
from treille.radix.node import TOKEN_BYTES, Node, pack
from treille.radix.order import Eviction
from treille.radix.pool import PagePool
from treille.radix.tree import RadixTree


@dataclass(frozen=True, slots=True, eq=False)
class Lease:
    """A locked path of the tree. It lives until it is given to `publish` or `release`.

    `pages` are its full pages in order, borrowed from the tree: read them, never write or free them.
    `num_tokens` is len(pages) * page_size. `partial` is (page_id, n): the first n tokens after
    `num_tokens` (0 < n < page_size) can be copied from that page, which stays as long as the lease lives.
    """

    pages: tuple[int, ...]
    num_tokens: int
    partial: tuple[int, int] | None

    @property
    def num_cached_tokens(self) -> int:
        """Tokens that need no computing: the full pages' and the partial page's."""
        return self.num_tokens + (self.partial[1] if self.partial else 0)


@dataclass(frozen=True, slots=True, eq=False)
class Pin:
    """A locked path that no sequence uses: its `num_tokens` tokens stay cached until `unpin`."""

    lease: Lease

    @property
    def num_tokens(self) -> int:
        """How many tokens it keeps, from the start."""
        return self.lease.num_cached_tokens

    @property
    def pages(self) -> tuple[int, ...]:
        """The pages that hold them."""
        return self.lease.pages + (() if self.lease.partial is None else (self.lease.partial[0],))


class _Path(NamedTuple):
    """Where a living lease ends, and the one-page node of its partial page."""

    end: Node
    donor: Node | None
    priority: int


class PrefixCache:
    """Pages of KV memory, kept by the tokens that led to them; `radix/order.py` states the eviction order."""

    def __init__(
        self,
        num_pages: int,
        page_size: int,
        *,
        enabled: bool = True,
        eviction: Eviction = "lru",
        max_pinned: int | None = None,
        host: HostMemory | None = None,
        num_host_pages: int = 0,
    ) -> None:
        """`num_pages` pages of `page_size` tokens. `enabled=False` keeps nothing: only a pool.

        `eviction` is the policy: "lru", "lfu" or "priority". Pins hold at most `max_pinned` pages (None:
        half of them). With `host`, so many evicted full pages are kept in host memory; it forgets ranks.
        Raises ValueError for another policy, unless the numbers are positive, and unless `max_pinned` is from
        0 to `num_pages`.
        """
        if page_size < 1:
            raise ValueError(f"a page holds at least one token, not {page_size}")
        self.page_size = page_size
        self.enabled = enabled
        self._pool = PagePool(num_pages)
        self._tree = RadixTree(self._pool, page_size, eviction)
        self._host = None if host is None else HostTier(host, num_host_pages, self._tree.page_bytes)
        self._paths: dict[Lease, _Path] = {}
        self._pins: set[Pin] = set()
        self.num_pinned = 0  # pages that pins hold; one that several hold counts once
        self.max_pinned = num_pages // 2 if max_pinned is None else max_pinned
        if not 0 <= self.max_pinned <= num_pages:
            raise ValueError(f"0 to {num_pages} pages can be pinned, not {max_pinned}")

    @property
    def num_pages(self) -> int:
        """All pages: free + cached + owned."""
        return self._pool.num_pages

    @property
    def num_free(self) -> int:
        """Pages that `allocate` hands out without evicting."""
        return self._pool.num_free

    @property
    def num_owned(self) -> int:
        """Pages handed out by `allocate` and not yet freed or given to the tree."""
        return self._pool.num_owned

    @property
    def num_cached(self) -> int:
        """Pages in the tree, locked or not."""
        return self._pool.num_cached

    @property
    def num_locked(self) -> int:
        """Pages in the tree that a living lease locks."""
        return self._tree.num_locked

    @property
    def num_evictable(self) -> int:
        """Pages in the tree that no lease locks; `allocate` can have them all."""
        return self._pool.num_cached - self._tree.num_locked

    @property
    def num_host_used(self) -> int:
        """Pages kept in host memory."""
        return 0 if self._host is None else self._host.num_used

    @property
    def num_leases(self) -> int:
        """Leases alive, those of pins included."""
        return len(self._paths)

    def num_unshared(self, lease: Lease) -> int:
        """How many of the lease's pages no other lease locks. Raises PageError if the lease is dead."""
        path = self._paths.get(lease)
        if path is None:
            raise PageError("the lease is dead, or another cache's")
        count, node = 0, path.end
        while node.locks == 1 and node.parent is not None:
            count += len(node.pages)
            node = node.parent
        return count

    def lookup(self, tokens: Sequence[int], *, namespace: Hashable = None) -> int:
        """How many leading tokens are cached, partial page included. Changes nothing, not even recency.

        What is only in host memory does not count.
        """
        if not self.enabled:
            return 0
        found = self._tree.find(namespace, pack(tokens))
        return 0 if found is None else len(found.pages) * self.page_size + found.donor_tokens

    def acquire(
        self,
        tokens: Sequence[int],
        *,
        namespace: Hashable = None,
        limit: int | None = None,
        priority: int = 0,
    ) -> Lease:
        """Lock the longest cached prefix of `tokens`, at most `limit` tokens of it (full pages and partial).

        `namespace` keeps apart what must never be shared: a structured key, such as a tuple of model, adapter
        load and salt, compared with ==. `priority` is what the lease's use of pages counts for where eviction
        goes by priority. Full pages that follow in host memory come back first, as many as find room. Raises
        ValueError if `limit` is negative.
        """
        if limit is not None and limit < 0:
            raise ValueError(f"limit must not be negative: {limit}")
        query = pack(tokens if limit is None or limit >= len(tokens) else tokens[:limit])
        if self._host is not None and self.enabled:
            found = self._tree.find(namespace, query)
            node, used, cut = None, 0, 0
            if found is not None:
                node, used, cut = found.node, found.used, len(found.pages) * self._tree.page_bytes
            keys = self._host.follow(namespace, node, used, query[cut:])
            if keys:
                lease = self._lock(namespace, query[:cut], priority)
                return self._fetch(self._host, lease, query[cut:], keys)
        return self._lock(namespace, query, priority)

    def allocate(self, n: int) -> list[int]:
        """`n` pages that the caller owns from now on, in no promised order.

        Evicts unlocked pages, in the policy's order, where too few are free. Raises OutOfPages if that
        cannot be enough, ValueError if `n` is negative.
        """
        if n < 0:
            raise ValueError(f"cannot allocate {n} pages")
        available = self.num_free + self.num_evictable
        if n > available:
            raise OutOfPages(n, available)
        self._tree.evict(n - self.num_free, self._host)
        return self._pool.take(n)

    def free(self, pages: Sequence[int]) -> None:
        """Give owned pages back. Raises PageError if one is not owned or named twice."""
        self._pool.require_owned(pages)
        self._pool.give(pages)

    def publish(self, lease: Lease, tokens: Sequence[int], pages: Sequence[int]) -> tuple[Lease, list[int]]:
        """Give the full pages of a running sequence to the tree.

        `tokens` are the sequence's computed tokens from the start, `pages` the owned pages that hold
        tokens[lease.num_tokens:], in order; pages beyond the tokens are allowed. Where the tree already
        has an equal page, ours is freed and the new lease names the tree's. Returns the new lease, whose path
        ends with the last full page and whose `partial` is None, and the pages still owned. The old lease
        is dead. With `enabled=False` returns the lease, still alive, and all pages.

        Raises PageError if the lease is dead, a page is not owned, the pages are too few, or `tokens` do
        not go on from the lease's path. Costs O(new tokens), plus copying the tuple of pages.
        """
        path, new = self._checked(lease, tokens, pages)
        if not self.enabled:
            return lease, list(pages)
        return self._publish(lease, path, new, pages)

    def release(
        self, lease: Lease, tokens: Sequence[int], pages: Sequence[int], *, used: bool = True
    ) -> None:
        """The sequence is over: `publish`, give a partial last page to the tree too, free the rest, unlock.

        Arguments and errors are those of `publish`. To keep nothing of what was computed, pass only
        the lease's own tokens: tokens[:lease.num_tokens]. `used=False` says that nothing came of the lease,
        which then counts for age alone, as the copying of a partial page always does. With `enabled=False`
        all pages are freed.
        """
        path, new = self._checked(lease, tokens, pages)
        priority = path.priority if used else None
        end = path.end
        del self._paths[lease]
        if self.enabled:
            end, kept = self._insert(path, new, pages)
            pages = pages[len(kept) :]
            tail = new[len(kept) * self._tree.page_bytes :]
            if tail:
                self._tree.insert_tail(end, tail, pages[0], priority)
                pages, priority = pages[1:], None  # what is below `end` counts for it too
        if pages:
            self._pool.give(pages)
        self._tree.unlock(end, priority)

    def pin(self, tokens: Sequence[int], *, namespace: Hashable = None) -> Pin:
        """Lock the longest cached prefix of `tokens`, partial page included, until `unpin`.

        That is no use of it for the order of eviction. Raises PinLimit if pins would hold more than
        `max_pinned` pages in all. Costs O(pinned pages).
        """
        query = pack(tokens) if self.enabled else b""
        found = self._tree.find(namespace, query)
        if found is not None:
            needed = len(self._pinned_pages().union(found.all_pages))
            if needed > self.max_pinned:
                raise PinLimit(needed, self.max_pinned)
        pin = Pin(self._lock(namespace, query, 0))
        self._pins.add(pin)
        self.num_pinned = len(self._pinned_pages())
        return pin

    def unpin(self, pin: Pin) -> None:
        """Let a pinned path be evicted as any other. Raises PageError if it was unpinned before."""
        if pin not in self._pins:
            raise PageError("the pin is gone, or another cache's")
        self._pins.remove(pin)
        self.num_pinned = len(self._pinned_pages())
        self._drop(pin.lease)

    def flush(self) -> int:
        """Drop everything that no lease locks, in host memory too; returns how many pages became free."""
        if self._host is not None:
            self._host.clear()
        count = self.num_evictable
        self._tree.evict(count)
        return count

    def edges(self, *, namespace: Hashable = None) -> list[Edge]:
        """What the tree holds of a namespace, what `restore` makes it from: most recently used first."""
        root = self._tree.roots.get(namespace)
        return [] if root is None else edges_below(root, self._tree.leaves)

    def restore(self, edges: Sequence[Edge], *, namespace: Hashable = None) -> dict[int, int]:
        """Grow what another cache of the same page size had as `edges`, as far as there are free pages.

        The first edges are kept where they do not all fit. Age is kept and ranks are not: nothing counts as
        used. Returns, for each page taken, the page of `edges` whose content it must get before any other
        call; on failure `flush`. With `enabled=False` takes none.
        """
        taken: dict[int, int] = {}
        kept = first_edges(edges, self.num_free if self.enabled else 0, self.page_size)
        for place in reversed(range(len(kept))):  # what was used last is released last
            tokens, pages = path_to(kept, place)
            cached = self.lookup(tokens, namespace=namespace)
            if cached < len(tokens):
                cached -= cached % self.page_size  # a page that is only like ours does not count as used
            lease = self.acquire(tokens, namespace=namespace, limit=cached)
            if cached == len(tokens):
                self.release(lease, tokens[: lease.num_tokens], (), used=False)
                continue
            missing = pages[len(lease.pages) :]
            fresh = self.allocate(len(missing))
            taken.update(zip(fresh, missing, strict=True))
            self.release(lease, tokens, fresh, used=False)
        return taken

    def check(self) -> None:
        """Raise PageError if an invariant is broken. Walks the whole tree: for tests and idle moments."""
        ends = []
        for lease, path in self._paths.items():
            ends.append((path.end, path.donor))
            if lease.num_tokens != len(lease.pages) * self.page_size:
                raise PageError(f"{lease} counts its tokens wrongly")
            if (lease.partial is None) != (path.donor is None):
                raise PageError(f"{lease} has a partial page without a lock, or a lock without one")
            if lease.partial and path.donor and path.donor.pages != [lease.partial[0]]:
                raise PageError(f"{lease} and the tree disagree about its partial page")
            if lease.pages != _pages_above(path.end):
                raise PageError(f"{lease} and the tree disagree about its pages")
        if not {pin.lease for pin in self._pins} <= self._paths.keys():
            raise PageError("a pin lost its lease")
        if self.num_pinned != len(self._pinned_pages()) or self.num_pinned > self.max_pinned:
            raise PageError(
                f"{self.num_pinned} pages are pinned, of {self.max_pinned}: {self._pinned_pages()}"
            )
        self._pool.check(check_tree(self._tree, ends))
        if self._host is not None:
            self._host.check()

    def _lock(self, namespace: Hashable, query: bytes, priority: int) -> Lease:
        """A lease on the longest prefix of the packed tokens that the tree holds."""
        end, donor, found = self._tree.acquire(namespace, query if self.enabled else b"")
        partial = None if donor is None else (donor.pages[0], found.donor_tokens)
        return self._lease(tuple(found.pages), partial, _Path(end, donor, priority))

    def _drop(self, lease: Lease) -> None:
        """End a lease that brings nothing and counts for nothing."""
        path = self._paths.pop(lease)
        if path.donor is not None:
            self._tree.unlock(path.donor, None)
        self._tree.unlock(path.end, None)

    def _fetch(self, host: HostTier, lease: Lease, run: bytes, keys: Sequence[Key]) -> Lease:
        """The lease, longer by the pages in host memory that hold the start of `run`."""
        count = min(len(keys), self.num_free + self.num_evictable)
        slots = host.take(keys[:count])  # before pages are evicted, which may want slots
        pages: list[int] = []
        try:
            pages = self.allocate(count)
            host.load(slots, pages)
        except BaseException:
            self.free(pages)
            self._drop(lease)
            raise
        finally:
            host.give(slots)
        return self._publish(lease, self._paths[lease], run[: count * self._tree.page_bytes], pages)[0]

    def _pinned_pages(self) -> set[int]:
        return {page for pin in self._pins for page in pin.pages}

    def _checked(self, lease: Lease, tokens: Sequence[int], pages: Sequence[int]) -> tuple[_Path, bytes]:
        """The lease's path and the packed tokens after it, if the arguments fit together."""
        path = self._paths.get(lease)
        if path is None:
            raise PageError("the lease is dead, or another cache's")
        num_new = len(tokens) - lease.num_tokens
        if num_new < 0:
            raise PageError(f"{len(tokens)} tokens are fewer than the lease's {lease.num_tokens}")
        if num_new > len(pages) * self.page_size:
            raise PageError(f"{len(pages)} pages cannot hold {num_new} tokens")
        self._pool.require_owned(pages)
        overlap = min(lease.num_tokens, self.page_size)
        packed = pack(tokens[lease.num_tokens - overlap :])
        cut = overlap * TOKEN_BYTES
        # One page's worth of comparison catches a lease or a token list of another sequence.
        if overlap and packed[:cut] != path.end.tokens[-cut:]:
            raise PageError("the tokens do not go on from the lease's path")
        return path, packed[cut:]

    def _publish(
        self, lease: Lease, path: _Path, new: bytes, pages: Sequence[int]
    ) -> tuple[Lease, list[int]]:
        del self._paths[lease]
        end, kept = self._insert(path, new, pages)
        lease = self._lease((*lease.pages, *kept), None, _Path(end, None, path.priority))
        return lease, list(pages[len(kept) :])

    def _insert(self, path: _Path, new: bytes, pages: Sequence[int]) -> tuple[Node, list[int]]:
        """Give the full pages of a lease to the tree: where it ends now, and the tree's pages for them."""
        if path.donor is not None:
            self._tree.unlock(path.donor, None)
        count = len(new) // self._tree.page_bytes
        return self._tree.insert(path.end, new[: count * self._tree.page_bytes], pages[:count])

    def _lease(self, pages: tuple[int, ...], partial: tuple[int, int] | None, path: _Path) -> Lease:
        lease = Lease(pages, len(pages) * self.page_size, partial)
        self._paths[lease] = path
        return lease


def _pages_above(node: Node | None) -> tuple[int, ...]:
    """All pages from the root to the end of this node's edge."""
    edges: list[list[int]] = []
    while node is not None:
        edges.append(node.pages)
        node = node.parent
    return tuple(page for edge in reversed(edges) for page in edge)
