"""From a backend's events to a variable's result: collecting samples, and holding them to their type."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from treille.dsl.events import TextKind
from treille.dsl.protocol import Backend, GenEvent, GenOptions, Prompt, TokenLogprob, UsageCounts
from treille.dsl.results import Generation, Result
from treille.dsl.schemas import JsonType
from treille.dsl.values import ValueType

# Characters of a long text's beginning and end in a message; the error has all of it.
HEAD_SHOWN = 300
TAIL_SHOWN = 100


class Mismatch(ValueError):
    """What came back is not what was asked for. `texts` are those of all samples, `text` the one at fault
    (None: none is), `is_cut`: it was ended before it was complete."""

    def __init__(self, message: str, *, text: str | None = None, is_cut: bool = False) -> None:
        super().__init__(message)
        self.text = text
        self.texts: tuple[str, ...] = ()
        self.is_cut = is_cut


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
            raise Mismatch("the backend ended without finishing the text")
        if self.finish_reason == "abort":
            raise Mismatch("the request was aborted")
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


def result_of(generations: Sequence[Generation], kind: ValueType | JsonType, options: GenOptions) -> Result:
    """The variable's result: one value, or a list of them for several samples. Raises `Mismatch`."""
    try:
        values = [_value(generation, kind, options) for generation in generations]
    except Mismatch as error:
        error.texts = tuple(generation.text for generation in generations)
        raise
    if len(generations) == 1:
        return Result(values[0], generations[0].text, generations[0])
    return Result(values, [generation.text for generation in generations], tuple(generations))


def _value(generation: Generation, kind: ValueType | JsonType, options: GenOptions) -> object:
    """The text's value, if the text is what was asked for.

    A constrained text can only be wrong by being unfinished: `max_tokens` or a stop cut it off. What a type
    asks for beyond its schema can be wrong too.
    """
    text = generation.text
    is_cut = generation.finish_reason == "length" or generation.stop_reason is not None
    try:
        value = kind.parse(text)
    except ValueError as error:
        if isinstance(kind, JsonType) and not is_cut:
            raise Mismatch(f"{_shown(text)} is not of {kind.title}: {error}", text=text) from error
        raise _mismatch(generation, f"is not of {kind.title}") from None
    if isinstance(kind, JsonType):
        if is_cut and not kind.is_whole(text, generation.stop_reason):
            raise _mismatch(generation, "may not be a whole number")
    elif options.regex is not None and is_cut and not _matches(options.regex, text):
        raise _mismatch(generation, f"does not match the pattern {options.regex!r}")
    return value


def _matches(pattern: str, text: str) -> bool:
    try:
        return re.fullmatch(pattern, text) is not None
    except re.error:
        return False


def _mismatch(generation: Generation, fault: str) -> Mismatch:
    reason, is_cut = "", True
    if generation.finish_reason == "length":
        reason = ": it was cut off by max_tokens"
    elif generation.stop_reason is not None:
        reason = f": it was cut off at the stop {generation.stop_reason!r}"
    else:
        is_cut = False
    text = generation.text
    return Mismatch(f"{_shown(text)} {fault}{reason}", text=text, is_cut=is_cut)


def _shown(text: str) -> str:
    left_out = len(text) - HEAD_SHOWN - TAIL_SHOWN
    if left_out <= 0:
        return repr(text)
    return f"{text[:HEAD_SHOWN]!r}... (and {left_out} characters) ...{text[-TAIL_SHOWN:]!r}"
