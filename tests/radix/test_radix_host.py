"""The second tier: what moves, what comes back, and what happens when a copy fails."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from treille.radix import Lease, OutOfPages, PrefixCache

Serve = Callable[..., Lease]


class Slots:
    """Keeps the calls; the next one fails if `fails` says so."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int, int]] = []
        self.fails = False

    def store(self, page: int, slot: int) -> None:
        self.call("store", page, slot)

    def load(self, slot: int, page: int) -> None:
        self.call("load", slot, page)

    def call(self, name: str, a: int, b: int) -> None:
        if self.fails:
            raise OSError("a copy failed")
        self.calls.append((name, a, b))


@pytest.fixture
def slots() -> Slots:
    return Slots()


def evict_all(cache: PrefixCache) -> None:
    cache.free(cache.allocate(cache.num_pages))
    cache.check()


def test_full_pages_move_and_come_back(serve: Serve, slots: Slots) -> None:
    cache = PrefixCache(4, 4, host=slots, num_host_pages=8)
    serve(cache, range(14))
    evict_all(cache)
    assert [name for name, _, _ in slots.calls] == ["store"] * 3  # of the tail nothing
    assert (cache.num_cached, cache.num_host_used, cache.lookup(range(14))) == (0, 3, 0)
    stored = [(page, slot) for _, page, slot in slots.calls]
    lease = cache.acquire(range(14), limit=11)
    assert (lease.num_tokens, lease.partial) == (8, None)
    cache.check()
    assert cache.num_host_used == 1
    loads = [slot for name, slot, _ in slots.calls if name == "load"]
    assert loads == [stored[2][1], stored[1][1]]  # the deepest page went first
    assert [page for name, _, page in slots.calls if name == "load"] == list(lease.pages)
    cache.release(lease, range(8), [])
    assert cache.lookup(range(14)) == 8


def test_only_what_has_room_comes_back(serve: Serve, slots: Slots) -> None:
    cache = PrefixCache(4, 2, host=slots, num_host_pages=8)
    serve(cache, range(8))
    evict_all(cache)
    held = cache.allocate(3)
    lease = cache.acquire(range(8))
    assert (lease.num_tokens, cache.num_host_used) == (2, 3)
    with pytest.raises(OutOfPages):
        cache.allocate(1)
    cache.free(held)
    assert cache.acquire(range(8)).num_tokens == 8
    cache.check()


def test_a_full_tier_drops_the_deepest_of_the_oldest(serve: Serve, slots: Slots) -> None:
    cache = PrefixCache(3, 2, host=slots, num_host_pages=4)
    serve(cache, range(6))
    serve(cache, range(20, 26))
    evict_all(cache)
    lease = cache.acquire(range(6))
    assert lease.num_tokens == 2
    cache.release(lease, range(2), [])
    assert cache.acquire(range(20, 26)).num_tokens == 6


def test_namespaces_and_paths_are_kept_apart(serve: Serve, slots: Slots) -> None:
    cache = PrefixCache(8, 2, host=slots, num_host_pages=16)
    serve(cache, [1, 2, 3, 4], "a")
    serve(cache, [9, 9, 3, 4], "a")
    evict_all(cache)
    assert cache.acquire([1, 2, 3, 4], namespace="b").num_tokens == 0
    assert cache.acquire([3, 4], namespace="a").num_tokens == 0
    assert cache.acquire([1, 2, 9, 9], namespace="a").num_tokens == 2
    cache.check()


def test_flush_forgets_the_tier_too(serve: Serve, slots: Slots) -> None:
    cache = PrefixCache(4, 4, host=slots, num_host_pages=8)
    serve(cache, range(12))
    evict_all(cache)
    cache.flush()
    assert (cache.num_host_used, cache.acquire(range(12)).num_tokens) == (0, 0)


def test_a_copy_that_fails_loses_no_page(serve: Serve, slots: Slots) -> None:
    cache = PrefixCache(4, 4, host=slots, num_host_pages=8)
    serve(cache, range(12))
    slots.fails = True
    with pytest.raises(OSError, match="a copy failed"):
        cache.allocate(4)
    cache.check()
    assert cache.lookup(range(12)) == 12
    slots.fails = False
    evict_all(cache)
    slots.fails = True
    with pytest.raises(OSError, match="a copy failed"):
        cache.acquire(range(12))
    cache.check()
    assert (cache.num_leases, cache.num_owned, cache.num_free) == (0, 0, 4)


def test_a_tier_has_a_slot(slots: Slots) -> None:
    with pytest.raises(ValueError, match="at least one slot"):
        PrefixCache(4, 4, host=slots)
