"""`gen(type=...)`: which texts a type allows, and what they become."""

from __future__ import annotations

import enum
import re
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treille.dsl.values import FLOAT_PATTERN, INT_PATTERN, choices_type, value_type


class Color(enum.Enum):
    RED = 1
    BLUE = 2
    ROT = 1  # an alias is no member of its own


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l l"


@settings(deadline=None)
@given(st.integers(-(10**19) + 1, 10**19 - 1))
def test_int_round_trip(number: int) -> None:
    assert re.fullmatch(INT_PATTERN, str(number))
    assert value_type(int).parse(str(number)) == number


@pytest.mark.parametrize("text", ["", "-", "01", "+1", " 1", "1 ", "1.0", "1e3", "५", "1" * 20, "1_0"])
def test_not_an_int(text: str) -> None:
    assert not re.fullmatch(INT_PATTERN, text)
    with pytest.raises(ValueError):
        value_type(int).parse(text)


@pytest.mark.parametrize(("text", "value"), [("0", 0.0), ("-12.5", -12.5), ("3", 3.0), ("0.001", 0.001)])
def test_float(text: str, value: float) -> None:
    assert re.fullmatch(FLOAT_PATTERN, text)
    parsed = value_type(float).parse(text)
    assert parsed == value
    assert isinstance(parsed, float)


@pytest.mark.parametrize("text", ["", "-", ".5", "1.", "00.1", "nan", "inf", "1e5", "1,5"])
def test_not_a_float(text: str) -> None:
    assert not re.fullmatch(FLOAT_PATTERN, text)
    with pytest.raises(ValueError):
        value_type(float).parse(text)


@pytest.mark.parametrize(
    ("annotation", "table"),
    [
        (bool, {"true": True, "false": False}),
        (Literal["a", 2, True], {"a": "a", "2": 2, "true": True}),
        (Literal["a|b", ""], {"a|b": "a|b", "": ""}),
        (Color, {"RED": Color.RED, "BLUE": Color.BLUE}),
        (Size, {"s": Size.SMALL, "l l": Size.LARGE}),
    ],
)
def test_finite_types(annotation: object, table: dict[str, object]) -> None:
    kind = value_type(annotation)
    assert kind.choices == tuple(table)
    assert kind.regex is None
    for text, value in table.items():
        assert kind.parse(text) == value
        assert type(kind.parse(text)) is type(value)
    with pytest.raises(ValueError, match="is none of"):
        kind.parse("something else")


def test_str_and_choices() -> None:
    assert value_type(str).choices is None
    assert value_type(str).regex is None
    assert value_type(str).parse(" x ") == " x "
    assert choices_type(("a", "b")).parse("b") == "b"


@pytest.mark.parametrize(
    "annotation",
    [
        list,
        None,
        "int",
        int | str,
        list[int],
        3,
        {},
        Literal[None],
        Literal[b"x"],
        Literal[Size.SMALL],
        Literal[1, "1"],
        enum.Enum("Empty", []),
    ],
)
def test_refused_types(annotation: object) -> None:
    with pytest.raises(ValueError):
        value_type(annotation)
