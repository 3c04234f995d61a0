"""Schemas that have a value as can be seen at sight, so that a template of thousands is not worked out to
know it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from treille.runtime.schema.bases import (
    ARRAY_KEYWORDS,
    FALSE,
    NUMBER_KEYWORDS,
    OBJECT_KEYWORDS,
    STRING_KEYWORDS,
    TRUE,
    Base,
)
from treille.runtime.schema.literals import Literals
from treille.runtime.schema.values import (
    ANY_KIND,
    ARRAY,
    BOOLEAN,
    NULL,
    NUMBER,
    OBJECT,
    STRING,
    is_spellable,
    kind_of,
    mask_of,
)

_DEPTH = 24


class Plain:
    """Says of a literal that it has a value, where that needs no more than a look."""

    def __init__(self, literals: Literals) -> None:
        self._literals = literals
        self._known: dict[int, bool] = {TRUE: True, FALSE: False}

    def set_is_plain(self, number: int) -> bool:
        """Whether a set surely has a value."""
        members = self._literals.sets[number]
        return len(members) == 1 and self.is_plain(members[0])

    def is_plain(self, literal: int, depth: int = _DEPTH) -> bool:
        """Whether a literal surely has a value; False if that cannot be told."""
        found = self._known.get(literal)
        if found is None:
            self._known[literal] = False  # until it is known, for what leads back here
            found = self._known[literal] = depth > 0 and not literal & 1 and self._look(literal, depth)
        return found

    def _look(self, literal: int, depth: int) -> bool:
        base = self._literals.bases[literal >> 1]
        if base.node is None:
            return bool(base.keys) and is_spellable(base.value)
        schema = base.node.schema
        if isinstance(schema, bool):
            return schema
        mask = mask_of(schema["type"]) if "type" in schema else ANY_KIND
        left = [key for key in base.keys if key != "type"]
        if not left:
            return True
        if len(left) == 1:
            if left[0] in ("anyOf", "oneOf"):
                return self._some_branch(base, left[0], mask, depth)
            if left[0] in ("const", "enum"):
                values = schema["enum"] if left[0] == "enum" else (schema["const"],)
                return any(kind_of(value) & mask and is_spellable(value) for value in values)
        return self._some_kind(base, schema, left, mask, depth)

    def _some_branch(self, base: Base, key: str, mask: int, depth: int) -> bool:
        """Whether a value of one branch is surely of none of the others, where that matters, and of these
        kinds."""
        if base.node is None or isinstance(base.node.schema, bool):
            return False
        branches = [self._literals.child(base, key, place) for place in range(len(base.node.schema[key]))]
        masks = [ANY_KIND if one & 1 else self._literals.summary(one).mask for one in branches]
        for place, one in enumerate(branches):
            if masks[place] & ~mask or not self.is_plain(one, depth - 1):
                continue
            if key == "anyOf" or not any(
                masks[place] & rival for at, rival in enumerate(masks) if at != place
            ):
                return True
        return False

    def _some_kind(
        self, base: Base, schema: Mapping[str, Any], left: list[str], mask: int, depth: int
    ) -> bool:
        """Whether a value of some kind surely passes, if there are no keywords but those of kinds."""
        if not all(key in _OF_KINDS for key in left):
            return False
        if mask & (NULL | BOOLEAN) or (mask & NUMBER and not any(key in NUMBER_KEYWORDS for key in left)):
            return True
        if mask & STRING and not ("pattern" in left or "format" in left):
            return int(schema.get("minLength", 0)) <= schema.get("maxLength", schema.get("minLength", 0))
        if mask & OBJECT and self._object(base, schema, left, depth):
            return True
        return bool(mask & ARRAY) and not schema.get("minItems") and "contains" not in left

    def _object(self, base: Base, schema: Mapping[str, Any], left: list[str], depth: int) -> bool:
        if schema.get("minProperties"):
            return False
        required = schema.get("required", ())
        if not required:
            return True
        if any(
            key in left
            for key in ("maxProperties", "propertyNames", "patternProperties", "dependentRequired")
        ):
            return False
        properties = schema.get("properties", {})
        for name in required:
            if name in properties:
                if not self.is_plain(self._literals.child(base, "properties", name), depth - 1):
                    return False
            elif "additionalProperties" in left:
                return False
        return True


_OF_KINDS = NUMBER_KEYWORDS | STRING_KEYWORDS | ARRAY_KEYWORDS | OBJECT_KEYWORDS
