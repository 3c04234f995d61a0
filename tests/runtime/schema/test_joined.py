"""Values that may be several things at once, within values that may: verdicts of jsonschema, and masks that
lead to an end."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import pytest

from treille.runtime.errors import ConstraintError, GrammarError
from treille.runtime.grammar import Vocabulary
from treille.runtime.schema.compile import compile_json_schema

KEYS = ("a", "b", "c")
LEAVES: tuple[Any, ...] = (
    {"type": "integer"},
    {"enum": [0, "x", None]},
    {"type": "string", "maxLength": 1},
    {"type": "array", "uniqueItems": True, "items": {"$ref": "#/$defs/0"}, "maxItems": 3},
    {"$ref": "#/$defs/0"},
    {"$ref": "#/$defs/1"},
)


def some_schema(rng: random.Random, depth: int) -> Any:
    if depth == 0 or rng.random() < 0.1:
        return rng.choice(LEAVES)
    kind = rng.random()
    if kind < 0.5:
        few = [some_schema(rng, depth - 1) for _ in range(rng.choice((2, 2, 3)))]
        return {rng.choice(("anyOf", "anyOf", "oneOf")): few}
    if kind < 0.6:
        return {"type": "array", "items": some_schema(rng, depth - 1), "uniqueItems": rng.random() < 0.5}
    properties = {key: some_schema(rng, depth - 1) for key in rng.sample(KEYS, rng.choice((1, 2, 2)))}
    return {"type": "object", "properties": properties, "required": rng.sample(sorted(properties), 1)}


def some_document(rng: random.Random) -> Any:
    return {"$defs": {"0": some_schema(rng, 2), "1": some_schema(rng, 3)}, **some_schema(rng, 3)}


def some_value(rng: random.Random, depth: int) -> Any:
    kind = rng.random()
    if depth == 0 or kind < 0.25:
        return rng.choice((0, 1, "x", "", None, 2))
    if kind < 0.4:
        return [some_value(rng, depth - 1) for _ in range(rng.choice((0, 1, 2, 3)))]
    keys = rng.sample(KEYS, rng.choice((1, 1, 2, 3)))
    return {key: some_value(rng, depth - 1) for key in keys}


@pytest.mark.parametrize("seed", range(16))
def test_verdicts_are_those_of_jsonschema(byte_vocab: Vocabulary, seed: int) -> None:
    rng = random.Random(seed)
    schema = some_document(rng)
    try:
        grammar = compile_json_schema(schema, byte_vocab, property_order="any")
    except ConstraintError:  # it holds itself, or nothing, or asks for two items that are equal
        return
    oracle = jsonschema.Draft202012Validator(schema)
    texts = [json.dumps(some_value(rng, 4)).encode() for _ in range(150)]
    for _ in range(20):
        matcher, text = grammar.matcher(), b""
        while len(text) < 80 and not (matcher.can_stop() and rng.random() < 0.3):
            choices = [byte for byte in range(256) if matcher.allows(byte) and byte not in b"\t\r\n\\"]
            if not choices:
                break
            byte = rng.choice([one for one in choices if one in b'{}[],:"0abx'] or choices)
            matcher.accept(byte)
            text += bytes((byte,))
        if matcher.can_stop():
            texts.append(text)
        assert matcher.can_stop() or len(text) >= 80, (schema, text)
    for text in texts:
        matcher, taken = grammar.matcher(), True
        try:
            for byte in text:
                matcher.accept(byte)
        except GrammarError:
            taken = False
        try:
            wanted = oracle.is_valid(json.loads(text))
        except RecursionError:
            continue
        assert (taken and matcher.can_stop()) == wanted, (schema, text)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1_000, 1_400))
def test_many_more(byte_vocab: Vocabulary, seed: int) -> None:
    test_verdicts_are_those_of_jsonschema(byte_vocab, seed)
