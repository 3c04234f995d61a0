"""From a backend's events to a variable's result: collecting samples, and holding them to their type."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from treille.dsl.events import TextKind
from treille.dsl.protocol import Backend, GenEvent, GenOptions, Prompt, TokenLogprob, UsageCounts
from treille.dsl.results import Generation, Result
from treille.dsl.values import ValueType


class WrongText(ValueError):
    """The text that came back is not what was asked for."""


@dataclass(slots=True)
class _Sample:
    """One text while it grows."""

    texts: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None

    def add(self, event: GenEvent) -> None:
        self.texts.append(event.text)
        del self.token_ids[len(self.token_ids) - event.num_replaced :]
        self.token_ids.extend(event.token_ids)
        if event.logprobs is not None:
            self.logprobs = [*(self.logprobs or []), *event.logprobs]
        self.finish_reason = event.finish_reason or self.finish_reason
        self.stop_reason = event.stop_reason if event.stop_reason is not None else self.stop_reason

    def finished(self) -> Generation:
        if self.finish_reason is None:
            raise WrongText("the backend ended without finishing the text")
        if self.finish_reason == "abort":
            raise WrongText("the request was aborted")
        return Generation(
            text="".join(self.texts),
            token_ids=tuple(self.token_ids),
            finish_reason=self.finish_reason,
            stop_reason=self.stop_reason,
            logprobs=None if self.logprobs is None else tuple(self.logprobs),
        )


async def collect(
    backend: Backend, prompt: Prompt, options: GenOptions, on_text: Callable[[str, TextKind], None]
) -> tuple[tuple[Generation, ...], UsageCounts]:
    """Run one generation to its end; `on_text` sees each piece of text as it comes."""
    samples = [_Sample() for _ in range(options.num_samples)]
    usage = UsageCounts(num_requests=1)
    async with aclosing(backend.generate(prompt, options)) as events:
        async for event in events:
            samples[event.index].add(event)
            on_text(event.text, "forced" if event.forced else "sampled")
            usage = event.usage or usage
    return tuple(sample.finished() for sample in samples), usage


def result_of(generations: Sequence[Generation], kind: ValueType, options: GenOptions) -> Result:
    """The variable's result: one value, or a list of them for several samples. Raises `WrongText`."""
    values = [_value(generation, kind, options) for generation in generations]
    if len(generations) == 1:
        return Result(values[0], generations[0].text, generations[0])
    return Result(values, [generation.text for generation in generations], tuple(generations))


def _value(generation: Generation, kind: ValueType, options: GenOptions) -> object:
    """The text's value, if the text is what was asked for.

    A constrained text can only be wrong by being unfinished: `max_tokens` or a stop cut it off.
    """
    text = generation.text
    try:
        value = kind.parse(text)
    except ValueError:
        raise WrongText(f"{text!r} is not of type {kind.name}{_reason(generation)}") from None
    is_whole = generation.finish_reason != "length" and generation.stop_reason is None
    if options.regex is not None and not is_whole and not _matches(options.regex, text):
        raise WrongText(f"{text!r} does not match the pattern {options.regex!r}{_reason(generation)}")
    return value


def _matches(pattern: str, text: str) -> bool:
    try:
        return re.fullmatch(pattern, text) is not None
    except re.error:
        return False


def _reason(generation: Generation) -> str:
    if generation.finish_reason == "length":
        return ": it was cut off by max_tokens"
    if generation.stop_reason is not None:
        return f": it was cut off at the stop {generation.stop_reason!r}"
    return ""
