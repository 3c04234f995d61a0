"""Refusals name the keyword and its own place."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from oracles.number_sets import numbers

from treille.runtime.errors import UnsupportedConstraint
from treille.runtime.grammar import Vocabulary
from treille.runtime.schema.compile import compile_json_schema
from treille.runtime.schema.numbers import Numbers

PRIME = 1_000_003
LONG = {"multipleOf": PRIME}


def contains(*values: object) -> list[Any]:
    return [{"contains": {"const": value}} for value in values]


# schema; keyword; place
ROWS: list[tuple[Any, str, str]] = [
    (LONG, "multipleOf", "#/multipleOf"),
    ({"properties": {"a/b": {"type": "integer", **LONG}}}, "multipleOf", "#/properties/a~1b/multipleOf"),
    ({"not": {"not": LONG, "type": "number"}}, "multipleOf", "#/not/not/multipleOf"),
    ({"type": "number", "not": {"maximum": 5, **LONG}}, "multipleOf", "#/not/multipleOf"),
    ({"multipleOf": 2, "allOf": [{"multipleOf": 0.5}, LONG]}, "multipleOf", "#/allOf/1/multipleOf"),
    ({"allOf": [LONG, {"not": {"multipleOf": 3}}]}, "multipleOf", "#/allOf/0/multipleOf"),
    ({"allOf": [{"multipleOf": 7}, {"multipleOf": 30011}]}, "multipleOf", "#/allOf/1/multipleOf"),
    ({"$defs": {"m": LONG}, "items": {"$ref": "#/$defs/m"}}, "multipleOf", "#/$defs/m/multipleOf"),
    ({"allOf": contains(1, 2, 3)}, "contains", "#/allOf/2/contains"),
    ({"allOf": contains(1, 2, 3, 4, 5, 6)}, "contains", "#/allOf/5/contains"),
    ({"contains": {"const": 0}, "allOf": contains(1, 2)}, "contains", "#/allOf/1/contains"),
    (
        {"contains": {"minimum": 0}, "not": {"contains": {"minimum": 0}, "maxContains": 3}},
        "contains",
        "#/not/contains",
    ),
    (
        {"items": {"enum": [1, 2]}, "allOf": [*contains(1), {"contains": {"maximum": 1}, "maxContains": 1}]},
        "contains",
        "#/allOf/1/contains",
    ),
    (
        {"type": "array", "allOf": [*contains(1, 2), {"not": {"items": {"type": "null"}}}]},
        "items",
        "#/allOf/2/not/items",
    ),
    (
        {
            "type": "array",
            "allOf": [*contains(1, 2), {"not": {"prefixItems": [True], "unevaluatedItems": False}}],
        },
        "unevaluatedItems",
        "#/allOf/2/not/unevaluatedItems",
    ),
    ({"contains": {"const": 1}, "minContains": 1 << 31}, "contains", "#/contains"),
]


@pytest.mark.parametrize(("schema", "keyword", "place"), ROWS, ids=str)
def test_places(byte_vocab: Vocabulary, schema: Any, keyword: str, place: str) -> None:
    with pytest.raises(UnsupportedConstraint) as caught:
        compile_json_schema(schema, byte_vocab)
    assert (caught.value.keyword, caught.value.path) == (keyword, place)
    with pytest.raises(UnsupportedConstraint) as again:  # nothing that was kept names another document's
        compile_json_schema({"properties": {"k": schema}, **{"$defs": schema.get("$defs", {})}}, byte_vocab)
    assert again.value.path == place if "$defs" in place else "#/properties/k" + place[1:]


def test_what_is_counted_out_names_its_place() -> None:
    primes = [prime for prime in range(1000, 2000) if all(prime % factor for factor in range(2, 50))]
    shape = numbers(1, 10**300, integer=True)
    for prime in primes:
        shape = shape.meet(Numbers(not_multiples=frozenset((Fraction(prime),)), place=f"#/{prime}"))
    longest = next(prime for prime in primes if prime > 1024)  # the first of those
    with pytest.raises(UnsupportedConstraint, match=f"multipleOf at #/{longest}"):
        shape.count(10**20)
