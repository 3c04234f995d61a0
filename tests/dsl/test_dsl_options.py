"""The language's sampling fields have the ranges of the runtime's."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from treille.dsl.backends.local import sampling_params
from treille.dsl.options import SCHEMA_OPTIONS, BadOption, make_options
from treille.dsl.protocol import GenOptions
from treille.runtime.errors import InvalidRequest
from treille.runtime.params import SamplingParams

NAN, INF = float("nan"), float("inf")
NUMBERS: list[Any] = [
    -INF,
    -101,
    -100,
    -2.1,
    -2,
    -1,
    -0.0,
    0,
    0.001,
    0.01,
    0.5,
    1,
    1.1,
    2,
    2.1,
    100,
    101,
    INF,
    NAN,
]
COUNTS: list[Any] = [
    -(2**63) - 1,
    -(2**63),
    -1,
    0,
    1,
    20,
    21,
    128,
    129,
    10**6,
    10**6 + 1,
    2**31 - 1,
    2**31,
    2**63,
]
ODD: list[Any] = [True, False, "x", "", 1.5, b"x", object(), [], [1], ["x"], [""], ["x", 1], {}, {1: 1}]
STRINGS: list[Any] = ["x" * 1024, "x" * 1025, "x" * 65_536, "x" * 65_537, ["x"] * 64, ["x"] * 65]
LISTS: list[Any] = [["x" * 1024], ["x" * 1025], [0, 2**31 - 1], [2**31], [-1], [True], list(range(1025))]
MAPS: list[Any] = [{0: 100}, {0: 101}, {0: NAN}, {-1: 0}, {True: 0}, {"0": 0}, dict.fromkeys(range(4097), 0)]
SCHEMAS: list[Any] = ["true", '{"a": 1.50}', "3", "[1]", {"a": [1, "b", None]}, {"a": {1}}, {"a": INF}]
WORDS: list[Any] = ["flexible", "compact", "any", "schema", "json", "plain", "assert", "annotation"]
SPACES: list[Any] = [
    *({"indent": value} for value in (0, 16, 17, True, " ", None)),
    *(
        {"separators": value}
        for value in ([",", ":"], (", ", ":\n"), [",", ":" + " " * 16], [" ,", ":"], ",:", [","])
    ),
    {"indent": 1, "separators": [",", ":"]},
    {"width": 1},
]
VALUES = [*SCHEMAS, *WORDS, *SPACES, *NUMBERS, *COUNTS, *ODD, *STRINGS, *LISTS, *MAPS]


def test_same_fields() -> None:
    theirs = [field.name for field in fields(SamplingParams)]
    theirs.remove("prompt_logprobs")  # of a request's prompt; what a call goes on from is the program's text
    assert [field.name for field in fields(GenOptions)] == theirs


@pytest.mark.parametrize("name", [field.name for field in fields(GenOptions)])
def test_same_ranges(name: str) -> None:
    """Whatever one takes the other takes. The language is stricter about kinds of containers."""
    extra: dict[str, Any] = {"max_tokens": 10**6} if name == "min_tokens" else {}
    if name in SCHEMA_OPTIONS:
        extra["schema"] = True
    num_good = 0
    for value in VALUES:
        try:
            SamplingParams(**{name: value, **extra})
            expected = True
        except (InvalidRequest, TypeError, ValueError):
            expected = False
        try:
            options = make_options({name: value, **extra})
            found = True
        except BadOption as error:
            assert error.field == name
            found = False
        stricter = name in ("choices", "logit_bias") or isinstance(value, (bytes, str, dict))
        stricter &= name not in ("schema", *SCHEMA_OPTIONS)
        assert found == expected or (stricter and expected), f"{name}={value!r:.80}"
        if found:
            num_good += 1
            sampling_params(options)
    assert 0 < num_good < len(VALUES)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"regex": "a", "choices": ["a"]}, "regex"),
        ({"min_tokens": 3, "max_tokens": 2}, "min_tokens"),
        ({"choices": []}, "choices"),
        ({"choices": ["a", "b", "a"]}, "choices"),
        ({"choices": "ab"}, "choices"),
    ],
)
def test_contradictions(given: dict[str, Any], field: str) -> None:
    with pytest.raises(BadOption) as caught:
        make_options(given)
    assert caught.value.field == field


def test_options_over_defaults() -> None:
    mine = make_options({"temperature": 0, "stop": "x", "ignore_eos": False})
    defaults = make_options({"temperature": 1, "max_tokens": 5, "ignore_eos": True, "logit_bias": {3: 1.5}})
    merged = mine.over(defaults)
    assert merged.given() == {
        "temperature": 0,
        "stop": ("x",),
        "max_tokens": 5,
        "ignore_eos": False,
        "logit_bias": ((3, 1.5),),
    }
    assert sampling_params(merged).logit_bias == {3: 1.5}
