"""The scheduler: which sequences are extended in the next step, by how many tokens, on which pages.

One rule serves prefill, chunked prefill, decode and scoring: a sequence has known tokens and computed
tokens, and a step computes some of the difference. Nothing here knows the model.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Literal

from treille.radix.cache import PrefixCache
from treille.radix.errors import OutOfPages, PageError
from treille.runtime.sequence import Kind, Sequence, Status

SchedulePolicy = Literal["lpm", "fcfs"]

# Longest-prefix-match looks at so many waiting sequences; behind them the queue is first come, first served.
LPM_WINDOW = 128
# A sequence that was passed over so often goes first, whatever the others could reuse.
MAX_PASSED_OVER = 64
# Rows of logits are vocabulary-sized: scoring long texts is split so that a step returns at most so many.
MAX_LOGIT_ROWS = 512


@dataclass(frozen=True, slots=True)
class Chunk:
    """`count` tokens of one sequence, from its first token that is not computed.

    `rows` are the offsets within the chunk whose logits are wanted. `copy` is (source page, own page)
    where the sequence starts in the middle of a page that another one filled.
    """

    seq: Sequence
    start: int
    count: int
    rows: range
    copy: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What one step computes. `preempted` counts the sequences that lost their pages for it."""

    chunks: tuple[Chunk, ...]
    preempted: int = 0

    @property
    def num_tokens(self) -> int:
        """Tokens in the flat batch."""
        return sum(chunk.count for chunk in self.chunks)


class _Draft:
    """A plan being made."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.rows = MAX_LOGIT_ROWS
        self.chunks: list[Chunk] = []
        self.preempted = 0

    def room(self, seq: Sequence, pending: int) -> int:
        """How many of `pending` tokens fit."""
        count = min(pending, self.budget)
        if seq.kind is Kind.SCORE:
            count = min(count, self.rows)
        return count

    def add(self, chunk: Chunk) -> None:
        self.chunks.append(chunk)
        self.budget -= chunk.count
        if chunk.seq.kind is Kind.SCORE:
            self.rows -= len(chunk.rows)

    def remove(self, seq: Sequence) -> None:
        for chunk in self.chunks:
            if chunk.seq is seq:
                self.chunks.remove(chunk)
                self.budget += chunk.count
                return


class Scheduler:
    """Owns every sequence that waits or runs, and its pages.

    A step is `plan()`, then for each chunk `advance(chunk)` once it is computed, then `append`, `replace`
    and `finish` as the sampled tokens say. Between steps `add`, `abort` and `fail` may be called.
    """

    def __init__(
        self,
        cache: PrefixCache,
        *,
        max_num_seqs: int,
        max_batched_tokens: int,
        policy: SchedulePolicy = "lpm",
    ) -> None:
        self._cache = cache
        self._max_num_seqs = max_num_seqs
        self._max_batched_tokens = max_batched_tokens
        self._policy = policy
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []  # in order of admission: the last one is preempted first

    @property
    def num_waiting(self) -> int:
        """Sequences without pages."""
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        """Sequences with pages."""
        return len(self._running)

    def add(self, seqs: Iterable[Sequence], *, front: bool = False) -> None:
        """Queue sequences; `front` is for those whose turn had come already."""
        if front:
            self._waiting.extendleft(reversed(list(seqs)))
        else:
            self._waiting.extend(seqs)

    def plan(self) -> StepPlan:
        """Choose the next step. Running sequences come first (those that decode before those that
        prefill), then waiting ones are admitted while tokens, sequences and pages allow."""
        draft = _Draft(self._max_batched_tokens)
        for seq in sorted(self._running, key=lambda seq: seq.in_prefill):
            if seq.status is Status.RUNNING:  # not preempted for an earlier one
                self._extend(seq, draft)
        if not draft.preempted:
            self._admit(draft)
        return StepPlan(tuple(draft.chunks), draft.preempted)

    def advance(self, chunk: Chunk) -> None:
        """A chunk is computed. Prompt pages that are full go to the tree at once, for others to share."""
        seq = chunk.seq
        prompt_left = chunk.start < seq.num_prompt
        seq.advance(chunk.count)
        if prompt_left and seq.lease is not None:
            lease, owned = self._cache.publish(seq.lease, seq.tokens[: seq.num_computed], seq.owned)
            seq.relink(lease, owned)

    def append(self, seq: Sequence, token_id: int) -> None:
        """A token was sampled for a sequence that has no pending ones."""
        seq.extend((token_id,))

    def replace(self, seq: Sequence, num_replaced: int, token_ids: Iterable[int]) -> None:
        """Tokens were forced, in place of a running sequence's last `num_replaced` ones."""
        self.rewind(seq, len(seq.tokens) - num_replaced)
        seq.extend(token_ids)

    def rewind(self, seq: Sequence, num_tokens: int) -> None:
        """Forget a running sequence's tokens past the first `num_tokens`, which hold its prompt, and what was
        computed of them.

        What the tree was given stays there: it is right for the tokens that it was given with. The sequence
        lets go of it, back to a full page, and computes the rest of that page anew on one of its own.
        """
        lease = seq.lease
        if lease is None or num_tokens >= lease.num_tokens:
            seq.truncate(num_tokens)
            borrowed = 0 if lease is None else len(lease.pages)
            kept = max(self._pages(num_tokens) - borrowed, 0)
            self._cache.free(seq.drop_owned(kept))
            return
        size, tokens = self._cache.page_size, seq.tokens[: lease.num_tokens]
        seq.truncate(num_tokens)
        # The old lease holds those pages while the new one takes them.
        shorter = self._cache.acquire(
            tokens[: num_tokens // size * size], namespace=seq.namespace, priority=seq.priority
        )
        owned = seq.drop_owned(0)
        seq.shorten(shorter)
        self._cache.release(lease, tokens, [])
        self._cache.free(owned)

    def finish(self, seq: Sequence) -> None:
        """The sequence is over, in whatever state; what it computed stays cached. Twice is harmless."""
        if seq.status is Status.WAITING:
            self._waiting.remove(seq)
            seq.drop()
        elif seq.status is Status.RUNNING:
            self._running.remove(seq)
            self._leave(seq, Status.FINISHED, keep=seq.num_computed)

    def fail(self, seq: Sequence) -> None:
        """Like `finish`, when what its own pages hold is not to be trusted."""
        if seq.status is Status.RUNNING and seq.lease is not None:
            self._running.remove(seq)
            self._leave(seq, Status.FINISHED, keep=seq.lease.num_tokens)
        else:
            self.finish(seq)

    def check(self) -> None:
        """Raise PageError if the pages of sequences and the cache do not add up. For tests."""
        self._cache.check()
        owned = [page for seq in self._running for page in seq.owned]
        if len(set(owned)) != len(owned) or len(owned) != self._cache.num_owned:
            raise PageError(f"sequences own {len(owned)} pages, the cache lent {self._cache.num_owned}")
        for seq in self._running:
            if seq.num_pages * self._cache.page_size < seq.num_computed:
                raise PageError(f"{seq.num_computed} computed tokens on {seq.num_pages} pages")
        for seq in self._waiting:
            if seq.owned or seq.lease is not None:
                raise PageError("a waiting sequence holds pages")

    def _extend(self, seq: Sequence, draft: _Draft) -> None:
        """Give a running sequence some of its pending tokens, taking pages from the newest if need be."""
        count = draft.room(seq, seq.pending)
        if count <= 0:
            return
        while True:
            try:
                self._grow(seq, seq.num_computed + count)
            except OutOfPages:
                victim = self._running[-1]
                self._preempt(victim, draft)
                if victim is seq:
                    return
                continue
            draft.add(Chunk(seq, seq.num_computed, count, seq.logit_rows(count)))
            return

    def _grow(self, seq: Sequence, num_tokens: int) -> None:
        missing = self._pages(num_tokens) - seq.num_pages
        if missing > 0:
            seq.add_pages(self._cache.allocate(missing))

    def _preempt(self, seq: Sequence, draft: _Draft) -> None:
        """Back to the front of the queue. What it computed is in the tree and may still be found there."""
        draft.remove(seq)
        draft.preempted += 1
        self._running.remove(seq)
        self._leave(seq, Status.WAITING, keep=seq.num_computed)
        self._waiting.appendleft(seq)

    def _admit(self, draft: _Draft) -> None:
        filling = {self._next_page(seq, seq.num_computed) for seq in self._running if seq.in_prefill}
        for seq, reusable in self._candidates(draft):
            if len(self._running) >= self._max_num_seqs or draft.budget <= 0:
                return
            key = self._next_page(seq, reusable)
            if key in filling and key is not None:
                continue  # another sequence is computing this very page: share it a step later
            chunk = self._start(seq, draft)
            if chunk is None:
                return
            self._waiting.remove(seq)
            self._running.append(seq)
            draft.add(chunk)
            filling.add(self._next_page(seq, chunk.start))

    def _candidates(self, draft: _Draft) -> list[tuple[Sequence, int]]:
        """Waiting sequences in the order of admission, with the tokens each could reuse."""
        if not self._waiting or len(self._running) >= self._max_num_seqs or draft.budget <= 0:
            return []
        window = [seq for seq, _ in zip(self._waiting, range(LPM_WINDOW), strict=False)]
        found = [
            (seq, min(self._cache.lookup(seq.tokens, namespace=seq.namespace), seq.reuse_limit))
            for seq in window
        ]
        for seq in window:
            seq.passed_over += 1
        if self._policy == "lpm" and window[0].passed_over <= MAX_PASSED_OVER:
            found.sort(key=lambda item: -item[1])  # stable: equal matches stay in order of arrival
        return found

    def _start(self, seq: Sequence, draft: _Draft) -> Chunk | None:
        """Admit one sequence with its first chunk; None, and nothing changed, where pages are short."""
        lease = self._cache.acquire(
            seq.tokens, namespace=seq.namespace, limit=seq.reuse_limit, priority=seq.priority
        )
        cached = lease.num_cached_tokens
        count = draft.room(seq, seq.target - cached)
        needed = self._pages(cached + count) - len(lease.pages)
        available = self._cache.num_free + self._cache.num_evictable
        # Every running sequence may want one more page soon: admitting on the last ones would only thrash.
        if count <= 0 or needed + len(self._running) > available:
            self._cache.release(lease, seq.tokens[: lease.num_tokens], [], used=False)
            return None
        pages = self._cache.allocate(needed)
        seq.admit(lease, pages, cached)
        copy = (lease.partial[0], pages[0]) if lease.partial else None
        return Chunk(seq, cached, count, seq.logit_rows(count), copy)

    def _next_page(self, seq: Sequence, num_reused: int) -> tuple[Hashable, int, tuple[int, ...]] | None:
        """The first page of a sequence that is not cached yet, if its known tokens fill one."""
        size = self._cache.page_size
        start = num_reused // size * size
        if start + size > seq.reuse_limit:
            return None
        return seq.namespace, start, tuple(seq.tokens[start : start + size])

    def _leave(self, seq: Sequence, status: Status, *, keep: int) -> None:
        tokens = seq.tokens[:keep]
        lease, owned = seq.leave(status)
        self._cache.release(lease, tokens, owned)

    def _pages(self, num_tokens: int) -> int:
        return -(-num_tokens // self._cache.page_size)
