"""Values that may be several things at once, within values that may: verdicts of jsonschema, and masks that
lead to an end."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import numpy as np
import pytest

from benchmarks.suite_cases import takes
from treille.runtime.errors import ConstraintError, GrammarError
from treille.runtime.grammar import Vocabulary
from treille.runtime.schema import arena as json_arena
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


def test_masks_where_what_must_differ_is_within_what_is_joined() -> None:
    """The text of an item is left out of masks, and what the array is within is not."""
    ends = [b"]]]", b"]]]]", b"]]],", b"]]]]]", b"1]]]]", b"1]]],", b"1]]]]]", b"]]],[[[1", b"]]},", b"]]}]"]
    vocab = Vocabulary([*(bytes([byte]) for byte in range(256)), None, *ends], eos_ids=[256])
    unique = {"type": "array", "uniqueItems": True, "items": {"type": "array", "uniqueItems": True}}
    for item, before in (
        ({"type": "array", "items": unique}, b"[[[[1"),
        ({"type": "object", "properties": {"a": unique}}, b'[{"a":[[1'),
    ):
        lengths = ({"maxItems": 1}, {"minItems": 2, "maxItems": 2}, {"minItems": 3})
        schema = {"anyOf": [{"type": "array", "items": item, **length} for length in lengths]}
        matcher = compile_json_schema(schema, vocab, whitespace="compact").matcher()
        for byte in before:
            matcher.accept(byte)
        row = np.zeros(vocab.num_words, np.uint32)
        matcher.fill_mask(row)
        for token in range(256, len(vocab.tokens)):
            assert bool(row[token // 32] >> (token % 32) & 1) == matcher.allows(token), vocab.tokens[token]


# An array of more than two differs in all of its items, and so on down.
UNIQUE_IF_LONG = {
    "anyOf": [
        {"enum": [0, 1]},
        {"type": "array", "items": {"$ref": "#"}, "maxItems": 2},
        {"type": "array", "items": {"$ref": "#"}, "uniqueItems": True},
    ]
}


def some_arrays(rng: random.Random, depth: int) -> Any:
    """Arrays within arrays: one goes deep, and what stands beside it is shallow."""
    value: Any = rng.randrange(2)
    for _ in range(depth):
        beside = rng.choice(
            ([], [0], [[0]], [value], [1, [0]], [[], [1], 0], [0, 0], [[1, 1, 1]], [value, 0])
        )
        value = [*beside, value] if rng.random() < 0.5 else [value, *beside]
    return value


@pytest.mark.parametrize("seed", range(60))
def test_each_array_may_have_to_differ_or_not_at_any_depth(byte_vocab: Vocabulary, seed: int) -> None:
    rng = random.Random(seed)
    grammar = compile_json_schema(UNIQUE_IF_LONG, byte_vocab)
    oracle = jsonschema.Draft202012Validator(UNIQUE_IF_LONG)
    for depth in (1, 2, 3, 4, rng.randrange(5, 9)):
        value = some_arrays(rng, depth)
        assert takes(grammar, json.dumps(value).encode()) == oracle.is_valid(value), value


def test_what_may_have_to_differ_at_any_depth_may_be_deep(byte_vocab: Vocabulary) -> None:
    """Two things at each of 40 depths: all of these are not 2**40 configurations."""
    grammar = compile_json_schema(UNIQUE_IF_LONG, byte_vocab, whitespace="compact")
    opened, closed = b"[" * 40, b"]" * 39
    for last in (b"1,1]", b"0,[],1]"):
        assert takes(grammar, opened + last + closed)
        assert takes(grammar, opened + last + b",[],1]" + closed[1:])
    assert not takes(grammar, opened + b"0,1,0]" + closed)
    assert not takes(grammar, opened + b"0,1],[1],[0,1.0]]" + closed[1:])


def test_masks_where_each_array_may_have_to_differ_or_not() -> None:
    more = [b"]]", b"]],", b",1]", b"1]", b"1,1]", b"0],[", b"],[0", b"],[1]]", b"[1,0],1]", b"]],1]]"]
    vocab = Vocabulary([*(bytes([byte]) for byte in range(256)), None, *more], eos_ids=[256])
    matcher = compile_json_schema(UNIQUE_IF_LONG, vocab, whitespace="compact").matcher()
    row = np.zeros(vocab.num_words, np.uint32)
    for byte in b"[[[[1,0],[1],[0,0]],[1],[[0,1]],[0]],[0,1],[[1]]]":
        matcher.fill_mask(row)
        for token in range(256, len(vocab.tokens)):
            assert bool(row[token // 32] >> (token % 32) & 1) == matcher.allows(token), vocab.tokens[token]
        matcher.accept(byte)
    assert matcher.can_stop()


@pytest.mark.parametrize("steps", [1, 3, 5, 7, 9, 11, 13])
def test_a_step_that_was_cut_short_is_taken_again(
    byte_vocab: Vocabulary, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """Wherever in a step there is no room left: nothing is read that is not there."""
    monkeypatch.setattr(json_arena, "_FIRST_STEPS", steps)
    item = {"anyOf": [{"type": "integer"}, {"type": "array", "uniqueItems": True}]}
    schema = {"title": str(steps), "items": item, "uniqueItems": True, "contains": {"const": 3}}
    grammar = compile_json_schema(schema, byte_vocab)
    for text, wanted in (
        (b"[1,2,[12,13,[14]],3]", True),
        (b"[3,31,[12,12.0]]", False),
        (b"[3,31,31]", False),
        (b"[[3,3e0],3]", False),
        (b'{"a":[3,3],"b":3}', True),
        (b"[30,33]", False),
    ):
        matcher, taken = grammar.matcher(), True
        for byte in text:
            taken = taken and matcher.allows(byte)
            if taken:
                matcher.accept(byte)
        assert (taken and matcher.can_stop()) == wanted, text
