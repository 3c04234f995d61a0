"""What can be said of literals at sight: kinds and values that they let through, and which ask the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable
from dataclasses import dataclass

from treille.runtime.schema.bases import FLAT, MAX_ALIKE, TRUE, UNEVALUATED, VALUE_KEYWORDS, Base, Bases
from treille.runtime.schema.document import Document
from treille.runtime.schema.values import ANY_KIND, canonical, kind_of, kind_of_canonical, mask_of

_SUMMARY_DEPTH = 8
_SUMMARY_EFFORT = 256
_ALIKE_DEPTH = 48
_ALIKE_EFFORT = 4096


@dataclass(frozen=True, slots=True)
class Summary:
    """All that a literal lets through has a kind in `mask` and is among `values` (None: may be any).
    `exact`: it lets through all of that."""

    mask: int = ANY_KIND
    values: frozenset[Hashable] | None = None
    exact: bool = False


_OPEN = Summary()


class Summaries(Bases):
    """Literals of which something can be said at sight, with little effort; never more than is so."""

    def __init__(self, document: Document) -> None:
        super().__init__(document)
        self._summaries: dict[int, Summary] = {}
        self._firsts: dict[int, int] = {}
        self._within: set[int] = set()
        self._effort = 0

    def summary(self, literal: int) -> Summary:
        """What can be said at sight of the positive form of a literal."""
        found = self._summaries.get(literal >> 1)
        if found is None:
            self._effort = _SUMMARY_EFFORT
            found = self._summaries[literal >> 1] = self._summarised(literal & ~1, _SUMMARY_DEPTH)
        return found

    def first_alike(self, literal: int) -> int:
        """The first literal that is seen to ask the same."""
        found = self._firsts.get(literal >> 1)
        if found is None:
            self._effort = _ALIKE_EFFORT
            self._within = {literal >> 1}
            found = self._first(literal & ~1, _ALIKE_DEPTH)
            if self._effort < 0:
                found = self._first_of_text(found)
            self._firsts[literal >> 1] = found
        return found ^ (literal & 1)

    def _first(self, literal: int, depth: int) -> int:
        base = self.bases[literal >> 1]
        self._effort -= len(base.keys)
        if base.node is None or isinstance(base.node.schema, bool):
            return literal
        if not depth or self._effort < 0:
            self._effort = -1
            return literal
        parts: list[Hashable] = []
        for key in sorted(base.keys):
            value = base.node.schema[key]
            if key in FLAT:
                parts.append((key, canonical(value)))
            elif key in (
                "additionalProperties",
                "items",
                "contains",
                "propertyNames",
                "not",
                "if",
                *UNEVALUATED,
            ):
                parts.append((key, self._first_below(base, depth, key)))
                if key == "if":
                    for branch in ("then", "else"):
                        if branch in base.node.schema:
                            parts.append((branch, self._first_below(base, depth, branch)))
            elif key in ("properties", "patternProperties", "dependentSchemas"):
                if self._effort < len(value):
                    self._effort = -1
                    return literal
                below = [(name, self._first_below(base, depth, key, name)) for name in value]
                parts.append((key, frozenset(below)))
            elif key in ("prefixItems", "allOf", "anyOf", "oneOf"):
                if self._effort < len(value):
                    self._effort = -1
                    return literal
                parts.append(
                    (key, tuple(self._first_below(base, depth, key, at) for at in range(len(value))))
                )
            else:
                return literal
        if "contains" in base.keys:
            parts.append(tuple(base.node.schema.get(key) for key in ("minContains", "maxContains")))
            parts.append(base.node.draft.value)
        return self._alike.setdefault(("schema", *parts), literal)

    def _first_of_text(self, literal: int) -> int:
        """The first literal of a schema with the same text in the same resource."""
        base = self.bases[literal >> 1]
        if base.node is None:
            return literal
        text = json.dumps(base.node.raw, default=repr)
        digest = hashlib.sha256(text.encode(errors="surrogatepass")).digest()
        key = ("text", base.node.resource, base.node.draft, base.scope, digest)
        return self._alike.setdefault(key, literal)

    def _first_below(self, base: Base, depth: int, *path: str | int) -> int:
        literal = self.child(base, *path)
        place = literal >> 1
        found = self._firsts.get(place)
        if found is None:
            if place in self._within:
                return literal  # it contains itself
            self._within.add(place)
            found = self._first(literal & ~1, depth - 1)
            self._within.discard(place)
            if self._effort >= 0:
                self._firsts[place] = found
        return found ^ (literal & 1)

    def _summarised(self, literal: int, depth: int) -> Summary:
        base = self.bases[literal >> 1]
        if base.node is None:
            return self._summary_of_plain(base, literal, depth)
        schema = base.node.schema
        self._effort -= 1
        if isinstance(schema, bool) or not depth or self._effort < 0:
            return _OPEN
        mask, values = ANY_KIND, None
        for key in base.keys:
            if key == "type":
                mask &= mask_of(schema["type"])
            elif key in ("const", "enum"):
                members = schema["enum"] if key == "enum" else (schema["const"],)
                found = frozenset(canonical(member) for member in members)
                values = found if values is None else values & found
            elif key == "$ref":
                below = self._summary_of(self.of_node(self.document.target(base.node), base.scope), depth - 1)
                mask, values = _narrowed(mask, values, below)
            elif key == "allOf" and len(schema[key]) <= MAX_ALIKE:
                for place in range(len(schema[key])):
                    below = self._summary_of(self.child(base, key, place), depth - 1)
                    mask, values = _narrowed(mask, values, below)
            elif key in ("anyOf", "oneOf") and len(schema[key]) <= MAX_ALIKE:
                parts = [
                    self._summary_of(self.child(base, key, at), depth - 1) for at in range(len(schema[key]))
                ]
                mask, values = _narrowed(mask, values, _any_of(parts))
        exact = all(key in VALUE_KEYWORDS for key in base.keys)
        if values is not None:
            values = frozenset(value for value in values if kind_of_canonical(value) & mask)
            seen = 0
            for value in values:
                seen |= kind_of_canonical(value)
            exact = exact and not seen & ~mask  # with any spelling of the values
            mask &= seen
        return Summary(mask, values, exact=exact)

    def _summary_of(self, literal: int, depth: int) -> Summary:
        """What can be said of a literal, negated or not, without keeping it: it may be cut short."""
        found = self._summaries.get(literal >> 1)
        if found is None:
            found = self._summarised(literal & ~1, depth)
        if not literal & 1:
            return found
        if found.exact and found.values is None:
            return Summary(ANY_KIND & ~found.mask, None, exact=True)
        return _OPEN

    def _summary_of_plain(self, base: Base, literal: int, depth: int) -> Summary:
        if base.keys:
            return Summary(kind_of(base.value), frozenset((canonical(base.value),)), exact=True)
        if not depth:
            return _OPEN
        if literal == TRUE:
            return Summary(exact=True)
        return _any_of([self._summary_of(part, depth - 1) for part in base.parts])


def _narrowed(
    mask: int, values: frozenset[Hashable] | None, below: Summary
) -> tuple[int, frozenset[Hashable] | None]:
    if below.values is not None:
        values = below.values if values is None else values & below.values
    return mask & below.mask, values


def _any_of(parts: list[Summary]) -> Summary:
    mask = 0
    values: frozenset[Hashable] | None = frozenset()
    for part in parts:
        mask |= part.mask
        values = None if values is None or part.values is None else values | part.values
    return Summary(mask, values)
