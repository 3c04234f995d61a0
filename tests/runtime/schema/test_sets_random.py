"""Random schemas: forms take what `jsonschema` takes, and everything that forms name has a value."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import jsonschema
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracles.random_schemas import random_schema, random_value

from treille.runtime.errors import InvalidConstraint, UnsupportedConstraint
from treille.runtime.schema.accepts import accepts
from treille.runtime.schema.document import Document
from treille.runtime.schema.languages import Languages
from treille.runtime.schema.risks import parts_of
from treille.runtime.schema.sets import DocumentSets
from treille.runtime.schema.witness import Witnesses

_SEEDS = st.integers(0, 2**32)
_QUIET = settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))


def sets_of(schema: Any) -> DocumentSets | None:
    """The sets of a schema; None for one that cannot be enforced."""
    document = Document(schema)
    try:
        sets = DocumentSets(document, Languages(document.patterns, document.formats))
        sets.explore()
        return sets
    except UnsupportedConstraint as error:
        assert error.keyword == "uniqueItems"
        return None


@_QUIET
@given(_SEEDS)
def test_values(seed: int) -> None:
    rng = random.Random(seed)
    schema = random_schema(rng)
    values = [random_value(rng) for _ in range(40)]
    oracle = jsonschema.Draft202012Validator(schema)
    try:
        sets = sets_of(schema)
    except InvalidConstraint as error:
        assert "no value" in str(error)
        assert not any(oracle.is_valid(value) for value in values), schema
        return
    if sets is not None:
        for value in values:
            assert accepts(sets, sets.root, value) == oracle.is_valid(value), (schema, value)


@settings(_QUIET, max_examples=100)
@given(_SEEDS)
def test_no_dead_ends(seed: int) -> None:
    rng = random.Random(seed)
    schema = random_schema(rng)
    try:
        sets = sets_of(schema)
    except InvalidConstraint:
        return
    if sets is None:
        return
    seen = [sets.root]
    witnesses = Witnesses(sets, sets.languages)
    for number in seen:
        seen += [part for part in dict.fromkeys(parts_of(sets.forms(number))) if part not in seen]
        assert accepts(sets, number, witnesses.draw(number, rng, size=8)), schema
        if len(seen) > 40:
            break


@settings(_QUIET, max_examples=100)
@given(_SEEDS)
def test_without_and_num_values(seed: int) -> None:
    """Sets of few values, emptied one by one."""
    rng = random.Random(seed)
    few: list[Any] = [
        {"enum": [random_value(rng) for _ in range(4)]},
        {"type": ["boolean", "null"]},
        {"type": "integer", "minimum": 0, "maximum": rng.choice((0, 1, 2))},
        {"type": "string", "pattern": "^[ab]{1,2}$"},
    ]
    some = rng.choice(few)
    schema = rng.choice(
        (
            some,
            {"anyOf": rng.sample(few, 2)},
            {
                "type": "array",
                "items": some,
                "maxItems": rng.choice((1, 2)),
                "uniqueItems": rng.random() < 0.5,
            },
            {"type": "array", "prefixItems": [some], "items": False, "contains": some},
            {
                "type": "object",
                "properties": {"a": some, "b": {"const": 1}},
                "required": rng.sample(("a", "b"), rng.choice((0, 1))),
                "additionalProperties": False,
                "dependentRequired": {"a": ["b"]} if rng.random() < 0.5 else {},
            },
        )
    )
    sets = sets_of(schema)
    assert sets is not None
    witnesses = Witnesses(sets, sets.languages)
    number, count = sets.root, sets.num_values(sets.root, 100)
    assert 0 < count < 100
    for left in range(count, 0, -1):
        assert sets.num_values(number, 100) == left
        value = witnesses.draw(number, rng)
        assert accepts(sets, number, value)
        number = sets.without(number, value)
        assert not accepts(sets, number, value)
    assert sets.forms(number).is_empty


def test_endless_sets_have_as_many_values_as_are_asked_for() -> None:
    for schema in (
        {},
        {"type": "number"},
        {"type": "array", "items": {"const": 1}},
        {"type": "object", "maxProperties": 1},
        {"type": "array", "prefixItems": [{"type": "string"}], "maxItems": 1},
    ):
        sets = sets_of(schema)
        assert sets is not None
        assert sets.num_values(sets.root, 7) == 7
        assert sets.num_values(sets.without(sets.root, Decimal("1.0")), 5000) == 5000
