"""Sets of large and hostile schemas: what they cost, and what is refused."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from treille.runtime.errors import CompileCancelled, UnsupportedConstraint
from treille.runtime.schema.accepts import accepts
from treille.runtime.schema.document import Document
from treille.runtime.schema.languages import Languages
from treille.runtime.schema.sets import DocumentSets

OBJECT = {"type": "object"}


def sets_of(schema: Any, **limits: Any) -> DocumentSets:
    document = Document(schema)
    return DocumentSets(document, Languages(document.patterns, document.formats), **limits)


def timed(schema: Any) -> float:
    """Seconds of processor time from a document that is read to the forms of its root."""
    document = Document(schema)
    languages = Languages(document.patterns, document.formats)
    start = time.thread_time()
    sets = DocumentSets(document, languages)
    sets.forms(sets.root)
    return time.thread_time() - start


def nested(depth: int, level: Callable[[Any], Any]) -> Any:
    """A schema in which every level holds the next one twice, written out."""
    schema: Any = {"type": "string"}
    for _ in range(depth):
        schema = level(schema)
    return json.loads(json.dumps(schema))


def both_needed(below: Any) -> Any:
    return {"oneOf": [{**OBJECT, "properties": {name: below}, "required": [name]} for name in "ab"]}


def both_optional(below: Any) -> Any:
    return {"oneOf": [{**OBJECT, "properties": {name: below}} for name in "ab"]}


def tagged(below: Any) -> Any:
    return {
        "oneOf": [
            {**OBJECT, "properties": {"kind": {"const": name}, "next": below}, "required": ["kind", "next"]}
            for name in "ab"
        ]
    }


def same_key(below: Any) -> Any:
    return {
        "oneOf": [
            {**OBJECT, "properties": {"a": below}, "required": ["a"]},
            {**OBJECT, "properties": {"a": below, "b": {"type": "integer"}}, "required": ["a", "b"]},
        ]
    }


def same_key_told_apart(below: Any) -> Any:
    level = same_key(below)
    level["oneOf"][1]["title"] = "other"
    return level


@pytest.mark.parametrize("level", [both_needed, both_optional, tagged, same_key, same_key_told_apart])
def test_nested_choices_cost_what_a_level_needs(level: Callable[[Any], Any]) -> None:
    assert timed(nested(11, level)) < 20


def wide(count: int, schema: Callable[[int], Any]) -> Any:
    return {name: schema(at) for at, name in enumerate(f"p{at}" for at in range(count))}


def record(at: int) -> Any:
    return {**OBJECT, "properties": {"a": {"type": "string", "maxLength": at}}, "required": ["a"]}


LARGE = {
    "20,000 strings": {"enum": [f"v{at}" for at in range(20_000)]},
    "20,000 mixed values": {"enum": [f"v{at}" if at % 2 else at for at in range(20_000)]},
    "5,000 properties": {
        **OBJECT,
        "properties": wide(5000, record),
        "required": [f"p{at}" for at in range(5000)],
    },
    "5,000 choices of properties": {
        **OBJECT,
        "properties": wide(5000, lambda at: {"anyOf": [record(at), {"type": "null"}]}),
    },
    "100 tagged branches": {
        "oneOf": [
            {**OBJECT, "properties": {"k": {"const": at}, "v": {"type": "string"}}, "required": ["k"]}
            for at in range(100)
        ]
    },
    "60 conditions": {
        **OBJECT,
        "required": ["k"],
        "allOf": [
            {"if": {"properties": {"k": {"const": at}}}, "then": {"required": [f"p{at}"]}} for at in range(60)
        ],
    },
    "60 keys of which one is needed": {**OBJECT, "anyOf": [{"required": [f"p{at}"]} for at in range(60)]},
    "10^18 items": {"type": "array", "minItems": 10**18, "uniqueItems": True, "items": {"type": "integer"}},
    "10^18 items of which some count": {"type": "array", "minItems": 10**18, "contains": {"const": 1}},
}


@pytest.mark.parametrize("name", LARGE)
def test_large_schemas(name: str) -> None:
    assert timed(LARGE[name]) < 20  # bounded; on a machine however busy


def test_a_chain_of_references_is_no_deep_call() -> None:
    size = 3000
    definitions: dict[str, Any] = {
        f"d{at}": {"allOf": [{"$ref": f"#/$defs/d{at + 1}"}, {}]} for at in range(size)
    }
    definitions[f"d{size}"] = {"type": "integer"}
    sets = sets_of({"$ref": "#/$defs/d0", "$defs": definitions})
    assert accepts(sets, sets.root, 1) and not accepts(sets, sets.root, "1")
    needed: dict[str, Any] = {
        f"d{at}": {
            **OBJECT,
            "properties": {"x": {"$ref": f"#/$defs/d{at + 1}"}},
            "required": ["x"],
            "not": {"minProperties": 3},
        }
        for at in range(size)
    }
    needed[f"d{size}"] = {"type": "integer"}
    assert not sets_of({"$ref": "#/$defs/d0", "$defs": needed}).forms(0).is_empty


REFUSED: dict[str, Any] = {
    "not": {
        **OBJECT,
        "allOf": [{"not": {"properties": wide(12, lambda at, k=k: {"maximum": at + k})}} for k in range(9)],
    },
    "if": {
        **OBJECT,
        "allOf": [{"if": {"required": [f"a{at}"]}, "then": {"required": [f"b{at}"]}} for at in range(14)],
    },
}


@pytest.mark.parametrize("keyword", REFUSED)
def test_what_multiplies_is_refused_in_time(keyword: str) -> None:
    start = time.thread_time()
    with pytest.raises(UnsupportedConstraint) as caught:
        sets_of(REFUSED[keyword])
    assert time.thread_time() - start < 3
    assert caught.value.path.startswith("#/allOf/")
    assert "alternatives" in caught.value.reason or "ways" in caught.value.reason


def test_explore_finds_below_what_is_refused() -> None:
    deep = {**OBJECT, "properties": {"a": {**OBJECT, "properties": {"b": REFUSED["if"]}}}}
    sets = sets_of(deep)
    with pytest.raises(UnsupportedConstraint):
        sets.explore()
    sets_of({**OBJECT, "properties": {"a": {"oneOf": [{"type": "string"}, {"type": "null"}]}}}).explore()


def test_a_task_is_stopped() -> None:
    def stop() -> None:
        raise CompileCancelled("nobody waits")

    with pytest.raises(CompileCancelled):
        sets_of(REFUSED["if"], check=stop)
