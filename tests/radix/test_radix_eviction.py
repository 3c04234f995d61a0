"""The exact order of eviction, and the accounting of pages over whole requests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from treille.radix import Eviction, Lease, OutOfPages, PageError, PrefixCache

Serve = Callable[..., Lease]


def fill(cache: PrefixCache) -> list[int]:
    """Take all free pages, so that the next `allocate` has to evict."""
    return cache.allocate(cache.num_free)


def lengths(cache: PrefixCache, *queries: list[int]) -> list[int]:
    cache.check()
    return [cache.lookup(query) for query in queries]


A, B, C = [1] * 6, [2] * 4, [3] * 2


def test_least_recently_released_first_from_the_end(serve: Serve) -> None:
    cache = PrefixCache(6, 2)
    for tokens in (A, B, C):
        serve(cache, tokens)
    fill(cache)
    seen = []
    while cache.num_cached:
        cache.allocate(1)
        seen.append(lengths(cache, A, B, C))
    assert seen == [[4, 4, 2], [2, 4, 2], [0, 4, 2], [0, 2, 2], [0, 0, 2], [0, 0, 0]]


def test_one_call_takes_what_single_calls_would(serve: Serve) -> None:
    cache = PrefixCache(6, 2)
    for tokens in (A, B, C):
        serve(cache, tokens)
    fill(cache)
    cache.allocate(4)
    assert lengths(cache, A, B, C) == [0, 2, 2]


def test_use_makes_recent_and_only_the_part_used(serve: Serve) -> None:
    cache = PrefixCache(6, 2)
    for tokens in (A, B, C):
        serve(cache, tokens)
    cache.release(cache.acquire(A, limit=4), A[:4], [])
    fill(cache)
    seen = []
    while cache.num_cached:
        cache.allocate(1)
        seen.append(lengths(cache, A, B, C))
    assert seen == [[4, 4, 2], [4, 2, 2], [4, 0, 2], [4, 0, 0], [2, 0, 0], [0, 0, 0]]


def test_recency_is_the_end_of_use_not_its_start(serve: Serve) -> None:
    cache = PrefixCache(6, 2)
    for tokens in (A, B, C):
        serve(cache, tokens)
    lease = cache.acquire(A)
    cache.release(cache.acquire(B), B, [])
    cache.release(lease, A, [])
    fill(cache)
    cache.allocate(3)
    assert lengths(cache, A, B, C) == [6, 0, 0]
    cache.allocate(1)
    assert lengths(cache, A) == [4]


def test_a_parent_goes_after_its_children(serve: Serve) -> None:
    cache = PrefixCache(4, 2)
    stem = [1, 1]
    for leaf in (2, 3, 4):
        serve(cache, [*stem, leaf, leaf])
    fill(cache)
    queries = [[*stem, leaf, leaf] for leaf in (2, 3, 4)]
    seen = []
    while cache.num_cached:
        cache.allocate(1)
        seen.append(lengths(cache, *queries))
    assert seen == [[2, 4, 4], [2, 2, 4], [2, 2, 2], [0, 0, 0]]


def test_a_bare_parent_waits_for_its_own_turn(serve: Serve) -> None:
    """A stem used lately outlives leaves that were used before it, its own and others'."""
    cache = PrefixCache(6, 2)
    serve(cache, [1, 1, 2, 2])
    serve(cache, B)
    cache.release(cache.acquire([1, 1]), [1, 1], [])
    serve(cache, C)
    fill(cache)
    cache.allocate(3)
    assert lengths(cache, [1, 1, 2, 2], B, C) == [2, 0, 2]
    cache.allocate(1)
    assert lengths(cache, [1, 1, 2, 2], B, C) == [0, 0, 2]


def test_locked_pages_are_passed_over(serve: Serve) -> None:
    cache = PrefixCache(6, 2)
    for tokens in (A, B, C):
        serve(cache, tokens)
    lease = cache.acquire(A, limit=2)
    fill(cache)
    with pytest.raises(OutOfPages):
        cache.allocate(6)
    assert lengths(cache, A, B, C) == [6, 4, 2]
    cache.allocate(5)
    assert lengths(cache, A, B, C) == [2, 0, 0]
    assert cache.num_evictable == 0
    cache.release(lease, A[:2], [])
    cache.allocate(1)
    assert cache.num_cached == 0


def test_a_tail_and_a_page_that_a_duplicate_tail_names_count_as_used(serve: Serve) -> None:
    cache = PrefixCache(4, 4)
    serve(cache, [1, 1, 1])
    serve(cache, [2, 2, 2, 2, 2, 2, 2, 2])
    lease, other = cache.acquire([]), cache.acquire([])
    cache.release(lease, [1, 1], cache.allocate(1))
    cache.release(other, [2, 2], cache.allocate(1))
    fill(cache)
    cache.allocate(1)
    assert lengths(cache, [1, 1, 1], [2] * 8) == [3, 4]
    cache.allocate(1)
    assert lengths(cache, [1, 1, 1], [2] * 8) == [0, 4]


def test_a_published_prompt_can_go_once_released(serve: Serve) -> None:
    cache = PrefixCache(4, 2)
    lease, rest = cache.publish(cache.acquire(B), B, cache.allocate(2))
    assert cache.flush() == 0
    cache.release(lease, B, rest)
    assert cache.flush() == 2
    assert cache.num_free == 4


def test_flush_leaves_what_is_locked(serve: Serve) -> None:
    cache = PrefixCache(6, 2)
    for tokens in (A, B, C):
        serve(cache, tokens)
    cache.acquire(B)
    assert cache.flush() == 4
    assert lengths(cache, A, B, C) == [0, 4, 0]


class Accounts:
    """A pool of pages of four tokens whose books are checked after every step."""

    def __init__(self) -> None:
        self.cache = PrefixCache(16, 4)

    def balance(self, in_use: int) -> None:
        """`in_use` pages are owned or locked; with the free and the evictable ones they are all."""
        cache = self.cache
        cache.check()
        assert cache.num_owned + cache.num_locked == in_use
        assert cache.num_free + cache.num_evictable + in_use == cache.num_pages


def test_pages_are_counted_once_over_whole_requests() -> None:
    """Shared prefixes, an end at a page edge, an abort before the first decode: each page in one class."""
    books = Accounts()
    cache = books.cache
    first, second = list(range(10)), [*range(6), 60, 61, 62, 63]

    lease = cache.acquire(first, limit=9)
    pages = cache.allocate(3)
    books.balance(in_use=3)
    lease, pages = cache.publish(lease, first, pages)
    books.balance(in_use=3)
    cache.release(lease, first, pages)
    books.balance(in_use=0)
    assert cache.num_cached == 3

    lease = cache.acquire(second, limit=9)
    assert lease.num_cached_tokens == 6  # one full page, two tokens of the next
    books.balance(in_use=2)
    pages = cache.allocate(2)
    books.balance(in_use=4)
    lease, pages = cache.publish(lease, second, pages)
    books.balance(in_use=3)
    cache.release(lease, second, pages)
    books.balance(in_use=0)
    assert cache.num_cached == 5

    edge = [*first, 10, 11]  # twelve tokens: ends exactly at a page's edge
    lease = cache.acquire(edge, limit=11)
    assert lease.num_cached_tokens == 10
    pages = cache.allocate(1)
    cache.release(lease, edge, pages)
    books.balance(in_use=0)
    assert cache.num_cached == 5  # the full page took the place of the tail that it extends
    with pytest.raises(PageError):
        cache.release(lease, edge, pages)
    with pytest.raises(PageError):
        cache.free(pages)
    books.balance(in_use=0)

    lease = cache.acquire([*edge, 12, 13], limit=13)
    pages = cache.allocate(1)
    books.balance(in_use=4)
    cache.release(lease, edge, pages)  # aborted: nothing beyond the lease was computed
    books.balance(in_use=0)
    assert cache.num_cached == 5

    assert cache.flush() == 5
    assert cache.num_free == cache.num_pages
    cache.check()


def test_least_frequently_used_goes_first(serve: Serve) -> None:
    cache = PrefixCache(6, 2, eviction="lfu")
    for tokens in (A, A, B, B, B, C):
        serve(cache, tokens)
    fill(cache)
    seen = []
    while cache.num_cached:
        cache.allocate(1)
        seen.append(lengths(cache, A, B, C))
    assert seen == [[6, 4, 0], [4, 4, 0], [2, 4, 0], [0, 4, 0], [0, 2, 0], [0, 0, 0]]


def test_what_a_sequence_adds_to_a_frequent_prefix_is_not_frequent(serve: Serve) -> None:
    cache = PrefixCache(6, 2, eviction="lfu")
    for tokens in (B, B, B, [*B, 7, 7], C, C):
        serve(cache, tokens)
    fill(cache)
    cache.allocate(1)
    assert lengths(cache, [*B, 7, 7], C) == [4, 2]


def test_a_lease_of_which_nothing_came_does_not_count(serve: Serve) -> None:
    cache = PrefixCache(6, 2, eviction="lfu")
    for tokens in (B, C, C):
        serve(cache, tokens)
    for _ in range(9):
        cache.release(cache.acquire(B), B, [], used=False)
    fill(cache)
    cache.allocate(1)
    assert lengths(cache, B, C) == [2, 2]


def test_lowest_priority_goes_first_then_the_oldest() -> None:
    cache = PrefixCache(6, 2, eviction="priority")
    for tokens, priority in ((A, 1), (B, -1), (C, 1), (A, -7)):
        lease = cache.acquire(tokens, priority=priority)
        cache.release(lease, tokens, cache.allocate((len(tokens) - lease.num_tokens) // 2))
    fill(cache)
    seen = []
    while cache.num_cached:
        cache.allocate(1)
        seen.append(lengths(cache, A, B, C))
    assert seen == [[6, 2, 2], [6, 0, 2], [6, 0, 0], [4, 0, 0], [2, 0, 0], [0, 0, 0]]


def test_a_hot_prefix_of_a_small_priority_keeps_its_children_before_it(serve: Serve) -> None:
    """A child of a high priority lifts all above it."""
    cache = PrefixCache(6, 2, eviction="priority")
    serve(cache, C)
    lease = cache.acquire([*C, 8, 8], priority=3)
    cache.release(lease, [*C, 8, 8], cache.allocate(1))
    serve(cache, B)
    fill(cache)
    cache.allocate(2)
    assert lengths(cache, [*C, 8, 8], B) == [4, 0]


@pytest.mark.parametrize("policy", ["LRU", "", "random"])
def test_a_policy_that_does_not_exist_is_refused(policy: Eviction) -> None:
    with pytest.raises(ValueError, match="lru, lfu, priority"):
        PrefixCache(6, 2, eviction=policy)


@pytest.mark.parametrize("policy", ["lru", "lfu"])
def test_the_order_does_not_grow_with_the_number_of_uses(serve: Serve, policy: Eviction) -> None:
    cache = PrefixCache(6, 2, eviction=policy)
    for _ in range(2000):
        serve(cache, C)
    leaves = cache._tree.leaves
    assert len(leaves._heap) + len(leaves._queue) < 50
