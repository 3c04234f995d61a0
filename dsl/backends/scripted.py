"""`ScriptedBackend`: says what a script says. For tests of programs, with no model."""

from __future__ import annotations

import inspect
import json
import re
from bisect import bisect_left
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from treille.dsl.prompts import common_text
from treille.dsl.protocol import (
    ChoiceScore,
    GenEvent,
    GenOptions,
    Pinned,
    Prompt,
    ScoreResult,
    UsageCounts,
)

Reply = str | Sequence[str]
Script = Callable[[Prompt, GenOptions], Reply | Awaitable[Reply]] | Mapping[str, Reply] | Sequence[Reply]
Score = Sequence[float] | Sequence[tuple[str, float]]
ScoreScript = Callable[[Prompt, str], Score] | Mapping[str, Score]


class WrongScript(Exception):
    """The script does not fit what the program asked for."""


@dataclass(frozen=True, slots=True)
class BackendCall:
    """One request that came in. `options` is None unless it is a generation, `choices` unless a score."""

    kind: Literal["generate", "score", "prime", "pin"]
    prompt: Prompt
    options: GenOptions | None = None
    choices: tuple[str, ...] | None = None


class ScriptedBackend:
    """A backend whose texts come from `replies` and whose log-probabilities come from `scores`.

    `replies` is a function of (prompt, options), which may be a coroutine; a mapping, of which the
    longest key that the prompt's text ends with is taken; or a list, used up in order. A reply is one
    text, or a list of `n`. A reply that breaks `regex` or `choices`, or is not JSON for a `schema`, raises
    `WrongScript`; what a schema says of the JSON is not looked at.

    `scores` gives each choice's token log-probabilities, as a function of (prompt, choice) or by choice.
    An entry is a number, or (token, number) where it matters which choices share tokens.

    Its tokens are characters: `max_tokens` cuts after so many, `stop` cuts at a stop string, `usage` counts
    them, and `cached_tokens` is the longest beginning that an earlier prompt had. Texts come in pieces of
    `piece` characters. `calls` lists every request; `num_aborted` counts generations that were left early;
    `pinned` holds the prompts that are kept now, by the number of their call.
    """

    def __init__(self, replies: Script = (), *, scores: ScoreScript | None = None, piece: int = 4) -> None:
        self.calls: list[BackendCall] = []
        self.num_aborted = 0
        self.pinned: dict[int, Prompt] = {}
        self._replies: Script = list(replies) if isinstance(replies, Sequence) else replies
        self._scores = scores if scores is not None else {}
        self._piece = piece
        self._seen: list[str] = []
        self._token_ids: dict[str, int] = {}

    async def generate(self, prompt: Prompt, options: GenOptions) -> AsyncGenerator[GenEvent, None]:
        """The script's texts, in pieces."""
        self.calls.append(BackendCall("generate", prompt, options=options))
        usage = self._usage(prompt)
        is_over = False
        try:
            texts = await self._texts(prompt, options)
            for index, whole in enumerate(texts):
                text, reason, stop = _cut(whole, options)
                for start in range(0, len(text), self._piece):
                    piece = text[start : start + self._piece]
                    yield GenEvent(index=index, text=piece, token_ids=tuple(map(ord, piece)))
                usage += UsageCounts(completion_tokens=len(text))
                yield GenEvent(index=index, finish_reason=reason, stop_reason=stop)
            is_over = True
            yield GenEvent(usage=usage)
        finally:
            self.num_aborted += not is_over

    async def score(self, prompt: Prompt, choices: tuple[str, ...]) -> ScoreResult:
        """The script's log-probabilities."""
        self.calls.append(BackendCall("score", prompt, choices=choices))
        usage = self._usage(prompt)
        return ScoreResult(tuple(self._score(prompt, choice) for choice in choices), usage)

    async def prime(self, prompt: Prompt) -> UsageCounts:
        """Remember the prompt."""
        self.calls.append(BackendCall("prime", prompt))
        return self._usage(prompt)

    async def pin(self, prompt: Prompt) -> Pinned:
        """Remember the prompt; it is one of `pinned` until it is released."""
        self.calls.append(BackendCall("pin", prompt))
        number = len(self.calls)
        self.pinned[number] = prompt
        return Pinned(self._usage(prompt), lambda: self._unpin(number))

    def _unpin(self, number: int) -> None:
        self.pinned.pop(number, None)

    async def _texts(self, prompt: Prompt, options: GenOptions) -> Sequence[str]:
        reply = self._reply(prompt, options)
        if inspect.isawaitable(reply):
            reply = await reply
        texts: Sequence[str] = [reply] if isinstance(reply, str) else list(reply)
        if len(texts) != options.num_samples:
            raise WrongScript(f"{options.num_samples} texts were asked for, the script has {texts!r}")
        for text in texts:
            if options.choices is not None and text not in options.choices:
                raise WrongScript(f"the script says {text!r}, which is none of {list(options.choices)}")
            if options.regex is not None and re.fullmatch(options.regex, text) is None:
                raise WrongScript(f"the script says {text!r}, which does not match {options.regex!r}")
            if options.schema is not None and not _is_json(text):
                raise WrongScript(f"the script says {text!r}, which is not JSON")
        return texts

    def _reply(self, prompt: Prompt, options: GenOptions) -> Reply | Awaitable[Reply]:
        if isinstance(self._replies, Mapping):
            keys = [key for key in self._replies if prompt.text.endswith(key)]
            if not keys:
                raise WrongScript(f"the script has nothing to say after {prompt.text[-80:]!r}")
            return self._replies[max(keys, key=len)]
        if callable(self._replies):
            return self._replies(prompt, options)
        used = sum(1 for call in self.calls if call.kind == "generate") - 1
        if used >= len(self._replies):
            raise WrongScript(f"the script has {len(self._replies)} replies, and one more is needed")
        return self._replies[used]

    def _score(self, prompt: Prompt, choice: str) -> ChoiceScore:
        if callable(self._scores):
            entries = self._scores(prompt, choice)
        elif choice in self._scores:
            entries = self._scores[choice]
        else:
            raise WrongScript(f"the script has no scores for the choice {choice!r}")
        token_ids: list[int] = []
        logprobs: list[float] = []
        for number, entry in enumerate(entries):
            token, logprob = entry if isinstance(entry, tuple) else (f"{choice}\0{number}", entry)
            token_ids.append(self._token_ids.setdefault(token, len(self._token_ids)))
            logprobs.append(logprob)
        if not logprobs:
            raise WrongScript(f"the script gives the choice {choice!r} no tokens")
        return ChoiceScore(tuple(token_ids), tuple(logprobs))

    def _usage(self, prompt: Prompt) -> UsageCounts:
        text = prompt.text
        # In sorted order the texts that share the longest beginning with this one stand next to it.
        place = bisect_left(self._seen, text)
        cached = max(
            (len(common_text(text, seen)) for seen in self._seen[max(place - 1, 0) : place + 1]), default=0
        )
        self._seen.insert(place, text)
        return UsageCounts(prompt_tokens=len(text), cached_tokens=cached, num_requests=1)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _cut(text: str, options: GenOptions) -> tuple[str, str, str | None]:
    """What is left of a text by `stop` and `max_tokens`; why it ended; the stop string, if it was one."""
    stops = [(text.find(stop), stop) for stop in options.stop or () if stop in text]
    end, stop = min(stops) if stops else (len(text), None)
    if options.max_tokens is not None and options.max_tokens < end:
        return text[: options.max_tokens], "length", None
    return text[:end], "stop", stop
