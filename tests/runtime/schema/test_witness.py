"""Random values: what is drawn is valid for `jsonschema`, varied, and comes to an end."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import jsonschema
import pytest

from treille.runtime.errors import InvalidConstraint
from treille.runtime.schema.document import Document
from treille.runtime.schema.forms import ArrayForm, Contains, Forms, Key, ObjectForm, Option, Region
from treille.runtime.schema.json_text import dumps
from treille.runtime.schema.languages import Languages
from treille.runtime.schema.numbers import Numbers
from treille.runtime.schema.sets import DocumentSets
from treille.runtime.schema.strings import Strings
from treille.runtime.schema.values import canonical
from treille.runtime.schema.witness import Witnesses, WitnessNotFound, examples, witness

TREE = {
    "type": "object",
    "properties": {"value": {"type": "integer"}, "children": {"type": "array", "items": {"$ref": "#"}}},
    "required": ["value", "children"],
    "additionalProperties": False,
}
LINKED = {
    "$defs": {
        "list": {"type": "object", "required": ["next"], "properties": {"next": {"$ref": "#/$defs/or"}}},
        "or": {"anyOf": [{"$ref": "#/$defs/list"}, {"type": "boolean"}]},
    },
    "$ref": "#/$defs/list",
}
SHORT = {"type": "array", "items": {"type": "boolean"}, "maxItems": 1}
SCHEMAS: list[Any] = [
    True,
    {"type": "object"},
    {"enum": [1, 1.5, "a", None, [1, {"b": 2}], {"c": []}]},
    {"type": ["integer", "string"], "minimum": -3, "exclusiveMaximum": 4, "maxLength": 3},
    {"type": "number", "multipleOf": 0.01, "minimum": 0.995, "maximum": 1.2},
    {"type": "string", "pattern": "^[a-f]+-[0-9]{2}$", "maxLength": 9},
    {"type": "string", "format": "ipv4"},
    TREE,
    LINKED,
    {"type": "array", "items": {"enum": [1, 2, 3, 4]}, "uniqueItems": True, "minItems": 4},
    {"uniqueItems": True, "type": "array", "minItems": 3, "items": SHORT},
    {
        "prefixItems": [{"enum": [1, 2, 3]}, {"enum": [1, 2]}, {"enum": [1]}],
        "type": "array",
        "minItems": 3,
        "uniqueItems": True,
    },
    {"type": "array", "contains": {"type": "string"}, "minContains": 2, "maxContains": 3, "maxItems": 6},
    {"type": "array", "contains": {"multipleOf": 3}, "items": {"enum": [1, 2, 3, 4, 6]}, "uniqueItems": True},
    {"type": "array", "prefixItems": [{"const": 0}, {"type": "null"}], "items": False, "minItems": 1},
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "string"}, "c": True, "d": {"type": "null"}},
        "required": ["b"],
        "dependentRequired": {"a": ["c"], "c": ["d"]},
        "additionalProperties": False,
    },
    {
        "type": "object",
        "patternProperties": {"^n": {"type": "integer"}, "^s": {"type": "string"}},
        "additionalProperties": {"type": "boolean"},
        "minProperties": 3,
        "maxProperties": 5,
    },
    {"type": "object", "propertyNames": {"pattern": "^[ab]$"}, "minProperties": 2},
    {"type": "object", "propertyNames": {"maxLength": 2}, "additionalProperties": {"const": 1}},
    {"type": "object", "not": {"additionalProperties": {"type": "integer"}}},
    {"type": "object", "not": {"patternProperties": {"^x": {"type": "string"}}}, "maxProperties": 1},
    {"oneOf": [{"type": "integer", "multipleOf": 2}, {"type": "integer", "multipleOf": 3}]},
    {"if": {"type": "object", "required": ["a"]}, "then": {"required": ["b"]}, "else": {"type": "array"}},
    {"type": ["array", "null"], "items": {"$ref": "#"}, "minItems": 2},
    {"type": "array", "unevaluatedItems": False, "prefixItems": [True], "contains": {"const": "x"}},
]


class FakeSets:
    """Sets of forms that are given. What is without a value is known for scalars."""

    def __init__(self, forms: Sequence[Forms], languages: Languages) -> None:
        self.root = 0
        self.notes: list[Any] = []
        self._forms = list(forms)
        self._languages = languages

    def forms(self, number: int) -> Forms:
        return self._forms[number]

    def simple_parts(self, number: int) -> list[int] | None:
        return None

    def num_values(self, number: int, limit: int) -> int:
        forms = self._forms[number]
        if forms.arrays or forms.objects:
            return limit
        count = len(forms.words) + sum(one.count(limit) for one in forms.numbers)
        return min(limit, count + sum(self._languages.count(one, limit) for one in forms.strings))

    def few_values(self, number: int, limit: int) -> list[object] | None:
        raise NotImplementedError

    def without(self, number: int, value: Any) -> int:
        forms = self._forms[number]
        if value is None or isinstance(value, bool):
            forms = replace(forms, words=forms.words - {value})
        elif isinstance(value, str):
            strings = tuple(replace(one, excluded=one.excluded | {value}) for one in forms.strings)
            forms = replace(forms, strings=strings)
        else:
            point = frozenset((Fraction(value),))
            numbers = tuple(replace(one, excluded=one.excluded | point) for one in forms.numbers)
            forms = replace(forms, numbers=numbers)
        self._forms.append(forms)
        return len(self._forms) - 1


def sets_of(schema: Any) -> tuple[DocumentSets, Languages]:
    document = Document(schema)
    languages = Languages(document.patterns, document.formats)
    return DocumentSets(document, languages), languages


def drawn(schema: Any, count: int = 60) -> list[Any]:
    sets, languages = sets_of(schema)
    source = Witnesses(sets, languages)
    rng = random.Random(5)
    return [source.draw(sets.root, rng, size=rng.choice((0, 3, 10, 40))) for _ in range(count)]


def integers(low: int, high: int) -> Forms:
    return Forms(numbers=(Numbers(low=Fraction(low), high=Fraction(high), integer=True),))


def draw_from(forms: Sequence[Forms], languages: Languages | None = None, size: int = 40) -> Any:
    languages = languages or Languages()
    return witness(FakeSets(forms, languages), languages, 0, random.Random(7), size=size)


@pytest.mark.parametrize("schema", SCHEMAS, ids=range(len(SCHEMAS)))
def test_what_is_drawn_is_valid(schema: Any) -> None:
    exact = json.loads(json.dumps(schema), parse_float=Decimal)
    checker = jsonschema.Draft202012Validator(exact, format_checker=jsonschema.FormatChecker(["ipv4"]))
    values = drawn(schema)
    for value in values:
        checker.validate(value)
    assert len(values) == 60


@pytest.mark.parametrize(
    ("schema", "kinds"),
    [
        (True, {"NoneType", "bool", "int", "Decimal", "str", "list", "dict"}),
        ({"type": ["string", "object", "null"], "required": ["a", "b"]}, {"NoneType", "str", "dict"}),
        ({"enum": [None, True, False, 1]}, {"NoneType", "bool", "int"}),
    ],
)
def test_every_type_of_a_union_is_drawn(schema: Any, kinds: set[str]) -> None:
    assert {type(one).__name__ for one in drawn(schema, 200)} == kinds


def test_optional_keys_are_now_in_now_out_and_in_order() -> None:
    schema = {"type": "object", "properties": {name: {"type": "integer"} for name in "dbca"}}
    values = drawn(schema, 200)
    names = list("dbca")
    for name in names:
        assert 20 < sum(name in value for value in values) < 180
    for value in values:
        own = [name for name in value if name in names]
        assert own == sorted(own, key=names.index)
        assert list(value)[: len(own)] == own
    assert any(len(value) > 4 for value in values)


def test_small_and_large_values_are_drawn() -> None:
    sets, languages = sets_of(TREE)
    source = Witnesses(sets, languages)

    def size(value: Any) -> int:
        return dumps(value).count('"value"')

    rng = random.Random(1)
    assert {size(source.draw(sets.root, rng, size=0)) for _ in range(20)} == {1}
    sizes = [size(source.draw(sets.root, rng, size=200)) for _ in range(60)]
    assert max(sizes) > 10
    assert max(sizes) <= 70


def test_examples_are_different_and_as_many_as_there_are() -> None:
    sets, languages = sets_of({"enum": [1, 1.0, "a"]})
    assert sorted(examples(sets, languages, random.Random(0), 5)) == ['"a"', "1"]
    sets, languages = sets_of({"type": "object", "required": ["b"], "properties": {"a": {}, "b": {}}})
    found = examples(sets, languages, random.Random(0), 12)
    assert len({canonical(json.loads(one, parse_float=Decimal)) for one in found}) == len(found) == 12


def test_what_has_no_value_is_said() -> None:
    with pytest.raises(InvalidConstraint):
        sets_of({"type": "string", "enum": [1]})
    form = ArrayForm(prefix=((Option(0),),), low=1)
    with pytest.raises(WitnessNotFound, match="no value"):
        draw_from([Forms(arrays=(form,))])
    form = ArrayForm(rest=(Option(1),), low=10**18)
    with pytest.raises(WitnessNotFound, match="fewer than"):
        draw_from([Forms(arrays=(form,)), integers(0, 9)])


def test_a_way_out_of_thousands_of_levels_needs_no_stack() -> None:
    deep = 4_000
    chain = [Forms(arrays=(ArrayForm(prefix=((Option(at + 1),),), low=1, high=1),)) for at in range(deep)]
    value = draw_from([*chain, Forms(words=frozenset((None,)))])
    assert dumps(value) == "[" * deep + "null" + "]" * deep


def test_the_way_out_is_taken_where_every_step_could_go_on_for_ever() -> None:
    left = ArrayForm(rest=(Option(0), Option(1)), low=2)
    up = ObjectForm(keys=(Key("more", (Option(0), Option(1)), required=True),))
    forms = [
        Forms(arrays=(left,), objects=(up,)),
        Forms(arrays=(ArrayForm(rest=(Option(2),), low=1),)),
        integers(0, 9),
    ]
    for seed in range(100):
        languages = Languages()
        value = witness(FakeSets(forms, languages), languages, 0, random.Random(seed), size=seed)
        assert len(dumps(value)) < 12 * (seed + 20)


def test_items_that_differ_are_found_where_the_smallest_do_not_suffice() -> None:
    """Two different ones of null, of what is asked for itself, and of something larger: only that helps."""
    pair = ArrayForm(rest=(Option(1),), low=2, high=2, unique=True)
    large = ObjectForm(keys=tuple(Key(name, (Option(2),), required=True) for name in "abc"))
    forms = [
        Forms(arrays=(pair,)),
        Forms(words=frozenset((None,)), arrays=(pair,), objects=(large,)),
        Forms(words=frozenset((None,))),
    ]
    for seed in range(20):
        languages = Languages()
        value = witness(FakeSets(forms, languages), languages, 0, random.Random(seed), size=0)
        assert canonical(value[0]) != canonical(value[1])


def test_large_counts() -> None:
    null = Forms(words=frozenset((None,)))
    for items, low in ((integers(1, 10_000), 10_000), (Forms(strings=(Strings(),)), 2000)):
        value = draw_from([Forms(arrays=(ArrayForm(rest=(Option(1),), low=low, unique=True),)), items])
        assert len(value) == len(set(value)) >= low
    members = ObjectForm(keys=(Key("a", ()),), regions=(Region(Strings(low=2), (Option(1),)),), low=10_000)
    value = draw_from([Forms(objects=(members,)), null])
    assert len(value) >= 10_000
    assert "a" not in value
    counted = ArrayForm(rest=(Option(1, 1), Option(2)), low=10_000, contains=(Contains(3000, 5000),))
    value = draw_from([Forms(arrays=(counted,)), Forms(words=frozenset((True, False))), null])
    assert 3000 <= sum(one is not None for one in value) <= 5000
    assert len(value) >= 10_000


def test_the_last_names_of_a_region_are_found() -> None:
    languages = Languages(["^[a-z]{1,2}$", "^[a-c]$"])
    every = Region(Strings(every=frozenset((0,)), none=frozenset((1,))), (Option(1),))
    form = ObjectForm(keys=(Key("zz", ()), Key("b", (Option(1),))), regions=(every,), low=26 * 27 - 3)
    value = draw_from([Forms(objects=(form,)), integers(0, 9)], languages)
    assert "zz" not in value
    assert len(value) == 26 * 27 - 3  # all but zz, a and c
