"""JSON text in every spelling, and values that differ a little."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from typing import Any

import pytest

from treille.runtime.schema.json_text import dumps
from treille.runtime.schema.mutants import mutants, paths, replaced
from treille.runtime.schema.values import canonical

VALUES: list[Any] = [
    None,
    True,
    0,
    -7,
    12_000,
    Decimal("0.1"),
    Decimal("-1.50"),
    Decimal("1E+400"),
    Decimal("1E-400"),
    10**5000,
    "",
    'a "quoted" \\ word / with é, 😀, \n, \x00 and \u2028',
    [],
    [[], [1, [Decimal("2.5")]], {}],
    {"b": 1, "a": {"": None, "é": ["x", False]}},
]


ALONE = (None, True, "", VALUES[9])  # what has one spelling here


def read(text: str) -> Any:
    return json.loads(text, parse_float=Decimal, parse_int=lambda digits: int(Decimal(digits)))


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_every_spelling_reads_as_the_value(value: Any) -> None:
    assert canonical(read(dumps(value))) == canonical(value)
    texts = set()
    for seed in range(200):
        rng = random.Random(seed)
        text = dumps(value, rng, escapes=True, numbers=True, whitespace=True, order=True)
        assert canonical(read(text)) == canonical(value)
        texts.add(text)
    assert len(texts) > 1 or any(value is one for one in ALONE)


def test_what_is_not_asked_for_does_not_vary() -> None:
    value = {"b": 1, "a": ["é/\t", Decimal("0.50")]}
    assert dumps(value, random.Random(0)) == dumps(value) == '{"b":1,"a":["é/\\t",0.50]}'
    assert dumps(value, spaced=True) == '{"b": 1, "a": ["é/\\t", 0.50]}'
    assert {dumps([1], random.Random(seed), escapes=True) for seed in range(50)} == {"[1]"}
    assert {dumps("1 A", random.Random(seed), numbers=True) for seed in range(50)} == {'"1 A"'}
    with pytest.raises(ValueError, match="random generator"):
        dumps(value, escapes=True)


@pytest.mark.parametrize("value", [float("nan"), Decimal("Infinity"), {1}, b"x"])
def test_what_is_no_json_value_has_no_text(value: Any) -> None:
    with pytest.raises(TypeError):
        dumps([value])


def test_any_depth_has_a_text() -> None:
    value: Any = 1
    for _ in range(5_000):
        value = [{"a": value}]
    assert dumps(value) == '[{"a":' * 5_000 + "1" + "}]" * 5_000


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_mutants_are_other_values(value: Any) -> None:
    before = dumps(value)
    found = mutants(value, random.Random(1), 200)
    assert len(found) == 200
    assert dumps(value) == before
    assert all(canonical(one) != canonical(value) for one in found)
    assert len({dumps(one) for one in found}) > 8


def test_mutants_try_the_neighbours_of_a_number() -> None:
    texts = {dumps(one) for one in mutants({"n": 10}, random.Random(2), 1000)}
    wanted = ("9", "11", "10.1", "10.5", "-10", "0", '"10"', "10.000000001", "9.999999999")
    assert {f'{{"n":{one}}}' for one in wanted} <= texts
    texts = {dumps(one) for one in mutants(Decimal("0.25"), random.Random(3), 1000)}
    assert {"0.24", "0.26", "0.251", "1.25", "-0.75"} <= texts


def test_mutants_change_what_schemas_ask_of_containers() -> None:
    texts = {dumps(one) for one in mutants({"a": 1, "bc": [5, 6]}, random.Random(4), 10_000)}
    wanted = (
        '{"bc":[5,6]}',
        '{"a":1}',
        '{"a":[5,6],"bc":1}',
        '{"a":1,"b":[5,6]}',
        '{"a":1,"bc":[6]}',
        '{"a":1,"bc":[5,6,6]}',
        '{"a":1,"bc":[6,5]}',
        '{"a":1,"bc":[]}',
        '{"a":1,"bc":{}}',
    )
    assert set(wanted) <= texts


def test_a_change_leaves_the_old_value_alone() -> None:
    value = {"a": [1, {"b": 2}], "c": []}
    assert set(paths(value)) == {(), ("a",), ("a", 0), ("a", 1), ("a", 1, "b"), ("c",)}
    new = replaced(value, ("a", 1, "b"), lambda old: old + 1)
    assert new == {"a": [1, {"b": 3}], "c": []}
    assert value == {"a": [1, {"b": 2}], "c": []}
    assert new["c"] is value["c"]
