"""Admission by pages and a guess of output lengths, who is preempted, and what can never fit."""

from __future__ import annotations

import random

import pytest
from oracles.history_model import HistoryModel, byte_tokenizer
from oracles.page_memory import PageMemory, make_sequence

from treille.radix.cache import PrefixCache
from treille.runtime.config import resolve_config
from treille.runtime.core import EngineCore
from treille.runtime.errors import InvalidRequest
from treille.runtime.estimate import FIRST_SHARE, OutputEstimate
from treille.runtime.group import Start
from treille.runtime.matching import TokenIndex
from treille.runtime.models.load import LoadedModel
from treille.runtime.params import SamplingParams
from treille.runtime.scheduler import Scheduler
from treille.runtime.sequence import Kind, Sequence, Status
from treille.runtime.types import Event, Failed, Finished, Request, ScoreRequest


class TestEstimate:
    def test_it_learns_the_share(self) -> None:
        estimate = OutputEstimate(4)
        assert estimate.share == FIRST_SHARE
        for _ in range(200):
            estimate.ended(make_sequence([1], continuation=range(10), max_tokens=100))
        assert estimate.share == pytest.approx(0.1, abs=0.01)
        seq = make_sequence([1], continuation=range(50), max_tokens=100)
        assert estimate.num_left(seq) == 5
        before = estimate.share
        estimate.preempted()
        assert before < estimate.share < 1

    def test_what_is_known_is_not_guessed(self) -> None:
        estimate = OutputEstimate(4)
        for kind in (Kind.PREFILL, Kind.SCORE):
            assert estimate.num_left(make_sequence([1], kind=kind)) == 0
        for _ in range(200):
            estimate.ended(make_sequence([1], max_tokens=100))
        assert estimate.num_left(make_sequence([1], max_tokens=100)) == 0
        assert estimate.num_left(make_sequence([1], max_tokens=100, min_tokens=30)) == 30
        assert estimate.num_left(make_sequence([1], max_tokens=100, ignore_eos=True)) == 100
        assert estimate.num_left(make_sequence([1], max_tokens=100, ignore_eos=True, stop=("a",))) == 0
        # The context ends before max_tokens do.
        assert estimate.num_left(make_sequence([1, 2], max_pages=3, max_tokens=100, ignore_eos=True)) == 10


def run(scheduler: Scheduler, memory: PageMemory, lengths: dict[Sequence, int]) -> tuple[int, int]:
    """Run sequences to their lengths; how many steps, and how many preemptions it took."""
    steps = preempted = 0
    while scheduler.num_running + scheduler.num_waiting:
        plan = scheduler.plan()
        memory.compute(plan)
        steps, preempted = steps + 1, preempted + plan.preempted
        for chunk in plan.chunks:
            scheduler.advance(chunk)
            if chunk.seq.pending == 0:
                scheduler.append(chunk.seq, 1)
                if len(chunk.seq.output_ids) >= lengths[chunk.seq]:
                    scheduler.finish(chunk.seq)
        scheduler.check()
    return steps, preempted


class TestAdmission:
    def make(self, num_pages: int = 40) -> tuple[Scheduler, PageMemory]:
        scheduler = Scheduler(PrefixCache(num_pages, 4), max_num_seqs=64, max_batched_tokens=512)
        return scheduler, PageMemory(num_pages, 4)

    def test_known_lengths_are_never_preempted(self) -> None:
        scheduler, memory = self.make()
        rng = random.Random(0)
        lengths = {}
        for _ in range(60):
            length = rng.randrange(1, 60)
            prompt = [rng.randrange(9) for _ in range(rng.randrange(1, 40))]
            seq = make_sequence(prompt, max_pages=30, max_tokens=length, ignore_eos=True)
            lengths[seq] = length
        scheduler.add(lengths)
        assert run(scheduler, memory, lengths)[1] == 0

    def test_short_answers_leave_no_pages_idle(self) -> None:
        """Samples that use a tenth of max_tokens: once that is known, as many run as really fit."""
        scheduler, memory = self.make()
        lengths = {make_sequence([i, i], max_pages=30, max_tokens=100): 10 for i in range(160)}
        scheduler.add(lengths)
        steps, preempted = run(scheduler, memory, lengths)
        # Three pages each: 13 fit at a time, for 11 steps. With room for max_tokens only one would run.
        assert 160 / 13 * 10 <= steps < 2 * 160 / 13 * 11
        assert preempted < 20


class TestPreemption:
    def running(self, *seqs: Sequence, num_pages: int) -> tuple[Scheduler, PrefixCache]:
        """Sequences that were admitted one after another, and no page is left."""
        cache = PrefixCache(num_pages, 4)
        scheduler = Scheduler(cache, max_num_seqs=8, max_batched_tokens=64)
        for seq in seqs:
            scheduler.add([seq])
            for chunk in scheduler.plan().chunks:
                scheduler.advance(chunk)
                if chunk.seq.pending == 0:
                    scheduler.append(chunk.seq, 7)
        assert scheduler.num_running == len(seqs)
        return scheduler, cache

    def first_victim(self, scheduler: Scheduler, seqs: list[Sequence]) -> Sequence:
        while True:
            plan = scheduler.plan()
            for chunk in plan.chunks:
                scheduler.advance(chunk)
                scheduler.append(chunk.seq, 7)
            scheduler.check()
            if plan.preempted:
                (victim,) = [seq for seq in seqs if seq.status is Status.WAITING]
                return victim

    def test_lowest_priority_goes_first(self) -> None:
        seqs = [
            make_sequence(range(start, start + 9), priority=priority, max_tokens=1)
            for start, priority in ((0, 1), (100, 0), (200, 2))
        ]
        scheduler, _ = self.running(*seqs, num_pages=10)
        assert self.first_victim(scheduler, seqs) is seqs[1]

    def test_then_the_least_work_that_only_it_holds(self) -> None:
        """The longest sequence shares most of its pages with another one: it has least to lose."""
        stem = range(40)
        seqs = [
            make_sequence([*stem, 41, 42, 43, 44, 45, 46], max_tokens=1),
            make_sequence([*stem, 51], max_tokens=1),
            make_sequence(range(100, 112), max_tokens=1),
        ]
        scheduler, cache = self.running(*seqs, num_pages=19)
        assert cache.num_unshared(seqs[0].lease) == 1 and cache.num_unshared(seqs[2].lease) == 3
        assert self.first_victim(scheduler, seqs) is seqs[1]


def core(num_pages: int) -> EngineCore:
    """An engine's core with fewer pages than its longest sequence takes."""
    model = HistoryModel()
    loaded = LoadedModel("history", model.config, model, byte_tokenizer(), None)
    config = resolve_config(
        model.config,
        page_bytes=model.page_bytes,
        device="cpu",
        available=1 << 30,
        max_seq_len=(num_pages - 1) * 4,
        max_num_seqs=4,
        max_batched_tokens=64,
        max_queued=4,
        kv_memory=num_pages * 4 * 64,
        page_size=4,
        enable_prefix_caching=True,
        schedule_policy="lpm",
        eviction="lru",
        host_memory=None,
        cache_file=None,
        jump_forward=True,
        seed=0,
    )
    return EngineCore(loaded, config, lambda: TokenIndex(loaded.tokenizer.token_bytes))


class TestNeverFits:
    def test_it_is_refused_at_once_with_numbers(self) -> None:
        engine = core(6)
        events: list[Event] = []
        add = {"seed": 0, "start": Start(), "put": events.append}
        prompt = tuple(range(20))
        with pytest.raises(InvalidRequest, match="21 tokens take 7 pages of 4, and the KV pool has 6"):
            engine.add("a", Request(prompt_ids=prompt, params=SamplingParams()), **add)
        with pytest.raises(InvalidRequest, match="23 tokens take 7 pages"):
            engine.add("b", ScoreRequest(prompt_ids=prompt, continuations=((1,), (1, 2, 3))), **add)
        assert not engine.busy and not events
        engine.add("c", Request(prompt_ids=prompt[:18], params=SamplingParams(max_tokens=1)), **add)
        while engine.busy:
            engine.step()
        assert isinstance(events[-1], Finished)

    def test_pages_that_never_come_back(self) -> None:
        """Somebody else keeps pages: what cannot start or go on alone ends with numbers."""
        engine = core(8)
        kept = engine.cache.allocate(4)
        ends: dict[str, Event] = {}
        for name, prompt in (("grows", (1, 2)), ("large", tuple(range(18))), ("small", (9,))):
            engine.add(
                name,
                Request(
                    prompt_ids=prompt,
                    params=SamplingParams(
                        temperature=0, max_tokens=2 if name == "small" else 20, ignore_eos=True
                    ),
                ),
                seed=0,
                start=Start(),
                put=lambda event, name=name: ends.__setitem__(name, event),
            )
        for _ in range(100):
            if engine.busy:
                engine.step()
        for name in ("grows", "large"):
            end = ends[name]
            assert isinstance(end, Failed) and "8 pages of 4" in str(end.error)
        assert isinstance(ends["small"], Finished)
        engine.cache.free(kept)
        engine.scheduler.check()
