"""What became of each keyword of a document, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from treille.runtime.schema.document import Document
from treille.runtime.schema.json_text import dumps
from treille.runtime.schema.nodes import Node
from treille.runtime.schema.values import INTEGER_OF_4

_MAX_ITEMS = 8  # of a list that is shown
_MAX_TEXT = 60  # characters of a value that are shown

_ONE = (
    *("not", "if", "then", "else", "contains", "items", "propertyNames"),
    *("additionalProperties", "unevaluatedItems", "unevaluatedProperties"),
)
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_MAPS = ("properties", "patternProperties", "dependentSchemas")

_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_STRINGS = ("minLength", "maxLength", "pattern", "format")
_ARRAYS = (
    *("prefixItems", "items", "contains", "minContains", "maxContains"),
    *("minItems", "maxItems", "uniqueItems", "unevaluatedItems"),
)
_OBJECTS = (
    *("properties", "patternProperties", "additionalProperties", "required", "minProperties"),
    *("maxProperties", "propertyNames", "dependentRequired", "dependentSchemas", "unevaluatedProperties"),
)
# Which types a keyword speaks of: where `type` allows none of them, it says nothing.
_SPEAKS_OF: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(_NUMBERS, ("number", "integer", INTEGER_OF_4)),
    **dict.fromkeys(_STRINGS, ("string",)),
    **dict.fromkeys(_ARRAYS, ("array",)),
    **dict.fromkeys(_OBJECTS, ("object",)),
}
_NEEDS = {"then": "if", "else": "if", "minContains": "contains", "maxContains": "contains"}

Say = Callable[[Any], str]


def _several(value: Any, what: str) -> str:
    return f"{len(value):,} {what}{'' if len(value) == 1 else 's'}"


def _rest(value: Any, what: str) -> str:
    return (
        f"no {what}"
        if value is False
        else f"any {what}"
        if value is True
        else f"every {what} is of the schema"
    )


_WORDS: Mapping[str, Say] = {
    "type": lambda value: (
        f"only values of {'this type' if isinstance(value, str) else 'these types'}"
        + ("; an integer has no fraction or exponent, as draft-04 has it" if INTEGER_OF_4 in value else "")
    ),
    "enum": lambda value: f"{_several(value, 'value')}, equal as JSON values",
    "const": lambda value: "one value, equal as a JSON value",
    "multipleOf": lambda value: "multiples, exact in decimal; an automaton over the digits",
    "minimum": lambda value: "a bound, exact in decimal",
    "maximum": lambda value: "a bound, exact in decimal",
    "exclusiveMinimum": lambda value: "a bound that is not in it, exact in decimal",
    "exclusiveMaximum": lambda value: "a bound that is not in it, exact in decimal",
    "minLength": lambda value: "code points of the value, counted however they are escaped",
    "maxLength": lambda value: "code points of the value, counted however they are escaped",
    "pattern": lambda value: "an automaton over the value: ECMA-262 with the flag u, found anywhere in it",
    "format": lambda value: "an automaton over the whole value",
    "prefixItems": lambda value: f"by place: {_several(value, 'item')}",
    "items": lambda value: _rest(value, "other item"),
    "contains": lambda value: "items that match are counted",
    "minContains": lambda value: "so many items that match, or more",
    "maxContains": lambda value: "at most so many items that match",
    "minItems": lambda value: "items are counted",
    "maxItems": lambda value: "items are counted",
    "uniqueItems": lambda value: (
        "no item equals one before it, as JSON values" if value else "nothing: items may be equal"
    ),
    "properties": lambda value: (
        f"{_several(value, 'key')} with a schema; an escaped spelling is the same key"
    ),
    "patternProperties": lambda value: f"{_several(value, 'pattern')} over keys, as automata",
    "additionalProperties": lambda value: _rest(value, "other key"),
    "required": lambda value: f"{_several(value, 'key')} that must come before the object ends",
    "minProperties": lambda value: "members are counted",
    "maxProperties": lambda value: "members are counted",
    "propertyNames": lambda value: "an automaton over every key, from the strings of the schema",
    "dependentRequired": lambda value: f"{_several(value, 'key')} that ask for others",
    "dependentSchemas": lambda value: (
        f"{_several(value, 'key')} that ask for a schema: with it, or without the key"
    ),
    "unevaluatedItems": lambda value: _rest(value, "item that no other keyword has looked at"),
    "unevaluatedProperties": lambda value: _rest(value, "key that no other keyword has looked at"),
    "allOf": lambda value: f"the intersection of {_several(value, 'schema')}",
    "anyOf": lambda value: f"the union of {_several(value, 'schema')}",
    "oneOf": lambda value: f"exactly one of {_several(value, 'schema')}: each, less the others",
    "not": lambda value: "the complement",
    "if": lambda value: "splits the values in two: for `then`, and for `else`",
    "then": lambda value: "intersected with `if`",
    "else": lambda value: "intersected with the complement of `if`",
}


@dataclass(frozen=True, slots=True)
class Told:
    """What became of a keyword: `kind` is "enforced", or "simplified" for one that says nothing where it
    stands. `value` is its value as JSON, where that is short."""

    pointer: str
    keyword: str
    value: str
    kind: str
    text: str


def keywords_told(document: Document, limit: int) -> tuple[list[Told], int]:
    """Every keyword that counts in a document, in the document's order, references last; at most `limit` of
    them, and how many there are."""
    told: list[Told] = []
    count = 0
    for node in reachable(document):
        if isinstance(node.schema, bool):
            continue
        for keyword, value in node.schema.items():
            found = _told(document, node, keyword, value)
            if found is not None:
                count += 1
                if count <= limit:
                    told.append(Told(node.place(keyword), keyword, _value_text(value), *found))
    return told, count


def reachable(document: Document) -> Iterator[Node]:
    """The schemas that may apply, each once: below the root, then below what references lead to."""
    seen: set[int] = set()
    ahead = [document.root]
    later: list[Node] = []
    while ahead or later:
        node = ahead.pop() if ahead else later.pop(0)
        if node.number in seen:
            continue
        seen.add(node.number)
        yield node
        if isinstance(node.schema, bool):
            continue
        ahead.extend(reversed([document.child(node, *path) for path in _paths(node.schema)]))
        if "$ref" in node.schema:
            later.append(document.target(node))
        if "$dynamicRef" in node.schema or "$recursiveRef" in node.schema:
            later.append(document.dynamic_target(node, document.enter((), document.root)))


def _value_text(value: object) -> str:
    """A keyword's value, if it is short and holds no schemas."""
    if isinstance(value, dict) or (
        isinstance(value, list) and (len(value) > _MAX_ITEMS or not _is_flat(value))
    ):
        return ""
    text = dumps(value, spaced=True)
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 3] + "..."


def _is_flat(values: list[object]) -> bool:
    return not any(isinstance(one, (dict, list)) for one in values)


def _paths(schema: Mapping[str, Any]) -> Iterator[tuple[str | int, ...]]:
    for keyword, value in schema.items():
        if keyword in _ONE:
            yield (keyword,)
        elif keyword in _LISTS:
            yield from ((keyword, place) for place in range(len(value)))
        elif keyword in _MAPS:
            yield from ((keyword, name) for name in value)


def _told(document: Document, node: Node, keyword: str, value: Any) -> tuple[str, str] | None:
    schema = node.schema
    if isinstance(schema, bool):
        return None
    if keyword == "$ref":
        return "enforced", f"the same values as {document.target(node).pointer}"
    if keyword in ("$dynamicRef", "$recursiveRef"):
        return "enforced", "the same values as what it leads to from where the value is"
    say = _WORDS.get(keyword)
    if say is None:
        return None
    needed = _NEEDS.get(keyword)
    if needed is not None and needed not in schema:
        return "simplified", f"says nothing without {needed}"
    kinds = schema.get("type")
    about = _SPEAKS_OF.get(keyword)
    if kinds is not None and about is not None:
        allowed = {kinds} if isinstance(kinds, str) else set(kinds)
        if allowed.isdisjoint(about):
            return "simplified", f"says nothing: it is about {about[0]}s, and `type` allows none"
    return "enforced", say(value)
