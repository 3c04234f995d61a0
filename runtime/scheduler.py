"""The scheduler: which sequences are extended in the next step, by how many tokens, on which pages.

One rule serves prefill, chunked prefill, decode and scoring: a sequence has known tokens and computed
tokens, and a step computes some of the difference. Nothing here knows the model.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from treille.radix.cache import PrefixCache
from treille.radix.errors import OutOfPages, PageError
from treille.runtime.estimate import OutputEstimate
from treille.runtime.sequence import Kind, Sequence, Status
from treille.runtime.sharing import Sharing
from treille.runtime.waiting import SchedulePolicy, WaitingQueue

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
    """What one step computes. `preempted` counts the sequences that lost their pages for it; `stuck` are
    those that cannot go on, though nothing else holds pages: the caller ends them."""

    chunks: tuple[Chunk, ...]
    preempted: int = 0
    stuck: tuple[Sequence, ...] = ()

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
        self.stuck: list[Sequence] = []

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
                if seq.kind is Kind.SCORE:
                    self.rows += len(chunk.rows)
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
        self._waiting = WaitingQueue(policy, self._reusable)
        self._running: list[Sequence] = []  # in order of admission
        self._estimate = OutputEstimate(cache.page_size)

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
        self._waiting.add(seqs, front=front)

    def plan(self) -> StepPlan:
        """Choose the next step. Running sequences come first (those that decode before those that
        prefill), then waiting ones are admitted while tokens, sequences and pages allow."""
        draft = _Draft(self._max_batched_tokens)
        for seq in sorted(self._running, key=lambda seq: seq.in_prefill):
            if seq.status is Status.RUNNING:  # not preempted for an earlier one
                self._extend(seq, draft)
        if not draft.preempted and not draft.stuck:
            self._admit(draft)
        return StepPlan(tuple(draft.chunks), draft.preempted, tuple(draft.stuck))

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
            self._estimate.ended(seq)
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
        """Give a running sequence some of its pending tokens, taking pages from others if need be."""
        count = draft.room(seq, seq.pending)
        if count <= 0:
            return
        while True:
            try:
                self._grow(seq, seq.num_computed + count)
            except OutOfPages:
                if len(self._running) == 1:
                    draft.stuck.append(seq)
                    return
                victim = min(reversed(self._running), key=self._rank)
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

    def _rank(self, seq: Sequence) -> tuple[int, bool, int]:
        """Who is preempted first: those of lowest priority, and of these who loses the least work that nobody
        else holds. One that shares all its pages would lose nothing, but give nothing either."""
        borrowed = 0 if seq.lease is None else self._cache.num_unshared(seq.lease)
        lost = seq.num_computed - (seq.num_pages - len(seq.owned) - borrowed) * self._cache.page_size
        return seq.priority, borrowed + len(seq.owned) == 0, lost

    def _preempt(self, seq: Sequence, draft: _Draft) -> None:
        """Back to the front of the queue. What it computed is in the tree and may still be found there."""
        draft.remove(seq)
        draft.preempted += 1
        self._estimate.preempted()
        self._running.remove(seq)
        self._leave(seq, Status.WAITING, keep=seq.num_computed)
        self._waiting.add([seq], front=True)

    def _admit(self, draft: _Draft) -> None:
        if not self._waiting or self._is_full(draft):
            return
        sharing = Sharing(self._running if self._cache.enabled else (), self._cache.page_size)
        reserved = sum(map(self._num_to_come, self._running))
        # Those that wait for a prefix keep their places: something else there would only push it out.
        kept = 0
        for seq, reusable in self._waiting.candidates():
            if self._is_full(draft, kept):
                return
            if sharing.is_under_way(seq, reusable):
                kept += 1
                continue
            chunk = self._start(seq, draft, sharing, reserved)
            if chunk is None:
                if not self._running:
                    draft.stuck.append(seq)
                return
            self._waiting.admit(seq)
            self._running.append(seq)
            draft.add(chunk)
            reserved += self._num_to_come(seq)
            if self._cache.enabled:
                sharing.add(seq)

    def _is_full(self, draft: _Draft, kept: int = 0) -> bool:
        return len(self._running) + kept >= self._max_num_seqs or draft.budget <= 0

    def _reusable(self, seq: Sequence) -> int:
        return min(self._cache.lookup(seq.tokens, namespace=seq.namespace), seq.reuse_limit)

    def _start(self, seq: Sequence, draft: _Draft, sharing: Sharing, reserved: int) -> Chunk | None:
        """Admit one sequence with its first chunk; None, and nothing changed, where pages are short.

        Pages must suffice for all that it will need, beside the `reserved` ones that those that run will
        need; one that is alone needs no more than its first chunk's.
        """
        lease = self._cache.acquire(
            seq.tokens, namespace=seq.namespace, limit=seq.reuse_limit, priority=seq.priority
        )
        tails = [tail for tail in (lease.partial, sharing.tail(seq, lease)) if tail is not None]
        source, num_copied = max(tails, key=lambda tail: tail[1], default=(None, 0))
        cached = lease.num_tokens + num_copied
        count = draft.room(seq, seq.target - cached)
        needed = self._pages(cached + count) - len(lease.pages)
        available = self._cache.num_free + self._cache.num_evictable
        wanted = self._pages(seq.target + self._estimate.num_left(seq)) - len(lease.pages) + reserved
        if count <= 0 or (wanted if self._running else needed) > available:
            self._cache.release(lease, seq.tokens[: lease.num_tokens], [], used=False)
            return None
        pages = self._cache.allocate(needed)
        seq.admit(lease, pages, cached)
        copy = None if source is None else (source, pages[0])
        return Chunk(seq, cached, count, seq.logit_rows(count), copy)

    def _num_to_come(self, seq: Sequence) -> int:
        """Pages that a running sequence is thought to take yet."""
        return max(self._pages(seq.target + self._estimate.num_left(seq)) - seq.num_pages, 0)

    def _leave(self, seq: Sequence, status: Status, *, keep: int) -> None:
        tokens = seq.tokens[:keep]
        lease, owned = seq.leave(status)
        self._cache.release(lease, tokens, owned)

    def _pages(self, num_tokens: int) -> int:
        return -(-num_tokens // self._cache.page_size)
