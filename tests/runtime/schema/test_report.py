"""The report on a schema: what it says of keywords and values, and that its examples are of the schema."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from treille.runtime.schema.report import Report, report

DRAFT7 = "http://json-schema.org/draft-07/schema#"
TREE = {
    "$schema": DRAFT7,
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maximum": 3, "title": "t"},
        "next": {"$ref": "#/definitions/tree", "description": "beside"},
        "color": {"enum": ["red", "blue"]},
        "when": {"type": "string", "format": "date"},
        "odd": {"format": "weird"},
    },
    "required": ["name"],
    "additionalProperties": False,
    "definitions": {"tree": {"oneOf": [{"type": "null"}, {"$ref": "#"}]}, "unused": {"minLength": 2}},
    "x-extra": 1,
}


def told(found: Report) -> dict[str, tuple[str, str, str]]:
    return {one.pointer: (one.value, one.kind, one.text) for one in found.keywords}


def test_every_keyword_that_counts() -> None:
    found = report(TREE, count=0)
    rows = told(found)
    assert found.refusal is None and found.draft == "draft-07" and found.examples == ()
    assert found.num_keywords == len(rows) == len(found.keywords)
    assert set(rows) == {
        "#/type",
        "#/properties",
        "#/required",
        "#/additionalProperties",
        "#/properties/name/type",
        "#/properties/name/minLength",
        "#/properties/name/maximum",
        "#/properties/next/$ref",
        "#/properties/color/enum",
        "#/properties/when/type",
        "#/properties/when/format",
        "#/definitions/tree/oneOf",
        "#/definitions/tree/oneOf/0/type",
        "#/definitions/tree/oneOf/1/$ref",
    }
    assert rows["#/properties/name/maximum"][1:] == (
        "simplified",
        "says nothing: it is about numbers, and `type` allows none",
    )
    assert rows["#/properties/next/$ref"] == (
        '"#/definitions/tree"',
        "enforced",
        "the same values as #/definitions/tree",
    )
    assert rows["#/properties/color/enum"][0] == '["red", "blue"]' or rows["#/properties/color/enum"][0]
    assert "exactly one of 2 schemas" in rows["#/definitions/tree/oneOf"][2]
    assert list(rows)[-3:] == [pointer for pointer in rows if pointer.startswith("#/definitions")]


def test_what_says_nothing_is_noted() -> None:
    notes = {(note.pointer, note.keyword) for note in report(TREE, count=0).notes}
    assert {("#", "x-extra"), ("#/properties/odd", "format")} <= notes
    off = report({"type": "string", "format": "date"}, formats="annotation", count=0)
    assert [(note.keyword, note.kind) for note in off.notes] == [("format", "annotation")]
    assert not [one for one in off.keywords if one.keyword == "format"]
    alone = told(report({"then": {"type": "null"}, "minContains": 2}, count=0))
    assert alone["#/then"][1:] == ("simplified", "says nothing without if")
    assert alone["#/minContains"][1:] == ("simplified", "says nothing without contains")


@pytest.mark.parametrize(
    ("schema", "lines"),
    [
        (TREE, ['objects with the key "name"; perhaps "next", "color", "when", "odd"; no other key']),
        (True, ["null, true, false", "numbers", "strings", "arrays", "objects with any other keys"]),
        ({"enum": [None, 1, "a"]}, ["null", "the number 1", 'the string "a"']),
        ({"type": "integer", "minimum": 0.5, "maximum": 9}, ["integers from 0.5 to 9"]),
        ({"type": "number", "minimum": 0, "not": {"multipleOf": 3}}, ["numbers from 0, no multiples of 3"]),
        ({"type": "number", "multipleOf": 2, "not": {"const": 4}}, ["numbers, multiples of 2, but not 4"]),
        ({"type": "number", "exclusiveMaximum": 1.5}, ["numbers below 1.5"]),
        ({"type": "string", "minLength": 2, "maxLength": 5}, ["strings of 2 to 5 characters"]),
        ({"type": "string", "pattern": "^a+$"}, ['strings that match the pattern "^a+$"']),
        ({"type": "string", "not": {"pattern": "b"}}, ['strings that do not match the pattern "b"']),
        ({"type": "string", "format": "date"}, ["strings that match the format date"]),
        ({"type": "array", "minItems": 2, "uniqueItems": True}, ["arrays of 2 or more items, all different"]),
        ({"type": "array", "maxItems": 0}, ["the empty array"]),
        ({"type": "object", "additionalProperties": False}, ["the empty object"]),
        ({"type": "object", "maxProperties": 3}, ["objects with any other keys; at most 3 members"]),
        ({"required": ["a"], "type": "object"}, ['objects with the key "a"; any other keys']),
        ({"type": "object", "properties": {"a": False}}, ['objects with any other keys; never "a"']),
    ],
    ids=range(17),
)  # fmt: skip
def test_values_in_words(schema: Any, lines: list[str]) -> None:
    assert list(report(schema, count=0).values) == lines


@pytest.mark.parametrize(
    "schema",
    [
        TREE,
        {"type": "array", "items": {"type": "string", "pattern": "^[a-c]{1,3}$"}, "minItems": 1},
        {"oneOf": [{"type": "integer", "multipleOf": 3}, {"type": "integer", "multipleOf": 2}]},
        {
            "type": "object",
            "minProperties": 1,
            "maxProperties": 2,
            "additionalProperties": {"type": "boolean"},
        },
    ],
    ids=range(4),
)
def test_examples_are_of_the_schema(schema: dict[str, Any]) -> None:
    checker = jsonschema.validators.validator_for(schema)(schema)
    for seed in range(3):
        found = report(schema, count=6, seed=seed)
        assert len(found.examples) == 6 and not found.no_examples
        for text in found.examples:
            assert checker.is_valid(json.loads(text)), text
    assert found == report(schema, count=6, seed=2)
    few = report({"enum": [1, 2]}, count=5)
    assert sorted(few.examples) == ["1", "2"] and "no others" in few.no_examples


class TestRefusals:
    def test_what_is_no_schema(self) -> None:
        for schema in ({"type": 3}, "{", "[1]", {"$ref": "#/nowhere"}):
            found = report(schema)
            assert found.refusal is not None and found.refusal.is_wrong and found.keywords == ()

    def test_what_no_value_satisfies(self) -> None:
        found = report({"type": "string", "minLength": 5, "maxLength": 2})
        assert found.refusal is not None and found.refusal.is_wrong and len(found.keywords) == 3

    def test_what_cannot_be_enforced(self) -> None:
        found = report({"properties": {"a": {"pattern": "(a)\\1"}}})
        assert found.refusal is not None and not found.refusal.is_wrong
        assert (found.refusal.keyword, found.refusal.pointer) == ("back-reference", "#/properties/a/pattern")
        assert "not regular" in found.refusal.message
        other = report({"properties": {"a": {"$ref": "http://x.test/other.json"}}}).refusal
        assert other is not None and not other.is_wrong and other.pointer == "#/properties/a/$ref"


def test_large_schemas_are_cut_short() -> None:
    schema = {"properties": {f"k{at}": {"type": "integer", "minimum": at} for at in range(3000)}}
    found = report(schema, count=1)
    assert found.num_keywords == 6001 and len(found.keywords) == 2000 and found.refusal is None
    assert len(found.values[-1]) < 1000
