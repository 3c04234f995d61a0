"""A cache grown from another's edges: it holds the same paths, and gives them up in the same order."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable

import pytest

from treille.radix import Edge, Lease, PrefixCache

Serve = Callable[..., Lease]


def used(rng: random.Random, serve: Serve, num_pages: int, size: int) -> tuple[PrefixCache, list[list[int]]]:
    """A cache that has served random prompts, and those."""
    cache = PrefixCache(num_pages, size)
    prompts: list[list[int]] = []
    for _ in range(rng.randrange(1, 25)):
        stem = rng.choice(prompts) if prompts and rng.random() < 0.7 else []
        prompt = stem[: rng.randrange(len(stem) + 1)] + [rng.randrange(2) for _ in range(rng.randrange(1, 9))]
        prompts.append(prompt[: num_pages * size // 2])
        serve(cache, prompts[-1])
    return cache, prompts


def contents(edges: list[Edge], size: int) -> dict[int, tuple[int, ...]]:
    """For each page, all tokens up to its end."""
    ends: list[tuple[int, ...]] = []
    found: dict[int, tuple[int, ...]] = {}
    for edge in edges:
        above = () if edge.parent is None else ends[edge.parent]
        for number, page in enumerate(edge.pages):
            assert page not in found
            found[page] = above + tuple(edge.tokens[: (number + 1) * size])
        ends.append(above + tuple(edge.tokens))
    return found


def held(cache: PrefixCache, prompts: list[list[int]]) -> list[int]:
    cache.check()
    return [cache.lookup(prompt) for prompt in prompts]


@pytest.mark.parametrize("size", [1, 2, 3, 16])
@pytest.mark.parametrize("seed", range(25))
def test_the_same_paths_pages_and_order(serve: Serve, seed: int, size: int) -> None:
    rng = random.Random(seed)
    old, prompts = used(rng, serve, 30, size)
    edges = old.edges()
    new = PrefixCache(30, size)
    taken = new.restore(edges)
    assert held(new, prompts) == held(old, prompts)
    assert new.num_cached == old.num_cached == len(taken)
    assert new.num_leases == new.num_owned == 0
    theirs, ours = contents(edges, size), contents(new.edges(), size)
    assert {page: theirs[taken[page]] for page in ours} == ours
    for cache in (old, new):
        cache.allocate(cache.num_free)
    while old.num_cached:
        old.allocate(1)
        new.allocate(1)
        assert held(new, prompts) == held(old, prompts)


@pytest.mark.parametrize("num_pages", range(1, 30, 4))
@pytest.mark.parametrize("seed", range(8))
def test_a_smaller_cache_takes_what_would_be_evicted_last(serve: Serve, seed: int, num_pages: int) -> None:
    old, prompts = used(random.Random(seed), serve, 30, 2)
    edges = old.edges()
    new = PrefixCache(num_pages, 2)
    new.restore(edges)
    assert new.num_cached == min(num_pages, old.num_cached)
    old.allocate(old.num_free)
    old.allocate(max(old.num_cached - num_pages, 0))
    # Of the last edge its first pages are kept, as eviction keeps them.
    assert held(new, prompts) == held(old, prompts)


def test_paths_in_use_come_first_and_namespaces_stay_apart(serve: Serve) -> None:
    cache = PrefixCache(20, 2)
    lease = cache.acquire([1, 1, 1, 1])
    lease, _ = cache.publish(lease, [1, 1, 1, 1], cache.allocate(2))
    serve(cache, [2] * 5)
    serve(cache, [3] * 4, "salt")
    assert [(edge.parent, list(edge.tokens)) for edge in cache.edges()] == [
        (None, [1, 1, 1, 1]),
        (None, [2, 2, 2, 2]),
        (1, [2]),
    ]
    assert cache.edges(namespace="other") == []
    new = PrefixCache(20, 2)
    new.restore(cache.edges(namespace="salt"), namespace="pepper")
    assert new.lookup([3] * 4) == new.lookup([3] * 4, namespace="salt") == 0
    assert new.lookup([3] * 4, namespace="pepper") == 4


def test_beside_what_is_there(serve: Serve) -> None:
    """Equal pages are not taken again; free pages alone are, and none without prefix caching."""
    cache = PrefixCache(6, 2)
    serve(cache, [1, 1, 2, 2])
    edges = [Edge(None, array("q", [1, 1, 1, 1]), (7, 8)), Edge(0, array("q", [1]), (9,))]
    assert sorted(cache.restore(edges).values()) == [8, 9]
    assert held(cache, [[1, 1, 2, 2], [1] * 5]) == [4, 5]
    cache.allocate(cache.num_free)
    assert cache.restore([Edge(None, array("q", [3, 3]), (1,))]) == {}
    off = PrefixCache(6, 2, enabled=False)
    assert off.restore(edges) == {}
    assert off.num_free == 6


def test_edges_that_say_a_thing_twice(serve: Serve) -> None:
    twice = [Edge(None, array("q", [1, 1, 1]), (0, 1)), Edge(None, array("q", [1, 1, 1, 1]), (2, 3))]
    cache = PrefixCache(8, 2)
    cache.restore([Edge(None, array("q", [1, 1]), (0,)), Edge(0, array("q", [1]), (1,)), *twice[1:]])
    assert held(cache, [[1] * 4]) == [4]
    cache = PrefixCache(4, 2)
    taken = cache.restore(twice)
    assert held(cache, [[1] * 4, [1, 1, 1]]) == [4, 3]
    assert len(set(taken)) == len(taken)
