"""Calling programs: errors with lines, arguments, programs within programs, states after their run."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any, Literal

import pytest

import treille as tr
from treille.dsl.backends.scripted import ScriptedBackend, WrongScript
from treille.dsl.protocol import GenEvent, GenOptions, Prompt
from treille.dsl.results import Generation


def line_of(mark: str) -> int:
    """The number of this file's line that ends with a mark."""
    source = inspect.getsource(inspect.getmodule(line_of))  # type: ignore[arg-type]
    return next(n for n, line in enumerate(source.splitlines(), 1) if line.endswith("# " + mark))


def run(function: Any, backend: Any = None, **kwargs: Any) -> tr.State:
    return tr.program(function).run(backend=backend or ScriptedBackend(), **kwargs)


def test_a_failed_generation_names_the_line() -> None:
    def fail(s: tr.State) -> None:
        s += "x"
        s += tr.gen("a")  # the failing line
        s += tr.gen("b")
        s["b"]

    with pytest.raises(tr.GenerationFailed) as caught:
        run(fail)
    error = caught.value
    assert (error.filename, error.lineno) == (__file__, line_of("the failing line"))
    assert error.line == 's += tr.gen("a")  # the failing line'
    assert "gen 'a': WrongScript: the script has 0 replies" in str(error)
    assert isinstance(error.__cause__, WrongScript)


@pytest.mark.parametrize("caught_inside", [False, True])
def test_a_failure_that_is_not_read_is_raised_at_the_end(caught_inside: bool) -> None:
    def fail(s: tr.State) -> None:
        s += tr.gen("a")
        if caught_inside:
            with pytest.raises(tr.GenerationFailed):
                s["a"]
            with pytest.raises(tr.GenerationFailed):
                s.text()

    with pytest.raises(tr.GenerationFailed, match="gen 'a'"):
        run(fail)


def test_an_exception_of_the_users_own_is_passed_on_with_a_note() -> None:
    def broken(s: tr.State) -> None:
        s += tr.gen("a")
        int(str(s["a"]))  # broken

    with pytest.raises(ValueError, match="invalid literal") as caught:
        run(broken, ScriptedBackend(["x"]))
    assert type(caught.value) is ValueError
    (note,) = caught.value.__notes__
    assert note == f'in program broken: {__file__}, line {line_of("broken")}: int(str(s["a"]))  # broken'


def test_the_users_exception_ends_what_runs() -> None:
    async def never(prompt: Prompt, options: GenOptions) -> str:
        await asyncio.Event().wait()
        return ""

    def broken(s: tr.State) -> None:
        s += tr.gen("a") + tr.gen("b")
        raise RuntimeError("enough")

    backend = ScriptedBackend(never)
    with pytest.raises(RuntimeError, match="enough"):
        run(broken, backend)
    assert backend.num_aborted == len([call for call in backend.calls if call.kind == "generate"])


@pytest.mark.parametrize(
    ("kind", "text", "max_tokens", "message"),
    [
        (int, "-12", 1, "'-' is not of type int: it was cut off by max_tokens"),
        (Literal["yes", "no"], "yes", 2, "'ye' is not of type Literal"),
        (bool, "true", 0, "'' is not of type bool"),
    ],
)
def test_a_value_that_was_cut_off_is_an_error(kind: Any, text: str, max_tokens: int, message: str) -> None:
    def ask(s: tr.State) -> None:
        s += tr.gen("x", type=kind, max_tokens=max_tokens)

    with pytest.raises(tr.GenerationFailed) as caught:
        run(ask, ScriptedBackend([text]))
    assert message in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_pattern_that_was_cut_off() -> None:
    def ask(s: tr.State, pattern: str, stop: str | None = None, max_tokens: int = 2) -> None:
        s += tr.gen("x", regex=pattern, max_tokens=max_tokens, stop=stop)

    assert run(ask, ScriptedBackend(["abc"]), pattern="[a-z]+")["x"] == "ab"
    with pytest.raises(
        tr.GenerationFailed, match="'ab' does not match the pattern 'abc': it was cut off by max"
    ):
        run(ask, ScriptedBackend(["abc"]), pattern="abc")
    with pytest.raises(tr.GenerationFailed, match="cut off at the stop 'c'"):
        run(ask, ScriptedBackend(["abc"]), pattern="abc", stop="c", max_tokens=9)
    meta = run(ask, ScriptedBackend(["abc"]), pattern="[a-z]+").meta("x")
    assert isinstance(meta, Generation)
    assert (meta.text, meta.finish_reason, meta.token_ids) == ("ab", "length", (97, 98))


@tr.program
def greet(s: tr.State, name: str, greeting: str = "Hello", *, seed: int = 3) -> str:
    """Greets."""
    s += f"{greeting} {name} {seed} " + tr.gen("x")
    return name


def test_arguments() -> None:
    backend = ScriptedBackend(lambda prompt, options: "y")
    assert greet.run("Ann", backend=backend).text() == "Hello Ann 3 y"
    assert greet.run(name="Ann", greeting="Hi", seed=4, backend=backend).text() == "Hi Ann 4 y"
    assert backend.calls[-1].options == GenOptions()  # `seed` is the program's own
    assert (greet.__name__, greet.__doc__) == ("greet", "Greets.")
    assert repr(greet) == "<program greet(name, greeting, seed)>"
    assert list(inspect.signature(greet).parameters) == ["s", "name", "greeting", "seed"]


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, r"greet.run\(\) is missing the argument 'name'"),
        ((), {"nmae": "x"}, r"greet.run\(\) does not know the argument 'nmae'; did you mean 'name'\?"),
        ((), {"name": "x", "temprature": 0}, "did you mean 'temperature'"),
        ((), {"name": "x", "zzz": 0}, "'zzz'; it knows name, greeting, seed, max_tokens"),
        (("x",), {"name": "x"}, "'name' twice"),
        (("a", "b", "c", "d"), {}, "takes 3 arguments, not 4"),
        (("x",), {"n": 2}, "'n' belongs to a single gen"),
        (("x",), {"regex": "a"}, "'regex' belongs to a single gen"),
        (("x",), {"top_p": 2}, r"greet.run\(\): top_p must be a number from 0.0 to 1.0, not 2"),
    ],
)
def test_wrong_arguments(args: tuple[Any, ...], kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, tr.InvalidExpression), match=message):
        greet.run(*args, backend=ScriptedBackend(), **kwargs)


@pytest.mark.parametrize("backend", [None, "smollm2-135m", 3, object()])
def test_a_backend_is_needed(backend: object) -> None:
    with pytest.raises(TypeError, match="backend"):
        greet.run("x", backend=backend)


def test_what_a_program_can_be() -> None:
    async def coroutine(s: tr.State) -> None: ...
    def generator(s: tr.State) -> Any:
        yield

    def empty() -> None: ...
    def starred(*s: tr.State) -> None: ...
    def more(s: tr.State, *rest: str) -> None: ...
    def keywords(s: tr.State, **rest: str) -> None: ...
    def positional(s: tr.State, x: str, /) -> None: ...
    def reserved(s: tr.State, backend: str) -> None: ...

    for function in (coroutine, generator, empty, starred, more, keywords, positional, reserved, print, 3):
        with pytest.raises(TypeError):
            tr.program(function)  # type: ignore[arg-type]


def test_a_program_within_a_program() -> None:
    @tr.program
    def outer(s: tr.State) -> object:
        s += "> "
        first = greet(s, "Ann")
        s += "\n> "
        return [first, greet(s, name="Bob", greeting="Hi")]

    state = outer.run(backend=ScriptedBackend(["1", "2"]))
    assert state.text() == "> Hello Ann 3 1\n> Hi Bob 3 2"
    assert state.returned == ["Ann", "Bob"]
    with pytest.raises(TypeError, match=r"greet\(s, ...\) needs a program's state"):
        greet("Ann")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"to run it by itself use greet.run\(...\)"):
        greet(name="Ann")


def test_a_state_can_be_read_but_not_extended_after_the_run() -> None:
    state = greet.run("Ann", backend=ScriptedBackend(["y"]))
    with pytest.raises(tr.ProgramError, match="the program is over"):
        state += "more"
    assert state.text() == "Hello Ann 3 y"
    assert state["x"] == "y"


def test_a_backend_that_is_cancelled_from_within_is_a_failure_and_not_a_hang() -> None:
    async def cancelled(prompt: Prompt, options: GenOptions) -> str:
        raise asyncio.CancelledError

    with pytest.raises(tr.GenerationFailed, match="gen 'x': CancelledError"):
        greet.run("Ann", backend=ScriptedBackend(cancelled))


@pytest.mark.parametrize("events", [[], [0], [1]])
def test_a_backend_that_breaks_its_promise(events: list[int]) -> None:
    class Broken(ScriptedBackend):
        async def generate(self, prompt: Prompt, options: GenOptions) -> Any:
            for index in events:
                yield GenEvent(index=index, text="x")

    with pytest.raises(tr.GenerationFailed):
        greet.run("Ann", backend=Broken())


async def test_run_works_within_an_event_loop() -> None:
    assert greet.run("Ann", backend=ScriptedBackend(["y"]))["x"] == "y"


def test_a_thousand_steps() -> None:
    def count(s: tr.State) -> None:
        for i in range(1000):
            s += f"{i} " + tr.gen("x", max_tokens=1)

    state = run(count, ScriptedBackend(lambda prompt, options: "."))
    assert state.text() == "".join(f"{i} ." for i in range(1000))
