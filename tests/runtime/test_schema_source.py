"""A schema as part of a request: its text is exact, its options are checked, and it can be a key."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treille.runtime.constraints import schema_options
from treille.runtime.errors import InvalidRequest
from treille.runtime.params import SamplingParams
from treille.runtime.schema.options import Layout, Options
from treille.runtime.schema_source import Number, SchemaSource, Spacing, read_whitespace, schema_text

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)
OBJECTS = st.dictionaries(st.text(), VALUES)


@given(OBJECTS)
def test_it_is_what_json_makes_of_it(schema: dict[str, Any]) -> None:
    text = schema_text(schema)
    assert text == json.dumps(schema, separators=(",", ":"))
    assert schema_text(text) == text == schema_text(json.dumps(schema, indent=1, ensure_ascii=False))


def test_numbers_keep_their_spelling() -> None:
    digits = "1" * 5000
    text = f'{{"a":1.500,"b":-0,"c":1E+400,"d":0.1e-7,"e":{digits},"f":[{digits}.5,2]}}'
    assert schema_text(text) == text
    assert schema_text({"a": int("1" * 4000) * 10**2000})[5:10] == "11111"
    assert schema_text({"a": Decimal("1.50"), "b": Decimal("1E+3")}) == '{"a":1.50,"b":1E+3}'
    assert schema_text({"a": Number("1.500"), "b": [Number("1e999")]}) == '{"a":1.500,"b":[1e999]}'
    assert Number("1.5") == 1.5 and isinstance(Number("1.5"), float)


def test_mappings_and_tuples_are_fine() -> None:
    frozen = MappingProxyType({"enum": (1, "a"), "x": MappingProxyType({})})
    assert schema_text(frozen) == '{"enum":[1,"a"],"x":{}}'
    assert (schema_text(True), schema_text("false")) == ("true", "false")


def endless() -> dict[str, Any]:
    schema: dict[str, Any] = {}
    schema["a" * 100] = schema
    return schema


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (3, "must be a JSON object, true or false, not 3"),
        ("3", "must be a JSON object"),
        (None, "must be a JSON object"),
        ({"a": [0, {"b/c": {1}}]}, "{1} at #/a/1/b~1c"),
        ({"a": {"b": {1: 2}}}, "the key 1 at #/a/b"),
        ({"a": [1, float("inf")]}, "inf at #/a/1"),
        ({"a": Decimal("NaN")}, "at #/a"),
        ({"a": b"x"}, "at #/a"),
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "the key 'c' twice"),
        ('{"a": Infinity}', "no Infinity"),
        ('{"a": 1', "line 1 column 8"),
        ("[" * 100_000, "nested too deeply"),
        (endless(), "at most 4000000 characters"),
        ("x" * 5_000_000, "at most 4000000 characters"),
    ],
    ids=range(14),
)
def test_what_is_no_schema(schema: object, words: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        schema_text(schema)
    assert words in str(caught.value) and caught.value.field == "schema" and len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("value", "layout"),
    [
        ({}, {}),
        ({"indent": None}, {}),
        ({"indent": 0}, {"indent": 0}),
        ({"indent": 3}, {"indent": 3}),
        ({"separators": (",", ":")}, {"separators": (",", ":")}),
        ({"separators": [",\n", ":\t"], "indent": None}, {"separators": (",\n", ":\t")}),
    ],
)
def test_spacing_is_that_of_json_dumps(value: dict[str, Any], layout: dict[str, Any]) -> None:
    """The same arguments give what json.dumps writes, spelled out here by hand."""
    found = read_whitespace(value)
    assert isinstance(found, Spacing)
    line = "" if found.indent is None else "\n" + " " * found.indent
    text = f'{{{line}"a"{found.key_separator}1{found.item_separator}{line}"b"{found.key_separator}2'
    assert text + ("}" if found.indent is None else "\n}") == json.dumps({"a": 1, "b": 2}, **layout)
    options = schema_options(SchemaSource("true", found))
    assert isinstance(options["whitespace"], Layout)
    assert Options(**options).escapes == "minimal"


def constraint(**params: Any) -> Any:
    return SamplingParams(**params).constraint


class TestConstraints:
    def test_equal_ones_are_one_key(self) -> None:
        one = constraint(schema={"type": "object", "x": 1.5}, whitespace={"indent": 2})
        two = constraint(
            schema='{"type": "object",\n"x": 1.5}', whitespace={"separators": [",", ": "], "indent": 2}
        )
        assert one == two and hash(one) == hash(two) and one.kind == "schema"
        assert pickle.loads(pickle.dumps(one)) == one  # noqa: S301 - our own
        assert one.num_characters == len('{"type":"object","x":1.5}')
        assert constraint(schema=True) != constraint(schema=True, property_order="any")
        assert constraint(schema=True) == constraint(
            schema=True, property_order="schema", whitespace="flexible"
        )

    def test_order_counts(self) -> None:
        assert constraint(schema={"a": 1, "b": 2}) != constraint(schema={"b": 2, "a": 1})

    def test_the_schema_is_the_requests_own(self) -> None:
        schema: dict[str, Any] = {"type": "object", "enum": [1]}
        params = SamplingParams(schema=schema)
        schema["enum"].append(2)
        assert params.schema == '{"type":"object","enum":[1]}'

    @pytest.mark.parametrize(
        ("params", "field"),
        [
            ({"schema": 3}, "schema"),
            ({"schema": {}, "regex": "a"}, "regex"),
            ({"schema": {}, "grammar": "a"}, "schema"),
            ({"whitespace": "compact"}, "whitespace"),
            ({"formats": "assert"}, "formats"),
            ({"schema": {}, "whitespace": "tight"}, "whitespace"),
            ({"schema": {}, "whitespace": {"indent": 17}}, "whitespace"),
            ({"schema": {}, "whitespace": {"separators": [", "]}}, "whitespace"),
            ({"schema": {}, "whitespace": {"x": 1}}, "whitespace"),
            ({"schema": {}, "property_order": "sorted"}, "property_order"),
            ({"schema": {}, "number_style": 1}, "number_style"),
            ({"schema": {}, "formats": []}, "formats"),
            ({"schema": {}, "escapes": "few"}, "escapes"),
        ],
    )
    def test_wrong_ones_name_their_field(self, params: dict[str, Any], field: str) -> None:
        with pytest.raises(InvalidRequest) as caught:
            SamplingParams(**params)
        assert caught.value.field == field


def test_the_limits_are_those_of_the_compiler() -> None:
    """What a request may say of whitespace, the compiler takes, and nothing that it refuses."""
    made: list[Callable[[], object]] = [
        lambda: Spacing(16, "," + " " * 15, ":"),
        lambda: read_whitespace({"indent": 16, "separators": ["," + "\t" * 15, ":" + "\r" * 15]}),
    ]
    for make in made:
        Options(**schema_options(SchemaSource("true", read_whitespace(make()))))
