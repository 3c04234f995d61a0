"""The one dialect that documents of all drafts are put in.

The oracle: JSON-Schema-Test-Suite, judged from the nodes.

`TREILLE_TEST_DATA` names the folder where the suite is unpacked.
"""

from __future__ import annotations

import json
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from oracles.schema_nodes import is_valid

from benchmarks.suite_cases import DRAFTS, read_groups, suite_folder
from treille.runtime.errors import UnsupportedConstraint
from treille.runtime.schema.document import Document

NEW = {"$schema": DRAFTS["draft2020-12"]}
OLD = {"$schema": DRAFTS["draft7"]}
FOUR = {"$schema": DRAFTS["draft4"]}


@pytest.mark.parametrize(
    ("schema", "read"),
    [
        (FOUR | {"minimum": 1, "exclusiveMinimum": True}, {"exclusiveMinimum": 1}),
        (FOUR | {"exclusiveMinimum": False, "minimum": 1}, {"minimum": 1}),
        (FOUR | {"maximum": 1.5, "exclusiveMaximum": True}, {"exclusiveMaximum": Decimal("1.5")}),
        (FOUR | {"const": 1, "contains": {}, "propertyNames": {}, "if": {}}, {}),
        ({"$schema": DRAFTS["draft6"], "if": False, "const": 1}, {"const": 1}),
        (OLD | {"items": [{}], "additionalItems": False}, {"prefixItems": [{}], "items": False}),
        (OLD | {"items": [{}]}, {"prefixItems": [{}]}),
        (OLD | {"items": {}, "additionalItems": False}, {"items": {}}),
        (OLD | {"prefixItems": [{}], "minContains": 2, "unevaluatedItems": False, "$anchor": "a"}, {}),
        (OLD | {"dependentRequired": {"a": ["b"]}}, {}),
        (NEW | {"additionalItems": False, "items": {}}, {"items": {}}),
        (
            OLD | {"dependencies": {"a": ["b"], "c": False}},
            {"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"c": False}},
        ),
        (
            NEW | {"dependencies": {"a": ["b"]}, "dependentRequired": {"a": ["c"], "d": []}},
            {"dependentRequired": {"a": ["c", "b"], "d": []}},
        ),
        (
            NEW | {"dependencies": {"a": True}, "dependentSchemas": {"a": False}},
            {"dependentSchemas": {"a": {"allOf": [False, True]}}},
        ),
        (
            OLD | {"$ref": "#/definitions/a", "type": "string", "definitions": {"a": {}}},
            {"$ref": "#/definitions/a"},
        ),
        (
            {"minLength": 2.0, "maxItems": Decimal("3.0"), "multipleOf": 0.1},
            {"minLength": 2, "maxItems": 3, "multipleOf": Decimal("0.1")},
        ),
        ({"enum": [1, 0.5, {"a": [1e-7]}]}, {"enum": [1, Decimal("0.5"), {"a": [Decimal("1E-7")]}]}),
        ({"format": "no-such-format"}, {}),
        ({"format": "date"}, {"format": "date"}),
    ],
)
def test_all_drafts_are_put_in_one_dialect(schema: dict[str, Any], read: dict[str, Any]) -> None:
    before = json.dumps(schema, default=str)
    found = Document(schema).root.schema
    assert isinstance(found, dict)
    found = {key: value for key, value in found.items() if key not in ("$schema", "$anchor")}
    assert found == read
    assert json.dumps(schema, default=str) == before
    assert not any(type(value) is float for value in found.values())


def test_children_have_their_own_place_and_the_normalised_name() -> None:
    document = Document(OLD | {"items": [{}, {"type": "null"}], "additionalItems": {"minimum": 1}})
    root = document.root
    second, rest = document.child(root, "prefixItems", 1), document.child(root, "items")
    assert (second.pointer, second.schema) == ("#/items/1", {"type": "null"})
    assert (rest.pointer, rest.schema) == ("#/additionalItems", {"minimum": 1})
    assert document.child(root, "items") is rest
    assert len({root.number, second.number, rest.number}) == 3
    with pytest.raises(KeyError):
        document.child(root, "additionalItems")
    both = Document(
        {"dependentSchemas": {"a": {"type": "object"}}, "dependencies": {"a": {"minProperties": 2}}}
    )
    joined = both.child(both.root, "dependentSchemas", "a")
    assert both.child(joined, "allOf", 0).schema == {"type": "object"}
    assert both.child(joined, "allOf", 1).schema == {"minProperties": 2}


def test_a_schema_that_needs_no_change_is_not_copied() -> None:
    schema = {"type": "object", "properties": {"a": {"enum": [1, "b"]}}, "required": ["a"]}
    document = Document(schema)
    assert document.root.schema is schema
    assert document.child(document.root, "properties", "a").schema is schema["properties"]["a"]  # type: ignore[index]


@pytest.mark.parametrize("draft", DRAFTS)
def test_the_suite_is_judged_right_from_the_nodes(draft: str) -> None:
    """By a slow evaluator that knows the one dialect: all of the suite but what its server would have to
    serve."""
    data = os.environ.get("TREILLE_TEST_DATA")
    folder = suite_folder(Path(data)) if data else None
    if folder is None:
        pytest.skip("TREILLE_TEST_DATA names no folder with JSON-Schema-Test-Suite")
    num_tests = 0
    for group in read_groups(folder, draft):
        if "\\p{" in json.dumps(group.schema).replace("\\\\", "\\"):  # Python's re has no classes of Unicode
            continue
        try:
            document = Document(group.schema, formats="annotation")
        except UnsupportedConstraint as error:
            assert "localhost:1234" in error.reason, (group.file, group.description)
            continue
        for description, value, wanted in group.tests:
            num_tests += 1
            exact = json.loads(json.dumps(value), parse_float=Decimal)
            assert is_valid(document, exact) is wanted, (group.file, group.description, description)
    assert num_tests > 500
