"""Documents: what is well-formed, what is noted, what is bounded.

The oracle: the metaschemas, by jsonschema.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from decimal import Decimal
from itertools import product
from typing import Any

import jsonschema
import pytest

from treille.runtime.errors import ConstraintError, InvalidConstraint, UnsupportedConstraint
from treille.runtime.schema.document import Document, Draft

URIS = {
    Draft.D4: "http://json-schema.org/draft-04/schema#",
    Draft.D6: "http://json-schema.org/draft-06/schema#",
    Draft.D7: "http://json-schema.org/draft-07/schema#",
    Draft.D2019: "https://json-schema.org/draft/2019-09/schema",
    Draft.D2020: "https://json-schema.org/draft/2020-12/schema",
}
VALIDATORS: dict[Draft, Any] = {
    Draft.D4: jsonschema.Draft4Validator,
    Draft.D6: jsonschema.Draft6Validator,
    Draft.D7: jsonschema.Draft7Validator,
    Draft.D2019: jsonschema.Draft201909Validator,
    Draft.D2020: jsonschema.Draft202012Validator,
}
CHECKED = (
    "type const multipleOf maximum exclusiveMaximum minimum exclusiveMinimum maxLength "
    "minLength pattern maxItems minItems uniqueItems maxContains minContains maxProperties "
    "minProperties required dependentRequired properties patternProperties additionalProperties "
    "propertyNames items prefixItems additionalItems contains unevaluatedItems "
    "unevaluatedProperties allOf anyOf oneOf not if then else dependentSchemas dependencies "
    "definitions $defs contentSchema format $anchor $dynamicAnchor "
)
VALUES: list[Any] = [
    *(None, True, 0, 5, -1, 2.0, 1.5, "", "string", "a/b"),
    *([], ["a"], ["a", "a"], ["string"], ["string", "a"]),
    *([5], [{}], [True], [{}, 5], [{"type": 5}]),
    *({}, {"a": {}}, {"a": 5}, {"a": True}, {"a": "x"}, {"a": []}, {"a": ["b"]}, {"a": ["b", "b"]}),
    *({"a": [5]}, {"type": 5}, {"a": {"type": 5}}),
]
# 2.0 is a count in every draft here, as the later ones have it; a list of names may be empty.
LENIENT_IN_4 = [(key, 2.0) for key in CHECKED.split() if key.startswith(("min", "max")) and "imum" not in key]
LENIENT_IN_4 += [("required", []), ("dependencies", {"a": []})]


def refused(schema: object) -> ConstraintError:
    with pytest.raises(ConstraintError) as caught:
        Document(schema)
    assert caught.value.field == "schema"
    return caught.value


@pytest.mark.parametrize("draft", Draft, ids=lambda draft: draft.name)
def test_keywords_are_checked_as_the_metaschema_of_their_draft_does(draft: Draft) -> None:
    metaschema = VALIDATORS[draft](VALIDATORS[draft].META_SCHEMA)
    num_bad = 0
    for key, value in product(CHECKED.split(), VALUES):
        schema = {"$schema": URIS[draft], key: value}
        wanted = metaschema.is_valid(schema) or (draft is Draft.D4 and (key, value) in LENIENT_IN_4)
        try:
            assert Document(schema).root.draft is draft
            read = True
        except InvalidConstraint as error:
            assert f"#/{key}" in str(error)
            read = False
        num_bad += not read
        assert read is wanted, schema
    assert num_bad > 300


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"type": "strin"}, "#/type"),
        ({"properties": []}, "#/properties"),
        ({"properties": {"a/b": {"items": {"minLength": -1}}}}, "#/properties/a~1b/items/minLength"),
        ({"required": ["a", "b", "a"]}, "#/required"),
        ({"allOf": [True, {"anyOf": [{"type": []}]}]}, "#/allOf/1/anyOf/0/type"),
        ({"$defs": {"unused": {"pattern": 5}}}, "#/$defs/unused/pattern"),
        ({"items": [{}]}, "#/items"),
        ({"exclusiveMinimum": True, "minimum": 0}, "#/exclusiveMinimum"),
        ({"$schema": URIS[Draft.D4], "exclusiveMaximum": True}, "#/exclusiveMaximum"),
        ({"$schema": URIS[Draft.D4], "properties": {"a": True}}, "#/properties/a"),
        ({"$schema": URIS[Draft.D7], "items": [{}, {"maxLength": "5"}]}, "#/items/1/maxLength"),
        ({"$schema": URIS[Draft.D7], "items": [{}], "additionalItems": 5}, "#/additionalItems"),
        ({"dependencies": {"a": {"type": 1}}}, "#/dependencies/a/type"),
        ({"$schema": 7}, "#/$schema"),
        ({"$id": None}, "#/$id"),
        ({"$ref": 7}, "#/$ref"),
        ({"$schema": URIS[Draft.D2019], "$recursiveRef": "#/a"}, "#/$recursiveRef"),
        ({"const": {1, 2}}, "#/const"),
        ({"enum": [{"a": float("nan")}]}, "#/enum"),
        ({"const": {1: 2}}, "#/const"),
        ({"maximum": float("inf")}, "#/maximum"),
        ({"required": ("a",)}, "#/required"),
        ({1: {}}, "#: 1"),
    ],
)
def test_what_is_malformed_is_named(schema: object, place: str) -> None:
    error = refused(schema)
    assert isinstance(error, InvalidConstraint)
    assert str(error).startswith(place)


@pytest.mark.parametrize(
    "schema",
    [
        {"const": {"type": "strin"}, "enum": [{"type": 1}], "default": {"type": 2}, "examples": 5},
        {"title": 5, "description": None, "$comment": [], "readOnly": "yes", "default": {1, 2}},
        {"properties": {"type": {}, "$ref": {}, "$id": {}, "required": {}}},
        {"x-extra": {"type": "strin"}, "unknown": {1: 2}},
        {"enum": []},
        {"$schema": URIS[Draft.D4], "const": {1, 2}, "if": 5},
    ],
)
def test_only_schemas_and_their_keywords_are_checked(schema: object) -> None:
    assert Document(schema).root.number == 0


OLD = {"$schema": URIS[Draft.D7]}


def test_what_is_in_use_is_listed_once() -> None:
    schema = {
        "properties": {"a": {"pattern": "x", "format": "date"}, "b": {"$ref": "#/$defs/used"}},
        "patternProperties": {"x": {}, "y/z": {"pattern": "x"}},
        "$defs": {"used": {"pattern": "u", "format": "ipv4"}, "unused": {"pattern": "(", "format": "uuid"}},
        "x-far": {"pattern": "f"},
    }
    document = Document(schema)
    assert dict(document.patterns) == {
        "x": "#/patternProperties/x",
        "y/z": "#/patternProperties/y~1z",
        "u": "#/$defs/used/pattern",
    }
    assert dict(document.formats) == {"date": "#/properties/a/format", "ipv4": "#/$defs/used/format"}
    plain = Document(schema, formats="annotation")
    assert dict(plain.formats) == {}
    assert plain.child(plain.root, "properties", "a").schema == {"pattern": "x"}


def test_notes_say_what_is_ignored() -> None:
    schema = OLD | {
        "properties": {
            "a": {"$ref": "#/definitions/b", "minLength": 1, "title": "t"},
            "c": {"prefixItems": [], "format": "colour", "x-y": 1},
        },
        "definitions": {"b": {"contentEncoding": "base64"}},
    }
    notes = {(note.pointer, note.keyword) for note in Document(schema).notes}
    assert notes == {
        ("#/properties/a", "minLength"),
        ("#/properties/c", "prefixItems"),
        ("#/properties/c", "format"),
        ("#/properties/c", "x-y"),
        ("#/definitions/b", "contentEncoding"),
    }
    many = Document({f"x{number}": 1 for number in range(5000)}).notes
    assert len(many) == 1001
    assert many[-1].text.startswith("4000 more")


@pytest.mark.parametrize(
    ("uri", "draft"),
    [
        ("https://json-schema.org/draft-04/schema", Draft.D4),
        ("http://json-schema.org/draft-05/schema#", Draft.D4),
        ("http://json-schema.org/draft-06/schema", Draft.D6),
        ("http://json-schema.org/draft-07/hyper-schema#", Draft.D7),
        ("http://json-schema.org/draft/2019-09/schema#", Draft.D2019),
        ("https://json-schema.org/draft/2020-12/schema#", Draft.D2020),
        ("http://json-schema.org/schema#", Draft.D2020),
        ("#", Draft.D2020),
        ("", Draft.D2020),
    ],
)
def test_a_schema_names_its_draft(uri: str, draft: Draft) -> None:
    document = Document({"$schema": uri})
    assert document.root.draft is draft
    is_odd = uri in ("http://json-schema.org/schema#", "#", "")
    assert [note.keyword for note in document.notes] == (["$schema"] if is_odd else [])


@pytest.mark.parametrize(
    "uri", ["http://json-schema.org/draft-03/schema#", "https://example.org/meta", "urn:example:meta"]
)
def test_what_a_metaschema_of_others_means_cannot_be_known(uri: str) -> None:
    error = refused({"$schema": uri})
    assert isinstance(error, UnsupportedConstraint)
    assert (error.keyword, error.path) == ("$schema", "#/$schema")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"type": "string"', "not JSON"),
        ('{"const": NaN}', "NaN"),
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "key 'c' twice"),
        ("[" * 100_000, "nested too deeply"),
        ('{"const": ' + "9" * 5000 + "}", "digits"),
        ('{"minimum": 1e99999999999999999999}', "digits"),
        ('{"minimum": 1e999999999}', "digits"),
        ('{"const": [1e-99999]}', "digits"),
        ('{"minLength": 1e999999999}', "digits"),
        ('"string"', "no schema"),
        (b"\xff\xfe{", "not text"),
        ('{"not":' * 257 + "{}" + "}" * 257, "256 deep"),
    ],
)
def test_text_is_read_exactly_or_refused(text: str | bytes, words: str) -> None:
    assert words in str(refused(text))


def test_numbers_of_text_are_exact() -> None:
    document = Document('{"const": [0.1, 1e400, 12345678901234567890.5], "maximum": 1.10}')
    value = [Decimal("0.1"), Decimal("1e400"), Decimal("12345678901234567890.5")]
    assert document.root.schema == {"const": value, "maximum": Decimal("1.1")}
    assert Document(b'{"const": "\xc3\xa9"}').root.schema == {"const": "é"}
    assert Document("false").root.schema is False


def nested(depth: int, *, by_name: bool = False) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"properties": {"a": schema}} if by_name else {"not": schema}
    return schema


def doubled(depth: int) -> dict[str, Any]:
    """A schema of a few mappings that is 2^depth schemas when written out."""
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"allOf": [schema, schema]}
    return schema


def test_messages_leave_out_the_middle_of_long_places() -> None:
    with pytest.raises(UnsupportedConstraint) as caught:
        Document(nested(400, by_name=True))
    assert len(caught.value.path) > 1000 and len(str(caught.value)) < 400
    before, _, after = str(caught.value).partition("...")
    assert caught.value.path[:100] in before and caught.value.path[-100:] in after
    wrong: Any = {"type": 3}
    for _ in range(200):
        wrong = {"properties": {"a": wrong}}
    with pytest.raises(
        InvalidConstraint, match=r"^#/properties/a/.*\.\.\..*/properties/a/type: 3 is"
    ) as found:
        Document(wrong)
    assert len(str(found.value)) < 400


def test_what_is_no_json_has_a_line_and_a_column() -> None:
    with pytest.raises(InvalidConstraint, match=r"not JSON: Expecting ':' delimiter at line 2 column 6$"):
        Document('{"a": 1,\n "b" 2}')


def round_in_a_circle() -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    schema["properties"] = {"a": {"items": schema}}
    return schema


def value_in_itself(depth: int) -> dict[str, Any]:
    value: list[Any] = []
    if depth == 0:
        value.append(value)
    for _ in range(depth):
        value = [value, value]
    return {"enum": [value]}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: nested(200, by_name=True), ""),
        (lambda: json.dumps(nested(200, by_name=True)), ""),
        (lambda: nested(256), ""),
        (lambda: nested(257), "256 deep"),
        (lambda: nested(10_000), "256 deep"),
        (lambda: doubled(100), ""),
        (lambda: doubled(300), "256 deep"),
        (round_in_a_circle, "contains itself"),
        (lambda: value_in_itself(0), "contains itself"),
        (lambda: value_in_itself(100), "values"),
        (lambda: {"const": "a" * 50_000_000}, ""),
        (lambda: {"properties": {str(number): {} for number in range(50_000)}}, ""),
        (lambda: {"properties": {"k" * 10**6: {"properties": {str(n): {"x": 1} for n in range(9999)}}}}, ""),
        (lambda: {"const": 10**6000}, "digits"),
        (lambda: {"$id": "a" * 10**6, "$defs": {str(n): {"$id": "b"} for n in range(9999)}}, "URI"),
        (lambda: {"$ref": "#/" + "%41" * 100_000}, "leads nowhere"),
    ],
)  # fmt: skip
def test_hostile_schemas_end_soon(make: Callable[[], object], words: str) -> None:
    schema = make()
    start = time.process_time()
    try:
        notes = Document(schema).notes
        assert not words
        assert all(len(note.pointer) < 1000 for note in notes)
    except ConstraintError as error:
        assert words and words in str(error)
        assert len(str(error)) < 10_000
    assert time.process_time() - start < 5


def test_mappings_that_stand_in_several_places_are_one_node_in_each_resource() -> None:
    shared = {"type": "string"}
    inner = {"$id": "inner", "properties": {"c": shared}}
    document = Document({"properties": {"a": shared, "b": shared, "d": inner}})
    first, second = (document.child(document.root, "properties", name) for name in "ab")
    other = document.child(document.child(document.root, "properties", "d"), "properties", "c")
    assert first is second
    assert other is not first
    assert other.resource != first.resource


def test_synthetic_schemas_stand_beside_the_document() -> None:
    document = Document({"type": "object"})
    one, true = document.synthetic({"const": 1}), document.synthetic({"const": True})
    assert one is not true
    assert one is document.synthetic({"const": 1})
    assert one.number not in (true.number, document.root.number)
    assert one.draft is Draft.D2020
    made = document.synthetic({"not": {"const": [0.5]}})
    assert document.child(made, "not").schema == {"const": [Decimal("0.5")]}
