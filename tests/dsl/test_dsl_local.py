"""`LocalBackend` and its encoding against an engine and a tokenizer of a few lines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

import treille as tr
from treille.dsl.backends import as_backend
from treille.dsl.backends.encoding import encode_choices, encode_prompt
from treille.dsl.backends.local import LocalBackend, sampling_params
from treille.dsl.prompts import extend
from treille.dsl.protocol import GenEvent, GenOptions, Message, Prompt, Text, TokenLogprob, UsageCounts
from treille.runtime.errors import EngineOverloaded, InvalidRequest, RequestAborted
from treille.runtime.params import SamplingParams
from treille.runtime.types import (
    Completion,
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

WORDS = [
    "<s>",
    "</s>",
    "<u>",
    "<a>",
    "<y>",
    "sun",
    "set",
    "sunset",
    "moon",
    "st",
    "one",
    "river",
    " sun",
    "?",
]


class WordTokenizer:
    """Longest match over `WORDS`, then single characters as 100 + code. Turns are `<u>...</s>`."""

    def __init__(self, *, bos: bool = True, eos_ids: frozenset[int] = frozenset({1})) -> None:
        self.bos_id = 0 if bos else None
        self.adds_bos = bos
        self.eos_ids = eos_ids

    def encode(self, text: str, *, add_bos: bool = True, parse_special: bool = False) -> list[int]:
        ids = self._plain(text, parse_special=parse_special)
        return [0, *ids] if add_bos and self.bos_id is not None and ids[:1] != [0] else ids

    def encode_chat(
        self, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool, continuation: str = ""
    ) -> list[int]:
        marks = {"user": 2, "assistant": 3, "system": 4}
        ids = [0] if self.bos_id is not None else []
        for message in messages:
            ids += [marks[message["role"]], *self._plain(message["content"]), 1]
        return ids + ([3, *self._plain(continuation)] if add_generation_prompt else [])

    def _plain(self, text: str, *, parse_special: bool = False) -> list[int]:
        ids = []
        while text:
            words = [w for w in WORDS[0 if parse_special else 5 :] if text.startswith(w)]
            word = max(words, key=len, default=text[0])
            ids.append(WORDS.index(word) if words else 100 + ord(word))
            text = text[len(word) :]
        return ids


@dataclass
class FakeStream:
    """Yields fixed events; with none it waits until it is aborted."""

    events: list[Event]
    num_aborts: int = 0

    async def __aiter__(self) -> AsyncIterator[Event]:
        for event in self.events:
            yield event
        if not self.events:
            await asyncio.Event().wait()

    def abort(self) -> None:
        self.num_aborts += 1


@dataclass
class FakeEngine:
    """Answers each request by a function."""

    answer: Callable[[Any], list[Event]]
    tokenizer: WordTokenizer = field(default_factory=WordTokenizer)
    requests: list[Request | ScoreRequest] = field(default_factory=list)
    streams: list[FakeStream] = field(default_factory=list)

    def submit(self, request: Request | ScoreRequest) -> FakeStream:
        self.requests.append(request)
        stream = FakeStream(self.answer(request))
        self.streams.append(stream)
        return stream


USAGE = Usage(prompt_tokens=5, cached_tokens=2, completion_tokens=3)


def answer(request: Request | ScoreRequest) -> list[Event]:
    if isinstance(request, ScoreRequest):
        logprobs = tuple(tuple(-float(token) for token in rest) for rest in request.continuations)
        return [Scored(request_id="r", logprobs=logprobs, usage=USAGE)]
    done = Completion(
        index=0, text="sun", token_ids=(5, 1), finish_reason="stop", usage=USAGE, stop_reason="!"
    )
    logprobs = (RuntimeLogprob(5, -0.5, ((5, -0.5), (8, -1.5))),)
    events: list[Event] = [
        TokenEvent(request_id="r", index=0, text="su", token_ids=(5,), logprobs=logprobs),
        TokenEvent(
            request_id="r",
            index=0,
            text="n",
            token_ids=(1,),
            forced=True,
            num_replaced=1,
            finish_reason="stop",
        ),
        Finished(request_id="r", completions=(done,), usage=USAGE),
    ]
    return events if request.params.max_tokens else events[2:]


def encode(*parts: Text | Message, **settings: Any) -> tuple[int, ...]:
    return encode_prompt(WordTokenizer(**settings), Prompt(parts))


def test_text_is_a_completion_prompt() -> None:
    assert encode(Text("sunset?")) == (0, 7, 13)
    assert encode(Text("<s>sun</s>")) == (0, 5, 1)
    assert encode(Text("sun"), bos=False) == (5,)


def test_turns_go_through_the_template() -> None:
    user, done = Message("user", "sun</s>"), Message("assistant", "moon")
    literal = [100 + ord(char) for char in "</s>"]
    assert encode(user, done) == (0, 2, 5, *literal, 1, 3, 8, 1)
    assert encode(user, Message("assistant", "sun", open=True)) == (0, 2, 5, *literal, 1, 3, 5)
    assert encode(user, Message("assistant", "", open=True)) == (0, 2, 5, *literal, 1, 3)
    assert encode(Message("user", "sun", open=True)) == (0, 2, 5, 1)  # only ever primed


def test_text_and_turns_mixed_have_one_beginning() -> None:
    turns = (Message("user", "sun"), Message("assistant", "moon"))
    assert encode(Text("?"), *turns, Text("set")) == (0, 13, 2, 5, 1, 3, 8, 1, 6)
    assert encode(*turns, Text("set")) == (0, 2, 5, 1, 3, 8, 1, 6)
    assert encode(Text("?"), *turns, bos=False) == (13, 2, 5, 1, 3, 8, 1)


def test_the_empty_prompt_is_the_token_that_begins_a_text() -> None:
    assert encode() == (0,)
    assert encode(bos=False) == (1,)
    with pytest.raises(InvalidRequest, match="no token that begins a text"):
        encode(bos=False, eos_ids=frozenset())


@pytest.mark.parametrize(
    ("parts", "choices", "bos", "shared", "rests"),
    [
        ([Text("?")], ["sun", "sunset", "moon"], True, (0, 13), [(5,), (7,), (8,)]),
        ([Text("?")], ["stone", "river"], True, (0, 13), [(9, 10), (11,)]),
        ([Text("?")], ["stone", "stst"], True, (0, 13), [(9, 10), (9, 9)]),  # "st" is each choice's own
        ([Text("? ")], ["sun", "moon"], True, (0, 13), [(12,), (132, 8)]),  # the space is part of " sun"
        ([Text("sun")], ["set", "?"], True, (0,), [(7,), (5, 13)]),
        ([Text("sun")], ["set", "?"], False, (1,), [(7,), (5, 13)]),  # nothing is shared but the start
        ([], ["sun", "moon"], True, (0,), [(5,), (8,)]),
        ([], ["sun", "moon"], False, (1,), [(5,), (8,)]),
        (
            [Message("user", "sun"), Message("assistant", "", open=True)],
            ["set", "?"],
            True,
            (0, 2, 5, 1, 3),
            [(6,), (13,)],
        ),
    ],
)
def test_choices_are_encoded_together_with_the_prompt(
    parts: list[Any], choices: list[str], bos: bool, shared: tuple[int, ...], rests: list[tuple[int, ...]]
) -> None:
    tokenizer, prompt = WordTokenizer(bos=bos), Prompt(tuple(parts))
    found = encode_choices(tokenizer, prompt, [extend(prompt, choice) for choice in choices])
    assert found == (shared, rests)
    for choice, rest in zip(choices, rests, strict=True):
        whole = encode_prompt(tokenizer, extend(prompt, choice))
        assert shared + rest in (whole, (1, *whole))


async def collect(backend: LocalBackend, options: GenOptions) -> list[GenEvent]:
    return [event async for event in backend.generate(Prompt((Text("?"),)), options)]


async def test_generate() -> None:
    engine = FakeEngine(answer)
    options = GenOptions(max_tokens=9, temperature=0, logit_bias=((5, 1.0),), choices=("sun",))
    events = await collect(LocalBackend(engine), options)
    logprobs = (TokenLogprob(5, -0.5, ((5, -0.5), (8, -1.5))),)
    assert events == [
        GenEvent(text="su", token_ids=(5,), logprobs=logprobs),
        GenEvent(text="n", token_ids=(1,), forced=True, num_replaced=1, finish_reason="stop"),
        GenEvent(stop_reason="!"),
        GenEvent(usage=UsageCounts(prompt_tokens=5, cached_tokens=2, completion_tokens=3, num_requests=1)),
    ]
    (request,) = engine.requests
    assert request == Request(prompt_ids=(0, 13), params=sampling_params(options))
    assert sampling_params(GenOptions()) == SamplingParams()


async def test_a_request_that_is_left_is_aborted() -> None:
    engine = FakeEngine(answer)
    events = LocalBackend(engine).generate(Prompt((Text("?"),)), GenOptions())
    await anext(events)
    assert engine.streams[0].num_aborts == 0
    await events.aclose()
    assert engine.streams[0].num_aborts == 1


async def test_a_score_or_a_prime_that_is_cancelled_is_aborted() -> None:
    engine = FakeEngine(lambda request: [])
    backend = LocalBackend(engine)
    for work in (backend.score(Prompt((Text("?"),)), ("sun",)), backend.prime(Prompt((Text("?"),)))):
        task = asyncio.create_task(work)  # type: ignore[arg-type]
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert engine.streams[-1].num_aborts == 1


async def test_score_and_prime() -> None:
    engine = FakeEngine(answer)
    backend = LocalBackend(engine)
    prompt = Prompt((Text("?"),))
    result = await backend.score(prompt, ("stone", "river"))
    assert [score.token_ids for score in result.scores] == [(9, 10), (11,)]
    assert [score.logprobs for score in result.scores] == [(-9.0, -10.0), (-11.0,)]
    assert result.usage.prompt_tokens == 5
    assert (await backend.prime(prompt)).cached_tokens == 2
    assert engine.requests == [
        ScoreRequest(prompt_ids=(0, 13), continuations=((9, 10), (11,))),
        Request(prompt_ids=(0, 13), params=SamplingParams(max_tokens=0)),
    ]


def test_failures_reach_the_program_with_its_line() -> None:
    @tr.program
    def ask(s: tr.State, how: str) -> None:
        s += "?"
        if how == "gen":
            s += tr.gen("x")
        elif how == "select":
            s += tr.select("x", ["sun"])
        else:
            with s.fork(2):
                pass

    def refuse(request: object) -> list[Event]:
        raise EngineOverloaded("full")

    def fail(request: object) -> list[Event]:
        return [Failed(request_id="r", error=RequestAborted("gone"))]

    for answering, kind in ((refuse, EngineOverloaded), (fail, RequestAborted)):
        for how in ("gen", "select", "fork"):
            with pytest.raises(tr.GenerationFailed, match=how) as caught:
                ask.run(how, backend=FakeEngine(answering))
            assert isinstance(caught.value.__cause__, kind)


def test_an_aborted_text_is_a_failure() -> None:
    def aborted(request: object) -> list[Event]:
        done = Completion(index=0, text="", token_ids=(), finish_reason="abort", usage=USAGE)
        return [
            TokenEvent(request_id="r", index=0, text="", finish_reason="abort"),
            Finished(request_id="r", completions=(done,), usage=USAGE),
        ]

    with pytest.raises(tr.GenerationFailed, match="the request was aborted"):
        tr.program(lambda s: s.__iadd__(tr.gen("x"))).run(backend=FakeEngine(aborted))


def test_an_engine_is_a_backend() -> None:
    engine = FakeEngine(answer)
    backend = as_backend(engine)
    assert isinstance(backend, LocalBackend)
    assert as_backend(backend) is backend
    with pytest.raises(TypeError, match="must be an Engine or a backend, not str"):
        as_backend("smollm2-135m")
    with pytest.raises(TypeError, match="not the class LocalBackend"):
        as_backend(LocalBackend)
