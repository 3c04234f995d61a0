"""Running a program once: variables, turns, selects, samples, captures, laziness."""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import treille as tr
from treille.dsl.backends.scripted import ScriptedBackend
from treille.dsl.protocol import GenOptions, Message, Prompt, Text
from treille.dsl.results import Selection

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
