"""Running a program once: variables, turns, captures, arguments, errors with lines, laziness."""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import treille as tr
from treille.dsl.backends.scripted import ScriptedBackend, WrongScript
from treille.dsl.protocol import GenOptions, Message, Prompt, Text
from treille.dsl.results import Generation, Selection

CONVERSATION = st.lists(
    st.tuples(st.sampled_from(["system", "user", "assistant", None]), st.text(max_size=4), st.booleans()),
    max_size=6,
)


def line_of(mark: str) -> int:
    """The number of this file's line that ends with a mark."""
    source = inspect.getsource(inspect.getmodule(line_of))  # type: ignore[arg-type]
    return next(n for n, line in enumerate(source.splitlines(), 1) if line.endswith("# " + mark))


def run(function: Any, backend: Any = None, **kwargs: Any) -> tr.State:
    return tr.program(function).run(backend=backend or ScriptedBackend(), **kwargs)


def test_the_whole_example() -> None:
    backend = ScriptedBackend(
        {"Ids: ": "AB-12", "Urgent: ": "true"}, scores={"bug": [-1.0], "question": [-3.0]}
    )

    @tr.program
    def triage(s: tr.State, ticket: str) -> str:
        s += tr.system("You sort support tickets.")
        s += tr.user(ticket)
        with s.assistant():
            s += "Kind: " + tr.select("kind", ["bug", "question"]) + "\n"
            if s["kind"] == "bug":
                s += "Ids: " + tr.gen("ids", regex=r"[A-Z]{2,4}-\d{1,5}", max_tokens=12)
            s += "\nUrgent: " + tr.gen("urgent", type=bool)
        return "done"

    state = triage.run(ticket="It broke.", backend=backend, temperature=0)
    assert state["kind"] == "bug"
    assert state["ids"] == "AB-12"
    assert state["urgent"] is True
    assert state.raw("urgent") == "true"
    assert state.returned == "done"
    assert state.messages() == [
        {"role": "system", "content": "You sort support tickets."},
        {"role": "user", "content": "It broke."},
        {"role": "assistant", "content": "Kind: bug\nIds: AB-12\nUrgent: true"},
    ]
    assert state.text() == "".join(message["content"] for message in state.messages())
    assert state.variables() == {"kind": "bug", "ids": "AB-12", "urgent": True}
    assert "kind" in state
    assert "other" not in state
    first, second, third = backend.calls
    assert first.prompt.parts[-1] == Message("assistant", "Kind: ", open=True)
    assert second.options == GenOptions(max_tokens=12, temperature=0, regex=r"[A-Z]{2,4}-\d{1,5}")
    assert third.options == GenOptions(temperature=0, choices=("true", "false"))
    sizes = [len(call.prompt.text) for call in backend.calls]
    assert state.usage.prompt_tokens == sum(sizes)
    assert state.usage.cached_tokens == sizes[0] + sizes[1]
    assert state.usage.completion_tokens == len("AB-12true")
    assert state.usage.num_requests == 3


def test_options_of_a_gen_win_over_the_runs() -> None:
    backend = ScriptedBackend(["a", "b"])

    def say(s: tr.State) -> None:
        s += tr.gen(temperature=0.5) + tr.gen()

    run(say, backend, temperature=0, seed=7, stop="!")
    assert [call.options for call in backend.calls] == [
        GenOptions(temperature=0.5, seed=7, stop=("!",)),
        GenOptions(temperature=0, seed=7, stop=("!",)),
    ]


def test_a_name_bound_again_holds_the_last_value() -> None:
    def count(s: tr.State) -> list[object]:
        seen = []
        for _ in range(3):
            s += tr.gen("x", type=int)
            seen.append(s["x"])
        return seen

    state = run(count, ScriptedBackend(["1", "2", "3"]))
    assert state.returned == [1, 2, 3]
    assert state["x"] == 3
    assert state.text() == "123"


@pytest.mark.parametrize(
    "choice", ["ok", "not\nnow", "cr\rlf\n", 'say "hi"', "a|b", "back\\slash", "\0", " pad "]
)
def test_b25_choices_come_back_byte_for_byte(choice: str) -> None:
    choices = ["ok", "not\nnow", "cr\rlf\n", 'say "hi"', "a|b", "back\\slash", "\0", " pad "]
    scores = {other: [-1.0 if other == choice else -2.0] for other in choices}

    def ask(s: tr.State) -> None:
        s += tr.select("scored", choices) + "/" + tr.gen("decoded", choices=choices)

    state = run(ask, ScriptedBackend([choice], scores=scores))
    assert state["scored"] == state["decoded"] == choice
    assert state.text() == f"{choice}/{choice}"


def test_b25_the_empty_choice_means_to_stop_at_once() -> None:
    def ask(s: tr.State) -> None:
        s += "(" + tr.gen("x", choices=["", "a"]) + ")"

    state = run(ask, ScriptedBackend([""]))
    assert state["x"] == ""
    assert state.text() == "()"


def test_b26_b28_select_returns_what_it_scored() -> None:
    scores = {"stone": [("st", -0.51), ("one", -6.9)], "river": [("river", -1.2)]}

    def ask(s: tr.State, method: Any) -> None:
        s += "Which? " + tr.select("x", list(scores), method=method)

    backend = ScriptedBackend(scores=scores)
    assert run(ask, backend, method="token_length_normalized")["x"] == "river"
    state = run(ask, backend, method="greedy_token")
    assert state["x"] == "stone"
    assert state.scores("x") == {"stone": (-0.51, -6.9), "river": (-1.2,)}
    meta = state.meta("x")
    assert isinstance(meta, Selection)
    assert meta.choices == ("stone", "river")
    assert meta.method == "greedy_token"
    assert meta.unconditional == ()
    assert [len(score.token_ids) for score in meta.scores] == [2, 1]


def test_select_against_the_unconditional_scores() -> None:
    def scores(prompt: Prompt, choice: str) -> list[float]:
        table = {"a": [-1.0], "b": [-2.0]} if prompt.parts else {"a": [-1.0], "b": [-9.0]}
        return table[choice]

    def ask(s: tr.State) -> None:
        s += "Which? " + tr.select("x", ["a", "b"], method="unconditional_likelihood_normalized")

    backend = ScriptedBackend(scores=scores)
    state = run(ask, backend)
    assert state["x"] == "b"
    assert [call.prompt.parts for call in backend.calls] == [(Text("Which? "),), ()]
    meta = state.meta("x")
    assert isinstance(meta, Selection)
    assert [score.logprobs for score in meta.unconditional] == [(-1.0,), (-9.0,)]
    assert state.usage.num_requests == 2


def test_b29_several_samples_are_a_list() -> None:
    backend = ScriptedBackend([["red", "blue", "red"], "!"])

    def colors(s: tr.State) -> None:
        s += "Color: " + tr.gen("c", n=3, regex="(red|blue)") + "\nthen " + tr.gen("x")

    state = run(colors, backend)
    assert state["c"] == state.raw("c") == ["red", "blue", "red"]
    assert state.text() == "Color: \nthen !"
    assert state.usage.prompt_tokens == len("Color: ") + len("Color: \nthen ")
    meta = state.meta("c")
    assert isinstance(meta, tuple)
    assert [one.finish_reason for one in meta] == ["stop"] * 3
    assert run(lambda s: s.__iadd__(tr.gen("c", n=2, type=int)), ScriptedBackend([["1", "2"]]))["c"] == [1, 2]


def test_b29_a_list_where_one_text_is_needed() -> None:
    def wrong(s: tr.State) -> None:
        s += tr.gen("c", n=2)
        s += s["c"]  # a list

    with pytest.raises(tr.InvalidExpression, match="generated with n > 1 is a list") as caught:
        run(wrong, ScriptedBackend([["a", "b"]]))
    assert caught.value.lineno == line_of("a list")

    def also_wrong(s: tr.State) -> None:
        s += tr.gen("c", n=2)
        s += tr.user("I like " + s["c"])  # type: ignore[operator]

    with pytest.raises(TypeError, match="can only concatenate str"):
        run(also_wrong, ScriptedBackend([["a", "b"]]))


@pytest.mark.parametrize("value", [5, None, b"x", 1.5, {"a": 1}])
def test_only_text_and_expressions_can_be_added(value: object) -> None:
    def wrong(s: tr.State) -> None:
        s += value  # type: ignore[arg-type]

    def wrong_turn(s: tr.State) -> None:
        s += tr.user(value)  # type: ignore[arg-type]

    for function in (wrong, wrong_turn):
        with pytest.raises(tr.InvalidExpression, match="text or an expression is needed"):
            run(function)


@settings(deadline=None)
@given(CONVERSATION)
def test_turns_are_rendered_as_they_were_said(turns: list[tuple[str | None, str, bool]]) -> None:
    """Both forms of a turn give the same; messages are the turns, and the text is all of it."""

    def talk(s: tr.State) -> None:
        for role, text, as_with in turns:
            if role is None:
                s += text
            elif as_with:
                with getattr(s, role)():
                    for char in text:
                        s += char
            else:
                s += getattr(tr, role)(text)

    state = run(talk)
    assert state.messages() == [{"role": role, "content": text} for role, text, _ in turns if role]
    assert state.text() == "".join(text for _, text, _ in turns)


def test_gen_outside_roles_and_in_an_expression_turn() -> None:
    backend = ScriptedBackend(["Hi", "there"])

    def talk(s: tr.State) -> None:
        s += "Plain " + tr.gen() + "\n"
        s += tr.user("Q") + tr.assistant("A: " + tr.gen("a"))

    state = run(talk, backend)
    assert state.messages()[-1] == {"role": "assistant", "content": "A: there"}
    assert backend.calls[0].prompt == Prompt((Text("Plain "),))
    assert backend.calls[1].prompt.parts == (
        Text("Plain Hi\n"),
        Message("user", "Q"),
        Message("assistant", "A: ", open=True),
    )


def test_turns_do_not_nest() -> None:
    def nested(s: tr.State) -> None:
        with s.user(), s.assistant():  # nested with
            s += "x"

    def nested_expression(s: tr.State) -> None:
        s += tr.user("a" + tr.assistant("b"))  # nested expression

    def mixed(s: tr.State) -> None:
        with s.assistant():
            s += tr.user("a")  # nested mixed

    for function, mark in ((nested, "with"), (nested_expression, "expression"), (mixed, "mixed")):
        with pytest.raises(tr.ProgramError, match="turns do not nest") as caught:
            run(function)
        assert caught.value.lineno == line_of("nested " + mark)


@pytest.mark.parametrize("word", [tr.gen("x"), tr.select("x", ["a"])])
@pytest.mark.parametrize("role", ["system", "user"])
def test_generation_belongs_in_the_assistants_turn(word: Any, role: str) -> None:
    def as_with(s: tr.State) -> None:
        with getattr(s, role)():
            s += word

    def as_expression(s: tr.State) -> None:
        s += getattr(tr, role)("x" + word)

    for function in (as_with, as_expression):
        with pytest.raises(
            tr.ProgramError, match=f"belongs in the assistant's turn.*not in the {role}'s turn"
        ):
            run(function)


def test_capture_names_a_stretch() -> None:
    def tell(s: tr.State) -> None:
        s += "Once "
        with s.capture("all"):
            s += tr.gen("a")
            with s.capture("inner"):
                s += " and "
            s += tr.gen("b")
        s += "."

    state = run(tell, ScriptedBackend(["x", "y"]))
    assert state["all"] == state.raw("all") == "x and y"
    assert state["inner"] == " and "
    assert state.meta("all") is None
    assert list(state.variables()) == ["a", "inner", "b", "all"]


def test_capture_goes_over_turns() -> None:
    def tell(s: tr.State) -> None:
        with s.capture("x"):
            s += tr.user("a")
            with s.assistant():
                s += "b"

    assert run(tell)["x"] == "ab"


def test_a_capture_cannot_be_read_or_begun_within_itself() -> None:
    def read(s: tr.State) -> None:
        with s.capture("x"):
            s["x"]

    def again(s: tr.State) -> None:
        with s.capture("x"), s.capture("x"):
            pass

    with pytest.raises(tr.UnknownVariable, match="still being captured"):
        run(read)
    with pytest.raises(tr.ProgramError, match="being captured already"):
        run(again)
    with pytest.raises(tr.InvalidExpression, match="non-empty string"):
        run(lambda s: s.capture("").__enter__())


def test_unknown_variable() -> None:
    def read(s: tr.State) -> None:
        s += tr.gen("answer")
        s["anwser"]  # unknown

    with pytest.raises(tr.UnknownVariable, match="did you mean 'answer'") as caught:
        run(read, ScriptedBackend(["x"]))
    assert isinstance(caught.value, KeyError)
    assert caught.value.lineno == line_of("unknown")
    with pytest.raises(tr.ProgramError, match="was not selected"):
        run(lambda s: (s.__iadd__(tr.gen("x")), s.scores("x")), ScriptedBackend(["x"]))


def test_adding_returns_at_once_and_reading_waits() -> None:
    release = threading.Event()
    order: list[str] = []

    async def reply(prompt: Prompt, options: GenOptions) -> str:
        order.append("asked")
        while not release.is_set():
            await asyncio.sleep(0.001)
        order.append("answered")
        return "x"

    def lazy(s: tr.State) -> None:
        s += tr.gen("a") + tr.gen("b")
        s += tr.gen("c", n=1) + "!"
        with s.capture("d"), s.assistant():
            s += "z"
        assert "answered" not in order
        order.append("added")
        release.set()
        assert s["a"] == "x"
        order.append("read")

    assert run(lazy, ScriptedBackend(reply)).text() == "xxx!z"
    assert order.index("added") < order.index("answered") < order.index("read")


def test_usage_does_not_wait_and_text_does() -> None:
    release = threading.Event()

    async def reply(prompt: Prompt, options: GenOptions) -> str:
        while not release.is_set():
            await asyncio.sleep(0.001)
        return "x"

    def look(s: tr.State) -> None:
        s += "ab" + tr.gen("a")
        assert s.usage.num_requests == 0
        release.set()
        assert s.text() == "abx"
        assert s.usage.num_requests == 1

    run(look, ScriptedBackend(reply))


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
    from treille.dsl.protocol import GenEvent

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
