"""What forms say of values: tables by keyword, in which everything is also held against `jsonschema`."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import jsonschema
import pytest

from treille.runtime.errors import InvalidConstraint, UnsupportedConstraint
from treille.runtime.schema.accepts import accepts
from treille.runtime.schema.document import Document
from treille.runtime.schema.languages import Languages
from treille.runtime.schema.sets import DocumentSets

LIST = {
    "$defs": {
        "n": {
            "type": "object",
            "properties": {
                "v": {"type": "integer"},
                "next": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]},
            },
            "required": ["v", "next"],
            "additionalProperties": False,
        }
    },
    "$ref": "#/$defs/n",
}
OBJECT = {"type": "object"}
TAGGED = [
    {
        "type": "object",
        "properties": {"k": {"const": name}, name: {"type": "integer"}},
        "required": ["k", name],
    }
    for name in ("a", "b", "c")
]

# schema; values it takes; values it does not
TABLE: list[tuple[Any, list[Any], list[Any]]] = [
    (True, [None, 1, {}], []),
    (
        {"enum": [True, None, 'a"b', "\\n", 0, {"k": [1]}]},
        [True, None, 'a"b', "\\n", 0, {"k": [1]}],
        [False, "\n", {}],
    ),
    ({"const": None}, [None], ["null", 0, "", False]),
    ({"const": False}, [False], [0, None]),
    ({"const": 1}, [1, 1.0], [True, 2, "1"]),
    ({"const": {"a": [1, {}]}}, [{"a": [1.0, {}]}], [{"a": [1]}, {}, {"a": [1, {}], "b": 1}, {"a": [{}, 1]}]),
    ({"not": {"const": {"a": 1, "b": [2]}}}, [{}, {"a": 1}, {"a": 1, "b": [3]}, 4], [{"a": 1, "b": [2]}]),
    ({"not": {"enum": [[1, 2], [1, 3], []]}}, [[1], [1, 4], [2, 2], [1, 2, 3], {}], [[1, 2], [1, 3], []]),
    ({"type": "integer"}, [1, 1.0, 100], [1.5, True, "1"]),
    ({"not": {"type": "integer"}}, [1.5, "1", True], [1, 1.0]),
    (
        {"oneOf": [{"type": "integer", "minimum": 0}, {"type": "integer", "maximum": 10}]},
        [11, -1],
        [0, 5, 10, 1.5],
    ),
    ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, [3.5], [3, 3.0, "3"]),
    (
        {"oneOf": TAGGED},
        [{"k": "a", "a": 1}, {"k": "b", "b": 1, "a": "x"}],
        [{"k": "a"}, {"k": "d", "a": 1}, 1],
    ),
    (
        {"oneOf": [{"required": ["a"]}, {"required": ["b"]}, {"required": ["c"]}]},
        [{"a": 1}, {"c": 1, "d": 2}],
        [{}, {"a": 1, "b": 2}, {"a": 1, "b": 1, "c": 1}, 1],
    ),
    (
        LIST,
        [{"v": 1, "next": None}, {"v": 1, "next": {"v": 2, "next": None}}],
        [{"v": 1, "next": 0}, {"v": 1}],
    ),
    (OBJECT, [{}, {"a": [1]}], [[], 1, None]),
    ({**OBJECT, "required": ["k"]}, [{"k": 1}, {"b": 2, "k": None}], [{}]),
    ({**OBJECT, "properties": {}, "additionalProperties": False}, [{}], [{"a": 1}]),
    (
        {**OBJECT, "properties": {"p": {"const": "on"}, "q": {"const": "off"}}, "required": ["q"]},
        [{"q": "off"}, {"p": "on", "q": "off"}, {"q": "off", "r": 1}],
        [{"q": "off", "p": "no"}, {"p": "on"}],
    ),
    (
        {
            "properties": {"ab": {"type": "string"}},
            "patternProperties": {"^a": {"minLength": 2}, "b$": {"maxLength": 3}},
        },
        [{"ab": "xyz"}, {"a": "xy", "b": ""}, {"c": 1}, {"a": 1}],
        [{"ab": "x"}, {"ab": "wxyz"}, {"a": "x"}, {"xb": "wxyz"}, {"ab": 1}],
    ),
    (
        {
            **OBJECT,
            "patternProperties": {"^(x|y)$": {"type": "integer"}},
            "additionalProperties": False,
            "minProperties": 2,
        },
        [{"x": 1, "y": 2}],
        [{"x": 1}, {"x": 1, "z": 2}, {"x": 1, "y": "2"}],
    ),
    ({"propertyNames": {"pattern": "^a"}, "required": ["ab"]}, [{"ab": 1}, 1], [{}, {"ab": 1, "b": 1}]),
    (
        {"propertyNames": {"enum": ["a", "b"]}, "patternProperties": {"": {"type": "null"}}},
        [{"a": None}],
        [{"a": 1}, {"c": None}],
    ),
    ({"not": {"propertyNames": {"maxLength": 1}}}, [{"ab": 1, "a": 2}], [{}, {"a": 1}, 1]),
    (
        {**OBJECT, "not": {"additionalProperties": {"type": "string"}, "properties": {"a": {}}}},
        [{"b": 1}],
        [{"a": 1}, {"b": ""}],
    ),
    (
        {**OBJECT, "not": {"patternProperties": {"^a": {"type": "string"}}}},
        [{"ab": 1}],
        [{}, {"ab": ""}, {"b": 1}],
    ),
    (
        {"dependentRequired": {"a": ["b"], "b": ["c"]}},
        [{}, {"c": 1}, {"a": 1, "b": 1, "c": 1}],
        [{"a": 1}, {"a": 1, "b": 1}],
    ),
    ({"dependentSchemas": {"a": {"minProperties": 2}}}, [{}, {"b": 1}, {"a": 1, "b": 1}, 1], [{"a": 1}]),
    (
        {
            "if": {"properties": {"k": {"const": 1}}, "required": ["k"]},
            "then": {"required": ["a"]},
            "else": {"required": ["b"]},
        },
        [{"k": 1, "a": 1}, {"k": 2, "b": 1}, {"b": 1}, 5],
        [{"k": 1}, {"k": 2, "a": 1}, {}],
    ),
    (
        {"prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False},
        [[], [1], [1, "a"]],
        [["a"], [1, "a", 2]],
    ),
    ({"not": {"items": {"type": "integer"}}}, [["a"], [1, "a"]], [[], [1], 5]),
    (
        {"contains": {"const": 1}, "minContains": 2, "maxContains": 3},
        [[1, 1], [2, 1, 1, 1]],
        [[1], [1, 1, 1, 1], []],
    ),
    ({"contains": {"const": 1}, "minContains": 0}, [[], [2]], []),
    ({"not": {"contains": {"const": 1}}, "type": "array"}, [[], [2, 3]], [[1], [2, 1]]),
    (
        {"allOf": [{"contains": {"minimum": 5}}, {"contains": {"maximum": 2}}], "maxItems": 2},
        [[5, 2], [1, 9]],
        [[5], [3, 5], [1, 3, 5]],
    ),
    (
        {"items": {"enum": [1, 2]}, "uniqueItems": True, "minItems": 2},
        [[1, 2], [2.0, 1]],
        [[1, 1], [1, 1.0], [1, 2, 1], [1]],
    ),
    (
        {"uniqueItems": True},
        [[{"a": 1, "b": 2}, {"a": 1}], [1, True]],
        [[{"a": 1, "b": 2}, {"b": 2.0, "a": 1}], [1, 1.0]],
    ),
    (
        {
            "properties": {"a": {}},
            "anyOf": [{"properties": {"b": {"const": 1}}}, {"properties": {"c": {}}}],
            "unevaluatedProperties": False,
        },
        [{"a": 1, "b": 1}, {"a": 1, "c": 1}, {"b": 1, "c": 2}],
        [{"d": 1}, {"b": 2, "d": 1}, {"b": 2}],
    ),
    (
        {
            "if": {"properties": {"k": {"const": 1}}, "required": ["k"]},
            "then": {"properties": {"x": {}}},
            "unevaluatedProperties": False,
        },
        [{"k": 1, "x": 2}, {"k": 1}, {}],
        [{"k": 2}, {"x": 1}],
    ),
    (
        {"$ref": "#/$defs/t", "unevaluatedItems": False, "$defs": {"t": {"prefixItems": [{}, {"const": 2}]}}},
        [[1], [1, 2]],
        [[1, 2, 3], [1, 3]],
    ),
    (
        {"prefixItems": [{}], "contains": {"type": "string"}, "unevaluatedItems": False},
        [[1, "a"], ["a"]],
        [[1, 2, "a"], [1]],
    ),
    (
        {
            "not": {
                "anyOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}],
                "unevaluatedProperties": False,
            }
        },
        [{}, {"a": "x"}, {"a": 1, "b": 2}],
        [{"a": 1}],
    ),
    (
        {"type": "string", "pattern": "^[ab]+$", "minLength": 3, "maxLength": 4},
        ["aba", "bbbb"],
        ["ab", "aaaaa", "abc"],
    ),
    ({"type": "string", "not": {"pattern": "^a"}, "maxLength": 2}, ["", "ba"], ["a", "bbb", 1]),
    ({"minimum": 1, "exclusiveMaximum": 3, "not": {"multipleOf": 2}}, [1, 1.5, 2.5], [2, 3, 0]),
]


def sets_of(schema: Any, **limits: Any) -> DocumentSets:
    document = Document(schema)
    return DocumentSets(document, Languages(document.patterns, document.formats), **limits)


@pytest.mark.parametrize(("schema", "good", "bad"), TABLE, ids=lambda part: json.dumps(part)[:60])
def test_table(schema: Any, good: list[Any], bad: list[Any]) -> None:
    sets = sets_of(schema)
    oracle = jsonschema.Draft202012Validator(schema)
    for value in good:
        assert oracle.is_valid(value), value
        assert accepts(sets, sets.root, value), value
    for value in bad:
        assert not oracle.is_valid(value), value
        assert not accepts(sets, sets.root, value), value


def test_decimal_multiples() -> None:
    sets = sets_of('{"type": "number", "multipleOf": 0.01}')
    for text in ("4.35", "0.07", "19.99", "1e-2", "1E400"):
        assert accepts(sets, sets.root, Decimal(text))
    for text in ("4.355", "0.001", "1e-400"):
        assert not accepts(sets, sets.root, Decimal(text))


def test_formats_are_asserted_unless_they_are_annotations() -> None:
    schema = {"type": "string", "format": "date", "pattern": "^2"}
    sets = sets_of(schema)
    assert accepts(sets, sets.root, "2020-02-29") and not accepts(sets, sets.root, "2020-02-30")
    document = Document(schema, formats="annotation")
    sets = DocumentSets(document, Languages(document.patterns, document.formats))
    assert accepts(sets, sets.root, "2x") and not accepts(sets, sets.root, "1999-01-01")


def test_integers_of_drafts_from_6_on_may_have_a_zero_fraction() -> None:
    for draft in ("draft-06/schema#", "draft-07/schema#", "draft/2019-09/schema"):
        sets = sets_of({"$schema": f"http://json-schema.org/{draft}", "type": "integer"})
        assert accepts(sets, sets.root, 1.0) and not accepts(sets, sets.root, 1.5)


def test_forms_say_no_more_than_needs_to_be_said() -> None:
    sets = sets_of(
        {
            "type": "object",
            "properties": {"a": {"type": "string"}, "b": False, "c": {"type": "string"}},
            "required": ["a"],
            "minProperties": 1,
            "maxProperties": 2,
            "additionalProperties": False,
        }
    )
    (form,) = sets.forms(sets.root).objects
    assert [(key.name, key.required, len(key.options)) for key in form.keys] == [
        ("a", True, 1),
        ("c", False, 1),
    ]
    assert (form.low, form.high, form.regions) == (0, None, ())
    assert form.keys[0].options == form.keys[1].options


def test_recursion_stays_symbolic() -> None:
    sets = sets_of(LIST)
    value: Any = None
    for depth in range(120):
        value = {"v": depth, "next": value}
    (form,) = sets.forms(sets.root).objects
    (below,) = sets.forms(form.keys[1].options[0].value).objects
    assert below == form
    assert accepts(sets, sets.root, value)


CONFLICTS = [
    (False, "allows nothing"),
    (
        {"allOf": [{"type": "string"}, {"type": "integer"}]},
        "type string at #/allOf/0 and type integer at #/allOf/1",
    ),
    ({"const": 1, "type": "string"}, "const of integer"),
    ({**OBJECT, "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "without end"),
    ({**OBJECT, "properties": {"a": False}, "required": ["a"]}, "'a' is required at #"),
    ({**OBJECT, "required": ["a"], "additionalProperties": False}, "additionalProperties rules it out"),
    (
        {
            **OBJECT,
            "properties": {"a": {"type": "string", "minLength": 3, "maxLength": 1}},
            "required": ["a"],
        },
        "minLength 3",
    ),
    ({**OBJECT, "required": ["a", "b"], "maxProperties": 1}, "required, maxProperties at #"),
    ({"type": "array", "items": {"enum": [1, 2]}, "minItems": 3, "uniqueItems": True}, "uniqueItems at #"),
    ({"type": "array", "items": {"$ref": "#"}, "minItems": 1}, "without end"),
    ({"type": "array", "items": {"type": "string"}, "contains": {"type": "integer"}}, "contains at #"),
    ({"oneOf": [{"type": "integer"}, {"type": "integer"}]}, "oneOf at # cannot hold"),
    ({**OBJECT, "propertyNames": {"maxLength": 0}, "minProperties": 2}, "propertyNames"),
    ({**OBJECT, "patternProperties": {"": False}, "minProperties": 1}, "patternProperties"),
]


@pytest.mark.parametrize(("schema", "words"), CONFLICTS)
def test_what_nothing_satisfies_is_refused_with_the_conflict(schema: Any, words: str) -> None:
    with pytest.raises(InvalidConstraint, match="no value satisfies the schema") as caught:
        sets_of(schema)
    assert words in str(caught.value)


CIRCLES = [
    {"anyOf": [{"$ref": "#"}, {"type": "integer"}]},
    {"type": "object", "not": {"$ref": "#"}},
    {"type": "object", "properties": {"a": {"anyOf": [{"type": "null"}, {"$ref": "#/properties/a"}]}}},
    {"$ref": "#/$defs/a", "type": "object", "$defs": {"a": {"if": {"$ref": "#"}, "then": {"minItems": 1}}}},
]


@pytest.mark.parametrize("schema", CIRCLES)
def test_circles_without_a_step_into_the_value(schema: Any) -> None:
    with pytest.raises(InvalidConstraint, match="leads back to itself"):
        sets_of(schema).explore()


def test_equal_items_cannot_be_asked_for() -> None:
    with pytest.raises(UnsupportedConstraint) as caught:
        sets_of({"type": "array", "not": {"uniqueItems": True}})
    assert (caught.value.keyword, caught.value.path) == ("uniqueItems", "#/not/uniqueItems")
    sets = sets_of({"not": {"type": "array", "uniqueItems": True}, "type": ["string", "null"]})
    assert accepts(sets, sets.root, "a")
