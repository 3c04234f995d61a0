"""Membership decided from forms alone: slow and plain, to hold faster ways against."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from itertools import product
from typing import Protocol

from treille.runtime.schema.forms import ArrayForm, ObjectForm, Option, Sets
from treille.runtime.schema.languages import Languages
from treille.runtime.schema.values import canonical, to_exact


class ReadableSets(Sets, Protocol):
    """Sets and the languages that their forms speak of."""

    languages: Languages


def accepts(sets: ReadableSets, number: int, value: object) -> bool:
    """Whether a JSON value is in a set. It is as `json.loads` gives it, which tells by int and float how a
    number was spelled; for float there may be Decimal."""
    return _Reading(sets, sets.languages).is_in(number, value)


class _Reading:
    def __init__(self, sets: Sets, languages: Languages) -> None:
        self._sets = sets
        self._languages = languages

    def is_in(self, number: int, value: object) -> bool:
        forms = self._sets.forms(number)
        if value is None or isinstance(value, bool):
            return value in forms.words
        if isinstance(value, str):
            return any(self._languages.contains(strings, value) for strings in forms.strings)
        if isinstance(value, (int, float, Decimal)):
            return any(numbers.contains(to_exact(value)) for numbers in forms.numbers)
        if isinstance(value, Mapping):
            return any(self._object(form, value) for form in forms.objects)
        if isinstance(value, list):
            return any(self._array(form, value) for form in forms.arrays)
        raise TypeError(f"not a JSON value: {type(value).__name__}")

    def _marks(self, options: tuple[Option, ...], value: object) -> set[int]:
        return {option.marks for option in options if self.is_in(option.value, value)}

    def _object(self, form: ObjectForm, value: Mapping[str, object]) -> bool:
        if len(value) < form.low or (form.high is not None and len(value) > form.high):
            return False
        keys = {key.name: key for key in form.keys}
        for key in form.keys:
            if key.required and key.name not in value:
                return False
            if key.name in value and not all(form.keys[place].name in value for place in key.implies):
                return False
        ways: list[set[int]] = []
        for name, member in value.items():
            if name in keys:
                marks = self._marks(keys[name].options, member)
            else:
                marks = set()
                for region in form.regions:
                    if self._languages.contains(region.names, name):
                        marks |= self._marks(region.options, member)
            if not marks:
                return False
            ways.append(marks)
        reached = {0}
        for marks in ways:
            reached = {held | more for held in reached for more in marks}
        return (1 << form.num_exists) - 1 in reached

    def _array(self, form: ArrayForm, value: list[object]) -> bool:
        if len(value) < form.low or (form.high is not None and len(value) > form.high):
            return False
        if form.unique and len({canonical(item) for item in value}) < len(value):
            return False
        reached = {(0,) * len(form.contains)}
        for place, item in enumerate(value):
            options = form.prefix[place] if place < len(form.prefix) else form.rest
            ways = self._marks(options, item)
            reached = {
                tuple(count + (marks >> bit & 1) for bit, count in enumerate(counts))
                for counts, marks in product(reached, ways)
            }
        return any(
            all(
                one.low <= count and (one.high is None or count <= one.high)
                for one, count in zip(form.contains, counts, strict=True)
            )
            for counts in reached
        )
