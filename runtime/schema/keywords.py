"""What the keywords of one schema ask by themselves, without those that apply other schemas to the same value."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterator, Mapping
from typing import Any

from treille.runtime.errors import UnsupportedConstraint
from treille.runtime.schema.decimals import exact
from treille.runtime.schema.drafts import Draft
from treille.runtime.schema.languages import Languages
from treille.runtime.schema.literals import (
    ARRAY_KEYWORDS,
    EVERYTHING,
    NOTHING,
    NUMBER_KEYWORDS,
    OBJECT_KEYWORDS,
    STRING_KEYWORDS,
    TRUE,
    Base,
    Literals,
    mask_of,
)
from treille.runtime.schema.numbers import ANY_NUMBER, Numbers, point
from treille.runtime.schema.shapes import (
    ALL,
    ALL_WORDS,
    ANY_ARRAY,
    ANY_OBJECT,
    ANY_STRING,
    UNSEEN,
    ArrayShape,
    Counted,
    Exists,
    ObjectShape,
    Rule,
    Seen,
    Shapes,
    Typed,
    settled_array,
)
from treille.runtime.schema.strings import Strings
from treille.runtime.schema.values import (
    ANY_KIND,
    ARRAY,
    BOOLEAN,
    FRACTION,
    INTEGER,
    NULL,
    NUMBER,
    OBJECT,
    STRING,
    canonical,
    kind_of,
)

_Schema = Mapping[str, Any]
_MAX_TAGS = 64
_NUM_TAGS = 2
_MAX_TAGGED = 200


class Keywords:
    """The keywords of the schemas of one document. `names`, where it is asked for, is the union of strings that a
    `propertyNames` lets through (or, negated, does not)."""

    def __init__(self, literals: Literals, languages: Languages, shapes: Shapes) -> None:
        self._literals = literals
        self._languages = languages
        self._shapes = shapes

    def hold(self, base: Base, names: tuple[Strings, ...] | None, *, track: bool = False) -> Typed:
        """The values for which all of them hold. `track`: with what they evaluate."""
        schema, keys = schema_of(base), base.keys
        mask = mask_of(schema["type"]) if "type" in schema else ANY_KIND
        found = self._typed(base, mask, names, track=track)
        if "const" in keys:
            found = self._shapes.meet(self._one_of((schema["const"],)), found)
        if "enum" in keys:
            found = self._shapes.meet(self._one_of(schema["enum"]), found)
        return found

    def _typed(self, base: Base, mask: int, names: tuple[Strings, ...] | None, *, track: bool) -> Typed:
        keys = base.keys
        arrays = objects = ()
        if mask & OBJECT:
            objects = (ANY_OBJECT,)
            if any(key in OBJECT_KEYWORDS for key in keys):
                shape = self._object(base, names, track=track)
                objects = () if shape is None else (shape,)
        if mask & ARRAY:
            arrays = (ANY_ARRAY,)
            if any(key in ARRAY_KEYWORDS for key in keys):
                array = self._array(base, track=track)
                arrays = () if array is None else (array,)
        numbers = strings = ()
        if mask & NUMBER:
            one = self._numbers(base, mask)
            numbers = () if one.is_empty() else (one,)
        if mask & STRING:
            strings = (self._strings(base),) if any(key in STRING_KEYWORDS for key in keys) else (ANY_STRING,)
        return Typed(_words(mask), numbers, strings, arrays, objects)

    def fail(self, base: Base, names: tuple[Strings, ...] | None) -> Typed:
        """The values for which one of them does not hold."""
        schema, keys = schema_of(base), base.keys
        mask = mask_of(schema["type"]) if "type" in schema else ANY_KIND
        parts = []
        if "type" in keys:
            parts.append(of_kinds(ANY_KIND & ~mask))
        if "const" in keys:
            parts.append(self._none_of((schema["const"],)))
        if "enum" in keys:
            parts.append(self._none_of(schema["enum"]))
        numbers: tuple[Numbers, ...] = ()
        strings: tuple[Strings, ...] = ()
        if mask & NUMBER and any(key in NUMBER_KEYWORDS for key in keys):
            numbers = self._numbers(base, NUMBER).complement()
        if mask & STRING and any(key in STRING_KEYWORDS for key in keys):
            strings = self._languages.complement(self._strings(base))
        arrays = tuple(self._array_failures(base)) if mask & ARRAY else ()
        objects = tuple(self._object_failures(base, names)) if mask & OBJECT else ()
        parts.append(Typed(frozenset(), numbers, strings, arrays, objects))
        return self._shapes.join(parts)

    def _numbers(self, base: Base, mask: int) -> Numbers:
        integer = None if mask & NUMBER == NUMBER else bool(mask & INTEGER)
        found = ANY_NUMBER if integer is None else Numbers(integer=integer)
        node = base.node
        if node is None or isinstance(node.schema, bool):
            return found
        for key in base.keys:
            if key not in NUMBER_KEYWORDS:
                continue
            value = exact(node.schema[key], key, node.place(key))
            if key == "multipleOf":
                found = found.meet(Numbers(multiples=frozenset((value,))))
            elif key in ("minimum", "exclusiveMinimum"):
                found = found.meet(Numbers(low=value, low_open=key != "minimum"))
            else:
                found = found.meet(Numbers(high=value, high_open=key != "maximum"))
        return found

    def _strings(self, base: Base) -> Strings:
        schema = schema_of(base)
        every = set()
        if "pattern" in base.keys:
            every.add(self._languages.pattern(schema["pattern"]))
        if "format" in base.keys:
            every.add(self._languages.format(schema["format"]))
        high = schema.get("maxLength")
        return Strings(
            frozenset(every), low=int(schema.get("minLength", 0)), high=None if high is None else int(high)
        )

    def _one_of(self, values: Any) -> Typed:
        """Any of some values."""
        words: set[bool | None] = set()
        numbers: dict[Hashable, Numbers] = {}
        strings: set[str] = set()
        arrays: list[ArrayShape] = []
        objects: list[ObjectShape] = []
        for value in values:
            if isinstance(value, str):
                strings.add(value)
                continue
            kind = kind_of(value)
            if kind & (NULL | BOOLEAN):
                words.add(value)
            elif kind & NUMBER:
                numbers[canonical(value)] = point(exact(value, "enum"))
            elif kind & ARRAY:
                arrays.append(self._array_equal_to(value))
            else:
                objects.append(self._object_equal_to(value))
        texts = (Strings(only=frozenset(strings)),) if strings else ()
        return Typed(frozenset(words), tuple(numbers.values()), texts, tuple(arrays), tuple(objects))

    def _none_of(self, values: Any) -> Typed:
        """None of some values."""
        words, numbers, strings = set(ALL_WORDS), set(), set()
        compound = ALL
        for value in values:
            kind = kind_of(value)
            if kind & (NULL | BOOLEAN):
                words.discard(value)
            elif kind & NUMBER:
                numbers.add(exact(value, "enum"))
            elif kind & STRING:
                strings.add(value)
            elif kind & ARRAY:
                compound = self._shapes.meet(compound, _only(arrays=self._arrays_unlike(value)))
            else:
                compound = self._shapes.meet(compound, _only(objects=self._objects_unlike(value)))
        return Typed(
            frozenset(words),
            (Numbers(excluded=frozenset(numbers)) if numbers else ANY_NUMBER,),
            (Strings(excluded=frozenset(strings)) if strings else ANY_STRING,),
            compound.arrays,
            compound.objects,
        )

    def _constant(self, value: object, *, negated: bool = False) -> int:
        return self._literals.single(self._literals.constant(value) ^ negated)

    def _object_equal_to(self, value: Mapping[str, object]) -> ObjectShape:
        names = {name: self._constant(member) for name, member in value.items()}
        return ObjectShape(names, (Rule((), NOTHING),), required=frozenset(value))

    def _array_equal_to(self, value: list[object]) -> ArrayShape:
        return ArrayShape(tuple(map(self._constant, value)), NOTHING, len(value), len(value))

    def _objects_unlike(self, value: Mapping[str, object]) -> Iterator[ObjectShape]:
        for name, member in value.items():
            yield _without(name)
            yield _with(name, self._constant(member, negated=True))
        yield ObjectShape(exists=(Exists((Strings(excluded=frozenset(value)),), EVERYTHING),))

    def _arrays_unlike(self, value: list[object]) -> Iterator[ArrayShape]:
        if value:
            yield ArrayShape(high=len(value) - 1)
        yield ArrayShape(low=len(value) + 1)
        for place, member in enumerate(value):
            yield _at(place, self._constant(member, negated=True))

    def equal_to(self, base: Base, *, negated: bool) -> Typed:
        """The values that are, or are not, the constant of a base without a node."""
        return self._none_of((base.value,)) if negated else self._one_of((base.value,))

    def _object(self, base: Base, names: tuple[Strings, ...] | None, *, track: bool) -> ObjectShape | None:
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
        low, high = _bounds(schema, "minProperties", "maxProperties")
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

    def _object_failures(self, base: Base, names: tuple[Strings, ...] | None) -> Iterator[ObjectShape]:
        """The ways for an object not to pass. Where a key tells schemas apart by a few values, first that it has
        another one; in the other ways it has one of them. So the ways in which several such schemas fail at once do
        not multiply."""
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
        low, high = _bounds(schema, "minProperties", "maxProperties")
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

    def _array(self, base: Base, *, track: bool) -> ArrayShape | None:
        schema = schema_of(base)
        keys = base.keys
        single, child = self._literals.single, self._literals.child
        prefix: tuple[int, ...] = ()
        if "prefixItems" in keys:
            prefix = tuple(single(child(base, "prefixItems", at)) for at in range(len(schema["prefixItems"])))
        rest = single(child(base, "items")) if "items" in keys else EVERYTHING
        low, high = _bounds(schema, "minItems", "maxItems")
        contains: tuple[Counted, ...] = ()
        matching: frozenset[int] = frozenset()
        if "contains" in keys:
            least, most = _counts(schema)
            literal = child(base, "contains")
            if least or most is not None:
                contains = (Counted(literal, least, most),)
            if base.node is not None and base.node.draft is Draft.D2020:
                matching = frozenset((literal,))
        seen = Seen(count=len(prefix), matching=matching, everything="items" in keys) if track else UNSEEN
        return settled_array(
            ArrayShape(prefix, rest, low, high, contains, bool(schema.get("uniqueItems")), seen)
        )

    def _array_failures(self, base: Base) -> Iterator[ArrayShape]:
        node = base.node
        schema = schema_of(base)
        keys = base.keys
        single, child = self._literals.single, self._literals.child
        low, high = _bounds(schema, "minItems", "maxItems")
        if low:
            yield ArrayShape(high=low - 1)
        if high is not None:
            yield ArrayShape(low=high + 1)
        size = len(schema["prefixItems"]) if "prefixItems" in keys else 0
        for place in range(size):
            literal = child(base, "prefixItems", place)
            if literal != TRUE:
                yield _at(place, single(literal ^ 1))
        if "items" in keys and child(base, "items") != TRUE:
            yield ArrayShape(contains=(Counted(child(base, "items") ^ 1, 1, first=size),), low=size + 1)
        if "contains" in keys:
            least, most = _counts(schema)
            literal = child(base, "contains")
            if least:
                yield ArrayShape(contains=(Counted(literal, 0, least - 1),))
            if most is not None:
                yield ArrayShape(contains=(Counted(literal, most + 1),), low=most + 1)
        if "uniqueItems" in keys and schema["uniqueItems"] and node is not None:
            reason = "that two items are equal, no matter which, cannot be enforced"
            refusal = UnsupportedConstraint("uniqueItems", node.place("uniqueItems"), reason, field="schema")
            yield ArrayShape(low=2, refusal=refusal)


def schema_of(base: Base) -> _Schema:
    """The keywords of a base. Raises ValueError for one that is not of a node."""
    if base.node is None or isinstance(base.node.schema, bool):
        raise ValueError("it has no keywords")
    return base.node.schema


def of_kinds(mask: int) -> Typed:
    """All values of some kinds."""
    numbers: tuple[Numbers, ...] = ()
    if mask & NUMBER:
        numbers = (ANY_NUMBER if mask & NUMBER == NUMBER else Numbers(integer=not mask & FRACTION),)
    return Typed(
        _words(mask),
        numbers,
        (ANY_STRING,) if mask & STRING else (),
        (ANY_ARRAY,) if mask & ARRAY else (),
        (ANY_OBJECT,) if mask & OBJECT else (),
    )


def _words(mask: int) -> frozenset[bool | None]:
    if not mask & (NULL | BOOLEAN):
        return frozenset()
    return frozenset(word for word in ALL_WORDS if mask & (NULL if word is None else BOOLEAN))


def _only(*, arrays: Iterator[ArrayShape] = iter(()), objects: Iterator[ObjectShape] = iter(())) -> Typed:
    """What rules out some compound values only."""
    return Typed(
        ALL_WORDS,
        (ANY_NUMBER,),
        (ANY_STRING,),
        tuple(arrays) or (ANY_ARRAY,),
        tuple(objects) or (ANY_OBJECT,),
    )


def _without(name: str) -> ObjectShape:
    return ObjectShape({name: NOTHING})


def _with(name: str, value: int) -> ObjectShape:
    return ObjectShape({name: value}, required=frozenset((name,)))


def _at(place: int, value: int) -> ArrayShape:
    return ArrayShape((*(EVERYTHING,) * place, value), low=place + 1)


def _bounds(schema: _Schema, low: str, high: str) -> tuple[int, int | None]:
    most = schema.get(high)
    return int(schema.get(low, 0)), None if most is None else int(most)


def _counts(schema: _Schema) -> tuple[int, int | None]:
    most = schema.get("maxContains")
    return int(schema.get("minContains", 1)), None if most is None else int(most)
