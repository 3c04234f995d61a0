"""What the values of a set are, in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from treille.runtime.schema.decimals import to_number
from treille.runtime.schema.forms import ArrayForm, Forms, ObjectForm
from treille.runtime.schema.json_text import dumps
from treille.runtime.schema.numbers import Numbers
from treille.runtime.schema.strings import Strings

MAX_FORMS = 12  # of one type that are described one by one
MAX_SHOWN = 8  # keys, or values
_MAX_TEXT = 40

Names = Mapping[int, str]


def value_lines(forms: Forms, names: Names) -> list[str]:
    """One line for each kind of values. `names`: what the languages are called, by their numbers."""
    lines = [_json(word) for word in (None, True, False) if word in forms.words]
    lines = [", ".join(lines)] if lines else []
    for parts in (
        [number_words(one) for one in forms.numbers],
        [string_words(one, names) for one in forms.strings],
        [array_words(one) for one in forms.arrays],
        [object_words(one, names) for one in forms.objects],
    ):
        lines.extend(parts[:MAX_FORMS])
        if len(parts) > MAX_FORMS:
            lines.append(f"and {len(parts) - MAX_FORMS:,} more such kinds")
    return lines


def number_words(one: Numbers) -> str:
    """Numbers, as in "integers from 0 to 10 (not in it)"."""
    if one.low is not None and one.low == one.high:
        return f"the number {_number(one.low)}"
    words = {None: "numbers", True: "integers", False: "numbers that are no integers"}[one.integer]
    if one.whole is not None:
        words = (
            "integers without fraction and exponent" if one.whole else f"{words} with fraction or exponent"
        )
    if one.low is not None:
        words += f" {'above' if one.low_open else 'from'} {_number(one.low)}"
    if one.high is not None:
        words += f" {'below' if one.high_open else 'to'} {_number(one.high)}"
    if one.multiples:
        words += f", multiples of {_listed(map(_number, sorted(one.multiples)), 'and of ')}"
    if one.not_multiples:
        words += f", no multiples of {_listed(map(_number, sorted(one.not_multiples)), 'or of ')}"
    if one.excluded:
        words += f", but not {_listed(map(_number, sorted(one.excluded)))}"
    return words


def string_words(one: Strings, names: Names) -> str:
    """Strings, as in "strings of 1 to 5 characters that match the pattern "^a"."""
    if one.only is not None:
        if len(one.only) == 1:
            return f"the string {_json(next(iter(one.only)))}"
        return f"one of {len(one.only):,} strings: {_listed(map(_json, sorted(one.only)))}"
    words = "strings"
    if one.low or one.high is not None:
        words += f" of {_count(one.low, one.high)} characters"
    if one.every:
        words += f" that match {_listed(sorted(names[number] for number in one.every), 'and ')}"
    if one.none:
        words += f" that do not match {_listed(sorted(names[number] for number in one.none), 'nor ')}"
    if one.excluded:
        words += f", but not {_listed(map(_json, sorted(one.excluded)))}"
    return words


def array_words(one: ArrayForm) -> str:
    """Arrays, as in "arrays of 2 or more items, each different"."""
    words = "arrays"
    if one.high == 0:
        return "the empty array"
    if one.low or one.high is not None:
        words += f" of {_count(one.low, one.high)} items"
    if one.prefix:
        words += (
            f", the first {len(one.prefix)} each by its place"
            if len(one.prefix) > 1
            else ", the first by its place"
        )
    if one.contains:
        counts = " and ".join(_count(each.low, each.high) for each in one.contains)
        words += f", {counts} of which are counted by `contains`"
    return words + (", all different" if one.unique else "")


def object_words(one: ObjectForm, names: Names) -> str:
    """Objects, as in "objects with a, b if wanted, and other keys"."""
    if one.high == 0 or not (one.regions or any(key.options for key in one.keys)):
        return "the empty object"
    needed = [_json(key.name) for key in one.keys if key.required]
    free = [_json(key.name) for key in one.keys if key.options and not key.required]
    never = [_json(key.name) for key in one.keys if not key.options]
    parts = []
    if needed:
        parts.append(f"the key{'s' if len(needed) > 1 else ''} {_listed(needed)}")
    if free:
        parts.append(f"perhaps {_listed(free)}")
    if one.regions:
        named = [string_words(region.names, names) for region in one.regions]
        parts.append("any other keys" if named == ["strings"] else f"other keys: {_listed(named, 'or ')}")
    else:
        parts.append("no other key")
    words = f"objects with {'; '.join(parts)}"
    if never and one.regions:
        words += f"; never {_listed(never)}"
    if one.low > len(needed) or one.high is not None:
        words += f"; {_count(max(one.low, len(needed)), one.high)} members"
    return words


def _count(low: int, high: int | None) -> str:
    if high is None:
        return f"{low:,} or more"
    return f"{low:,}" if low == high else f"{low:,} to {high:,}" if low else f"at most {high:,}"


def _listed(words: Iterable[str], joint: str = "") -> str:
    every: Sequence[str] = list(words)
    if len(every) > MAX_SHOWN:
        return f"{', '.join(every[:MAX_SHOWN])} and {len(every) - MAX_SHOWN:,} more"
    return (f", {joint}").join(every)


def _number(value: Fraction) -> str:
    text = dumps(to_number(value))
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 3] + "..."


def _json(value: object) -> str:
    text = dumps(value)
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 4] + '..."'
