"""Requests that arrive together compute what they share once: tokens computed against nodes of their trie."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.page_memory import PageMemory, count_nodes, make_sequence, run_all

from treille.radix.cache import PrefixCache
from treille.runtime.scheduler import Scheduler
from treille.runtime.sequence import Kind
from treille.runtime.sharing import MIN_AWAITED
from treille.runtime.waiting import SchedulePolicy

POLICIES = get_args(SchedulePolicy)
# A tree of texts: how many tokens each node adds, and its branches, which begin differently.
TREES = st.recursive(
    st.integers(MIN_AWAITED + 1, 23).map(lambda length: (length, [])),
    lambda trees: st.tuples(st.integers(MIN_AWAITED + 1, 23), st.lists(trees, min_size=2, max_size=4)),
    max_leaves=14,
)


def texts_of(tree, above: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    length, branches = tree
    if not branches:
        yield (*above, *range(100, 100 + length))
    for number, branch in enumerate(branches):
        # The last token of this node tells its branches apart, so that none begins like another.
        yield from texts_of(branch, (*above, *range(100, 99 + length), number))


def engine(
    page_size: int, policy: SchedulePolicy = "lpm", budget: int = 4096
) -> tuple[Scheduler, PageMemory]:
    cache = PrefixCache(2000, page_size)
    scheduler = Scheduler(cache, max_num_seqs=64, max_batched_tokens=budget, policy=policy)
    return scheduler, PageMemory(2000, page_size)


@given(
    tree=TREES,
    page_size=st.sampled_from([1, 4, 16, 64]),
    policy=st.sampled_from(POLICIES),
    order=st.randoms(use_true_random=False),
)
def test_what_is_shared_is_computed_once(tree, page_size, policy, order) -> None:
    texts = list(texts_of(tree))
    order.shuffle(texts)
    scheduler, memory = engine(page_size, policy)
    scheduler.add([make_sequence(text) for text in texts])
    assert run_all(scheduler, memory) == count_nodes(texts)


@pytest.mark.parametrize("budget", [7, 64])
@pytest.mark.parametrize("page_size", [1, 16])
def test_in_chunks(page_size: int, budget: int) -> None:
    """A prefix that takes several steps; each text may compute the few tokens that are not worth a wait."""
    texts = [(*range(100, 250), last) for last in range(8)]
    scheduler, memory = engine(page_size, budget=budget)
    scheduler.add([make_sequence(text) for text in texts])
    assert run_all(scheduler, memory) <= count_nodes(texts) + 7 * (MIN_AWAITED - 1)


@pytest.mark.parametrize("kind", [Kind.SAMPLE, Kind.PREFILL, Kind.SCORE])
def test_shorter_than_a_page(kind: Kind) -> None:
    """Four tokens on a page of 64 that the first sequence goes on writing to."""
    texts = [(1, 2, 3, 4, 5 + last) for last in range(5)]
    scheduler, memory = engine(64)
    more = {"continuation": (9, 9)} if kind is Kind.SCORE else {}
    scheduler.add([make_sequence(text, kind=kind, **more) for text in texts])
    # A scored text computes its continuation but for the last token.
    assert (
        run_all(scheduler, memory, num_new=4)
        == count_nodes(texts)
        + 5
        * {
            Kind.SAMPLE: 3,
            Kind.PREFILL: 0,
            Kind.SCORE: 1,
        }[kind]
    )


def test_one_that_comes_later_shares_the_page_of_one_that_runs() -> None:
    scheduler, memory = engine(16)
    first = make_sequence(range(20))
    scheduler.add([first])
    plan = scheduler.plan()
    memory.compute(plan)
    scheduler.advance(plan.chunks[0])
    scheduler.append(first, 77)
    late = make_sequence([*range(19), 99])
    scheduler.add([late])
    plan = scheduler.plan()
    memory.compute(plan)
    assert {chunk.seq: (chunk.start, chunk.count) for chunk in plan.chunks} == {first: (20, 1), late: (19, 1)}


def test_little_is_not_waited_for() -> None:
    scheduler, _ = engine(16)
    scheduler.add([make_sequence((*range(MIN_AWAITED - 1), 50 + last)) for last in range(3)])
    assert len(scheduler.plan().chunks) == 3
    scheduler, _ = engine(16)
    scheduler.add([make_sequence((*range(MIN_AWAITED), 50 + last)) for last in range(3)])
    assert len(scheduler.plan().chunks) == 1


def test_nothing_is_shared_across_namespaces() -> None:
    scheduler, memory = engine(4)
    scheduler.add([make_sequence(range(30), namespace=space) for space in ("a", "b", "c")])
    assert len(scheduler.plan().chunks) == 3
    scheduler, memory = engine(4)
    scheduler.add([make_sequence(range(30), namespace=space) for space in ("a", "b", "a")])
    assert run_all(scheduler, memory) == 61  # the last token is computed for its logits


def test_without_a_cache_nobody_waits() -> None:
    cache = PrefixCache(100, 4, enabled=False)
    scheduler = Scheduler(cache, max_num_seqs=8, max_batched_tokens=4096)
    scheduler.add([make_sequence(range(30)) for _ in range(3)])
    assert scheduler.plan().num_tokens == 90
