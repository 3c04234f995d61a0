"""The order of admission under each policy, and that nobody starves."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.page_memory import PageMemory, make_sequence, run_all

from treille.radix.cache import PrefixCache
from treille.runtime.scheduler import Scheduler
from treille.runtime.sequence import Kind, Sequence
from treille.runtime.waiting import (
    MAX_OVERTAKES,
    WINDOW,
    Candidate,
    SchedulePolicy,
    WaitingQueue,
    depth_first,
)

POLICIES: tuple[SchedulePolicy, ...] = get_args(SchedulePolicy)


def walk(candidates: list[Candidate], depth: int) -> list[Candidate]:
    """What `depth_first` must give, rule by rule, for candidates that share their first `depth` tokens."""
    branches: dict[object, list[Candidate]] = {}
    for candidate in candidates:
        tokens = candidate.seq.tokens
        # A text that ends here is a branch by itself, as is each of several that are equal.
        branches.setdefault(tokens[depth] if depth < len(tokens) else candidate.seq, []).append(candidate)
    if len(branches) == 1 and depth < len(candidates[0].seq.tokens):
        return walk(candidates, depth + 1)
    found = []
    place = candidates.index
    for branch in sorted(
        branches.values(),
        key=lambda branch: (max(c.reusable for c in branch) <= depth, -len(branch), place(branch[0])),
    ):
        found.extend(branch if len(branch) == 1 else walk(branch, depth + 1))
    return found


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 2), min_size=1, max_size=8), st.integers(0, 8)), max_size=12)
)
def test_depth_first(drawn: list[tuple[list[int], int]]) -> None:
    candidates = [Candidate(make_sequence(text), min(count, len(text) - 1)) for text, count in drawn]
    assert depth_first(candidates) == (walk(candidates, 0) if candidates else [])


def order(policy: SchedulePolicy, seqs: list[tuple[list[int], int, int]]) -> list[int]:
    """Places of (tokens, reusable, priority) in the order of admission."""
    made = [make_sequence(tokens, priority=priority) for tokens, _, priority in seqs]
    reusable = {seq: count for seq, (_, count, _) in zip(made, seqs, strict=True)}
    queue = WaitingQueue(policy, reusable.__getitem__)
    queue.add(made)
    return [made.index(candidate.seq) for candidate in queue.candidates()]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("fcfs", [0, 1, 2, 3, 4]),
        ("lpm", [3, 1, 4, 0, 2]),
        ("priority", [4, 1, 0, 2, 3]),
        # 3 is cached; below [1] three wait, of which the branch [1, 2] holds two.
        ("dfs-weight", [3, 1, 4, 2, 0]),
    ],
)
def test_order(policy: SchedulePolicy, expected: list[int]) -> None:
    seqs = [
        ([5, 5, 5, 5, 5], 0, 0),
        ([1, 2, 3, 4, 5], 0, 1),
        ([1, 9, 9, 9, 9], 0, -1),
        ([7, 7, 7, 7, 7], 4, -2),
        ([1, 2, 4, 4, 4], 0, 9),
    ]
    if policy == "lpm":
        seqs[1], seqs[4] = (seqs[1][0], 2, 1), (seqs[4][0], 1, 9)
    assert order(policy, seqs) == expected


@pytest.mark.parametrize("policy", POLICIES)
def test_those_at_the_front_come_before_their_equals(policy: SchedulePolicy) -> None:
    queue = WaitingQueue(policy, lambda seq: 0)
    late, *early = (make_sequence([i]) for i in range(3))
    queue.add([late])
    queue.add(early, front=True)
    assert [candidate.seq for candidate in queue.candidates()] == [*early, late]


@pytest.mark.parametrize("policy", ["lpm", "dfs-weight", "priority"])
def test_nobody_starves(policy: SchedulePolicy) -> None:
    """Two that share nothing, while what is cached and has priority never ends."""
    cache = PrefixCache(64, 4)
    memory = PageMemory(64, 4)
    scheduler = Scheduler(cache, max_num_seqs=1, max_batched_tokens=64, policy=policy)
    scheduler.add([make_sequence([1] * 16, kind=Kind.PREFILL)])
    run_all(scheduler, memory)
    poor = [make_sequence([2] * 9), make_sequence([3] * 9)]
    scheduler.add(poor)
    admitted = []
    for number in range(3 * MAX_OVERTAKES):
        scheduler.add([make_sequence([*[1] * 16, 4 + number], priority=1)])
        plan = scheduler.plan()
        for chunk in plan.chunks:
            admitted.append(chunk.seq)
            scheduler.advance(chunk)
            scheduler.finish(chunk.seq)
    assert [admitted.index(seq) for seq in poor] == [MAX_OVERTAKES, 2 * MAX_OVERTAKES + 1]


def test_a_head_that_leaves_hands_its_turn_to_nobody() -> None:
    queue = WaitingQueue("lpm", lambda seq: len(seq.tokens))
    poor, heir = make_sequence([1]), make_sequence([1])
    rich = [make_sequence([2, 2]) for _ in range(MAX_OVERTAKES + 1)]
    queue.add([poor, heir, *rich])
    for seq in rich[:-1]:
        queue.admit(seq)
    assert next(queue.candidates()).seq is poor
    queue.remove(poor)
    assert [candidate.seq for candidate in queue.candidates()] == [rich[-1], heir]


@pytest.mark.parametrize("policy", ["lpm", "dfs-weight"])
def test_a_cached_prefix_is_seen_behind_a_long_queue(policy: SchedulePolicy) -> None:
    cached: list[Sequence] = []
    queue = WaitingQueue(policy, lambda seq: 3 if seq in cached else 0)
    queue.add(make_sequence([number] * 4) for number in range(3 * WINDOW))
    late = make_sequence([7, 7, 7, 7])
    cached.append(late)
    queue.add([late])
    assert next(queue.candidates()).seq is late


@pytest.mark.parametrize("policy", ["lpm", "dfs-weight"])
def test_who_begins_alike_is_seen_behind_a_long_queue(policy: SchedulePolicy) -> None:
    """Sharers of the first one, far behind it, come next once it was admitted."""
    cached: list[Sequence] = []
    queue = WaitingQueue(policy, lambda seq: 3 if seq in cached else 0)
    queue.add(make_sequence([number] * 4) for number in range(3 * WINDOW))
    sharers = [make_sequence([0, 0, 0, number]) for number in range(3)]
    queue.add(sharers)
    first = next(queue.candidates()).seq
    assert list(first.tokens) == [0] * 4
    queue.admit(first)
    cached.extend(sharers)
    for seq in sharers:
        assert next(queue.candidates()).seq is seq
        queue.admit(seq)


def test_those_that_wait_for_a_prefix_keep_their_places() -> None:
    scheduler = Scheduler(PrefixCache(100, 4), max_num_seqs=4, max_batched_tokens=512)
    alike = [make_sequence([*range(20), 30 + number]) for number in range(3)]
    others = [make_sequence([50 + number] * 9) for number in range(3)]
    scheduler.add([*alike, *others])
    assert [chunk.seq for chunk in scheduler.plan().chunks] == [alike[0], others[0]]
