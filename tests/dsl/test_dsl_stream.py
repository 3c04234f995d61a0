"""Streams: the events of a run, and what happens when the reader leaves early."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

import treille as tr
from treille.dsl.backends.scripted import ScriptedBackend
from treille.dsl.events import FinishedEvent, ProgramEvent, TextEvent, VariableEvent
from treille.dsl.protocol import GenEvent, GenOptions, Prompt


@tr.program
def talk(s: tr.State) -> None:
    s += tr.system("Be brief.")
    with s.assistant():
        s += "Kind: " + tr.select("kind", ["bug", "question"])
        s += "\n" + tr.gen("answer")
    s += "end"


def backend() -> ScriptedBackend:
    return ScriptedBackend(lambda prompt, options: "abcdef", scores={"bug": [-1.0], "question": [-2.0]})


def text_event(
    text: str, kind: Any, role: Any, variable: str | None = None, branch: tuple[int, ...] = ()
) -> TextEvent:
    return TextEvent(text=text, kind=kind, role=role, variable=variable, branch=branch)


EXPECTED: list[ProgramEvent] = [
    text_event("Be brief.", "given", "system"),
    text_event("Kind: ", "given", "assistant"),
    text_event("bug", "sampled", "assistant", "kind"),
    VariableEvent(name="kind", value="bug", raw="bug"),
    text_event("\n", "given", "assistant"),
    text_event("abcd", "sampled", "assistant", "answer"),
    text_event("ef", "sampled", "assistant", "answer"),
    VariableEvent(name="answer", value="abcdef", raw="abcdef"),
    text_event("end", "given", None),
]


def test_events_in_order_for_a_plain_for() -> None:
    stream = talk.stream(backend=backend())
    events = list(stream)
    assert events[:-1] == EXPECTED
    assert events[-1] == FinishedEvent(usage=stream.state.usage)
    assert "".join(event.text for event in events if isinstance(event, TextEvent)) == stream.state.text()
    assert stream.state["kind"] == "bug"


async def test_events_in_order_for_an_async_for() -> None:
    async with talk.stream(backend=backend()) as stream:
        events = [event async for event in stream]
    assert events[:-1] == EXPECTED
    assert isinstance(events[-1], FinishedEvent)
    assert stream.state.usage.num_requests == 2


def test_text_comes_while_the_program_runs() -> None:
    seen = threading.Event()

    @tr.program
    def step(s: tr.State) -> None:
        s += "first"
        assert seen.wait(10)
        s += "second"

    texts = []
    for event in step.stream(backend=backend()):
        if isinstance(event, TextEvent):
            texts.append(event.text)
            seen.set()
    assert texts == ["first", "second"]


def test_forced_text_is_marked() -> None:
    class Forcing(ScriptedBackend):
        async def generate(self, prompt: Prompt, options: GenOptions) -> Any:
            yield GenEvent(text="a")
            yield GenEvent(text="b", forced=True, finish_reason="stop")

    @tr.program
    def say(s: tr.State) -> None:
        s += tr.gen("x")

    events = list(say.stream(backend=Forcing()))
    assert events[:2] == [text_event("a", "sampled", None, "x"), text_event("b", "forced", None, "x")]


def test_branches_have_their_own_text() -> None:
    @tr.program
    def split(s: tr.State) -> None:
        s += "a"
        with s.fork(2) as branches:
            for index, branch in enumerate(branches):
                branch += f"{index}" + tr.gen("x")
        s += "".join(str(branch["x"]) for branch in branches)

    events = list(split.stream(backend=ScriptedBackend(lambda p, o: p.text + "!")))
    texts: dict[tuple[int, ...], str] = {}
    for event in events:
        if isinstance(event, TextEvent):
            texts[event.branch] = texts.get(event.branch, "") + event.text
    assert texts == {(): "aa0!a1!", (0,): "0a0!", (1,): "1a1!"}


def test_several_samples_are_one_variable_event() -> None:
    @tr.program
    def say(s: tr.State) -> None:
        s += "q" + tr.gen("x", n=2)

    events = list(say.stream(backend=ScriptedBackend([["a", "b"]])))
    assert events[:-1] == [
        text_event("q", "given", None),
        VariableEvent(name="x", value=["a", "b"], raw=["a", "b"]),
    ]


def test_an_error_comes_after_the_events_before_it() -> None:
    @tr.program
    def fail(s: tr.State) -> None:
        s += "a" + tr.gen("x")

    stream = fail.stream(backend=ScriptedBackend())
    iterator = iter(stream)
    assert next(iterator) == text_event("a", "given", None)
    with pytest.raises(tr.GenerationFailed, match="gen 'x'"):
        next(iterator)
    with pytest.raises(StopIteration):
        next(iterator)
    with pytest.raises(tr.ProgramError, match="no state yet"):
        _ = stream.state


def test_a_stream_checks_its_arguments_at_once_and_is_read_once() -> None:
    with pytest.raises(TypeError, match="does not know the argument 'x'"):
        talk.stream(x=1, backend=backend())
    with pytest.raises(TypeError, match="needs a backend"):
        talk.stream()
    stream = talk.stream(backend=backend())
    with pytest.raises(tr.ProgramError, match="no state yet"):
        _ = stream.state
    list(stream)
    with pytest.raises(tr.ProgramError, match="read once"):
        iter(stream)
    talk.stream(backend=backend()).close()  # never begun: nothing runs


class Endless(ScriptedBackend):
    """Writes until it is left."""

    async def generate(self, prompt: Prompt, options: GenOptions) -> Any:
        try:
            while True:
                yield GenEvent(text=".")
                await asyncio.sleep(0.001)
        finally:
            self.num_aborted += 1


@tr.program
def endless(s: tr.State) -> None:
    with s.assistant(), s.capture("all"):
        try:
            s += tr.gen("x")
            s["x"]
        except Exception:  # a program that catches everything is still unwound
            s += "caught"
        while True:
            s += "more" + tr.gen("y")
            s["y"]


def wait_for_abort(endless_backend: Endless) -> None:
    deadline = time.monotonic() + 5
    while not endless_backend.num_aborted:
        assert time.monotonic() < deadline, "the request was not aborted"
        time.sleep(0.002)


def test_leaving_a_for_aborts() -> None:
    running = Endless()
    stream = endless.stream(backend=running)
    for event in stream:
        assert isinstance(event, TextEvent)
        break
    wait_for_abort(running)
    stream.close()
    with pytest.raises(tr.ProgramError, match="no state yet"):
        _ = stream.state


def test_leaving_a_with_waits_for_the_end() -> None:
    running = Endless()
    with endless.stream(backend=running) as stream:
        iterator = iter(stream)
        next(iterator)
    assert running.num_aborted == 1
    assert not [t for t in threading.enumerate() if t.name.startswith(("treille-program", "treille-loop"))]


async def test_leaving_an_async_for_aborts() -> None:
    running = Endless()
    async for _ in endless.stream(backend=running):
        break
    await asyncio.to_thread(wait_for_abort, running)
    async with endless.stream(backend=running) as stream:
        async for _ in stream:
            break
    assert running.num_aborted == 2


async def test_cancelling_the_reader_aborts() -> None:
    running = Endless()

    async def read() -> None:
        async for _ in endless.stream(backend=running):
            pass

    task = asyncio.create_task(read())
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.to_thread(wait_for_abort, running)


def test_a_reader_whose_loop_is_closed_has_left() -> None:
    running = Endless()
    kept = []

    async def read() -> None:
        kept.append(aiter(endless.stream(backend=running)))
        await anext(kept[0])

    asyncio.run(read())
    wait_for_abort(running)


def test_a_run_can_be_cancelled_at_any_moment() -> None:
    """From wherever the program is: before it begins, between two reads, after it ended."""
    for pause in (0.0, 0.0005, 0.001, 0.002, 0.004, 0.008):
        with talk.stream(backend=backend()) as stream:
            iterator = iter(stream)
            time.sleep(pause)
            del iterator
        assert not [
            t for t in threading.enumerate() if t.name.startswith(("treille-program", "treille-loop"))
        ]
