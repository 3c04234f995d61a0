"""Making expressions: concatenation, and errors that point at the line that is wrong."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import treille as tr
from treille.dsl.backends.scripted import ScriptedBackend
from treille.dsl.nodes import Expression, Generate, Select


def line_of(text: str) -> int:
    """The number of this file's line that holds a text."""
    source = inspect.getsource(inspect.getmodule(line_of))  # type: ignore[arg-type]
    return next(n for n, line in enumerate(source.splitlines(), 1) if line.endswith("# " + text))


CASES: list[tuple[Callable[[], object], str, str]] = [
    (lambda: tr.gen(""), "name", "gen: name must be"),
    (lambda: tr.gen(3), "name", "gen: name must be"),  # type: ignore[arg-type]
    (
        lambda: tr.gen("x", temperature=-1),
        "temperature",
        "temperature must be a number from 0.0 to 100.0, not -1",
    ),
    (lambda: tr.gen("x", n=0), "n", "n must be a whole number from 1 to 128"),
    (lambda: tr.gen("x", stop=[""]), "stop", "stop must not hold an empty string"),
    (lambda: tr.gen("x", choices=[]), "choices", "choices must hold at least one string"),
    (lambda: tr.gen("x", choices=["a", "a"]), "choices", "'a' comes twice"),
    (lambda: tr.gen("x", choices=["a", 1]), "choices", "must hold strings, not 1"),  # type: ignore[list-item]
    (lambda: tr.gen("x", choices="ab"), "choices", "must be a list of strings"),
    (lambda: tr.gen("x", regex="a", choices=["a"]), "regex", "exclude each other"),
    (lambda: tr.gen("x", type=int, regex="a"), "type", "type and regex exclude each other"),
    (lambda: tr.gen("x", type=int, choices=["1"]), "type", "type and choices exclude each other"),
    (lambda: tr.gen("x", type=list), "type", "type must be int, float, bool, str, a Literal or an Enum"),
    (lambda: tr.select("x", []), "choices", "select: choices must hold at least one string"),
    (lambda: tr.select("x", ["a", "a"]), "choices", "'a' comes twice"),
    (lambda: tr.select("x", ["a", ""]), "choices", "must not be empty"),
    (lambda: tr.select("x", ["a"], method="best"), "method", "method must be one of token_length"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("make", "field", "message"), CASES)
def test_wrong_arguments(make: Callable[[], object], field: str, message: str) -> None:
    with pytest.raises(tr.InvalidExpression) as caught:
        make()
    error = caught.value
    assert isinstance(error, ValueError)
    assert isinstance(error, tr.ProgramError)
    assert error.field == field
    assert message in str(error)
    assert error.filename == __file__
    assert error.lineno == make.__code__.co_firstlineno


def test_the_error_shows_the_line() -> None:
    with pytest.raises(tr.InvalidExpression) as caught:
        tr.gen("x", top_p=7)  # the wrong line
    assert caught.value.lineno == line_of("the wrong line")
    assert caught.value.line == 'tr.gen("x", top_p=7)  # the wrong line'
    assert str(caught.value).endswith(f"line {caught.value.lineno}: {caught.value.line}")


def test_unknown_keywords_do_not_exist() -> None:
    with pytest.raises(TypeError, match="best_of"):
        tr.gen("x", best_of=2)  # type: ignore[call-arg]


def test_expressions_are_frozen_and_equal_by_value() -> None:
    first, second = (tr.gen("x", stop=["a"], logit_bias={1: 2.0}) for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)
    assert isinstance(first, Generate)
    with pytest.raises(AttributeError):
        first.name = "y"  # type: ignore[misc]
    assert isinstance(tr.select("x", ["a"]), Select)


@pytest.mark.parametrize(
    "use", [str, lambda e: f"{e}", lambda e: f"{e:>5}", lambda e: e + 1, lambda e: 1 + e]
)
def test_an_expression_is_no_text(use: Callable[[Expression], object]) -> None:
    with pytest.raises(TypeError):
        use(tr.gen("x"))
    assert "x" in repr(tr.gen("x"))


TREES = st.recursive(
    st.one_of(st.text(max_size=3), st.integers(0, 9).map(lambda i: ("gen", i))),
    lambda inner: st.tuples(inner, inner),
)


def flat(tree: Any) -> str:
    if isinstance(tree, str):
        return tree
    return f"<{tree[1]}>" if tree[0] == "gen" else flat(tree[0]) + flat(tree[1])


def built(tree: Any) -> Any:
    if isinstance(tree, str):
        return tree
    return tr.gen(choices=[f"<{tree[1]}>"]) if tree[0] == "gen" else built(tree[0]) + built(tree[1])


@settings(deadline=None)
@given(TREES)
def test_concatenation_is_associative(tree: Any) -> None:
    """However text and expressions are bracketed, the text is the same."""
    backend = ScriptedBackend(lambda prompt, options: (options.choices or ("",))[0])

    @tr.program
    def say(s: tr.State) -> None:
        s += built(tree)

    state = say.run(backend=backend)
    assert state.text() == flat(tree)
    assert state.messages() == []


def test_plus_on_a_state_points_at_the_in_place_form() -> None:
    @tr.program
    def wrong(s: tr.State) -> None:
        s = s + tr.gen("x")  # type: ignore[operator]

    with pytest.raises(tr.ProgramError, match=r"write s \+= \.\.\.") as caught:
        wrong.run(backend=ScriptedBackend())
    assert caught.value.line is not None and caught.value.line.startswith("s = s + ")
