"""Random load on a pool that is too small for it, pages counted after each step.

Nothing is lost: each request ends with one event, by its own fault only if it was aborted. Nothing leaks: in
the end every page is free. Every tenth request has the output that it has alone, without a cache.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import get_args

import pytest
from oracles.history_model import HistoryModel, byte_tokenizer

from treille.runtime.config import resolve_config
from treille.runtime.core import EngineCore
from treille.runtime.grammar import Vocabulary, compile_regex
from treille.runtime.group import Start
from treille.runtime.matching import TokenIndex
from treille.runtime.models.load import LoadedModel
from treille.runtime.params import SamplingParams
from treille.runtime.types import Event, Failed, Finished, Request, Scored, ScoreRequest, TokenEvent
from treille.runtime.waiting import SchedulePolicy

TOKENIZER = byte_tokenizer()
MAX_SEQ_LEN = 72
PATTERNS = (
    "[ab]{1,8}",
    "(yes|no)( indeed)?",
    r"\d{1,3}(, \d{1,3}){0,4}",
    "same(same){0,3}",
    None,
    None,
    None,
)
Work = Request | ScoreRequest


def make_core(*, num_pages: int, page_size: int, caching: bool = True, **settings: object) -> EngineCore:
    model = HistoryModel()
    loaded = LoadedModel("history", model.config, model, TOKENIZER, None)
    fixed = {"max_num_seqs": 8, "max_batched_tokens": 64, "schedule_policy": "lpm"}
    config = resolve_config(
        model.config,
        page_bytes=model.page_bytes,
        device="cpu",
        available=1 << 30,
        max_seq_len=MAX_SEQ_LEN,
        max_queued=64,
        kv_memory=num_pages * page_size * 64,
        page_size=page_size,
        enable_prefix_caching=caching,
        eviction="lru",
        host_memory=None,
        cache_file=None,
        jump_forward=True,
        seed=0,
        **(fixed | settings),
    )
    return EngineCore(loaded, config, lambda: TokenIndex(TOKENIZER.token_bytes))


class Soak:
    """One core under load."""

    def __init__(self, rng: random.Random, policy: SchedulePolicy) -> None:
        self.rng = rng
        self.vocab = Vocabulary.from_tokenizer(TOKENIZER)
        page_size = rng.choice([1, 3, 4, 16])
        self.core = make_core(
            num_pages=-(-MAX_SEQ_LEN // page_size) + 1 + rng.randrange(1 + 32 // page_size),
            page_size=page_size,
            caching=rng.random() < 0.85,
            max_num_seqs=rng.choice([1, 8, 8]),
            max_batched_tokens=rng.choice([2, 16, 64]),
            schedule_policy=policy,
        )
        self.stems = [[rng.randrange(256) for _ in range(rng.randrange(1, 40))] for _ in range(4)]
        self.events: dict[str, list[Event]] = {}
        self.works: dict[str, tuple[Work, int]] = {}
        self.aborted: set[str] = set()

    def run(self, num_rounds: int) -> None:
        for _ in range(num_rounds):
            if self.rng.random() < 0.3:
                for _ in range(self.rng.choice([1, 1, 1, 5])):
                    self.add()
            live = [name for name, events in self.events.items() if not _is_over(events)]
            if live and self.rng.random() < 0.05:
                name = self.rng.choice(live)
                self.aborted.add(name)
                assert self.core.abort(name)
                self.core.scheduler.check()
            while len(live) > 30 and self.core.scheduler.num_waiting > 20:  # let it catch up
                self.step()
            self.step()
            if self.rng.random() < 0.002:
                self.core.cache.flush()
        while self.core.busy:
            self.step()
        self.finish()

    def add(self) -> None:
        name = str(len(self.works))
        work, seed = self.draw(), self.rng.getrandbits(60)
        self.works[name] = work, seed
        self.events[name] = []
        self.core.add(name, work, seed=seed, start=self.start(work), put=self.events[name].append)
        self.core.scheduler.check()

    def step(self) -> None:
        if self.core.busy:
            self.core.step()
        self.core.scheduler.check()

    def draw(self) -> Work:
        rng = self.rng
        stem = rng.choice(self.stems)
        prompt = stem[: rng.randint(1, len(stem))] + [rng.randrange(256) for _ in range(rng.randrange(8))]
        priority = rng.choice([0, 0, 1])
        if rng.random() < 0.2:
            rest = [rng.randbytes(rng.randint(1, 12)) for _ in range(rng.randint(1, 4))]
            return ScoreRequest(
                prompt_ids=tuple(prompt), continuations=tuple(map(tuple, rest)), priority=priority
            )
        params = SamplingParams(
            max_tokens=rng.choice([0, 1, 5, 24, 60, 60]),
            temperature=rng.choice([0, 1]),
            n=rng.choice([1, 1, 2, 3]),
            regex=rng.choice(PATTERNS),
            ignore_eos=rng.random() < 0.5,
            stop=rng.choice([(), ("a",), ("never said",)]),
            logprobs=rng.choice([None, 2]),
        )
        return Request(prompt_ids=tuple(prompt), params=params, priority=priority)

    def start(self, work: Work) -> Start:
        if isinstance(work, ScoreRequest) or work.params.regex is None:
            return Start()
        return Start(compile_regex(work.params.regex, self.vocab).matcher())

    def finish(self) -> None:
        for name, events in self.events.items():
            assert [_is_over(events[: count + 1]) for count in range(len(events))] == [False] * (
                len(events) - 1
            ) + [True], "a request ends once, with its last event"
            if name not in self.aborted:
                assert isinstance(events[-1], Finished | Scored), events[-1]
                if int(name) % 10 == 0:
                    assert _answer(events) == _answer(self.alone(name))
        self.core.cache.flush()
        self.core.scheduler.check()
        assert self.core.cache.num_free == self.core.cache.num_pages
        self.core.close()

    def alone(self, name: str) -> list[Event]:
        """The same request on a core of its own."""
        work, seed = self.works[name]
        core = make_core(num_pages=400, page_size=4, caching=False)
        events: list[Event] = []
        core.add(name, work, seed=seed, start=self.start(work), put=events.append)
        while core.busy:
            core.step()
        core.close()
        return events


def _is_over(events: Sequence[Event]) -> bool:
    return bool(events) and not isinstance(events[-1], TokenEvent)


def _answer(events: Sequence[Event]) -> object:
    """What a request was answered with."""
    end = events[-1]
    if isinstance(end, Scored):
        return [[round(value, 4) for value in values] for values in end.logprobs]
    assert not isinstance(end, Failed)
    return [(done.token_ids, done.text, done.finish_reason) for done in end.completions]


@pytest.mark.parametrize("policy", get_args(SchedulePolicy))
def test_random_load(policy: SchedulePolicy) -> None:
    Soak(random.Random(f"{policy}-0"), policy).run(60)


@pytest.mark.slow
def test_random_load_for_ten_minutes() -> None:
    end = time.monotonic() + 600
    seed = 0
    while time.monotonic() < end:
        for policy in get_args(SchedulePolicy):
            seed += 1
            Soak(random.Random(seed), policy).run(300)
