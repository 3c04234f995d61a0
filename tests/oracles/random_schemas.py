"""Random small JSON Schemas and values, drawn so that they often have to do with each other."""

from __future__ import annotations

import random
from typing import Any

NAMES = ("a", "b", "ab", "c")
PATTERNS = ("^a", "b$", "^.$", "^[ab]+$")
_SMALL = ("minimum", "maximum", "exclusiveMinimum", "multipleOf", "minLength", "maxLength", "pattern")
_FLAT = {
    "object": ("required", "required", "minProperties", "maxProperties", "dependentRequired"),
    "array": ("minItems", "maxItems", "uniqueItems"),
    "": (*_SMALL, "const", "enum", "minItems", "maxItems", "uniqueItems", "required", "maxProperties"),
}
_APPLY = ("allOf", "anyOf", "oneOf", "not", "if", "dependentSchemas")
_DEEP = {
    "object": (
        *("properties", "properties", "patternProperties", "additionalProperties", "propertyNames"),
        *(*_APPLY, "unevaluatedProperties"),
    ),
    "array": ("items", "prefixItems", "contains", *_APPLY, "unevaluatedItems"),
    "": ("properties", "additionalProperties", "propertyNames", "items", "contains", *_APPLY),
}
_PARTS = frozenset(_DEEP["object"] + _DEEP["array"]) - frozenset((*_APPLY, "propertyNames"))
_TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")


def random_value(rng: random.Random, depth: int = 0) -> Any:
    """A value of any type, at most three deep."""
    match rng.randrange(8 if depth < 2 else 6):
        case 0:
            return rng.choice((None, True, False))
        case 1 | 2:
            return rng.choice((0, 1, 2, 3, -1, 6))
        case 3:
            return rng.choice((0.5, 1.0, 1.5, 2.0))
        case 4 | 5:
            return rng.choice(("", "a", "b", "ab", "abc", "c"))
        case 6:
            return [random_value(rng, depth + 1) for _ in range(rng.choice((0, 1, 1, 2, 2, 3)))]
    names = [rng.choice((*NAMES, "x")) for _ in range(rng.choice((0, 1, 1, 2, 2, 3)))]
    return {name: random_value(rng, depth + 1) for name in names}


def random_schema(rng: random.Random, *, references: bool = True) -> dict[str, Any]:
    """A schema of draft 2020-12 with up to three keywords on each of a few levels, and two definitions."""
    found = _Schemas(rng, references=references).at(0, inside=False)
    schema = found if isinstance(found, dict) else {}
    simple = _Schemas(rng, references=False)
    return {**schema, "$defs": {"p": simple.at(2, inside=False), "q": simple.at(2, inside=False)}}


class _Schemas:
    def __init__(self, rng: random.Random, *, references: bool) -> None:
        self._rng = rng
        self._references = references

    def at(self, depth: int, *, inside: bool) -> Any:
        """`inside`: it is for a part of the value, so that the whole schema may be asked of it again."""
        rng = self._rng
        chance = rng.random()
        if depth and chance < 0.09:
            return chance < 0.06
        if depth and self._references and chance < 0.15:
            return {"$ref": rng.choice(("#/$defs/p", "#/$defs/q", *(("#",) if inside else ())))}
        schema: dict[str, Any] = {}
        kind = ""
        if rng.random() < 0.6:
            kind = rng.choice(("string", "integer", "number", *("array", "object") * 3))
            schema["type"] = kind if rng.random() < 0.8 else rng.sample(_TYPES, 2)
        kind = kind if kind in _FLAT else ""
        for _ in range(rng.choice((0, 1, 1, 2, 2, 3))):
            flat = depth >= 3 or rng.random() < 0.35
            key = rng.choice(_FLAT[kind] if flat else _DEEP[kind])
            schema.update(self._flat(key) if flat else self._deep(key, depth + 1, inside=inside))
        return schema

    def _flat(self, key: str) -> dict[str, Any]:
        rng = self._rng
        few: dict[str, Any] = {
            "const": random_value(rng, 1),
            "enum": [random_value(rng, 1) for _ in range(rng.choice((1, 2, 3)))],
            "multipleOf": rng.choice((1, 2, 3, 0.5)),
            "pattern": rng.choice(PATTERNS),
            "uniqueItems": True,
            "required": rng.sample(NAMES, rng.choice((1, 1, 2))),
            "dependentRequired": {rng.choice(NAMES): rng.sample(NAMES, 1)},
        }
        return {key: few.get(key, rng.choice((0, 1, 2, 3)))}

    def _deep(self, key: str, depth: int, *, inside: bool) -> dict[str, Any]:
        rng = self._rng
        inside = inside or key in _PARTS
        if key in ("allOf", "anyOf", "oneOf", "prefixItems"):
            return {key: [self.at(depth, inside=inside) for _ in range(rng.choice((1, 2, 2, 3)))]}
        if key in ("properties", "patternProperties", "dependentSchemas"):
            names = rng.sample(PATTERNS if key == "patternProperties" else NAMES, rng.choice((1, 2, 2)))
            return {key: {name: self.at(depth, inside=inside) for name in names}}
        if key == "if":
            return {
                part: self.at(depth, inside=inside)
                for part in ("if", "then", "else")
                if part == "if" or rng.random() < 0.7
            }
        if key == "contains":
            bounds = {
                part: rng.choice((0, 1, 2)) for part in ("minContains", "maxContains") if rng.random() < 0.4
            }
            return {key: self.at(depth, inside=inside), **bounds}
        if key == "propertyNames" and rng.random() < 0.7:
            return {key: rng.choice(({"pattern": "^a"}, {"enum": ["a", "b"]}, {"not": {"const": "a"}}))}
        if key.startswith(("unevaluated", "additional")) and rng.random() < 0.5:
            return {key: False}
        return {key: self.at(depth, inside=inside)}
