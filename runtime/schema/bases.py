"""Literals: a schema that must hold, or must not, as one number.

A literal and its negation differ in the last bit. Schemas that say nothing but that another must hold (a
plain `$ref`, a `not`, an `allOf` of one) have that one's literal, and small ones that ask the same share
theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from treille.runtime.errors import InvalidConstraint
from treille.runtime.schema.document import Document
from treille.runtime.schema.nodes import Node
from treille.runtime.schema.values import canonical

Scope = tuple[int, ...]
Schema = Mapping[str, Any]

TRUE, FALSE = 0, 1
EVERYTHING, NOTHING = 0, 1
"""The literals, and the sets, of all values and of none."""

NUMBER_KEYWORDS = frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"))
STRING_KEYWORDS = frozenset(("minLength", "maxLength", "pattern", "format"))
ARRAY_KEYWORDS = frozenset(("minItems", "maxItems", "uniqueItems", "prefixItems", "items", "contains"))
OBJECT_KEYWORDS = frozenset(
    (
        "properties",
        "patternProperties",
        "additionalProperties",
        "required",
        "minProperties",
        "maxProperties",
        "propertyNames",
        "dependentRequired",
    )
)
VALUE_KEYWORDS = frozenset(("type", "const", "enum"))
REFERENCES = frozenset(("$ref", "$dynamicRef", "$recursiveRef"))
IN_PLACE = REFERENCES | {"allOf", "anyOf", "oneOf", "not", "if", "dependentSchemas"}
UNEVALUATED = frozenset(("unevaluatedProperties", "unevaluatedItems"))
LOCAL = NUMBER_KEYWORDS | STRING_KEYWORDS | ARRAY_KEYWORDS | OBJECT_KEYWORDS | VALUE_KEYWORDS
KEYWORDS = LOCAL | IN_PLACE | UNEVALUATED
# Keywords without schemas in them: nodes that have no other are alike wherever they stand.
FLAT = LOCAL - {
    "prefixItems",
    "items",
    "contains",
    "properties",
    "patternProperties",
    "additionalProperties",
    "propertyNames",
}
_SETTLED = frozenset(("type", "const", "enum", "properties"))  # alone they are no other schema
MAX_ALIKE = 64


@dataclass(frozen=True, slots=True, eq=False)
class Base:
    """What a literal and its negation are about: a schema with the keywords `keys` that matter, in a
    dynamic scope; or a value that is meant (`node` is None, `keys` is ("const",)); or that one of `parts`
    (literals) holds (`node` is None, `keys` is empty)."""

    node: Node | None
    scope: Scope = ()
    keys: tuple[str, ...] = ()
    value: object = None
    parts: tuple[int, ...] = ()


def schema_of(base: Base) -> Schema:
    """The keywords of a base. Raises ValueError for one that is not of a node."""
    if base.node is None or isinstance(base.node.schema, bool):
        raise ValueError("it has no keywords")
    return base.node.schema


def origin(base: Base, key: str) -> tuple[str, str]:
    """A keyword of a base and its pointer."""
    return key, "#" if base.node is None else base.node.place(key)


def bounds(schema: Schema, low: str, high: str) -> tuple[int, int | None]:
    """The values of two keywords that bound a count; 0 and None where they are not there."""
    most = schema.get(high)
    return int(schema.get(low, 0)), None if most is None else int(most)


class Bases:
    """The literals of one document, and what each is about: `bases[literal >> 1]`."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.bases: list[Base] = [Base(None)]
        self._literals: dict[tuple[int, Scope], int] = {}
        self._types: dict[str, int] = {}
        self._alike: dict[Hashable, int] = {}

    def of_node(self, node: Node, scope: Scope) -> int:
        """The literal of a schema that is reached in a dynamic scope. Raises `InvalidConstraint` for
        references that go round in a circle."""
        scope = self.document.enter(scope, node)
        key = (node.number, scope)
        found = self._literals.get(key)
        if found is None:
            found = self._literals[key] = self._new(node, scope)
        return found

    def child(self, base: Base, *path: str | int) -> int:
        """The literal of a schema below another."""
        if base.node is None:
            raise ValueError("a value has no schemas below it")
        return self.of_node(self.document.child(base.node, *path), base.scope)

    def constant(self, value: object) -> int:
        """The literal that a value equals this one."""
        return self._interned(("const", canonical(value)), lambda: Base(None, keys=("const",), value=value))

    def either(self, parts: Iterable[int]) -> int:
        """The literal that one of these literals holds."""
        few = sorted(set(parts) - {FALSE})
        if TRUE in few or any(part ^ 1 in few for part in few):
            return TRUE
        if len(few) < 2:
            return few[0] if few else FALSE
        return self._interned(("or", *few), lambda: Base(None, parts=tuple(few)))

    def pointer(self, literal: int) -> str:
        """Where the schema of a literal stands."""
        node = self.bases[literal >> 1].node
        return "#" if node is None else node.pointer

    def _interned(self, key: Hashable, make: Callable[[], Base]) -> int:
        found = self._alike.get(key)
        if found is None:
            found = self._alike[key] = self._added(make())
        return found

    def _added(self, base: Base) -> int:
        self.bases.append(base)
        return 2 * len(self.bases) - 2

    def _new(self, node: Node, scope: Scope) -> int:
        """The literal of a schema; one that only says another must (or must not) hold is that other."""
        schema = node.schema
        if not isinstance(schema, bool) and "type" in schema:
            kinds = schema["type"]
            if isinstance(kinds, str) and [key for key in schema if key in KEYWORDS] == ["type"]:
                found = self._types.get(kinds)
                if found is None:
                    found = self._types[kinds] = self._added(Base(node, (), ("type",)))
                return found
        negated = 0
        passed: set[tuple[int, Scope]] = set()
        while True:
            if isinstance(node.schema, bool):
                return (TRUE if node.schema else FALSE) ^ negated
            keys = self.keys_of(node)
            if not keys:
                return TRUE ^ negated
            if len(keys) == 1 and keys[0] in _SETTLED:
                break
            onward = self._only_another(node, scope, keys)
            if onward is None:
                break
            if (node.number, scope) in passed:
                raise circular(node.pointer)
            passed.add((node.number, scope))
            negated ^= keys[0] == "not"
            scope = self.document.enter(scope, onward)
            node = onward
            found = self._literals.get((node.number, scope))
            if found is not None:
                return found ^ negated
        return self._settled(node, scope, keys) ^ negated

    def keys_of(self, node: Node) -> tuple[str, ...]:
        """The keywords of a schema that ask something."""
        schema = node.schema
        if isinstance(schema, bool):
            return ()
        keys = tuple([key for key in schema if key in KEYWORDS])
        if "format" in keys and schema["format"] not in self.document.formats:
            keys = tuple(key for key in keys if key != "format")
        return keys

    def _only_another(self, node: Node, scope: Scope, keys: tuple[str, ...]) -> Node | None:
        """The schema that this one stands for, if it has no keyword but a reference or the like."""
        if len(keys) != 1:
            return None
        if keys[0] == "$ref":
            return self.document.target(node)
        if keys[0] in REFERENCES:
            return self.document.dynamic_target(node, scope)
        if keys[0] == "not":
            return self.document.child(node, "not")
        schema = node.schema
        if (
            keys[0] in ("allOf", "anyOf", "oneOf")
            and not isinstance(schema, bool)
            and len(schema[keys[0]]) == 1
        ):
            return self.document.child(node, keys[0], 0)
        return None

    def _settled(self, node: Node, scope: Scope, keys: tuple[str, ...]) -> int:
        schema = node.schema
        alike: Hashable = None
        if keys == ("type",) and not isinstance(schema, bool) and isinstance(schema["type"], str):
            return self._new(node, ())
        if not isinstance(schema, bool) and all(key in FLAT for key in keys):
            if keys == ("const",):
                alike = keys[0], canonical(schema["const"])
            elif not any(isinstance(schema[k], (list, dict)) and len(schema[k]) > MAX_ALIKE for k in keys):
                alike = tuple((key, canonical(schema[key])) for key in sorted(keys))
            scope = ()
        key = (node.number, scope)
        found = self._literals.get(key)
        if found is None and alike is not None:
            found = self._alike.get(alike)
        if found is None:
            found = self._added(Base(node, scope, keys))
            if alike is not None:
                self._alike[alike] = found
        self._literals[key] = found
        return found


def circular(pointer: str) -> InvalidConstraint:
    """The error for a schema that asks only that it hold itself."""
    reason = "the schema leads back to itself without a step into the value, so it never says what it allows"
    return InvalidConstraint(f"{pointer}: {reason}", field="schema")
