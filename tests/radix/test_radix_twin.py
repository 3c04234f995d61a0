"""Random lives of sequences, against a twin that keeps one entry a page and searches by brute force.

A page's content is modelled as what its keys and values depend on: the namespace, all tokens before it
and the tokens in it. So a page that is lent for the wrong prefix is caught, whatever its own tokens.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from oracles.page_twin import Prefix, Twin

from treille.radix import Eviction, Lease, OutOfPages, PageError, Pin, PinLimit, PrefixCache


@dataclass
class Running:
    """A sequence: `known` tokens, of which the first `computed` are in the lease's and its own pages."""

    namespace: object
    known: tuple[int, ...]
    lease: Lease
    donor: Prefix | None
    computed: int
    priority: int
    pages: list[int] = field(default_factory=list)

    @property
    def path(self) -> Prefix:
        return (self.namespace, self.known[: self.lease.num_tokens])


# Token sequences that often share a long prefix, so that most steps meet what earlier ones left.
STEMS = [(), (0, 1, 0, 0, 1, 1, 0, 2, 0, 1, 0, 1), (0, 1, 0, 0, 1, 2, 2, 2, 2), (0,) * 9, (1, 0, 1)]
TOKENS = st.builds(
    lambda stem, cut, more: (*stem[: len(stem) - cut], *more),
    st.sampled_from(STEMS),
    st.integers(0, 4),
    st.lists(st.integers(0, 2), max_size=5),
)
NAMESPACES = st.sampled_from([None, None, None, "a", ("a",)])
PICK = st.integers(0, 7)
PRIORITIES = st.sampled_from([0, 0, 0, 1, -1, 5])


class CacheMachine(RuleBasedStateMachine):
    """One scheduler's thread: sequences start, compute, publish and end in any order."""

    eviction: Eviction = "lru"
    num_slots = 0

    @initialize(num_pages=st.integers(4, 24), page_size=st.integers(1, 4))
    def build(self, num_pages: int, page_size: int) -> None:
        self.size = page_size
        host = self if self.num_slots else None
        self.cache = PrefixCache(
            num_pages, page_size, eviction=self.eviction, host=host, num_host_pages=self.num_slots
        )
        self.twin = Twin(num_pages, page_size, self.eviction)
        self.twin.num_slots = self.num_slots
        self.running: list[Running] = []
        self.pins: dict[Pin, list[Prefix]] = {}
        self.slots: dict[int, Prefix] = {}
        self.spare: list[int] = []
        self.written: dict[int, Prefix] = {}

    def allocate(self, count: int) -> list[int] | None:
        """Pages from cache and twin, or None if both say that there are too few."""
        twin = self.twin
        if count > twin.free + twin.evictable():
            self.refuses(OutOfPages, lambda: self.cache.allocate(count))
            return None
        twin.evict(count - twin.free)
        pages = self.cache.allocate(count)
        assert len(set(pages)) == count
        assert twin.owned.isdisjoint(pages)
        assert {entry.page for entry in twin.cached.values()}.isdisjoint(pages)
        twin.free -= count
        twin.owned.update(pages)
        for page in pages:
            self.written.pop(page, None)
        return pages

    def store(self, page: int, slot: int) -> None:
        """The machine is the host memory too."""
        assert 0 <= slot < self.num_slots
        self.slots[slot] = self.written[page]

    def load(self, slot: int, page: int) -> None:
        assert page not in self.twin.owned
        assert all(entry.page != page for entry in self.twin.cached.values())
        self.loaded.append((page, self.slots.pop(slot)))

    def refuses(self, error: type[Exception], call: Callable[[], object]) -> None:
        """The call fails; the invariants compare cache and twin afterwards, so it changed nothing."""
        with pytest.raises(error):
            call()

    def write(self, seq: Running) -> None:
        """Model what the engine computes: the content of the sequence's own pages."""
        for index, page in enumerate(seq.pages):
            start = seq.lease.num_tokens + index * self.size
            if start < seq.computed:
                end = min(start + self.size, seq.computed)
                self.written[page] = (seq.namespace, seq.known[:end])

    @rule(namespace=NAMESPACES, tokens=TOKENS, limit=st.none() | st.integers(0, 14), priority=PRIORITIES)
    def start(self, namespace: object, tokens: tuple[int, ...], limit: int | None, priority: int) -> None:
        expected = self.twin.lookup(namespace, tokens[:limit])
        back = self.coming_back(namespace, tokens[:limit], expected)
        fetches = bool(back)
        if fetches:
            expected = expected // self.size * self.size
            for prefix in self.twin.up_to((namespace, tokens[:expected])):
                self.twin.lock(prefix)
            back = back[: self.twin.free + self.twin.evictable()]
            self.twin.host = [prefix for prefix in self.twin.host if prefix not in back]
            self.twin.num_slots -= len(back)
            self.twin.evict(len(back) - self.twin.free)
            self.twin.num_slots += len(back)
            self.twin.free -= len(back)
        self.loaded: list[tuple[int, Prefix]] = []
        lease = self.cache.acquire(tokens, namespace=namespace, limit=limit, priority=priority)
        assert [prefix for _, prefix in self.loaded] == back
        assert len({page for page, _ in self.loaded}) == len(back)
        for page, prefix in self.loaded:
            self.written[page] = prefix
            self.twin.owned.add(page)
            self.twin.add(prefix, page)
        if fetches:
            for prefix in self.twin.up_to((namespace, tokens[:expected])):
                self.twin.unlock(prefix)  # anew below
            expected += len(back) * self.size
        assert lease.num_cached_tokens == expected
        assert lease.num_tokens == len(lease.pages) * self.size == expected // self.size * self.size
        seq = Running(namespace, tokens, lease, None, lease.num_tokens, priority)
        for prefix, page in zip(self.twin.up_to(seq.path), lease.pages, strict=True):
            assert self.written[page] == prefix
            self.twin.lock(prefix)
        if lease.partial is not None:
            page, count = lease.partial
            assert 0 < count < self.size
            content = self.written[page]
            assert content[0] == namespace
            assert content[1][: lease.num_tokens + count] == tokens[: lease.num_tokens + count]
            seq.donor = content
            self.twin.lock(content)
        self.running.append(seq)

    def coming_back(self, namespace: object, tokens: tuple[int, ...], cached: int) -> list[Prefix]:
        """What follows the cached tokens in host memory."""
        found: list[Prefix] = []
        for prefix in self.twin.up_to((namespace, tokens))[cached // self.size :]:
            if prefix not in self.twin.host:
                break
            found.append(prefix)
        return found

    @rule(namespace=NAMESPACES, tokens=TOKENS, slack=st.integers(0, 2), priority=PRIORITIES)
    def serve(self, namespace: object, tokens: tuple[int, ...], slack: int, priority: int) -> None:
        """A whole life in one step; short of pages it gives up what it has."""
        self.start(namespace, tokens, max(len(tokens) - slack, 0), priority)
        self.compute(len(self.running) - 1, (), len(tokens), surplus=False)
        self.publish(len(self.running) - 1)
        self.release(len(self.running) - 1, keep=True, used=True, tokens=list)

    @precondition(lambda self: self.running)
    @rule(pick=PICK, more=TOKENS, count=st.integers(1, 12), surplus=st.booleans())
    def compute(self, pick: int, more: tuple[int, ...], count: int, surplus: bool) -> None:
        """Extend a sequence: sample `more` if nothing is left to compute, then compute `count` tokens."""
        seq = self.running[pick % len(self.running)]
        if seq.computed == len(seq.known):
            seq.known += more
        computed = min(seq.computed + count, len(seq.known))
        if seq.computed == seq.lease.num_tokens and seq.lease.partial is not None:
            computed = max(computed, seq.lease.num_cached_tokens)  # the copy comes first
        needed = -(-(computed - seq.lease.num_tokens) // self.size) + surplus - len(seq.pages)
        pages = self.allocate(max(needed, 0))
        if pages is not None:
            seq.pages += pages
            seq.computed = computed
            self.write(seq)

    @precondition(lambda self: self.running)
    @rule(pick=PICK)
    def publish(self, pick: int) -> None:
        seq = self.running[pick % len(self.running)]
        old, count = seq.path, (seq.computed - seq.lease.num_tokens) // self.size
        dead = seq.lease
        seq.lease, rest = self.cache.publish(dead, seq.known[: seq.computed], seq.pages)
        assert rest == seq.pages[count:]
        assert seq.lease.partial is None
        self.move(seq, old, seq.pages[:count])
        seq.pages = rest
        assert [self.written[page] for page in seq.lease.pages] == self.twin.up_to(seq.path)
        self.refuses(PageError, lambda: self.cache.publish(dead, seq.known[: seq.computed], rest))
        self.refuses(PageError, lambda: self.cache.release(dead, seq.known[: seq.computed], rest))

    def move(self, seq: Running, old: Prefix, pages: list[int]) -> None:
        self.twin.tick()
        if seq.donor is not None:
            self.twin.unlock(seq.donor)
            seq.donor = None
        new = (seq.namespace, seq.known[: len(old[1]) + len(pages) * self.size])
        self.twin.publish(old, new, pages)

    @precondition(lambda self: self.running)
    @rule(pick=PICK, keep=st.booleans(), used=st.booleans(), tokens=st.sampled_from([list, tuple]))
    def release(
        self, pick: int, keep: bool, used: bool, tokens: Callable[[tuple[int, ...]], list[int]]
    ) -> None:
        """End a sequence; `keep=False` gives the tree nothing of it."""
        seq = self.running.pop(pick % len(self.running))
        computed = seq.computed if keep else seq.lease.num_tokens
        self.cache.release(seq.lease, tokens(seq.known[:computed]), seq.pages, used=used)
        uses = [seq.priority] if used else []
        count, tail = divmod(computed - seq.lease.num_tokens, self.size)
        self.move(seq, seq.path, seq.pages[:count])
        rest = seq.pages[count:]
        if tail:
            self.twin.add_tail((seq.namespace, seq.known[:computed]), rest.pop(0), *uses)
        for page in rest:
            self.twin.give(page)
        self.twin.tick()
        for prefix in self.twin.up_to((seq.namespace, seq.known[:computed])):
            self.twin.unlock(prefix, *uses)
        self.refuses(PageError, lambda: self.cache.release(seq.lease, seq.known[:computed], []))

    @rule(count=st.integers(0, 6))
    def take(self, count: int) -> None:
        self.spare += self.allocate(count) or []

    @precondition(lambda self: self.spare)
    @rule(count=st.integers(1, 6))
    def free(self, count: int) -> None:
        pages, self.spare = self.spare[:count], self.spare[count:]
        self.refuses(PageError, lambda: self.cache.free([*pages, pages[0]]))
        self.cache.free(pages)
        for page in pages:
            self.twin.give(page)
        self.refuses(PageError, lambda: self.cache.free([*self.spare, pages[0]]))

    @precondition(lambda self: self.twin.cached)
    @rule(pick=st.integers(0, 30))
    def free_what_the_tree_has(self, pick: int) -> None:
        page = sorted(entry.page for entry in self.twin.cached.values())[pick % len(self.twin.cached)]
        self.refuses(PageError, lambda: self.cache.free([*self.spare, page]))

    @precondition(lambda self: self.running)
    @rule(pick=PICK)
    def misuse(self, pick: int) -> None:
        """Too few pages, too few tokens, another's tokens, a page named twice: each is refused whole."""
        seq = self.running[pick % len(self.running)]
        done, lease = seq.known[: seq.computed], seq.lease
        too_long = done + (0,) * (len(seq.pages) * self.size + lease.num_tokens - len(done) + 1)
        for call in (self.cache.publish, self.cache.release):
            self.refuses(PageError, lambda call=call: call(lease, too_long, seq.pages))
            if done:
                self.refuses(TypeError, lambda call=call: call(lease, (*done[:-1], 1.5), seq.pages))
            if seq.pages:
                self.refuses(PageError, lambda call=call: call(lease, done, [*seq.pages, seq.pages[0]]))
            if lease.num_tokens:
                short, other = done[: lease.num_tokens - 1], (*done[: lease.num_tokens - 1], 9)
                self.refuses(PageError, lambda call=call, short=short: call(lease, short, seq.pages))
                self.refuses(PageError, lambda call=call, other=other: call(lease, other, seq.pages))

    @rule(namespace=NAMESPACES, tokens=TOKENS)
    def pin(self, namespace: object, tokens: tuple[int, ...]) -> None:
        count = self.twin.lookup(namespace, tokens)
        path = self.twin.up_to((namespace, tokens[:count]))
        held = {prefix for prefixes in self.pins.values() for prefix in prefixes}
        least, limit = len(held.union(path)), self.cache.max_pinned
        try:
            pin = self.cache.pin(tokens, namespace=namespace)
        except PinLimit as error:
            # Which of several pages the partial one would be is the cache's choice.
            assert least + (count % self.size > 0) > limit == error.limit
            return
        assert pin.num_tokens == count
        assert [self.written[page] for page in pin.pages[: len(path)]] == path
        path += [self.written[page] for page in pin.pages[len(path) :]]
        assert all(a == b for a, b in zip(path[-1][1] if path else (), tokens[:count], strict=False))
        assert len(held.union(path)) == self.cache.num_pinned <= limit
        for prefix in path:
            self.twin.lock(prefix)
        self.pins[pin] = path

    @precondition(lambda self: self.pins)
    @rule(pick=PICK)
    def unpin(self, pick: int) -> None:
        pin = list(self.pins)[pick % len(self.pins)]
        self.cache.unpin(pin)
        full = pin.num_tokens // self.size
        path = self.pins.pop(pin)
        for prefixes in (path[full:], path[:full]):  # the partial page is let go first
            self.twin.tick()
            for prefix in prefixes:
                self.twin.unlock(prefix)
        self.refuses(PageError, lambda: self.cache.unpin(pin))

    @rule()
    def flush(self) -> None:
        count = self.twin.evictable()
        assert self.cache.flush() == count
        self.twin.evict(count)
        self.twin.host.clear()

    @rule(namespace=NAMESPACES, tokens=TOKENS)
    def lookup(self, namespace: object, tokens: tuple[int, ...]) -> None:
        assert self.cache.lookup(tokens, namespace=namespace) == self.twin.lookup(namespace, tokens)

    @invariant()
    def is_the_twin(self) -> None:
        if not hasattr(self, "cache"):
            return
        cache, twin = self.cache, self.twin
        cache.check()
        assert cache.num_free == twin.free
        assert cache.num_owned == len(twin.owned)
        assert cache.num_cached == len(twin.cached)
        assert cache.num_evictable == twin.evictable() == cache.num_cached - cache.num_locked
        assert cache.num_leases == len(self.running) + len(self.pins)
        assert cache.num_free + cache.num_owned + cache.num_cached == cache.num_pages
        assert cache.num_host_used == len(twin.host) <= self.num_slots
        # As many pages, and each of the twin's prefixes is found whole: the trees are equal.
        for namespace, tokens in twin.cached:
            assert cache.lookup(tokens, namespace=namespace) == len(tokens)
        owned = [page for seq in self.running for page in seq.pages] + self.spare
        assert len(owned) == len(set(owned))
        assert set(owned) == twin.owned
        for prefix, entry in twin.cached.items():
            assert self.written[entry.page] == prefix

    def teardown(self) -> None:
        if not hasattr(self, "cache"):
            return
        while self.running:
            self.release(0, True, True, list)
            self.is_the_twin()
        while self.pins:
            self.unpin(0)
        self.cache.free(self.spare)
        self.cache.flush()
        self.cache.check()
        assert self.cache.num_free == self.cache.num_pages


class FrequencyMachine(CacheMachine):
    eviction: Eviction = "lfu"


class PriorityMachine(CacheMachine):
    eviction: Eviction = "priority"


class HostMachine(CacheMachine):
    num_slots = 5


class FrequencyHostMachine(FrequencyMachine):
    num_slots = 40


KINDS = [CacheMachine, FrequencyMachine, PriorityMachine, HostMachine, FrequencyHostMachine]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("max_examples", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_random_lives(kind: type[CacheMachine], max_examples: int) -> None:
    quiet = settings(deadline=None, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(
        kind, settings=settings(quiet, max_examples=max_examples, stateful_step_count=40)
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_long_lives(seed: int, kind: type[CacheMachine]) -> None:
    """The same machine for many steps in a larger pool, driven by plain chance."""
    rng = random.Random(seed)
    machine = kind()
    machine.build(rng.randint(30, 60), rng.randint(2, 4))

    def tokens() -> tuple[int, ...]:
        stem = rng.choice(STEMS)
        return (
            *stem[: len(stem) - rng.randint(0, 4)],
            *(rng.randint(0, 2) for _ in range(rng.randint(0, 6))),
        )

    for _ in range(250):
        namespace = rng.choice([None, None, "a"])
        if len(machine.running) < rng.randint(0, 8):
            machine.start(namespace, tokens(), rng.choice([None, rng.randint(0, 14)]), rng.randint(-1, 2))
        if machine.running:
            step = rng.randint(0, 9)
            pick = rng.randrange(len(machine.running))
            if step < 5:
                machine.compute(pick, tokens(), rng.randint(1, 12), rng.random() < 0.2)
            elif step < 8:
                machine.publish(pick)
            else:
                machine.release(pick, rng.random() < 0.9, rng.random() < 0.9, tuple)
        machine.serve(namespace, tokens(), rng.randint(0, 2), rng.randint(-1, 2))
        machine.lookup(namespace, tokens())
        if rng.random() < 0.3:
            machine.pin(namespace, tokens())
        if machine.pins and rng.random() < 0.3:
            machine.unpin(rng.randrange(8))
        machine.is_the_twin()
    machine.teardown()
