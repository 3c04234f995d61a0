"""What each call of the prefix cache answers and leaves behind."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from treille.radix import Lease, OutOfPages, PageError, PinLimit, PrefixCache, RadixError

Serve = Callable[..., Lease]


def counts(cache: PrefixCache) -> tuple[int, int, int, int]:
    """(free, cached, locked, owned), after a check."""
    cache.check()
    return cache.num_free, cache.num_cached, cache.num_locked, cache.num_owned


def test_an_empty_cache_lends_nothing() -> None:
    cache = PrefixCache(8, 4)
    lease = cache.acquire([1, 2, 3, 4, 5])
    assert (lease.pages, lease.num_tokens, lease.partial) == ((), 0, None)
    assert counts(cache) == (8, 0, 0, 0)
    assert (cache.num_pages, cache.page_size, cache.num_evictable) == (8, 4, 0)


def test_full_pages_and_a_partial_page_are_lent(serve: Serve) -> None:
    cache = PrefixCache(8, 4)
    serve(cache, range(10))
    lease = cache.acquire(range(10))
    assert len(lease.pages) == 2
    assert lease.num_tokens == 8
    assert lease.partial is not None
    assert lease.partial[1] == 2
    assert lease.num_cached_tokens == 10
    assert counts(cache) == (5, 3, 3, 0)


@pytest.mark.parametrize(
    ("query", "full", "partial"),
    [
        ([], 0, 0),
        ([0], 0, 1),
        ([0, 1, 2, 3], 1, 0),
        ([0, 1, 2, 3, 4], 1, 1),
        ([0, 1, 2, 3, 9], 1, 0),
        ([0, 1, 2, 3, 4, 5, 6, 9, 8], 1, 3),
        ([*range(8)], 2, 0),
        ([*range(10)], 2, 2),
        ([*range(12)], 2, 2),
        ([9, 1, 2, 3], 0, 0),
        ([0, 9], 0, 1),
    ],
)
def test_every_way_to_leave_one_edge(serve: Serve, query: list[int], full: int, partial: int) -> None:
    cache = PrefixCache(8, 4)
    serve(cache, range(10))
    assert cache.lookup(query) == full * 4 + partial
    lease = cache.acquire(query)
    assert len(lease.pages) == full
    assert (lease.partial or (0, 0))[1] == partial
    cache.check()
    assert cache.num_locked == full + (partial > 0)


@pytest.mark.parametrize("limit", range(12))
def test_limit_cuts_full_pages_and_the_partial(serve: Serve, limit: int) -> None:
    cache = PrefixCache(8, 4)
    serve(cache, range(10))
    lease = cache.acquire(range(10), limit=limit)
    usable = min(limit, 10)
    assert lease.num_cached_tokens == usable
    assert lease.num_tokens == usable // 4 * 4
    cache.check()


def test_a_page_that_the_limit_cuts_is_offered_as_partial(serve: Serve) -> None:
    cache = PrefixCache(8, 4)
    serve(cache, range(8))
    whole = cache.acquire(range(8))
    lease = cache.acquire(range(8), limit=7)
    assert lease.pages == whole.pages[:1]
    assert lease.partial == (whole.pages[1], 3)


@pytest.mark.parametrize("kind", [list, tuple, lambda t: array("q", t), lambda t: array("i", t), np.array])
def test_tokens_may_be_any_sequence_of_integers(kind: Callable[[list[int]], Sequence[int]]) -> None:
    cache = PrefixCache(8, 4)
    tokens = kind([7, 8, 9, 10, 11, 2**31 - 1])
    lease = cache.acquire(tokens)
    lease, rest = cache.publish(lease, tokens, cache.allocate(2))
    cache.release(lease, tokens, rest)
    assert cache.lookup([7, 8, 9, 10, 11, 2**31 - 1, 0]) == 6
    assert cache.lookup(tokens) == 6


def test_bytes_are_a_sequence_of_small_integers(serve: Serve) -> None:
    cache = PrefixCache(8, 4)
    serve(cache, b"a page and a half"[:6])
    assert cache.lookup([ord(c) for c in "a page"]) == 6


def test_lookup_changes_nothing(serve: Serve) -> None:
    cache = PrefixCache(4, 2)
    serve(cache, [1, 1])
    serve(cache, [2, 2, 2, 2])
    assert [cache.lookup(q) for q in ([1, 1], [1, 2], [2, 2, 2, 9], [3])] == [2, 1, 3, 0]
    cache.allocate(2)  # one free, one evicted: still the older [1, 1]
    assert [cache.lookup(q) for q in ([1, 1], [2, 2, 2, 2])] == [0, 4]


def test_publish_hands_over_full_pages_and_returns_the_rest() -> None:
    cache = PrefixCache(8, 4)
    lease = cache.acquire(range(10))
    pages = cache.allocate(4)
    new, rest = cache.publish(lease, range(10), pages)
    assert new.pages == tuple(pages[:2])
    assert new.num_tokens == 8
    assert rest == pages[2:]
    assert counts(cache) == (4, 2, 2, 2)
    assert new.partial is None


def test_publish_with_nothing_full_still_renews_the_lease(serve: Serve) -> None:
    cache = PrefixCache(8, 4)
    serve(cache, range(6))
    old = cache.acquire(range(6))
    assert old.partial is not None
    pages = cache.allocate(1)
    new, rest = cache.publish(old, range(6), pages)
    assert (new.pages, new.partial, rest) == (old.pages, None, pages)
    assert counts(cache) == (5, 2, 1, 1)  # the partial page is no longer locked


def test_publish_uses_the_page_that_came_first() -> None:
    cache = PrefixCache(8, 2)
    first, second = cache.acquire([1, 2, 3, 4]), cache.acquire([1, 2, 3, 4, 5, 6])
    a, b = cache.allocate(2), cache.allocate(3)
    first, _ = cache.publish(first, [1, 2, 3, 4], a)
    second, rest = cache.publish(second, [1, 2, 3, 4, 5, 6], b)
    assert first.pages == tuple(a)
    assert second.pages == (*a, b[2])
    assert rest == []
    assert counts(cache) == (5, 3, 3, 0)


def test_publish_into_the_middle_of_an_edge(serve: Serve) -> None:
    cache = PrefixCache(16, 2)
    lease = cache.acquire([1, 2, 3, 9])
    serve(cache, [1, 2, 3, 4, 5, 6])
    lease, _ = cache.publish(lease, [1, 2, 3, 9], cache.allocate(2))
    assert counts(cache) == (12, 4, 2, 0)
    assert cache.lookup([1, 2, 3, 4, 5, 6]) == 6
    assert cache.lookup([1, 2, 3, 9]) == 4


def test_a_running_sequence_stays_one_node() -> None:
    cache = PrefixCache(64, 2)
    tokens: list[int] = []
    lease = cache.acquire(tokens)
    for token in range(100):
        tokens.append(token)
        if len(tokens) % 2 == 0:
            lease, rest = cache.publish(lease, tokens, cache.allocate(1))
            assert rest == []
    cache.check()
    (root,) = cache._tree.roots.values()
    (node,) = root.children.values()
    assert node.pages == list(lease.pages)
    assert len(node.pages) == 50
    assert not node.children


def test_an_edge_does_not_grow_under_another_lease() -> None:
    cache = PrefixCache(16, 2)
    first = cache.acquire([1, 2])
    first, _ = cache.publish(first, [1, 2], cache.allocate(1))
    second = cache.acquire([1, 2])
    first, _ = cache.publish(first, [1, 2, 3, 4], cache.allocate(1))
    assert counts(cache) == (14, 2, 2, 0)
    cache.release(first, [1, 2, 3, 4], [])
    assert counts(cache) == (14, 2, 1, 0)
    cache.release(second, [1, 2], [])
    assert counts(cache) == (14, 2, 0, 0)


def test_the_longest_partial_match_wins(serve: Serve) -> None:
    cache = PrefixCache(32, 4)
    for tokens in ([5, 1], [5, 6, 1], [5, 6, 7, 1], [5, 6, 9], [4, 4, 4, 4]):
        serve(cache, tokens)
    assert cache.lookup([5, 6, 7, 8]) == 3
    assert cache.lookup([5, 6, 9, 9]) == 3
    assert cache.lookup([5, 6, 8]) == 2
    assert cache.lookup([5, 2]) == 1
    assert cache.lookup([6]) == 0


def test_a_tail_that_a_sibling_covers_is_dropped(serve: Serve) -> None:
    cache = PrefixCache(8, 4)
    serve(cache, [1, 2, 3, 4, 5])
    serve(cache, [1, 2])  # a prefix of the full page
    assert cache.num_cached == 2
    serve(cache, [9, 9, 9])
    serve(cache, [9, 9])  # a prefix of the tail
    serve(cache, [9, 9, 9])  # the tail itself
    assert cache.num_cached == 3


def test_a_longer_tail_or_page_replaces_an_unlocked_tail(serve: Serve) -> None:
    cache = PrefixCache(8, 4)
    for length in (1, 2, 3):
        serve(cache, [7] * length)
        assert cache.num_cached == 1
    serve(cache, [7] * 4)
    assert cache.num_cached == 1
    assert cache.acquire([7] * 4).num_tokens == 4


def test_a_locked_tail_is_not_replaced(serve: Serve) -> None:
    cache = PrefixCache(8, 4)
    serve(cache, [7, 7])
    holder = cache.acquire([7, 7, 8])
    serve(cache, [7, 7, 7])
    assert counts(cache) == (6, 2, 1, 0)
    cache.release(holder, [], [])
    serve(cache, [7, 7, 7, 7])
    assert counts(cache) == (7, 1, 0, 0)


def test_tails_that_differ_live_side_by_side(serve: Serve) -> None:
    cache = PrefixCache(8, 4)
    for tokens in ([1, 2, 3], [1, 2, 4], [1, 5]):
        serve(cache, tokens)
    assert cache.num_cached == 3
    assert [cache.lookup(t) for t in ([1, 2, 3], [1, 2, 4], [1, 5])] == [3, 3, 2]


def test_the_partial_page_stays_while_the_lease_lives(serve: Serve) -> None:
    cache = PrefixCache(4, 4)
    serve(cache, [1, 2, 3])
    lease = cache.acquire([1, 2, 9])
    assert lease.partial is not None
    with pytest.raises(OutOfPages):
        cache.allocate(4)
    pages = cache.allocate(3)
    assert lease.partial[0] not in pages
    assert cache.flush() == 0
    cache.release(lease, [1, 2, 9], pages)
    assert counts(cache) == (2, 2, 0, 0)


def test_only_the_first_page_of_a_long_edge_is_locked_for_a_partial(serve: Serve) -> None:
    cache = PrefixCache(8, 2)
    serve(cache, range(10))
    lease = cache.acquire([0, 1, 2, 9])
    assert lease.num_cached_tokens == 3
    assert counts(cache) == (3, 5, 2, 0)
    assert cache.flush() == 3
    assert cache.lookup(range(10)) == 4


def test_release_without_the_computed_tokens_keeps_nothing_of_them(serve: Serve) -> None:
    cache = PrefixCache(8, 4)
    serve(cache, range(4))
    lease = cache.acquire(range(12))
    cache.release(lease, range(4), cache.allocate(2))
    assert counts(cache) == (7, 1, 0, 0)


def test_release_frees_the_pages_beyond_the_tokens() -> None:
    cache = PrefixCache(8, 4)
    cache.release(cache.acquire([]), range(5), cache.allocate(5))
    assert counts(cache) == (6, 2, 0, 0)


def test_namespaces_never_meet(serve: Serve) -> None:
    """The same 200 tokens under adapter A, adapter B, a cache key that spells A, and A loaded anew."""
    cache = PrefixCache(128, 16)
    tokens = list(range(200))
    keys = [("model", "A", 1, None), ("model", "B", 2, None), ("model", None, None, "A"), "A", ("A",), None]
    keys.append(("model", "A", 3, None))
    for index, key in enumerate(keys):
        assert cache.lookup(tokens, namespace=key) == 0
        lease = serve(cache, tokens, key)
        assert lease.num_cached_tokens == 0
        assert cache.num_cached == 13 * (index + 1)
    for key in keys:
        assert cache.lookup(tokens, namespace=key) == 200


def test_an_empty_namespace_is_forgotten(serve: Serve) -> None:
    cache = PrefixCache(8, 4)
    for key in range(50):
        cache.lookup([1], namespace=key)
        cache.release(cache.acquire([1], namespace=key), [], [])
        serve(cache, range(16), key)
    assert len(cache._tree.roots) == 2  # as many as the eight pages hold
    cache.flush()
    assert not cache._tree.roots


def test_disabled_is_only_a_pool() -> None:
    cache = PrefixCache(4, 4, enabled=False)
    lease = cache.acquire(range(10))
    assert (lease.pages, lease.partial) == ((), None)
    pages = cache.allocate(3)
    same, rest = cache.publish(lease, range(10), pages)
    assert same is lease
    assert rest == pages
    with pytest.raises(OutOfPages):
        cache.allocate(2)
    cache.release(lease, range(10), pages)
    assert counts(cache) == (4, 0, 0, 0)
    assert cache.lookup(range(10)) == 0
    with pytest.raises(PageError):
        cache.release(lease, range(10), [])
    assert cache.flush() == 0


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda c, lease, owned: c.free([owned[0], owned[0]]), PageError),
        (lambda c, lease, owned: c.free([*owned, 7]), PageError),  # free already
        (lambda c, lease, owned: c.free([*owned, lease.pages[0]]), PageError),  # the tree's
        (lambda c, lease, owned: c.free([8]), PageError),
        (lambda c, lease, owned: c.free([-1]), PageError),
        (lambda c, lease, owned: c.allocate(-1), ValueError),
        (lambda c, lease, owned: c.allocate(9), OutOfPages),
        (lambda c, lease, owned: c.acquire([1], limit=-1), ValueError),
        (lambda c, lease, owned: c.acquire([1.0]), TypeError),
        (lambda c, lease, owned: c.acquire(["1"]), TypeError),
        (lambda c, lease, owned: c.acquire([2**63]), OverflowError),
        (lambda c, lease, owned: c.acquire([1], namespace=[]), TypeError),
        (lambda c, lease, owned: c.publish(lease, range(3), owned), PageError),  # fewer than the lease's
        (lambda c, lease, owned: c.publish(lease, [0, 1, 2, 9, 4], owned), PageError),  # another's
        (lambda c, lease, owned: c.publish(lease, range(13), owned), PageError),  # too few pages
        (lambda c, lease, owned: c.publish(lease, range(8), [7]), PageError),  # not owned
        (lambda c, lease, owned: c.publish(lease, range(12), [owned[0]] * 2), PageError),
        (lambda c, lease, owned: c.publish(lease, [*range(7), None], owned), TypeError),
        (lambda c, lease, owned: c.publish(PrefixCache(8, 4).acquire([]), [], []), PageError),
        (lambda c, lease, owned: c.release(lease, range(13), owned), PageError),
        (lambda c, lease, owned: c.release(lease, range(3), owned), PageError),
        (lambda c, lease, owned: c.release(lease, range(8), [*owned, 7]), PageError),
    ],
)
def test_a_refused_call_changes_nothing(
    serve: Serve, call: Callable[[PrefixCache, Lease, list[int]], object], error: type[Exception]
) -> None:
    cache = PrefixCache(8, 4)
    serve(cache, range(4))
    lease = cache.acquire(range(4))
    owned = cache.allocate(2)
    before = (counts(cache), cache.num_leases, set(cache._tree.roots), cache.lookup(range(12)))
    with pytest.raises(error):
        call(cache, lease, owned)
    assert (counts(cache), cache.num_leases, set(cache._tree.roots), cache.lookup(range(12))) == before
    cache.release(lease, range(12), owned)
    assert counts(cache) == (5, 3, 0, 0)


def test_a_dead_lease_is_refused() -> None:
    cache = PrefixCache(8, 4)
    old = cache.acquire(range(4))
    new, _ = cache.publish(old, range(4), cache.allocate(1))
    for call in (cache.publish, cache.release):
        with pytest.raises(PageError, match="dead"):
            call(old, range(4), [])
    cache.release(new, range(4), [])
    with pytest.raises(PageError, match="dead"):
        cache.release(new, range(4), [])
    assert counts(cache) == (7, 1, 0, 0)


@pytest.mark.parametrize(("num_pages", "page_size"), [(0, 4), (-1, 4), (4, 0), (4, -2)])
def test_a_cache_needs_pages_and_tokens(num_pages: int, page_size: int) -> None:
    with pytest.raises(ValueError, match="at least one"):
        PrefixCache(num_pages, page_size)


def test_errors_carry_their_evidence() -> None:
    cache = PrefixCache(3, 4)
    cache.allocate(1)
    with pytest.raises(RadixError, match="3 pages needed, 2 free") as caught:
        cache.allocate(3)
    assert isinstance(caught.value, OutOfPages)
    assert (caught.value.needed, caught.value.available) == (3, 2)


def test_a_pinned_prefix_stays_until_it_is_unpinned(serve: Serve) -> None:
    cache = PrefixCache(8, 4)
    serve(cache, range(10))
    pin = cache.pin([*range(10), 77])
    assert (pin.num_tokens, len(pin.pages), cache.num_pinned) == (10, 3, 3)
    assert cache.flush() == 0
    with pytest.raises(OutOfPages):
        cache.allocate(6)
    cache.free(cache.allocate(5))
    assert cache.lookup(range(10)) == 10
    cache.unpin(pin)
    with pytest.raises(PageError):
        cache.unpin(pin)
    assert counts(cache) == (5, 3, 0, 0)
    assert cache.flush() == 3


def test_pins_are_bounded_and_count_a_page_once(serve: Serve) -> None:
    cache = PrefixCache(8, 4, max_pinned=3)
    serve(cache, range(8))
    serve(cache, [*range(4), *range(50, 58)])
    first = cache.pin(range(8))
    again = cache.pin(range(8))
    assert cache.num_pinned == 2
    before = counts(cache)
    with pytest.raises(PinLimit) as caught:
        cache.pin([*range(4), *range(50, 58)])
    assert (caught.value.needed, caught.value.limit) == (4, 3)
    assert counts(cache) == before
    assert cache.pin([*range(4), *range(50, 54)]).num_tokens == 8
    cache.unpin(first)
    assert cache.num_pinned == 3
    cache.unpin(again)
    assert cache.num_pinned == 2
    assert cache.flush() == 2


def test_a_partial_page_counts_among_the_pinned(serve: Serve) -> None:
    cache = PrefixCache(8, 4, max_pinned=1)
    serve(cache, range(8))
    with pytest.raises(PinLimit):
        cache.pin(range(6))
    assert cache.pin(range(3)).num_tokens == 3


def test_nothing_to_pin() -> None:
    assert PrefixCache(8, 4).pin(range(8)).num_tokens == 0
    off = PrefixCache(8, 4, enabled=False)
    pin = off.pin(range(8))
    assert (pin.num_tokens, pin.pages) == (0, ())
    off.unpin(pin)
    for wrong in (-1, 9):
        with pytest.raises(ValueError, match="0 to 8 pages"):
            PrefixCache(8, 4, max_pinned=wrong)
