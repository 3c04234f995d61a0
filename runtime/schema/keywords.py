"""What the keywords of one schema ask by themselves, without those that apply others to the same value."""

from __future__ import annotations

from collections.abc import Sequence

from treille.runtime.schema.array_keywords import ArrayKeywords
from treille.runtime.schema.bases import (
    ARRAY_KEYWORDS,
    NUMBER_KEYWORDS,
    OBJECT_KEYWORDS,
    STRING_KEYWORDS,
    Base,
    schema_of,
)
from treille.runtime.schema.constants import Constants
from treille.runtime.schema.decimals import exact
from treille.runtime.schema.languages import Languages
from treille.runtime.schema.literals import Literals
from treille.runtime.schema.numbers import ANY_NUMBER, Numbers
from treille.runtime.schema.object_keywords import ObjectKeywords
from treille.runtime.schema.shapes import (
    ALL_WORDS,
    ANY_ARRAY,
    ANY_OBJECT,
    ANY_STRING,
    ArrayShape,
    ObjectShape,
    Shapes,
    Typed,
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
    WHOLE,
    mask_of,
)

# The numbers of the types that are, and of those that are not.
_OF_KINDS = {
    NUMBER: ANY_NUMBER,
    INTEGER: Numbers(integer=True),
    FRACTION: Numbers(integer=False),
    WHOLE: Numbers(whole=True),
    NUMBER & ~WHOLE: Numbers(whole=False),
}


class Keywords:
    """The keywords of the schemas of one document. `names`, where it is asked for, is the union of strings
    that a `propertyNames` lets through (or, negated, does not)."""

    def __init__(self, literals: Literals, languages: Languages, shapes: Shapes) -> None:
        self._languages = languages
        self._shapes = shapes
        self._constants = Constants(literals, shapes)
        self._arrays = ArrayKeywords(literals)
        self._objects = ObjectKeywords(literals, languages, shapes)

    def hold(self, base: Base, names: tuple[Strings, ...] | None, *, track: bool = False) -> Typed:
        """The values for which all of them hold. `track`: with what they evaluate."""
        schema, keys = schema_of(base), base.keys
        mask = mask_of(schema["type"]) if "type" in schema else ANY_KIND
        found = self._typed(base, mask, names, track=track)
        if "const" in keys:
            found = self._shapes.meet(self._constants.one_of((schema["const"],)), found)
        if "enum" in keys:
            found = self._shapes.meet(self._constants.one_of(schema["enum"]), found)
        return found

    def _typed(self, base: Base, mask: int, names: tuple[Strings, ...] | None, *, track: bool) -> Typed:
        keys = base.keys
        numbers: tuple[Numbers, ...] = ()
        strings: tuple[Strings, ...] = ()
        arrays: tuple[ArrayShape, ...] = ()
        objects: tuple[ObjectShape, ...] = ()
        if mask & OBJECT:
            objects = (ANY_OBJECT,)
            if any(key in OBJECT_KEYWORDS for key in keys):
                shape = self._objects.hold(base, names, track=track)
                objects = () if shape is None else (shape,)
        if mask & ARRAY:
            arrays = (ANY_ARRAY,)
            if any(key in ARRAY_KEYWORDS for key in keys):
                array = self._arrays.hold(base, track=track)
                arrays = () if array is None else (array,)
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
            parts.append(self._constants.none_of((schema["const"],)))
        if "enum" in keys:
            parts.append(self._constants.none_of(schema["enum"]))
        numbers: tuple[Numbers, ...] = ()
        strings: tuple[Strings, ...] = ()
        if mask & NUMBER and any(key in NUMBER_KEYWORDS for key in keys):
            numbers = self._numbers(base, NUMBER).complement()
        if mask & STRING and any(key in STRING_KEYWORDS for key in keys):
            strings = self._languages.complement(self._strings(base))
        arrays = tuple(self._arrays.failures(base)) if mask & ARRAY else ()
        objects = tuple(self._objects.failures(base, names)) if mask & OBJECT else ()
        parts.append(Typed(frozenset(), numbers, strings, arrays, objects))
        return self._shapes.join(parts)

    def _numbers(self, base: Base, mask: int) -> Numbers:
        found = _OF_KINDS[mask & NUMBER]
        node = base.node
        if node is None or isinstance(node.schema, bool):
            return found
        for key in base.keys:
            if key not in NUMBER_KEYWORDS:
                continue
            place = node.place(key)
            value = exact(node.schema[key], key, place)
            if key == "multipleOf":
                found = found.meet(Numbers(multiples=frozenset((value,)), place=place))
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

    def equal_to(self, base: Base, *, negated: bool) -> Typed:
        """The values that are, or are not, the constant of a base without a node."""
        return self.unlike((base.value,)) if negated else self._constants.one_of((base.value,))

    def unlike(self, values: Sequence[object]) -> Typed:
        """The values that equal none of some constants."""
        return self._constants.none_of(values)


def of_kinds(mask: int) -> Typed:
    """All values of some kinds."""
    return Typed(
        _words(mask),
        (_OF_KINDS[mask & NUMBER],) if mask & NUMBER else (),
        (ANY_STRING,) if mask & STRING else (),
        (ANY_ARRAY,) if mask & ARRAY else (),
        (ANY_OBJECT,) if mask & OBJECT else (),
    )


def _words(mask: int) -> frozenset[bool | None]:
    if not mask & (NULL | BOOLEAN):
        return frozenset()
    return frozenset(word for word in ALL_WORDS if mask & (NULL if word is None else BOOLEAN))
