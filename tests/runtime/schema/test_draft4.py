"""Integers of draft 4, which have no fraction and no exponent part, against `jsonschema.Draft4Validator`."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import jsonschema
import pytest

from treille.runtime.errors import InvalidConstraint
from treille.runtime.grammar import Vocabulary
from treille.runtime.schema.accepts import accepts as in_set
from treille.runtime.schema.compile import compile_json_schema
from treille.runtime.schema.document import Document
from treille.runtime.schema.json_text import dumps
from treille.runtime.schema.languages import Languages
from treille.runtime.schema.sets import DocumentSets
from treille.runtime.schema.value_words import value_lines
from treille.runtime.schema.witness import Witnesses

DRAFT_4 = "http://json-schema.org/draft-04/schema#"
INTEGER = {"type": "integer"}
EXPONENT = re.compile("[0-9][eE]")
NUMBER = re.compile(r"-?[0-9][0-9.eE+-]*")
PLAIN = re.compile(r"(?!-0$)-?[0-9]+(\.[0-9]*[1-9])?")
TEXTS = [
    *("0", "-0", "1", "2", "3", "10", "-7", "1.0", "-0.0", "10.00", "1.5", "0.5", "2.50"),
    *("1e0", "1E1", "1e2", "-7.0e0", "5e-1", "1.5e1"),
]
TREE = {
    "definitions": {"n": {"type": "object", "properties": {"v": INTEGER, "n": {"$ref": "#/definitions/n"}}}},
    "$ref": "#/definitions/n",
}

# schema; texts that it takes, and that it does not
ROWS: list[tuple[Any, str, str]] = [
    (INTEGER, "0 -0 1 -7 1234567890123456789012", "1.0 -0.0 1e2 1E0 1.5 0e0 12e3"),
    ({"not": INTEGER}, '1.0 1e2 1.5 -0.0 1.5e1 12e3 0.5e-7 "1" null', "0 -0 1 -7 100"),
    ({"not": {"not": INTEGER}}, "0 1", "1.0 1e2"),
    ({"type": "number"}, "1 1.0 1e2 1.5", '"1"'),
    ({"type": ["integer", "string"]}, '1 "1"', "1.0 1e0 1.5"),
    ({"type": ["integer", "number"]}, "1 1.0 1.5", '"1"'),
    ({"type": "number", "not": INTEGER}, "1.0 1e2 1.5", '1 "1"'),
    ({**INTEGER, "minimum": 0, "maximum": 10, "exclusiveMaximum": True}, "0 -0 9", "0.0 9.0 10 9e0 -1"),
    ({"not": {**INTEGER, "minimum": 0}}, "-1 0.0 1.0 1e2 -0.0", "0 1 -0"),
    ({**INTEGER, "multipleOf": 5}, "0 5 -10", "5.0 5e0 1 10.0"),
    ({"multipleOf": 5}, "5 5.0 1e1", "1 1.0"),
    ({**INTEGER, "multipleOf": 2.5}, "5 -10", "2.5 5.0 3"),
    ({"not": {**INTEGER, "multipleOf": 2}}, "1 2.0 1.5 2e0", "2 0"),
    ({"enum": [1]}, "1 1.0 1e0", "2 true"),
    ({"enum": [1.0]}, "1 1.0 1e0", "2"),
    ({**INTEGER, "enum": [1, 2.0, 2.5]}, "1 2", "1.0 2.0 2.5"),
    ({"not": {**INTEGER, "enum": [1]}}, "1.0 2 1e0", "1"),
    ({"not": INTEGER, "enum": [1, 2, "a"]}, '1.0 2.00 2e0 "a"', '1 2 "b" 3.0'),
    ({"allOf": [INTEGER, {"enum": [1, 1.5, "a"]}]}, "1", '1.0 1.5 "a"'),
    ({"allOf": [INTEGER, {"type": "number", "minimum": 1}]}, "1", "1.0 0"),
    ({"allOf": [{"not": INTEGER}, {"type": "number", "maximum": 1}]}, "1.0 0.5 -2e1", "1 0 1.5"),
    ({"allOf": [INTEGER], "anyOf": [{"maximum": 2}, {"minimum": 5}]}, "2 5", "2.0 5.0 3"),
    ({"oneOf": [INTEGER, {"type": "number"}]}, "1.0 1e2 1.5", '1 "a"'),
    ({"oneOf": [{"enum": [1]}, INTEGER]}, "2 1.0 1e0 -7", "1 2.0 1.5"),
    ({"items": INTEGER, "uniqueItems": True}, "[1,2] [] [0]", "[1.0] [1,1] [0,-0]"),
    ({"items": {}, "uniqueItems": True}, "[1,2.0]", "[1,1.0] [1e1,10]"),
    (
        {"type": "array", "items": [INTEGER, {"not": INTEGER}], "uniqueItems": True},
        "[1,2.0] [1,0.5]",
        "[1,1.0] [1.0,2.0] [1,2]",
    ),
    (
        {"properties": {"a": INTEGER}, "additionalProperties": {"not": INTEGER}},
        '{"a":1} {"b":1.0} {"a":1,"b":1e0}',
        '{"a":1.0} {"b":1}',
    ),
    (TREE, '{"v":1,"n":{"v":2}}', '{"v":1.0} {"v":1,"n":{"v":1e0}}'),
    ({"dependencies": {"a": {"properties": {"b": INTEGER}}}}, '{"b":1.0} {"a":1,"b":1}', '{"a":1,"b":1.0}'),
]
TABLE = [(schema, text, True) for schema, good, _ in ROWS for text in good.split()]
TABLE += [(schema, text, False) for schema, _, bad in ROWS for text in bad.split()]


def of_draft_4(schema: Any) -> Any:
    return {"$schema": DRAFT_4, **schema}


def sets_of(schema: Any) -> DocumentSets:
    document = Document(schema)
    return DocumentSets(document, Languages(document.patterns, document.formats))


def is_plain(text: str) -> bool:
    """Whether no other text without exponent says the same."""
    return all(PLAIN.fullmatch(number) for number in NUMBER.findall(text))


def valid(schema: Any, text: str) -> bool:
    return bool(jsonschema.Draft4Validator(schema).is_valid(json.loads(text)))


@pytest.mark.parametrize(("schema", "text", "verdict"), TABLE)
def test_table(accepts: Callable[..., bool], schema: Any, text: str, verdict: bool) -> None:
    schema = of_draft_4(schema)
    sets = sets_of(schema)
    assert valid(schema, text) is verdict
    assert in_set(sets, sets.root, json.loads(text)) is verdict
    assert in_set(sets, sets.root, json.loads(text, parse_float=Decimal)) is verdict
    assert accepts(schema, text, property_order="any") is verdict
    plain = accepts(schema, text, property_order="any", number_style="plain")
    assert plain is (verdict and is_plain(text))


def random_schema(rng: random.Random, depth: int = 0) -> dict[str, Any]:
    """A schema of draft 4 that is about numbers."""
    schema: dict[str, Any] = {}
    if rng.random() < 0.6:
        schema["type"] = rng.choice(("integer", "integer", "number", ["integer", "null"]))
    for key in rng.sample(("minimum", "maximum", "multipleOf", "enum"), rng.choice((0, 0, 1, 2))):
        bound = rng.choice((-7, 0, 1, 1.5, 10))
        some: dict[str, Any] = {
            "multipleOf": rng.choice((0.5, 1, 2, 5)),
            "enum": rng.sample((0, 1, 1.0, 1.5, 2, 10.0, None), 3),
        }
        schema[key] = some.get(key, bound)
        if key in ("minimum", "maximum") and rng.random() < 0.3:
            schema[f"exclusive{key.capitalize()}"] = True
    if depth < 2 and rng.random() < 0.7:
        key = rng.choice(("allOf", "anyOf", "oneOf", "not"))
        parts = [random_schema(rng, depth + 1) for _ in range(2)]
        schema[key] = parts[0] if key == "not" else parts
    return schema


@pytest.mark.parametrize("seed", range(120))
def test_random_schemas(accepts: Callable[..., bool], seed: int) -> None:
    rng = random.Random(seed)
    schema = of_draft_4(random_schema(rng))
    verdicts = {text: valid(schema, text) for text in (*TEXTS, "null")}
    try:
        sets = sets_of(schema)
    except InvalidConstraint as error:
        assert "no value" in str(error)
        assert not any(verdicts.values()), schema
        return
    for text, verdict in verdicts.items():
        assert in_set(sets, sets.root, json.loads(text)) is verdict, (schema, text)
        taken = accepts(schema, text)
        assert verdict or not taken, (schema, text)
        assert taken or not verdict or EXPONENT.search(text), (schema, text)
    in_one_way = {text: verdict and is_plain(text) for text, verdict in verdicts.items()}
    try:
        for text, verdict in in_one_way.items():
            assert accepts(schema, text, number_style="plain") is verdict, (schema, text)
    except InvalidConstraint as error:
        assert "no value" in str(error)
        assert not any(in_one_way.values()), schema
    source = Witnesses(sets, sets.languages)
    for _ in range(8):
        text = dumps(source.draw(sets.root, rng))
        assert valid(schema, text), (schema, text)
        assert accepts(schema, text), (schema, text)


def test_drafts_are_not_mixed_up(accepts: Callable[..., bool]) -> None:
    """Each schema is of its own draft, also where two that are spelled alike are."""
    inner = {"$id": "http://x.test/4", "id": "http://x.test/4", "$schema": DRAFT_4, **INTEGER}
    schema = {
        "$defs": {"a": inner},
        "properties": {"new": INTEGER, "old": {"$ref": "http://x.test/4"}},
        "patternProperties": {"^x": {**INTEGER, "not": {"$ref": "http://x.test/4"}}},
    }
    for text, verdict in (
        ('{"new":1.0}', True),
        ('{"old":1.0}', False),
        ('{"old":1}', True),
        ('{"x":1.0}', True),
        ('{"x":1}', False),
        ('{"x":1.5}', False),
    ):
        assert accepts(schema, text) is verdict, text
    later = {"$schema": "http://json-schema.org/draft-06/schema#", **INTEGER}
    assert accepts(later, "1.0")
    assert not accepts({"$schema": "http://json-schema.org/draft-05/schema#", **INTEGER}, "1.0")


def test_spellings_that_must_differ_have_other_values() -> None:
    few = {"enum": [0, 1]}
    schema = {
        "type": "array",
        "items": [{**INTEGER, **few}, {"not": INTEGER, **few}],
        "minItems": 2,
        "additionalItems": False,
        "uniqueItems": True,
    }
    sets = sets_of(of_draft_4(schema))
    found = {
        dumps(Witnesses(sets, sets.languages).draw(sets.root, random.Random(seed))) for seed in range(40)
    }
    assert found == {"[0,1.0]", "[1,0.0]"}
    assert sets.num_values(sets.root, 9) == 2
    with pytest.raises(InvalidConstraint, match="no value"):
        sets_of(of_draft_4({**schema, "items": [{**INTEGER, "enum": [1]}, {"enum": [1]}]}))


def test_what_cannot_be_is_told_in_words() -> None:
    with pytest.raises(InvalidConstraint, match="type integer of draft 4 at #"):
        sets_of(of_draft_4({**INTEGER, "enum": [1.5]}))
    lines = {
        "integers without fraction and exponent from 0": {**INTEGER, "minimum": 0},
        "numbers with fraction or exponent": {"type": "number", "not": INTEGER},
    }
    for line, schema in lines.items():
        sets = sets_of(of_draft_4(schema))
        assert value_lines(sets.forms(sets.root), {}) == [line]


def test_masks_end_no_integer_with_a_point(byte_vocab: Vocabulary) -> None:
    matcher = compile_json_schema(of_draft_4({"items": INTEGER, "type": "array"}), byte_vocab).matcher()
    for byte in b"[1":
        matcher.accept(byte)
    assert [chr(byte) for byte in b",].eE0" if matcher.allows(byte)] == [",", "]", "0"]
