"""The keywords of objects as shapes."""

from __future__ import annotations

from collections.abc import Container, Iterator

from treille.runtime.schema.bases import (
    EVERYTHING,
    NOTHING,
    TRUE,
    Base,
    bounds,
    schema_of,
)
from treille.runtime.schema.languages import Languages
from treille.runtime.schema.literals import Literals
from treille.runtime.schema.shapes import (
    UNSEEN,
    Exists,
    ObjectShape,
    Rule,
    Seen,
    Shapes,
)
from treille.runtime.schema.strings import Strings

_MAX_TAGS = 64
_NUM_TAGS = 2
_MAX_TAGGED = 200


class ObjectKeywords:
    """The object keywords of the schemas of one document. `names`, where it is asked for, is the union of
    strings that a `propertyNames` lets through (or, in failures, does not)."""

    def __init__(self, literals: Literals, languages: Languages, shapes: Shapes) -> None:
        self._literals = literals
        self._languages = languages
        self._shapes = shapes

    def hold(self, base: Base, names: tuple[Strings, ...] | None, *, track: bool) -> ObjectShape | None:
        schema = schema_of(base)
        keys = base.keys
        single, child = self._literals.single, self._literals.child
        values: dict[str, int] = {}
        if "properties" in keys:
            values = {name: single(child(base, "properties", name)) for name in schema["properties"]}
        patterns: tuple[tuple[int, int], ...] = ()
        if "patternProperties" in keys:
            patterns = tuple(
                (self._languages.pattern(text), single(child(base, "patternProperties", text)))
                for text in schema["patternProperties"]
            )
            for name in values:
                for pattern, value in patterns:
                    if self._shapes.matches(pattern, name):
                        values[name] = self._literals.meet(values[name], value)
        rest = EVERYTHING
        if "additionalProperties" in keys:
            rest = single(child(base, "additionalProperties"))
        rules = (Rule(patterns, rest),) if patterns or rest != EVERYTHING else ()
        low, high = bounds(schema, "minProperties", "maxProperties")
        required = frozenset(schema.get("required", ()))
        seen = UNSEEN
        if track:
            everything = "additionalProperties" in keys
            seen = Seen(
                frozenset(values), frozenset(pattern for pattern, _ in patterns), everything=everything
            )
        dependent = schema.get("dependentRequired", {}) if "dependentRequired" in keys else {}
        if high is not None and max(low, len(required)) > high:
            return None
        if any(values.get(name) == NOTHING for name in required):
            return None
        return ObjectShape(
            values,
            rules,
            () if names is None else (names,),
            required,
            low,
            high,
            dependent=tuple((name, frozenset(others)) for name, others in dependent.items() if others),
            seen=seen,
        )

    def failures(self, base: Base, names: tuple[Strings, ...] | None) -> Iterator[ObjectShape]:
        """The ways for an object not to pass. Where a key tells schemas apart by a few values, first that
        it has another one; in the other ways it has one of them. So the ways in which several such schemas
        fail at once do not multiply."""
        tags = self._tags(base)
        if not tags:
            yield from self._other_failures(base, names, ())
            return
        schema = schema_of(base)
        held: dict[str, int] = {}
        needed: frozenset[str] = frozenset()
        for name, literal in tags.items():
            if name in schema.get("required", ()):
                yield ObjectShape({**held, name: NOTHING}, required=needed)
            yield ObjectShape({**held, name: self._literals.single(literal ^ 1)}, required=needed | {name})
            held[name] = self._literals.single(literal)
            needed |= {name} & set(schema.get("required", ()))
        tagged = ObjectShape(held, required=needed)
        for shape in self._other_failures(base, names, tags):
            both = self._shapes.meet_objects(tagged, shape)
            if both is not None:
                yield both

    def _tags(self, base: Base) -> dict[str, int]:
        """Keys of which a schema lets only a few values through, and with which literal."""
        schema = schema_of(base)
        properties = schema["properties"] if "properties" in base.keys else {}
        found = {}
        for name in properties if len(properties) <= _MAX_TAGGED else schema.get("required", ()):
            if name in properties:
                literal = self._literals.child(base, "properties", name)
                values = None if literal & 1 else self._literals.summary(literal).values
                if values is not None and len(values) <= _MAX_TAGS:
                    found[name] = literal
                    if len(found) == _NUM_TAGS:
                        break
        return found

    def _other_failures(
        self, base: Base, names: tuple[Strings, ...] | None, tags: Container[str]
    ) -> Iterator[ObjectShape]:
        schema = schema_of(base)
        keys = base.keys
        single, child = self._literals.single, self._literals.child
        if "required" in keys:
            yield from (_without(name) for name in schema["required"] if name not in tags)
        low, high = bounds(schema, "minProperties", "maxProperties")
        if low:
            yield ObjectShape(high=low - 1)
        if high is not None:
            yield ObjectShape(low=high + 1)
        for name in schema["properties"] if "properties" in keys else ():
            literal = child(base, "properties", name)
            if literal != TRUE and name not in tags:
                yield _with(name, single(literal ^ 1))
        yield from self._key_failures(base, names)
        for name, others in (schema["dependentRequired"] if "dependentRequired" in keys else {}).items():
            for other in others:
                if other != name:
                    yield ObjectShape({name: EVERYTHING, other: NOTHING}, required=frozenset((name,)))

    def _key_failures(self, base: Base, names: tuple[Strings, ...] | None) -> Iterator[ObjectShape]:
        """The ways for keys that are not named, or that have the wrong names."""
        schema = schema_of(base)
        keys = base.keys
        single, child = self._literals.single, self._literals.child
        patterns = []
        for text in schema["patternProperties"] if "patternProperties" in keys else ():
            patterns.append(self._languages.pattern(text))
            literal = child(base, "patternProperties", text)
            if literal != TRUE:
                strings = Strings(every=frozenset((patterns[-1],)))
                yield ObjectShape(exists=(Exists((strings,), single(literal ^ 1)),))
        if "additionalProperties" in keys and child(base, "additionalProperties") != TRUE:
            strings = Strings(none=frozenset(patterns), excluded=frozenset(schema.get("properties", ())))
            value = single(child(base, "additionalProperties") ^ 1)
            yield ObjectShape(exists=(Exists((strings,), value),))
        if names:
            yield ObjectShape(exists=(Exists(names, EVERYTHING),))


def _without(name: str) -> ObjectShape:
    return ObjectShape({name: NOTHING})


def _with(name: str, value: int) -> ObjectShape:
    return ObjectShape({name: value}, required=frozenset((name,)))
