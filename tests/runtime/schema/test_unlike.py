"""What equals none of some values: against comparing each, over all small arrays and objects."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import jsonschema
import pytest

from benchmarks.suite_cases import takes
from treille.runtime.errors import GrammarError
from treille.runtime.grammar import Vocabulary
from treille.runtime.schema.accepts import accepts
from treille.runtime.schema.compile import compile_json_schema
from treille.runtime.schema.document import Document
from treille.runtime.schema.languages import Languages
from treille.runtime.schema.sets import DocumentSets

PARTS: tuple[Any, ...] = (0, 1, "x", [], {})


def small_values() -> list[Any]:
    arrays = [list(items) for size in range(4) for items in itertools.product((0, "x", []), repeat=size)]
    objects: list[Any] = []
    for keys in itertools.chain.from_iterable(itertools.combinations("abc", size) for size in range(4)):
        for values in itertools.product((0, 1, {}), repeat=len(keys)):
            objects.append(dict(zip(keys, values, strict=True)))
    return arrays + objects + list(PARTS)


VALUES = small_values()


@pytest.mark.parametrize("seed", range(30))
def test_none_of_some_values(seed: int) -> None:
    rng = random.Random(seed)
    ruled_out = rng.sample(VALUES, rng.choice((1, 2, 3, 8, 20)))
    schema = {"allOf": [{"not": {"const": one}} for one in ruled_out]} if seed % 2 else {}
    document = Document(schema or {"not": {"enum": ruled_out}})
    sets = DocumentSets(document, Languages(document.patterns, document.formats))
    number = sets.root
    if rng.random() < 0.5:
        ruled_out.append(rng.choice(VALUES))
        number = sets.without(number, ruled_out[-1])
    for value in VALUES:
        assert accepts(sets, number, value) == (value not in ruled_out), (ruled_out, value)


def test_many_unique_objects_of_many_keys(byte_vocab: Vocabulary) -> None:
    """What is ruled out of the next item grows with the items' keys in all, not with their product."""
    grammar = compile_json_schema({"type": "array", "uniqueItems": True}, byte_vocab)
    items = [{f"key{key}": (place >> key) & 1 for key in range(8)} for place in range(24)]
    for more, wanted in (([], True), ([items[7]], False), ([{**items[7], "key8": 1}], True)):
        matcher = grammar.matcher()
        text = json.dumps(items + more).encode()
        for byte in text[:-1]:
            if not matcher.allows(byte):
                break
            matcher.accept(byte)
        else:
            assert matcher.allows(text[-1]) == wanted
            continue
        assert not wanted


@pytest.mark.parametrize(
    ("schema", "never", "texts"),
    [
        ({"prefixItems": [{"enum": [1, 2]}, {"const": 1}], "minItems": 2}, ["[1"], ["[2,1]"]),
        (
            {"prefixItems": [{"enum": [1, 2, 5]}, {"enum": [2, 3]}, {"enum": [1, 3]}], "minItems": 3},
            ["[1,3", "[5,3,3"],
            ["[5,2,3]", "[1,2,3]", "[2,3,1]", "[5,3,1]"],
        ),
        (
            {"prefixItems": [{"enum": ["a", "b", [0]]}, {}], "items": {"enum": ["a", [0]]}, "minItems": 4},
            ['["a', "[[", '["b","a"', '["b",[0]'],
            ['["b",1,"a",[0]]', '["b",[],[0],"a"]'],
        ),
        ({"prefixItems": [{"enum": [1, 2]}, {"const": 1}]}, [], ["[1]", "[2,1]", "[2]"]),
    ],
)
def test_items_leave_to_later_ones_what_these_need(
    byte_vocab: Vocabulary, schema: dict[str, Any], never: list[str], texts: list[str]
) -> None:
    schema = {"type": "array", "uniqueItems": True, **schema}
    grammar = compile_json_schema(schema, byte_vocab, whitespace="compact")
    oracle = jsonschema.Draft202012Validator(schema)
    for text in texts:
        assert takes(grammar, text.encode()) == oracle.is_valid(json.loads(text)), text
    for text in never:
        matcher = grammar.matcher()
        with pytest.raises(GrammarError):
            for byte in text.encode():
                matcher.accept(byte)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            '[{"z":1,"k":[]},{"z":2,"b":"","k":[]}]',
            True,
        ),  # keys that only an earlier item has are in no order
        ('[{"z":1,"a":1},{"z":1,"a":2,"m":1}]', True),
        ('[{"z":1,"a":1},{"a":1},{"a":1,"z":3}]', False),
        ('[{"z":1,"k":[]},{"k":[],"z":2}]', False),
    ],
)
def test_values_that_are_ruled_out_declare_no_keys(byte_vocab: Vocabulary, text: str, wanted: bool) -> None:
    schema = {"type": "array", "uniqueItems": True, "items": {"properties": {"z": {}, "a": {}}}}
    grammar = compile_json_schema(schema, byte_vocab, property_order="schema")
    assert takes(grammar, text.encode()) == wanted
