"""`EngineCore`: accepted requests in, events out, one step at a time. Single-threaded; no I/O.

A step is: plan, fill masks, forward, sample, commit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from treille.radix.cache import PrefixCache
from treille.runtime.admission import check_room
from treille.runtime.cache_file import CacheFile, SavedCache
from treille.runtime.config import EngineConfig
from treille.runtime.errors import InvalidRequest, ModelError, TreilleError
from treille.runtime.forced import JumpForward
from treille.runtime.grammar import Matcher, fill_masks
from treille.runtime.group import Group, SampleGroup, ScoreGroup, Start
from treille.runtime.host import HostPages
from treille.runtime.matching import Mask, TextMatcher, TokenIndex
from treille.runtime.models.load import LoadedModel
from treille.runtime.params import SamplingParams
from treille.runtime.runner import ModelRunner
from treille.runtime.sampling import Sampled, SampleRow, sample, token_logprobs
from treille.runtime.scheduler import Chunk, Scheduler, StepPlan
from treille.runtime.sequence import Kind, Sequence
from treille.runtime.types import Event, Namespace, Request, ScoreRequest, TokenLogprob

MASK_WORKERS = min(8, os.cpu_count() or 1)
# Samples of one request draw from streams of their own: seeds this far apart do not meet by counting.
SEED_STRIDE = 0x9E3779B97F4A7C15
RETRY_STRIDE = 0xD1342543DE82EF95


@dataclass(slots=True)
class Counters:
    """Totals since the engine started. Tokens of preempted sequences count each time they are computed."""

    steps: int = 0
    computed_tokens: int = 0
    sampled_tokens: int = 0
    forced_tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    preemptions: int = 0
    requests: int = 0
    failed_requests: int = 0


@dataclass(slots=True)
class _Logits:
    """Which rows of a step's logits belong to which chunk."""

    sampled: list[tuple[Chunk, int]] = field(default_factory=list)
    scored: list[tuple[Chunk, slice]] = field(default_factory=list)


class EngineCore:
    """Requests, the scheduler, the model runner and the sampler, tied together by `step()`."""

    def __init__(self, loaded: LoadedModel, config: EngineConfig, index: Callable[[], TokenIndex]) -> None:
        """`index` gives the index of the tokenizer's tokens; it is asked for when a constraint wants it."""
        self.config = config
        self.counters = Counters()
        self._model_name = loaded.name
        self._tokenizer = loaded.tokenizer
        self._num_tokens = min(loaded.tokenizer.vocab_size, loaded.config.vocab_size)
        self._runner = ModelRunner(
            loaded.model,
            num_pages=config.num_pages,
            page_size=config.page_size,
            max_positions=config.max_seq_len,
            reserve=config.reserve_kv,
        )
        host = HostPages(self._runner.kv, config.num_host_pages) if config.num_host_pages else None
        self.cache = PrefixCache(
            config.num_pages,
            config.page_size,
            enabled=config.enable_prefix_caching,
            eviction=config.eviction,
            max_pinned=config.max_pinned,
            host=host,
            num_host_pages=config.num_host_pages,
        )
        self.saved: SavedCache | None = None
        if config.cache_file is not None:
            file = CacheFile(config.cache_file, loaded, self._runner.kv)
            self.saved = SavedCache(file, self.cache, self._runner.kv, self.namespace(None))
            self.saved.warm()
        self.scheduler = Scheduler(
            self.cache,
            max_num_seqs=config.max_num_seqs,
            max_batched_tokens=config.max_batched_tokens,
            policy=config.schedule_policy,
        )
        self._jumps = JumpForward(loaded.tokenizer, index) if config.jump_forward else None
        # Threads are started as they are needed; this one works too.
        self._mask_workers = ThreadPoolExecutor(MASK_WORKERS, thread_name_prefix="treille-mask")
        self._groups: dict[str, Group] = {}

    def close(self) -> None:
        """Let the worker threads go."""
        self._mask_workers.shutdown()

    @property
    def busy(self) -> bool:
        """Whether any accepted request is not over."""
        return bool(self._groups)

    def namespace(self, salt: str | None) -> Namespace:
        """Where prefixes of requests with this salt are kept."""
        return Namespace(model=self._model_name, salt=salt)

    def add(
        self,
        request_id: str,
        request: Request | ScoreRequest,
        *,
        seed: int,
        start: Start,
        put: Callable[[Event], None],
    ) -> None:
        """Take a checked request. Its events go to `put`, during `step` or `abort`, or at once.

        Raises InvalidRequest for one that the KV pool can never hold."""
        check_room(request, page_size=self.config.page_size, num_pages=self.cache.num_pages)
        group: Group
        if isinstance(request, ScoreRequest):
            group = ScoreGroup(request_id, request, put)
        else:
            group = SampleGroup(
                request_id,
                request,
                start,
                put,
                tokenizer=self._tokenizer,
                jumps=self._jumps,
                max_seq_len=self.config.max_seq_len,
            )
        self._groups[request_id] = group
        self.counters.requests += 1
        self.counters.prompt_tokens += len(request.prompt_ids)
        namespace = self.namespace(request.cache_salt)
        make = self._maker(request_id, seed, namespace, request.priority)
        prompt_ids = request.prompt_ids[: len(request.prompt_ids) - start.num_taken]
        num_cached = self.cache.lookup(prompt_ids, namespace=namespace)
        try:
            seqs = group.open(make, num_cached=num_cached, share=self.config.enable_prefix_caching)
        except Exception as error:
            self._fail(group, error)
            return
        self.scheduler.add(seqs)
        self._settle(group)

    def abort(self, request_id: str) -> bool:
        """End a request now. False: it is unknown or over."""
        group = self._groups.get(request_id)
        if group is None:
            return False
        for seq in group.live:
            self.scheduler.finish(seq)
        group.abort()
        self._settle(group)
        return True

    def fail_all(self, error: Exception) -> None:
        """End every request with an error."""
        for group in list(self._groups.values()):
            self._fail(group, error)

    @torch.inference_mode()
    def step(self) -> None:
        """Compute one batch. A failure of the model ends the requests that were in it and no others."""
        plan = self.scheduler.plan()
        self.counters.preemptions += plan.preempted
        for seq in plan.stuck:
            self._fail(self._groups[seq.request_id], self._too_long(seq))
        if not plan.chunks:
            if self.busy and not plan.stuck:
                self.fail_all(
                    TreilleError("the scheduler found nothing to run: this is a fault of the engine")
                )
            return
        logits_of = _rows(plan)
        try:
            rows = self._sample_rows([chunk.seq for chunk, _ in logits_of.sampled])
            logits = self._runner.forward(plan)[:, : self._num_tokens]
            picked = self._sample(logits, logits_of, rows)
            scores = [_scores(chunk, logits[rows_of]) for chunk, rows_of in logits_of.scored]
        except Exception as error:
            self._fail_step(plan, error)
            return
        self.counters.steps += 1
        self.counters.computed_tokens += plan.num_tokens
        self._commit(plan, logits_of, picked, scores)

    def _commit(
        self,
        plan: StepPlan,
        logits_of: _Logits,
        picked: list[Sampled | Exception],
        scores: list[list[TokenLogprob] | Exception],
    ) -> None:
        for chunk in plan.chunks:
            self.scheduler.advance(chunk)
            if chunk.seq.kind is Kind.PREFILL and chunk.seq.pending == 0:
                self._prefilled(chunk.seq)
        for (chunk, _), result in zip(logits_of.sampled, picked, strict=True):
            self._sampled(chunk.seq, result)
        for (chunk, _), scored in zip(logits_of.scored, scores, strict=True):
            self._scored(chunk, scored)

    def _prefilled(self, seq: Sequence) -> None:
        group = self._groups[seq.request_id]
        self.scheduler.finish(seq)
        try:
            branches = group.prefilled(
                seq, self._maker(seq.request_id, seq.seed, seq.namespace, seq.priority)
            )
        except Exception as error:
            self._fail(group, error)
            return
        self.scheduler.add(branches, front=True)
        self._settle(group)

    def _scored(self, chunk: Chunk, result: list[TokenLogprob] | Exception) -> None:
        group, seq = self._groups.get(chunk.seq.request_id), chunk.seq
        if group is None:
            return  # another text of the request failed in this very step
        if isinstance(result, Exception):
            self._fail(group, result)
            return
        group.scored(seq, chunk.start + chunk.rows[0] + 1, result)
        if seq.pending:
            return
        if isinstance(group, ScoreGroup):
            self._leave(group, seq)
        else:
            self._prefilled(seq)

    def _sampled(self, seq: Sequence, result: Sampled | Exception) -> None:
        group = self._groups.get(seq.request_id)
        if not isinstance(group, SampleGroup):
            return  # another sample of the request failed in this very step
        if isinstance(result, Exception):
            self._fail(group, result)
            return
        self.counters.sampled_tokens += 1
        try:
            is_over = self._go_on(group, seq, result)
        except Exception as error:  # of the request's constraint or stop conditions
            self._fail(group, error)
            return
        if is_over:
            self._leave(group, seq)

    def _go_on(self, group: SampleGroup, seq: Sequence, result: Sampled) -> bool:
        """Add a sampled token and what its constraint forces behind it; whether the sample is over."""
        self.scheduler.append(seq, result.token_id)
        if group.sampled(seq, result):
            return True
        jump = group.find_jump(seq)
        if jump is None:
            return False
        self.scheduler.replace(seq, jump.num_replaced, jump.token_ids)
        return group.jumped(seq, jump)

    def _leave(self, group: Group, seq: Sequence) -> None:
        self.scheduler.finish(seq)
        group.leave(seq)
        self._settle(group)

    def _settle(self, group: Group) -> None:
        if group.over and self._groups.pop(group.request_id, None) is not None:
            self.counters.cached_tokens += group.cached_tokens
            self.counters.forced_tokens += group.num_forced

    def _fail(self, group: Group, error: Exception) -> None:
        for seq in group.live:
            self.scheduler.finish(seq)
        self.counters.failed_requests += 1
        group.fail(error)
        self._settle(group)

    def _too_long(self, seq: Sequence) -> TreilleError:
        return InvalidRequest(
            f"{len(seq.tokens)} tokens do not fit into the KV pool's {self.cache.num_pages} pages of "
            f"{self.config.page_size}, though nothing else runs: shorten the prompt, lower max_tokens, or "
            f"raise kv_memory",
            field="max_tokens",
        )

    def _fail_step(self, plan: StepPlan, error: Exception) -> None:
        for chunk in plan.chunks:
            group = self._groups.get(chunk.seq.request_id)
            self.scheduler.fail(chunk.seq)
            if group is not None:
                self._fail(group, error)

    def _sample(
        self, logits: Tensor, logits_of: _Logits, rows: list[SampleRow | Exception]
    ) -> list[Sampled | Exception]:
        """A token, or what is wrong, for each row."""
        good = [row for row in rows if isinstance(row, SampleRow)]
        if not good:
            return [row for row in rows if isinstance(row, Exception)]
        if len(good) < len(logits):
            places = [place for _, place in logits_of.sampled]
            logits = logits[
                [place for place, row in zip(places, rows, strict=True) if isinstance(row, SampleRow)]
            ]
        picked = iter(sample(logits, good))
        return [row if isinstance(row, Exception) else next(picked) for row in rows]

    def _sample_rows(self, seqs: list[Sequence]) -> list[SampleRow | Exception]:
        matchers = [seq.matcher for seq in seqs if seq.matcher is not None]
        masks = iter(step_masks(matchers, -(-self._tokenizer.vocab_size // 32), self._mask_workers))
        rows: list[SampleRow | Exception] = []
        for seq in seqs:
            mask = None if seq.matcher is None else next(masks)
            rows.append(mask if isinstance(mask, Exception) else self._sample_row(seq, mask))
        return rows

    def _sample_row(self, seq: Sequence, mask: Mask | None) -> SampleRow:
        params = seq.params
        banned: set[int] = set()
        if params.ignore_eos and mask is not None:  # a free text goes on after an end token, a grammar cannot
            banned.update(self._tokenizer.eos_ids)
        if len(seq.output_ids) < params.min_tokens:
            banned.update(self._tokenizer.eos_ids, params.stop_token_ids)
        return SampleRow(
            params=params,
            prompt_ids=seq.prompt_ids,
            output_ids=seq.output_ids,
            # A place that was sampled, taken back and is sampled again must not draw the same number.
            seed=(seq.seed + seq.num_taken_back * RETRY_STRIDE) % 2**64,
            mask=mask,
            banned=tuple(banned),
        )

    def _maker(
        self, request_id: str, seed: int, namespace: Hashable, priority: int
    ) -> Callable[..., Sequence]:
        def make(
            kind: Kind,
            prompt: tuple[int, ...],
            *,
            index: int = 0,
            continuation: tuple[int, ...] = (),
            params: SamplingParams | None = None,
            matcher: TextMatcher | None = None,
        ) -> Sequence:
            return Sequence(
                request_id=request_id,
                index=index,
                kind=kind,
                prompt=prompt,
                continuation=continuation,
                params=params or SamplingParams(),
                seed=(seed + index * SEED_STRIDE) % 2**64,
                matcher=matcher,
                max_pages=self.config.max_pages,
                namespace=namespace,
                priority=priority,
            )

        return make


def step_masks(
    matchers: list[TextMatcher], num_words: int, executor: Executor | None = None
) -> list[Mask | Exception]:
    """What each matcher of a step allows next: uint32 [num_words].

    What a matcher raises stands in its place: it is its own request's fault and nobody else's.
    """
    plain = [i for i, matcher in enumerate(matchers) if isinstance(matcher, Matcher)]
    wrapped = [i for i, matcher in enumerate(matchers) if not isinstance(matcher, Matcher)]
    order = plain + wrapped
    rows: NDArray[np.uint32] = np.empty((len(matchers), num_words), dtype=np.uint32)
    errors = fill_masks(
        [one for one in matchers if isinstance(one, Matcher)], rows[: len(plain)], executor
    ) + _fill_each([matchers[i] for i in wrapped], rows[len(plain) :])
    found: list[Mask | Exception] = [*rows]
    for place, row, error in zip(order, rows, errors, strict=True):
        found[place] = row if error is None else error
    return found


def _fill_each(matchers: list[TextMatcher], rows: NDArray[np.uint32]) -> list[Exception | None]:
    errors: list[Exception | None] = [None] * len(matchers)
    for number, (matcher, row) in enumerate(zip(matchers, rows, strict=True)):
        try:
            matcher.fill_mask(row)
        except Exception as error:
            errors[number] = error
    return errors


def _rows(plan: StepPlan) -> _Logits:
    found = _Logits()
    base = 0
    for chunk in plan.chunks:
        if chunk.rows and chunk.seq.kind is Kind.SCORE:
            found.scored.append((chunk, slice(base, base + len(chunk.rows))))
        elif chunk.rows:
            found.sampled.append((chunk, base))
        base += len(chunk.rows)
    return found


def _scores(chunk: Chunk, logits: Tensor) -> list[TokenLogprob] | Exception:
    """Log-probability, under each row of logits, of the token that follows it; or what is wrong with them."""
    first = chunk.start + chunk.rows[0] + 1
    following = chunk.seq.tokens[first : first + len(chunk.rows)]
    try:
        return token_logprobs(logits, following, num_top=chunk.seq.params.prompt_logprobs or 0)
    except ModelError as error:
        return error
