"""Tree, pool and scheduler together, against a memory that remembers which token lies in which slot."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from oracles.page_memory import PageMemory, make_sequence

from treille.radix.cache import PrefixCache
from treille.runtime.scheduler import Scheduler, StepPlan
from treille.runtime.sequence import Kind, Sequence, Status
from treille.runtime.waiting import SchedulePolicy

MAX_PAGES = 12
WORDS = st.lists(st.integers(0, 1), min_size=1, max_size=30)


class SchedulerMachine(RuleBasedStateMachine):
    """Random requests, steps, aborts, failures and forced tokens on a pool that is too small for all."""

    @initialize(
        page_size=st.sampled_from([1, 3, 4]),
        extra=st.integers(1, 20),
        budget=st.sampled_from([1, 5, 64]),
        max_num_seqs=st.integers(1, 5),
        enabled=st.booleans(),
        policy=st.sampled_from(get_args(SchedulePolicy)),
    )
    def start(self, page_size, extra, budget, max_num_seqs, enabled, policy) -> None:
        self.size = page_size
        self.limit = page_size * MAX_PAGES
        self.cache = PrefixCache(MAX_PAGES + extra, page_size, enabled=enabled)
        self.scheduler = Scheduler(
            self.cache, max_num_seqs=max_num_seqs, max_batched_tokens=budget, policy=policy
        )
        self.memory = PageMemory(MAX_PAGES + extra, page_size)
        self.max_num_seqs, self.budget = max_num_seqs, budget
        self.live: list[Sequence] = []

    def make(self, kind: Kind, prompt, continuation=(), *, priority: int = 0) -> Sequence:
        seq = make_sequence(
            prompt, kind=kind, continuation=continuation, max_pages=MAX_PAGES, priority=priority
        )
        self.live.append(seq)
        return seq

    @rule(
        prompts=st.lists(WORDS, min_size=1, max_size=3),
        kind=st.sampled_from([Kind.SAMPLE, Kind.PREFILL]),
        priority=st.integers(-1, 1),
    )
    def add(self, prompts, kind, priority) -> None:
        self.scheduler.add([self.make(kind, prompt[: self.limit], priority=priority) for prompt in prompts])

    @rule(prompt=WORDS, forced=WORDS)
    def add_with_forced_tokens(self, prompt, forced) -> None:
        room = self.limit - 1
        self.scheduler.add([self.make(Kind.SAMPLE, prompt[:room], forced[: max(1, room - len(prompt))])])

    @rule(prompt=WORDS, rest=WORDS, front=st.booleans())
    def add_scored(self, prompt, rest, front) -> None:
        room = self.limit - 1
        self.scheduler.add(
            [self.make(Kind.SCORE, prompt[:room], rest[: max(1, room - len(prompt))])], front=front
        )

    @rule(data=st.data())
    @precondition(lambda self: self.live)
    def abort(self, data) -> None:
        seq = self.live.pop(data.draw(st.integers(0, len(self.live) - 1)))
        self.scheduler.finish(seq)
        self.scheduler.finish(seq)  # twice is harmless

    @rule(data=st.data(), times=st.integers(1, 6))
    @precondition(lambda self: self.live)
    def step(self, data, times) -> None:
        for _ in range(times):
            if self.live:
                self.one_step(data)

    def one_step(self, data) -> None:
        plan = self.scheduler.plan()
        assert plan.chunks, "sequences are alive and nothing was planned"
        self.check_plan(plan)
        if data.draw(st.integers(0, 19)) == 0:  # the model fails: nothing of this step can be trusted
            for chunk in plan.chunks:
                self.scheduler.fail(chunk.seq)
                self.live.remove(chunk.seq)
            return
        self.memory.compute(plan)
        for chunk in plan.chunks:
            self.scheduler.advance(chunk)
            self.after(chunk.seq, data)

    def check_plan(self, plan: StepPlan) -> None:
        assert 0 < plan.num_tokens <= self.budget
        assert self.scheduler.num_running <= self.max_num_seqs
        assert len({id(chunk.seq) for chunk in plan.chunks}) == len(plan.chunks)
        written = set()
        for chunk in plan.chunks:
            seq = chunk.seq
            assert seq.status is Status.RUNNING
            assert chunk.count > 0 and chunk.start == seq.num_computed
            assert chunk.start + chunk.count <= seq.target
            assert seq.num_pages * self.size >= chunk.start + chunk.count
            assert set(chunk.rows) <= set(range(chunk.count))
            pages = set(seq.page_row[chunk.start // self.size : seq.num_pages].tolist())
            assert pages <= set(seq.owned), "would write to a page that it does not own"
            assert not pages & written, "two sequences would write to one page"
            written |= pages

    def after(self, seq: Sequence, data) -> None:
        if seq.pending:
            return
        full = len(seq.tokens) >= self.limit
        if seq.kind is not Kind.SAMPLE or full or data.draw(st.integers(0, 9)) == 0:
            self.scheduler.finish(seq)
            self.live.remove(seq)
        else:
            self.scheduler.append(seq, data.draw(st.integers(0, 1)))
            if data.draw(st.booleans()):
                self.jump(seq, data)

    def jump(self, seq: Sequence, data) -> None:
        """The end of the output is replaced by other tokens, as many as there is room for."""
        num_replaced = data.draw(st.integers(0, len(seq.output_ids)))
        kept = seq.tokens[: len(seq.tokens) - num_replaced].tolist()
        forced = data.draw(WORDS)[: self.limit - len(kept)]
        self.scheduler.replace(seq, num_replaced, forced)
        assert seq.tokens.tolist() == [*kept, *forced]
        assert seq.num_computed <= len(kept)
        self.scheduler.check()

    @rule()
    def flush(self) -> None:
        self.cache.flush()

    @invariant()
    def consistent(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        self.scheduler.check()
        assert self.scheduler.num_running + self.scheduler.num_waiting == len(self.live)

    def teardown(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        for seq in self.live:
            self.scheduler.finish(seq)
        self.scheduler.check()
        self.cache.flush()
        assert self.cache.num_free == self.cache.num_pages


TestScheduler = SchedulerMachine.TestCase
TestScheduler.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


class TestRewind:
    """What is forgotten, kept and computed anew; pages of 4."""

    def running(
        self, prompt: int, output: int, *, cached: int = 0
    ) -> tuple[Scheduler, PrefixCache, Sequence]:
        cache = PrefixCache(20, 4)
        scheduler = Scheduler(cache, max_num_seqs=4, max_batched_tokens=64)
        for count in [cached, 0] if cached else [0]:  # the first sequence only fills the cache
            seq = make_sequence(
                range(count or prompt),
                kind=Kind.PREFILL if count else Kind.SAMPLE,
                continuation=() if count else range(prompt, prompt + output),
                max_pages=20,
            )
            scheduler.add([seq])
            (chunk,) = scheduler.plan().chunks
            scheduler.advance(chunk)
            if count:
                scheduler.finish(seq)
        return scheduler, cache, seq

    def test_own_pages_are_cut(self) -> None:
        scheduler, cache, seq = self.running(6, 1)
        scheduler.replace(seq, 0, range(7, 16))
        (chunk,) = scheduler.plan().chunks
        scheduler.advance(chunk)
        assert seq.lease is not None and seq.lease.num_tokens == 4  # the rest is not in the tree yet
        scheduler.rewind(seq, 12)
        assert (len(seq.tokens), seq.num_computed, seq.num_pages) == (12, 12, 3)
        scheduler.rewind(seq, 12)
        assert (seq.num_taken_back, seq.num_pages) == (4, 3)
        scheduler.check()
        scheduler.finish(seq)
        assert cache.lookup(range(16)) == 12

    def test_pages_of_the_tree_are_let_go(self) -> None:
        scheduler, cache, seq = self.running(6, 10)
        assert seq.lease is not None and seq.lease.num_tokens == 16  # all were computed with the prompt
        scheduler.rewind(seq, 10)
        assert (len(seq.tokens), seq.num_computed, seq.num_pages) == (10, 8, 2)
        assert cache.lookup(range(16)) == 16  # the tree keeps what is right
        seq.extend([70, 71])
        (chunk,) = scheduler.plan().chunks
        assert (chunk.start, chunk.count, chunk.copy) == (8, 4, None)
        scheduler.advance(chunk)
        scheduler.check()
        scheduler.finish(seq)
        assert cache.lookup([*range(10), 70, 71]) == 12 and cache.lookup(range(16)) == 16

    def test_pages_that_another_request_computed(self) -> None:
        scheduler, cache, seq = self.running(6, 10, cached=16)
        assert seq.cached_tokens == 15
        scheduler.rewind(seq, 7)
        assert (seq.num_computed, seq.num_pages) == (4, 1)
        scheduler.check()
        scheduler.finish(seq)
        assert cache.lookup(range(16)) == 16

    def test_the_prompt_stays(self) -> None:
        scheduler, _, seq = self.running(6, 3)
        with pytest.raises(RuntimeError, match="cannot keep"):
            scheduler.rewind(seq, 5)
        scheduler.rewind(seq, 6)
        scheduler.check()
        assert seq.output_ids == [] and seq.pending <= 2

    def test_one_that_waits_cannot_be_rewound(self) -> None:
        scheduler, _, seq = self.running(6, 3)
        scheduler.finish(seq)
        with pytest.raises(RuntimeError, match="finished"):
            scheduler.rewind(seq, 7)
