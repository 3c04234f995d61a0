"""One HTTP request's work in the engine: a stream for each prompt, their events as one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from treille.runtime.errors import RequestAborted
from treille.runtime.params import SamplingParams
from treille.runtime.types import (
    Completion,
    Event,
    Failed,
    Finished,
    FinishReason,
    PromptLogprobs,
    Request,
    TokenEvent,
    TokenLogprob,
    Usage,
)
from treille.server.answers import FinishWord
from treille.server.seam import ServingEngine, ServingStream


@dataclass(frozen=True, slots=True)
class Delta:
    """What was added to choice `index` of the whole answer."""

    index: int
    text: str
    logprobs: tuple[TokenLogprob, ...] | None
    finish: FinishWord | None
    prompt_logprobs: PromptLogprobs | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """All choices, in order of their index, and the counts of all prompts together."""

    completions: tuple[Completion, ...]
    usage: Usage


class Job:
    """The requests of one HTTP request. Choice `i` of the answer is sample `i % n` of prompt `i // n`.

    Whoever makes a job calls `abort` when done with it, whatever happened: that frees everything at
    once, and is harmless where all is over.
    """

    def __init__(self, streams: Sequence[ServingStream], samples: int) -> None:
        self._streams = tuple(streams)
        self._samples = samples

    @classmethod
    def submit(
        cls,
        engine: ServingEngine,
        prompts: Sequence[tuple[int, ...]],
        params: SamplingParams,
        *,
        cache_salt: str | None = None,
    ) -> Job:
        """Hand all prompts to the engine, or none: raises what `engine.submit` raises."""
        streams: list[ServingStream] = []
        try:
            for prompt_ids in prompts:
                request = Request(prompt_ids=prompt_ids, params=params, cache_salt=cache_salt)
                streams.append(engine.submit(request))
        except Exception:
            cls(streams, params.n).abort()
            raise
        return cls(streams, params.n)

    def abort(self) -> None:
        """Stop what still runs."""
        for stream in self._streams:
            stream.abort()

    async def outcome(self) -> Outcome:
        """Wait for the end of all. Raises the error of the first request that failed."""
        async with aclosing(self.progress()) as progress:
            async for item in progress:
                if isinstance(item, Outcome):
                    return item
        raise RuntimeError("the engine's streams ended without an outcome")

    async def progress(self) -> AsyncGenerator[Delta | Outcome, None]:
        """Deltas as they come, exactly one with a `finish` for each choice, then one `Outcome`."""
        results: dict[int, Finished] = {}
        ended: set[int] = set()
        async with aclosing(_merge(self._streams)) as events:
            async for prompt, event in events:
                first = prompt * self._samples
                match event:
                    case TokenEvent():
                        index = first + event.index
                        finish = _finish_word(event.finish_reason)
                        if finish is not None:
                            ended.add(index)
                        yield Delta(index, event.text, event.logprobs, finish, event.prompt_logprobs)
                    case Finished():
                        results[prompt] = event
                        # With max_tokens=0 there are no samples in the engine, and here empty ones.
                        for index in sorted({*range(first, first + self._samples)} - ended):
                            ended.add(index)
                            yield Delta(index, "", None, "length")
                    case Failed():
                        raise event.error
        missing = len(self._streams) - len(results)
        if missing:
            raise RuntimeError(f"{missing} of {len(self._streams)} streams ended without a final event")
        yield _outcome([results[prompt] for prompt in range(len(self._streams))], self._samples)


def _outcome(results: Sequence[Finished], samples: int) -> Outcome:
    completions = tuple(item for result in results for item in result.completions or _empty(samples))
    usage = Usage(
        prompt_tokens=sum(result.usage.prompt_tokens for result in results),
        cached_tokens=sum(result.usage.cached_tokens for result in results),
        completion_tokens=sum(result.usage.completion_tokens for result in results),
    )
    return Outcome(completions, usage)


def _empty(samples: int) -> list[Completion]:
    return [
        Completion(index=index, text="", token_ids=(), finish_reason="length", usage=Usage())
        for index in range(samples)
    ]


def finish_word(reason: FinishReason) -> FinishWord:
    """OpenAI's word for the reason; it has none for an abort, which here is never the client's."""
    if reason == "abort":
        raise RequestAborted("the request was aborted")
    return reason


def _finish_word(reason: FinishReason | None) -> FinishWord | None:
    return None if reason is None else finish_word(reason)


async def _merge(streams: Sequence[ServingStream]) -> AsyncGenerator[tuple[int, Event], None]:
    """The events of all streams with their stream's position, each stream's in order."""
    if len(streams) == 1:
        async for event in streams[0]:
            yield 0, event
        return
    queue: asyncio.Queue[tuple[int, Event] | Exception | None] = asyncio.Queue()

    async def pump(position: int) -> None:
        try:
            async for event in streams[position]:
                queue.put_nowait((position, event))
            queue.put_nowait(None)
        except Exception as error:
            queue.put_nowait(error)

    tasks = [asyncio.create_task(pump(position)) for position in range(len(streams))]
    running = len(tasks)
    try:
        while running:
            item = await queue.get()
            if item is None:
                running -= 1
            elif isinstance(item, Exception):
                raise item
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
