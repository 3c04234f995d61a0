"""Literals and sets: what is asked of a value, each as one number.

A literal is a schema that must hold, or must not; a set is a conjunction of literals. Equal ones have the same
number, a literal and its negation differ in the last bit, and what contradicts itself at sight is `NOTHING`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

from treille.runtime.errors import InvalidConstraint, UnsupportedConstraint
from treille.runtime.schema.document import Document
from treille.runtime.schema.nodes import Node
from treille.runtime.schema.values import ANY_KIND, ARRAY, KINDS, OBJECT, STRING, canonical, kind_of

Scope = tuple[int, ...]

TRUE, FALSE = 0, 1
EVERYTHING, NOTHING = 0, 1
"""The literals, and the sets, of all values and of none."""

NUMBER_KEYWORDS = frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"))
STRING_KEYWORDS = frozenset(("minLength", "maxLength", "pattern", "format"))
ARRAY_KEYWORDS = frozenset(("minItems", "maxItems", "uniqueItems", "prefixItems", "items", "contains"))
OBJECT_KEYWORDS = frozenset(
    (
        "properties", "patternProperties", "additionalProperties", "required", "minProperties", "maxProperties",
        "propertyNames", "dependentRequired",
    )
)  # fmt: skip
VALUE_KEYWORDS = frozenset(("type", "const", "enum"))
REFERENCES = frozenset(("$ref", "$dynamicRef", "$recursiveRef"))
IN_PLACE = REFERENCES | {"allOf", "anyOf", "oneOf", "not", "if", "dependentSchemas"}
UNEVALUATED = frozenset(("unevaluatedProperties", "unevaluatedItems"))
LOCAL = NUMBER_KEYWORDS | STRING_KEYWORDS | ARRAY_KEYWORDS | OBJECT_KEYWORDS | VALUE_KEYWORDS
KEYWORDS = LOCAL | IN_PLACE | UNEVALUATED
# Keywords without schemas in them: nodes that have no other are alike wherever they stand.
_FLAT = LOCAL - {
    "prefixItems", "items", "contains", "properties", "patternProperties", "additionalProperties", "propertyNames",
}  # fmt: skip
_SETTLED = frozenset(("type", "const", "enum", "properties"))  # alone they are no other schema
_MAX_ALIKE = 64
_SUMMARY_DEPTH = 8
_SUMMARY_EFFORT = 256
_ALIKE_DEPTH = 6
_ALIKE_EFFORT = 64


@dataclass(frozen=True, slots=True, eq=False)
class Base:
    """What a literal and its negation are about: a schema with the keywords `keys` that matter, in a dynamic
    scope; or a value that is meant (`node` is None, `keys` is ("const",)); or that one of `parts` (literals) holds
    (`node` is None, `keys` is empty)."""

    node: Node | None
    scope: Scope = ()
    keys: tuple[str, ...] = ()
    value: object = None
    parts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Summary:
    """All that a literal lets through has a kind in `mask` and is among `values` (None: may be any). `exact`: it
    lets through all of that. A negated literal has what it rules out in `without` and `ruled_out`."""

    mask: int = ANY_KIND
    values: frozenset[Hashable] | None = None
    exact: bool = False


_OPEN = Summary()


class Literals:
    """The literals and sets of one document."""

    def __init__(self, document: Document, *, max_sets: int = 200_000) -> None:
        self.document = document
        self.bases: list[Base] = [Base(None)]
        self.sets: list[tuple[int, ...]] = [(), (FALSE,)]
        self._max_sets = max_sets
        self._literals: dict[tuple[int, Scope], int] = {}
        self._alike: dict[Hashable, int] = {}
        self._numbers: dict[tuple[int, ...], int] = {(): EVERYTHING, (FALSE,): NOTHING}
        self._singles: dict[int, int] = {TRUE: EVERYTHING, FALSE: NOTHING}
        self._meets: dict[tuple[int, int], int] = {}
        self._summaries: dict[int, Summary] = {}
        self._firsts: dict[int, int] = {}
        self._effort = 0

    def of_node(self, node: Node, scope: Scope) -> int:
        """The literal of a schema that is reached in a dynamic scope. Raises `InvalidConstraint` for references
        that go round in a circle."""
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

    def single(self, literal: int) -> int:
        """The set of one literal."""
        found = self._singles.get(literal)
        if found is None:
            found = self._singles[literal] = self._numbered((literal,))
        return found

    def meet(self, one: int, other: int) -> int:
        """The set of what is in both sets."""
        if one == other or other == EVERYTHING:
            return one
        if one == EVERYTHING:
            return other
        if one == NOTHING or other == NOTHING:
            return NOTHING
        key = (one, other) if one < other else (other, one)
        found = self._meets.get(key)
        if found is None:
            found = self._meets[key] = self.together((*self.sets[one], *self.sets[other]))
        return found

    def is_within(self, one: int, other: int) -> bool:
        """Whether the values of a set are surely all in another."""
        if one == other or one == NOTHING or other == EVERYTHING:
            return True
        return set(self.sets[other]) <= set(self.sets[one])

    def together(self, literals: Iterable[int]) -> int:
        """The set of what holds all of these literals."""
        wanted = set(literals)
        if len(wanted) > 1:
            wanted = {self._first_alike(literal) for literal in wanted}
        wanted.discard(TRUE)
        if FALSE in wanted or any(literal ^ 1 in wanted for literal in wanted):
            return NOTHING
        if len(wanted) > 1:
            wanted = self._plainer(wanted)
        if len(wanted) == 1:
            return self.single(wanted.pop())
        return self._numbered(tuple(sorted(wanted)))

    def pointer(self, literal: int) -> str:
        """Where the schema of a literal stands."""
        node = self.bases[literal >> 1].node
        return "#" if node is None else node.pointer

    def summary(self, literal: int) -> Summary:
        """What can be said at sight of the positive form of a literal."""
        found = self._summaries.get(literal >> 1)
        if found is None:
            self._effort = _SUMMARY_EFFORT
            found = self._summaries[literal >> 1] = self._summarised(literal & ~1, _SUMMARY_DEPTH)
        return found

    def _numbered(self, key: tuple[int, ...]) -> int:
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.sets)
            self.sets.append(key)
            if found > self._max_sets:
                reason = f"its parts meet in more than {self._max_sets} ways"
                raise UnsupportedConstraint("schema", self.pointer(key[0]), reason, field="schema")
        return found

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
            return self._interned(("type", schema["type"]), lambda: Base(node, (), keys))
        if not isinstance(schema, bool) and all(key in _FLAT for key in keys):
            if keys == ("const",):
                alike = keys[0], canonical(schema["const"])
            elif not any(isinstance(schema[k], (list, dict)) and len(schema[k]) > _MAX_ALIKE for k in keys):
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

    def _first_alike(self, literal: int) -> int:
        """The first literal that is seen to ask the same, by the text of small schemas."""
        found = self._firsts.get(literal >> 1)
        if found is None:
            self._effort = _ALIKE_EFFORT
            found = self._firsts[literal >> 1] = self._first(literal & ~1, _ALIKE_DEPTH)
        return found ^ (literal & 1)

    def _first(self, literal: int, depth: int) -> int:
        base = self.bases[literal >> 1]
        self._effort -= len(base.keys)
        if base.node is None or isinstance(base.node.schema, bool) or not depth or self._effort < 0:
            return literal
        parts: list[Hashable] = []
        for key in sorted(base.keys):
            value = base.node.schema[key]
            if key in _FLAT:
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
                    return literal
                below = [(name, self._first_below(base, depth, key, name)) for name in value]
                parts.append((key, frozenset(below)))
            elif key in ("prefixItems", "allOf", "anyOf", "oneOf"):
                if self._effort < len(value):
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

    def _first_below(self, base: Base, depth: int, *path: str | int) -> int:
        literal = self.child(base, *path)
        found = self._firsts.get(literal >> 1)
        if found is None:
            found = self._first(literal & ~1, depth - 1)
        return found ^ (literal & 1)

    def _plainer(self, wanted: set[int]) -> set[int]:
        """The same conjunction without what is implied at sight, or `FALSE` alone if nothing is left."""
        mask, values = ANY_KIND, None
        for literal in wanted:
            summary = self.summary(literal)
            if not literal & 1:
                mask &= summary.mask
                if summary.values is not None:
                    values = summary.values if values is None else values & summary.values
            elif summary.exact and summary.values is None:
                mask &= ~summary.mask
        if values is not None:
            for literal in wanted:
                summary = self.summary(literal)
                if literal & 1 and summary.exact and summary.values is not None:
                    values -= summary.values
            values = frozenset(value for value in values if kind_of_canonical(value) & mask)
        if not mask or values == frozenset():
            return {FALSE}
        return self._without_implied(wanted)

    def _without_implied(self, wanted: set[int]) -> set[int]:
        left = set(wanted)
        for literal in sorted(wanted, reverse=True):
            summary = self.summary(literal)
            mask = ANY_KIND
            for other in left:
                if other != literal and not other & 1:
                    mask &= self.summary(other).mask
            if literal & 1:
                implied = not summary.mask & mask
            else:
                implied = summary.exact and summary.values is None and not mask & ~summary.mask
            if implied:
                left.discard(literal)
        return left

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
            elif key == "allOf" and len(schema[key]) <= _MAX_ALIKE:
                for place in range(len(schema[key])):
                    below = self._summary_of(self.child(base, key, place), depth - 1)
                    mask, values = _narrowed(mask, values, below)
            elif key in ("anyOf", "oneOf") and len(schema[key]) <= _MAX_ALIKE:
                parts = [
                    self._summary_of(self.child(base, key, at), depth - 1) for at in range(len(schema[key]))
                ]
                mask, values = _narrowed(mask, values, _any_of(parts))
        if values is not None:
            values = frozenset(value for value in values if kind_of_canonical(value) & mask)
            seen = 0
            for value in values:
                seen |= kind_of_canonical(value)
            mask &= seen
        return Summary(mask, values, exact=all(key in VALUE_KEYWORDS for key in base.keys))

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


def mask_of(types: str | Iterable[str]) -> int:
    """The kinds that a `type` lets through."""
    if isinstance(types, str):
        return KINDS[types]
    mask = 0
    for name in types:
        mask |= KINDS[name]
    return mask


def kind_of_canonical(form: Hashable) -> int:
    """The kind of a value of which this is the canonical form."""
    if isinstance(form, tuple):
        if form[0] == "?":
            return KINDS["boolean"]
        if form[0] == ".":
            return KINDS["integer"] if form[3] >= 0 else KINDS["number"] & ~KINDS["integer"]
        return ARRAY if form[0] == "[" else OBJECT
    if form is None:
        return KINDS["null"]
    return STRING if isinstance(form, str) else KINDS["integer"]


def circular(pointer: str) -> InvalidConstraint:
    """The error for a schema that asks only that it hold itself."""
    reason = "the schema leads back to itself without a step into the value, so it never says what it allows"
    return InvalidConstraint(f"{pointer}: {reason}", field="schema")
