"""`number_style="plain"` in whole schemas: every short text, against jsonschema and one spelling a number."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from itertools import product
from typing import Any

import jsonschema
import pytest

from benchmarks.suite_cases import END, takes
from treille.runtime.errors import InvalidConstraint
from treille.runtime.grammar import Grammar, Vocabulary
from treille.runtime.schema.compile import compile_json_schema

ONE_SPELLING = re.compile(r"(?!-0$)-?[0-9]+(\.[0-9]*[1-9])?")
DRAFT_4 = "http://json-schema.org/draft-04/schema#"

SCHEMAS: list[Any] = [
    {"type": "number"},
    {"type": "integer", "minimum": -2, "maximum": 12},
    {"enum": [1, 1.50, -0.0, 10.0, -5]},
    {"type": "number", "multipleOf": 0.5, "maximum": 15},
    {"type": "number", "multipleOf": 5},
    {"type": "number", "not": {"type": "integer"}},
    {"type": "number", "not": {"multipleOf": 0.1}},
    {"type": "number", "exclusiveMinimum": 0, "maximum": 0.15},
    {"type": "number", "exclusiveMaximum": 0},
    {"type": "number", "not": {"enum": [0, 1, 0.5, -1.0]}},
    {"type": "number", "oneOf": [{"maximum": 1}, {"multipleOf": 0.5, "minimum": 0}]},
    {"anyOf": [{"const": 1.0}, {"type": "integer", "minimum": 10}, {"const": 0.5}]},
    {"$schema": DRAFT_4, "type": "integer"},
    {"$schema": DRAFT_4, "type": "number", "not": {"type": "integer"}},
    {"$schema": DRAFT_4, "anyOf": [{"type": "integer"}, {"type": "number", "not": {"type": "integer"}}]},
]


def plain(schema: Any, vocab: Vocabulary) -> Grammar:
    return compile_json_schema(schema, vocab, number_style="plain", whitespace="compact")


@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
def test_short_texts(byte_vocab: Vocabulary, schema: Any) -> None:
    grammar = plain(schema, byte_vocab)
    exact = json.loads(json.dumps(schema), parse_float=Decimal)
    valid = jsonschema.validators.validator_for(exact, jsonschema.Draft202012Validator)(exact).is_valid
    found, wanted = set(), set()
    for text in ("".join(chars) for length in range(1, 5) for chars in product("015-.e", repeat=length)):
        try:
            value = json.loads(text, parse_float=Decimal)
        except ValueError:
            value = None
        if value is not None and ONE_SPELLING.fullmatch(text) and valid(value):
            wanted.add(text)
        if takes(grammar, text.encode()):
            found.add(text)
    assert found == wanted and wanted


def test_what_is_spelled_in_one_way_is_forced(byte_vocab: Vocabulary) -> None:
    schema = {
        "properties": {
            "a": {"enum": [1]},
            "b": {"type": "integer", "minimum": 3, "maximum": 3},
            "c": {"const": 0.5},
        },
        "required": ["a", "b", "c"],
        "additionalProperties": False,
        "type": "object",
    }
    matcher = plain(schema, byte_vocab).matcher()
    assert matcher.forced_bytes(100) == b'{"a":1,"b":3,"c":0.5}'
    small = plain({"type": "integer", "minimum": 1, "maximum": 9}, byte_vocab).matcher()
    small.accept(ord("7"))
    assert [token for token in range(257) if small.allows(token)] == [END]


def test_arrays_of_numbers(byte_vocab: Vocabulary) -> None:
    grammar = plain(
        {"items": {"enum": [1, 2.5]}, "uniqueItems": True, "type": "array", "minItems": 2}, byte_vocab
    )
    good, bad = ("[1,2.5]", "[2.5,1]"), ("[1,1]", "[1.0,2.5]", "[2.50,1]", "[1,2.5,1]", "[1]")
    assert all(takes(grammar, text.encode()) for text in good)
    assert not any(takes(grammar, text.encode()) for text in bad)


def test_what_only_other_spellings_satisfy_is_refused(byte_vocab: Vocabulary) -> None:
    """An integer of draft 4 is one by its spelling, and with one spelling a number each is."""
    schema = {"$schema": DRAFT_4, "not": {"type": "integer"}, "enum": [1, 2.0]}
    compile_json_schema(schema, byte_vocab)
    with pytest.raises(InvalidConstraint, match="no value"):
        plain(schema, byte_vocab)
