"""`const` and `enum` as shapes: the values that are one of some, or none of them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any

from treille.runtime.schema.bases import (
    EVERYTHING,
    NOTHING,
)
from treille.runtime.schema.decimals import exact
from treille.runtime.schema.literals import Literals
from treille.runtime.schema.numbers import ANY_NUMBER, Numbers, point
from treille.runtime.schema.shapes import (
    ALL,
    ALL_WORDS,
    ANY_ARRAY,
    ANY_OBJECT,
    ANY_STRING,
    ArrayShape,
    Exists,
    ObjectShape,
    Rule,
    Shapes,
    Typed,
)
from treille.runtime.schema.strings import Strings
from treille.runtime.schema.values import (
    ARRAY,
    BOOLEAN,
    NULL,
    NUMBER,
    STRING,
    canonical,
    kind_of,
)


class Constants:
    """The constants of one document."""

    def __init__(self, literals: Literals, shapes: Shapes) -> None:
        self._literals = literals
        self._shapes = shapes

    def one_of(self, values: Any) -> Typed:
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

    def none_of(self, values: Any) -> Typed:
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
                compound = self._shapes.meet(compound, _no_array_but(self._arrays_unlike(value)))
            else:
                compound = self._shapes.meet(compound, _no_object_but(self._objects_unlike(value)))
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
        """The objects that are not this one, apart at the first key at which they are. So the objects that
        are none of several are not many more ways than those have keys."""
        same: dict[str, int] = {}
        for name in sorted(value):
            yield ObjectShape({**same, name: NOTHING}, required=frozenset(same))
            yield ObjectShape(
                {**same, name: self._constant(value[name], negated=True)}, required=frozenset((*same, name))
            )
            same[name] = self._constant(value[name])
        more = Exists((Strings(excluded=frozenset(value)),), EVERYTHING)
        yield ObjectShape(same, required=frozenset(same), exists=(more,))

    def _arrays_unlike(self, value: list[object]) -> Iterator[ArrayShape]:
        """The arrays that are not this one, apart at their length or else at the first item at which they
        are."""
        size = len(value)
        if size:
            yield ArrayShape(high=size - 1)
        yield ArrayShape(low=size + 1)
        same: list[int] = []
        for member in value:
            yield ArrayShape((*same, self._constant(member, negated=True)), low=size, high=size)
            same.append(self._constant(member))


def _no_array_but(arrays: Iterable[ArrayShape]) -> Typed:
    return Typed(ALL_WORDS, (ANY_NUMBER,), (ANY_STRING,), tuple(arrays), (ANY_OBJECT,))


def _no_object_but(objects: Iterable[ObjectShape]) -> Typed:
    return Typed(ALL_WORDS, (ANY_NUMBER,), (ANY_STRING,), (ANY_ARRAY,), tuple(objects))
