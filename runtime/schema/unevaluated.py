"""`unevaluatedProperties` and `unevaluatedItems`: what they ask of the parts of a value that nothing has
evaluated."""

from __future__ import annotations

from dataclasses import replace

from treille.runtime.schema.bases import EVERYTHING, NOTHING, TRUE, Base, origin
from treille.runtime.schema.literals import Literals
from treille.runtime.schema.shapes import (
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

_ALL_SEEN = Seen(everything=True)


class Unevaluated:
    """What the two keywords make of alternatives that say what they have seen."""

    def __init__(self, literals: Literals, shapes: Shapes) -> None:
        self._literals = literals
        self._shapes = shapes

    def hold(self, base: Base, found: Typed, *, track: bool) -> Typed:
        """The alternatives of the other keywords in which these hold too. `track`: with what they
        evaluate; if not, nothing is said of what was seen."""
        arrays, objects = found.arrays, found.objects
        if "unevaluatedItems" in base.keys:
            literal = self._literals.child(base, "unevaluatedItems")
            arrays = tuple(
                replace(array, seen=_ALL_SEEN) for one in arrays if (array := self._items(one, literal))
            )
        if "unevaluatedProperties" in base.keys:
            literal = self._literals.child(base, "unevaluatedProperties")
            objects = tuple(
                replace(shape, seen=_ALL_SEEN) for one in objects if (shape := self._members(one, literal))
            )
        if not track:
            arrays = tuple(one if one.seen == UNSEEN else replace(one, seen=UNSEEN) for one in arrays)
            objects = tuple(one if one.seen == UNSEEN else replace(one, seen=UNSEEN) for one in objects)
        return Typed(found.words, found.numbers, found.strings, arrays, objects)

    def fail(self, base: Base, found: Typed) -> Typed:
        """The alternatives of the other keywords, which say exactly what they have seen, in which one of
        these does not hold."""
        arrays: list[ArrayShape] = []
        objects: list[ObjectShape] = []
        if "unevaluatedItems" in base.keys:
            literal = self._literals.child(base, "unevaluatedItems")
            arrays = [self._bad_item(one, literal, base) for one in found.arrays if not one.seen.everything]
        if "unevaluatedProperties" in base.keys:
            literal = self._literals.child(base, "unevaluatedProperties")
            objects = [self._bad_member(one, literal) for one in found.objects if not one.seen.everything]
        return Typed(arrays=tuple(arrays), objects=tuple(objects))

    def _members(self, shape: ObjectShape, literal: int) -> ObjectShape | None:
        if shape.seen.everything or literal == TRUE:
            return shape
        value = self._literals.single(literal)
        seen = shape.seen
        names = {}
        for name, old in shape.names.items():
            evaluated = name in seen.names or any(self._shapes.matches(one, name) for one in seen.patterns)
            names[name] = old if evaluated else self._literals.meet(old, value)
        for name in seen.names:
            names.setdefault(name, self._shapes.ruled(shape.rules, name))
        if any(names.get(name) == NOTHING for name in shape.required):
            return None
        rule = Rule(tuple((pattern, EVERYTHING) for pattern in sorted(seen.patterns)), value)
        return replace(shape, names=names, rules=(*shape.rules, rule))

    def _items(self, shape: ArrayShape, literal: int) -> ArrayShape | None:
        if shape.seen.everything or literal == TRUE:
            return shape
        value = self._literals.single(self._literals.either((literal, *shape.seen.matching)))
        size = max(len(shape.prefix), shape.seen.count)
        prefix = []
        for place in range(size):
            old = shape.prefix[place] if place < len(shape.prefix) else shape.rest
            prefix.append(old if place < shape.seen.count else self._literals.meet(old, value))
        rest = self._literals.meet(shape.rest, value)
        return settled_array(replace(shape, prefix=tuple(prefix), rest=rest))

    def _bad_member(self, shape: ObjectShape, literal: int) -> ObjectShape:
        strings = Strings(none=shape.seen.patterns, excluded=shape.seen.names)
        some = Exists((strings,), self._literals.single(literal ^ 1))
        return replace(shape, exists=(*shape.exists, some), seen=UNSEEN)

    def _bad_item(self, shape: ArrayShape, literal: int, base: Base) -> ArrayShape:
        good = self._literals.either((literal, *shape.seen.matching))
        some = Counted(good ^ 1, 1, first=shape.seen.count, origin=origin(base, "unevaluatedItems"))
        low = max(shape.low, shape.seen.count + 1)
        return replace(shape, contains=(*shape.contains, some), low=low, seen=UNSEEN)
