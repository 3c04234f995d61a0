"""Batches: order, bounded threads, the common prefix computed once, and errors."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import treille as tr
from treille.dsl import batch as batch_module
from treille.dsl.backends.scripted import ScriptedBackend
from treille.dsl.prompts import common_prefix, common_text, extend
from treille.dsl.protocol import GenOptions, Message, Prompt, Text, UsageCounts


def last_word(prompt: Prompt, options: GenOptions) -> str:
    return prompt.text.split()[-1]


@tr.program
def echo(s: tr.State, word: str) -> str:
    s += "Say it: " + word + " " + tr.gen("x")
    return word


def test_results_come_in_order_and_the_prefix_is_computed_once() -> None:
    backend = ScriptedBackend(last_word)
    words = [f"w{i}" for i in range(500)]
    states = echo.batch([{"word": word} for word in words], backend=backend)
    assert [state["x"] for state in states] == words
    assert [state.returned for state in states] == words
    primes = [call for call in backend.calls if call.kind == "prime"]
    assert len(primes) == 1
    assert backend.calls[0].kind == "prime"
    assert primes[0].prompt.text.startswith("Say it: w")
    assert all(state.usage.cached_tokens >= len("Say it: w") for state in states)
    assert all(state.usage.num_requests == 1 for state in states)


def test_the_prefix_of_turns() -> None:
    backend = ScriptedBackend(lambda prompt, options: "ok")

    @tr.program
    def chat(s: tr.State, word: str) -> None:
        s += tr.system("Be brief.") + tr.user("About " + word)
        s += tr.assistant(tr.gen("x"))

    chat.batch([{"word": word} for word in "abc"], backend=backend)
    assert backend.calls[0].kind == "prime"
    assert backend.calls[0].prompt.parts == (
        Message("system", "Be brief."),
        Message("user", "About ", open=True),
    )


def test_no_more_than_max_workers_run_at_a_time() -> None:
    lock = threading.Lock()
    running: list[int] = []
    most = 0

    @tr.program
    def busy(s: tr.State, i: int) -> None:
        nonlocal most
        with lock:
            running.append(i)
            most = max(most, len(running))
        s += tr.gen("x")
        s["x"]
        with lock:
            running.remove(i)

    backend = ScriptedBackend(lambda prompt, options: "x")
    assert len(busy.batch([{"i": i} for i in range(40)], backend=backend, max_workers=3)) == 40
    assert 1 < most <= 3
    busy.batch([{"i": i} for i in range(5)], backend=backend, max_workers=1)


def test_items_may_generate_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_module, "PATIENCE_S", 60.0)
    backend = ScriptedBackend(lambda prompt, options: "x")

    @tr.program
    def maybe(s: tr.State, i: int) -> None:
        s += f"{i}"
        if i == 3:
            s += tr.gen("x")

    started = time.monotonic()
    states = maybe.batch([{"i": i} for i in range(6)], backend=backend)
    assert [state.text() for state in states] == ["0", "1", "2", "3x", "4", "5"]
    assert time.monotonic() - started < 30  # the gate knew that nobody else comes
    assert [call.kind for call in backend.calls] == ["generate"]


def test_items_that_wait_for_each_other_do_not_wait_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_module, "PATIENCE_S", 0.05)
    first_is_done = threading.Event()

    @tr.program
    def chain(s: tr.State, i: int) -> None:
        if i == 1:
            assert first_is_done.wait(10)
        s += tr.gen("x")
        s["x"]
        first_is_done.set()

    backend = ScriptedBackend(lambda prompt, options: "x")
    assert len(chain.batch([{"i": 0}, {"i": 1}], backend=backend)) == 2


@tr.program
def fussy(s: tr.State, i: int) -> None:
    s += f"{i}" + tr.gen("x")
    if i == 2:
        raise RuntimeError("two")
    s["x"]


def test_an_error_is_raised_with_its_item() -> None:
    with pytest.raises(RuntimeError, match="two") as caught:
        fussy.batch([{"i": i} for i in range(5)], backend=ScriptedBackend(lambda prompt, options: "x"))
    notes = caught.value.__notes__
    assert "in item 2 of the batch" in notes
    assert any(note.startswith("in program fussy: ") for note in notes)


def test_an_error_aborts_the_rest() -> None:
    async def never(prompt: Prompt, options: GenOptions) -> str:
        await asyncio.Event().wait()
        return ""

    backend = ScriptedBackend(never)
    with pytest.raises(RuntimeError, match="two"):
        fussy.batch([{"i": i} for i in range(200)], backend=backend, max_workers=8)
    generations = [call for call in backend.calls if call.kind == "generate"]
    assert backend.num_aborted == len(generations) < 30  # at most a few began before the error was seen


def test_errors_can_be_returned() -> None:
    backend = ScriptedBackend(lambda prompt, options: "x")
    found = fussy.batch([{"i": i} for i in range(4)], backend=backend, on_error="return")
    assert [type(one) for one in found] == [tr.State, tr.State, RuntimeError, tr.State]


def test_a_failed_prime_is_an_error_and_not_a_hang() -> None:
    class NoPrime(ScriptedBackend):
        async def prime(self, prompt: Prompt) -> UsageCounts:
            raise RuntimeError("no room")

    backend = NoPrime(lambda prompt, options: "x")
    found = echo.batch([{"word": "a"}] * 4, backend=backend, on_error="return")
    failed = [one for one in found if isinstance(one, tr.GenerationFailed)]
    assert len(failed) == 1
    assert "no room" in str(failed[0])


@pytest.mark.parametrize(
    ("items", "kwargs", "message"),
    [
        ([{"word": "a"}, {"wrod": "b"}], {}, "item 1: .*'wrod'; did you mean 'word'"),
        ([{"word": "a"}, {}], {}, "item 1: .*missing the argument 'word'"),
        ([{"word": "a"}, "b"], {}, "item 1 must map names to arguments, not 'b'"),
        ([{"word": "a"}], {"temprature": 0}, "did you mean 'temperature'"),
        ([{"word": "a"}], {"max_worker": 0}, "did you mean 'max_workers'"),
        ([{"word": "a"}], {"max_workers": 0}, "max_workers must be at least 1"),
        ([{"word": "a"}], {"max_workers": "4"}, "max_workers must be a whole number"),
        ([{"word": "a"}], {"on_error": "ignore"}, "on_error must be"),
        ([{"word": "a", "temperature": 0}], {}, "item 0: .*'temperature'"),
    ],
)
def test_wrong_arguments(items: Any, kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, tr.InvalidExpression), match=message):
        echo.batch(items, backend=ScriptedBackend(), **kwargs)
    with pytest.raises(TypeError, match="needs a backend"):
        echo.batch([{"word": "a"}])


def test_empty_batches_shared_arguments_and_defaults() -> None:
    backend = ScriptedBackend(last_word)
    assert echo.batch([], backend=backend) == []
    states = echo.batch([{}, {"word": "b"}], word="a", temperature=0, backend=backend)
    assert [state["x"] for state in states] == ["a", "b"]
    generations = [call for call in backend.calls if call.kind == "generate"]
    assert [call.options for call in generations] == [GenOptions(temperature=0)] * 2


def test_progress_shows_a_bar(capsys: pytest.CaptureFixture[str]) -> None:
    echo.batch([{"word": "a"}] * 3, backend=ScriptedBackend(last_word), progress=True)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "3/3" in captured.err


PARTS = st.one_of(
    st.text("ab", min_size=1, max_size=3).map(Text),
    st.builds(Message, st.sampled_from(["user", "system"]), st.text("ab", max_size=3)),
)
PROMPTS = st.lists(PARTS, max_size=4).map(lambda parts: Prompt(tuple(parts)))


@settings(deadline=None)
@given(PROMPTS, PROMPTS)
def test_common_prefix(first: Prompt, second: Prompt) -> None:
    shared = common_prefix(first, second)
    assert shared == common_prefix(second, first)
    assert common_prefix(first, first) == first
    for whole in (first, second):
        assert len(shared.parts) <= len(whole.parts)
        for ours, theirs in zip(shared.parts, whole.parts, strict=False):
            assert type(ours) is type(theirs)
            assert Prompt((theirs,)).text.startswith(Prompt((ours,)).text)
        assert shared.parts[:-1] == whole.parts[: len(shared.parts[:-1])]


@settings(deadline=None)
@given(st.text("ab", max_size=9), st.text("ab", max_size=9))
def test_common_text(first: str, second: str) -> None:
    shared = common_text(first, second)
    assert first.startswith(shared)
    assert second.startswith(shared)
    longer = len(shared) + 1
    assert first[:longer] != second[:longer] or longer > min(len(first), len(second))


@settings(deadline=None)
@given(st.lists(st.text("ab", max_size=2)), st.booleans())
def test_extend(texts: list[str], in_turn: bool) -> None:
    start = Prompt((Message("user", "q"), Message("assistant", "", open=True))) if in_turn else Prompt()
    prompt = start
    for text in texts:
        prompt = extend(prompt, text)
    assert prompt == extend(start, "".join(texts))
    assert prompt.text == start.text + "".join(texts)
