"""`LocalBackend`: programs on an engine in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from threading import Lock
from typing import Any, Protocol, TypeVar, runtime_checkable

from treille.dsl.backends.encoding import TokenizerLike, encode_choices, encode_prompt
from treille.dsl.prompts import extend
from treille.dsl.protocol import (
    ChoiceScore,
    GenEvent,
    GenOptions,
    Pinned,
    Prompt,
    ScoreResult,
    TokenLogprob,
    UsageCounts,
)
from treille.runtime.errors import CacheFull
from treille.runtime.params import SamplingParams
from treille.runtime.pinned import CachedPrefix
from treille.runtime.types import (
    Event,
    Failed,
    Finished,
    Request,
    Scored,
    ScoreRequest,
    TokenEvent,
    Usage,
)
from treille.runtime.types import TokenLogprob as RuntimeLogprob

EventT = TypeVar("EventT", Finished, Scored)


class EventStreamLike(Protocol):
    """The part of an engine's stream that is used here."""

    def __aiter__(self) -> AsyncIterator[Event]: ...
    def abort(self) -> None: ...


@runtime_checkable
class EngineLike(Protocol):
    """The part of `treille.runtime.engine.Engine` that is used here."""

    @property
    def tokenizer(self) -> TokenizerLike: ...
    def submit(self, request: Request | ScoreRequest) -> EventStreamLike: ...


@runtime_checkable
class CachingEngine(Protocol):
    """An engine whose prefix cache can be told what to keep."""

    @property
    def keeps_prefixes(self) -> bool: ...
    def cache(self, prompt: Sequence[int]) -> CachedPrefix: ...


class LocalBackend:
    """A backend over an engine. It keeps nothing of its own and does not close the engine."""

    def __init__(self, engine: EngineLike) -> None:
        self._engine = engine

    async def generate(self, prompt: Prompt, options: GenOptions) -> AsyncGenerator[GenEvent, None]:
        """Sample on the engine; closing the generator early aborts the request."""
        request = Request(
            prompt_ids=encode_prompt(self._engine.tokenizer, prompt), params=sampling_params(options)
        )
        stream = self._engine.submit(request)
        try:
            async for event in stream:
                if isinstance(event, TokenEvent):
                    yield _progress(event)
                elif isinstance(event, Failed):
                    raise event.error
                elif isinstance(event, Finished):
                    for completion in event.completions:
                        yield GenEvent(index=completion.index, stop_reason=completion.stop_reason)
                    yield GenEvent(usage=_counts(event.usage))
        finally:
            stream.abort()

    async def score(self, prompt: Prompt, choices: tuple[str, ...]) -> ScoreResult:
        """Score all choices in one request over their shared prefix."""
        extended = [extend(prompt, choice) for choice in choices]
        shared, rests = encode_choices(self._engine.tokenizer, prompt, extended)
        scored = await self._last(ScoreRequest(prompt_ids=shared, continuations=tuple(rests)), Scored)
        pairs = zip(rests, scored.logprobs, strict=True)
        scores = tuple(ChoiceScore(token_ids, logprobs) for token_ids, logprobs in pairs)
        return ScoreResult(scores, _counts(scored.usage))

    async def prime(self, prompt: Prompt) -> UsageCounts:
        """Compute the prompt into the engine's prefix cache."""
        prompt_ids = encode_prompt(self._engine.tokenizer, prompt)
        request = Request(prompt_ids=prompt_ids, params=SamplingParams(max_tokens=0))
        return _counts((await self._last(request, Finished)).usage)

    async def pin(self, prompt: Prompt) -> Pinned:
        """Compute the prompt into the engine's prefix cache and keep it there."""
        # First as any request, which ends at once when this is cancelled; then pinning it takes no time.
        usage = await self.prime(prompt)
        if not isinstance(self._engine, CachingEngine) or not self._engine.keeps_prefixes:
            return Pinned(usage, _nothing)
        engine, prompt_ids = self._engine, encode_prompt(self._engine.tokenizer, prompt)
        pin = _Pin(lambda: engine.cache(prompt_ids))
        try:
            await asyncio.to_thread(pin.take)
        except CacheFull:
            return Pinned(usage, _nothing)
        except asyncio.CancelledError:
            pin.release()
            raise
        return Pinned(usage, pin.release)

    async def _last(self, request: Request | ScoreRequest, kind: type[EventT]) -> EventT:
        stream = self._engine.submit(request)
        try:
            async for event in stream:
                if isinstance(event, kind):
                    return event
                if isinstance(event, Failed):
                    raise event.error
        finally:
            stream.abort()
        raise RuntimeError(f"the engine's stream ended without its {kind.__name__} event")


class _Pin:
    """A prefix that one thread takes and another may let go of, even before it is there."""

    def __init__(self, make: Callable[[], CachedPrefix]) -> None:
        self._make = make
        self._lock = Lock()
        self._prefix: CachedPrefix | None = None
        self._is_over = False

    def take(self) -> None:
        prefix = self._make()
        with self._lock:
            self._prefix = prefix
            if self._is_over:
                prefix.release()

    def release(self) -> None:
        with self._lock:
            self._is_over = True
            if self._prefix is not None:
                self._prefix.release()


def _nothing() -> None:
    pass


def sampling_params(options: GenOptions) -> SamplingParams:
    """The runtime's parameters, with its defaults for what is not given. Raises `InvalidRequest`."""
    given: dict[str, Any] = options.given()
    if options.logit_bias is not None:
        given["logit_bias"] = dict(options.logit_bias)
    if isinstance(options.whitespace, tuple):
        given["whitespace"] = dict(options.whitespace)
    return SamplingParams(**given)


def _progress(event: TokenEvent) -> GenEvent:
    logprobs = event.logprobs
    return GenEvent(
        index=event.index,
        text=event.text,
        token_ids=event.token_ids,
        logprobs=None if logprobs is None else tuple(_logprob(entry) for entry in logprobs),
        forced=event.forced,
        num_replaced=event.num_replaced,
        finish_reason=event.finish_reason,
    )


def _logprob(entry: RuntimeLogprob) -> TokenLogprob:
    return TokenLogprob(entry.token_id, entry.logprob, entry.top)


def _counts(usage: Usage) -> UsageCounts:
    return UsageCounts(
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=usage.cached_tokens,
        completion_tokens=usage.completion_tokens,
        num_requests=1,
    )
