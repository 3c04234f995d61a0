"""`const` and `enum` as shapes: the values that are one of some, or none of them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from treille.runtime.schema.bases import NOTHING
from treille.runtime.schema.decimals import Far
from treille.runtime.schema.literals import Literals
from treille.runtime.schema.numbers import ANY_NUMBER, Numbers, point
from treille.runtime.schema.shapes import (
    ALL_WORDS,
    ANY_ARRAY,
    ANY_OBJECT,
    ANY_STRING,
    ArrayShape,
    ObjectShape,
    Rule,
    Shapes,
    Typed,
)
from treille.runtime.schema.strings import Strings
from treille.runtime.schema.unlike import arrays_unlike, objects_unlike
from treille.runtime.schema.values import (
    ARRAY,
    BOOLEAN,
    NULL,
    NUMBER,
    STRING,
    canonical,
    is_spellable,
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
                numbers[canonical(value)] = point(value)
            elif kind & ARRAY:
                arrays.append(self._array_equal_to(value))
            else:
                objects.append(self._object_equal_to(value))
        texts = (Strings(only=frozenset(strings)),) if strings else ()
        return Typed(frozenset(words), tuple(numbers.values()), texts, tuple(arrays), tuple(objects))

    def none_of(self, values: Any) -> Typed:
        """None of some values."""
        words, numbers, far, strings = set(ALL_WORDS), set(), set(), set()
        arrays: list[list[object]] = []
        objects: list[Mapping[str, object]] = []
        for value in values:
            kind = kind_of(value)
            if kind & (NULL | BOOLEAN):
                words.discard(value)
            elif isinstance(value, Far):
                far.add(value)
            elif kind & NUMBER:
                numbers.add(Fraction(value))
            elif kind & STRING:
                strings.add(value)
            elif kind & ARRAY:
                arrays.append(value)
            else:
                objects.append(value)
        return Typed(
            frozenset(words),
            (Numbers(excluded=frozenset(numbers), far=frozenset(far)) if numbers or far else ANY_NUMBER,),
            (Strings(excluded=frozenset(strings)) if strings else ANY_STRING,),
            tuple(arrays_unlike(arrays, self._constant, self._none_of)) if arrays else (ANY_ARRAY,),
            tuple(objects_unlike(objects, self._constant, self._none_of)) if objects else (ANY_OBJECT,),
        )

    def _constant(self, value: object) -> int:
        if not is_spellable(value):
            return NOTHING
        return self._literals.single(self._literals.constant(value))

    def _none_of(self, values: Sequence[object]) -> int:
        return self._literals.together(self._literals.constant(value) ^ 1 for value in values)

    def _object_equal_to(self, value: Mapping[str, object]) -> ObjectShape:
        names = {name: self._constant(member) for name, member in value.items()}
        return ObjectShape(names, (Rule((), NOTHING),), required=frozenset(value))

    def _array_equal_to(self, value: list[object]) -> ArrayShape:
        return ArrayShape(tuple(map(self._constant, value)), NOTHING, len(value), len(value))
