"""What the nodes of a document ask of a value, by the letter of 2020-12: a slow twin for tests.

It knows no draft but the one dialect, so that a suite of another draft tests how documents are put in it.
Formats are annotations here, patterns are Python's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any

from treille.runtime.schema.document import Document, Node, Scope
from treille.runtime.schema.values import INTEGER_OF_4


@dataclass
class Outcome:
    """Whether a value is valid, and which of its members and items were evaluated."""

    is_valid: bool = True
    names: set[str] = field(default_factory=set)
    places: set[int] = field(default_factory=set)

    def take(self, other: Outcome) -> None:
        if other.is_valid:
            self.names |= other.names
            self.places |= other.places


def is_valid(document: Document, value: Any) -> bool:
    """Whether a value is valid. Numbers are int or Decimal."""
    return Evaluation(document).node(document.root, (), value).is_valid


def kind_of(value: Any) -> str:
    if value is None:
        return "null"
    kinds: Mapping[type, str] = {bool: "boolean", str: "string", list: "array", dict: "object"}
    return kinds.get(type(value), "number")


def same(left: Any, right: Any) -> bool:
    """Whether two JSON values are equal."""
    kind = kind_of(left)
    if kind != kind_of(right):
        return False
    if kind == "array":
        return len(left) == len(right) and all(map(same, left, right))
    if kind == "object":
        return left.keys() == right.keys() and all(same(left[name], right[name]) for name in left)
    return bool(left == right)


class Evaluation:
    """One document's values."""

    def __init__(self, document: Document) -> None:
        self.document = document

    def node(self, node: Node, scope: Scope, value: Any) -> Outcome:
        scope = self.document.enter(scope, node)
        schema = node.schema
        outcome = Outcome()
        if isinstance(schema, bool):
            return Outcome(is_valid=schema)
        below = self._below(node, scope)
        parts = [
            self._references(node, scope, value, outcome),
            self._in_place(schema, below, value, outcome),
            any_value(schema, value),
        ]
        kind = kind_of(value)
        if kind == "number":
            parts.append(a_number(schema, value))
        elif kind == "string":
            parts.append(a_string(schema, value))
        elif kind == "array":
            parts.append(self._array(schema, below, value, outcome))
        elif kind == "object":
            parts.append(self._object(schema, below, value, outcome))
        outcome.is_valid = all(parts)
        return outcome

    def _below(self, node: Node, scope: Scope) -> Callable[..., Outcome]:
        def below(value: Any, *path: str | int) -> Outcome:
            return self.node(self.document.child(node, *path), scope, value)

        return below

    def _references(self, node: Node, scope: Scope, value: Any, outcome: Outcome) -> bool:
        targets = []
        if isinstance(node.schema, Mapping):
            if "$ref" in node.schema:
                targets.append(self.document.target(node))
            if "$dynamicRef" in node.schema or "$recursiveRef" in node.schema:
                targets.append(self.document.dynamic_target(node, scope))
        found = [self.node(target, scope, value) for target in targets]
        for each in found:
            outcome.take(each)
        return all(each.is_valid for each in found)

    def _in_place(
        self, schema: Mapping[str, Any], below: Callable[..., Outcome], value: Any, outcome: Outcome
    ) -> bool:
        valid = True
        for key, ok in (("allOf", all), ("anyOf", any), ("oneOf", lambda each: sum(each) == 1)):
            if key in schema:
                found = [below(value, key, place) for place in range(len(schema[key]))]
                valid &= ok([each.is_valid for each in found])
                for each in found:
                    outcome.take(each)
        if "not" in schema:
            valid &= not below(value, "not").is_valid
        if "if" in schema:
            condition = below(value, "if")
            outcome.take(condition)
            key = "then" if condition.is_valid else "else"
            if key in schema:
                found_then = below(value, key)
                outcome.take(found_then)
                valid &= found_then.is_valid
        for name in schema.get("dependentSchemas", ()):
            if isinstance(value, dict) and name in value:
                each = below(value, "dependentSchemas", name)
                outcome.take(each)
                valid &= each.is_valid
        return valid

    def _array(
        self, schema: Mapping[str, Any], below: Callable[..., Outcome], value: Sequence[Any], outcome: Outcome
    ) -> bool:
        valid = schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))
        prefix = min(len(schema.get("prefixItems", ())), len(value))
        for place in range(prefix):
            valid &= below(value[place], "prefixItems", place).is_valid
        outcome.places.update(range(prefix))
        if "items" in schema:
            valid &= all(below(item, "items").is_valid for item in value[prefix:])
            outcome.places.update(range(len(value)))
        if "contains" in schema:
            found = {place for place, item in enumerate(value) if below(item, "contains").is_valid}
            valid &= schema.get("minContains", 1) <= len(found) <= schema.get("maxContains", len(found))
            self._contained(outcome, found)
        if schema.get("uniqueItems"):
            pairs = ((left, right) for place, left in enumerate(value) for right in value[:place])
            valid &= not any(same(left, right) for left, right in pairs)
        if "unevaluatedItems" in schema:
            rest = [item for place, item in enumerate(value) if place not in outcome.places]
            valid &= all(below(item, "unevaluatedItems").is_valid for item in rest)
            outcome.places.update(range(len(value)))
        return valid

    def _contained(self, outcome: Outcome, found: set[int]) -> None:
        """Since 2020-12 `contains` evaluates the items that count."""
        if self.document.root.draft.name == "D2020":
            outcome.places |= found

    def _object(
        self,
        schema: Mapping[str, Any],
        below: Callable[..., Outcome],
        value: Mapping[str, Any],
        outcome: Outcome,
    ) -> bool:
        valid = schema.get("minProperties", 0) <= len(value) <= schema.get("maxProperties", len(value))
        valid &= all(name in value for name in schema.get("required", ()))
        for name, needed in schema.get("dependentRequired", {}).items():
            valid &= name not in value or all(other in value for other in needed)
        own: set[str] = set()
        for name, member in value.items():
            if name in schema.get("properties", ()):
                own.add(name)
                valid &= below(member, "properties", name).is_valid
            for pattern in schema.get("patternProperties", ()):
                if re.search(pattern, name):
                    own.add(name)
                    valid &= below(member, "patternProperties", pattern).is_valid
            if "additionalProperties" in schema and name not in own:
                own.add(name)
                valid &= below(member, "additionalProperties").is_valid
            if "propertyNames" in schema:
                valid &= below(name, "propertyNames").is_valid
        outcome.names |= own
        if "unevaluatedProperties" in schema:
            rest = [member for name, member in value.items() if name not in outcome.names]
            valid &= all(below(member, "unevaluatedProperties").is_valid for member in rest)
            outcome.names.update(value)
        return valid


def any_value(schema: Mapping[str, Any], value: Any) -> bool:
    types = schema.get("type", [kind_of(value)])
    kinds = {kind_of(value)}
    if kinds == {"number"} and value == int(value):
        kinds |= {"integer", INTEGER_OF_4} if isinstance(value, int) else {"integer"}
    return (
        bool(kinds & set([types] if isinstance(types, str) else types))
        and ("const" not in schema or same(schema["const"], value))
        and ("enum" not in schema or any(same(each, value) for each in schema["enum"]))
    )


def a_number(schema: Mapping[str, Any], value: int | Decimal) -> bool:
    return (
        value >= schema.get("minimum", value)
        and value <= schema.get("maximum", value)
        and value > schema.get("exclusiveMinimum", value - 1)
        and value < schema.get("exclusiveMaximum", value + 1)
        and (Fraction(value) / Fraction(schema.get("multipleOf", value or 1))).denominator == 1
    )


def a_string(schema: Mapping[str, Any], value: str) -> bool:
    bounded = schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))
    return bounded and bool(re.search(schema.get("pattern", ""), value))
