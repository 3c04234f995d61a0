"""From forms to the numbers that the machine works on; a set is worked out when the machine first comes to
it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treille.runtime.errors import UnsupportedConstraint
from treille.runtime.grammar.store import Bytes, Flags, Int64s
from treille.runtime.schema.distinct import indispensable
from treille.runtime.schema.escapes import Ranges, escapable
from treille.runtime.schema.forms import ArrayForm, Key, ObjectForm, Option, Region, Sets
from treille.runtime.schema.languages import Languages
from treille.runtime.schema.machine import gaps
from treille.runtime.schema.machine.rows import (
    BITS,
    H_CODED,
    H_ESCAPED,
    H_FIXED,
    H_GAPS,
    H_NUM_STARTS,
    H_NUMBERS,
    H_ORDER,
    H_ROOT,
    H_SIZES,
    H_STARTS,
    HEAD,
    NO_END,
    V_ARRAYS,
    V_KNOWN,
    V_NUMBERS,
    V_OBJECTS,
    V_STRINGS,
    V_WORDS,
    VALUE_COLUMNS,
)
from treille.runtime.schema.number_texts import number_dfa
from treille.runtime.schema.numbers import Numbers
from treille.runtime.schema.options import Layout, Options
from treille.runtime.schema.possible_objects import fewest_marked
from treille.runtime.schema.strings import Strings
from treille.runtime.schema.values import canonical

_WORD_BITS: dict[bool | None, int] = {None: 1, True: 2, False: 4}
_GAPS = {"compact": gaps.COMPACT, "flexible": gaps.FLEXIBLE, "any": gaps.ANY}
Values = NDArray[np.int64]
MAX_NUMBER = (1 << 62) - 1  # bounds past it are as good as none
_MAX_CONTAINS = 2
_MAX_MATCHED = 250_000  # places and the values that they have, multiplied
_EAGER = 32  # sets that are worked out before they are reached


@dataclass(frozen=True, slots=True)
class SeenItems:
    """Which items an array with unique items has, and by option of the next one what is left of its set."""

    values: tuple[object, ...]
    left: dict[int, int]


class Tables:
    """The numbers of one document, growing as sets are reached. Not safe to share between threads.

    `single_bytes`: bool [256], which bytes are a token by themselves.
    """

    def __init__(self, sets: Sets, languages: Languages, options: Options, single_bytes: Flags) -> None:
        self._sets = sets
        self._languages = languages
        self._style = options.number_style
        self._tables: Int64s = np.zeros(512, np.int64)
        self._size = HEAD
        self._literals: Bytes = np.zeros(512, np.uint8)
        self._num_literals = 0
        self._values: Values = np.zeros((16, VALUE_COLUMNS), np.int64)
        self._number_of: dict[int, int] = {}  # by set, its row of `values`
        self._set_of: list[int] = []
        self._automata: dict[tuple[Numbers, ...], int] = {}
        self._language_of: dict[Strings, int] = {}
        self._templates: dict[ArrayForm | int, int] = {}
        self._array_forms: dict[int, ArrayForm] = {}
        self._at_least: dict[int, tuple[bool, int]] = {}  # by set: is it all it has?
        self._seen: dict[int, SeenItems] = {0: SeenItems((), {})}
        self.strings: list[Strings] = []  # by number of a language, its regular part
        self._write_head(options)
        self._write_escapes(escapable(str(options.escapes), single_bytes))

    @property
    def arrays(self) -> tuple[Values, Int64s, Bytes]:
        """The arrays as they are now."""
        return self._values, self._tables, self._literals

    @property
    def nbytes(self) -> int:
        """Memory of the arrays."""
        return self._values.nbytes + self._tables.nbytes + self._literals.nbytes

    def _write_head(self, options: Options) -> None:
        tables = self._tables
        tables[H_ORDER] = options.property_order == "schema"
        layout = options.whitespace
        if isinstance(layout, Layout):
            tables[H_GAPS] = gaps.FIXED
            item, key = layout.item_separator[1:].encode(), layout.key_separator[1:].encode()
            tables[H_FIXED] = -1 if layout.indent is None else layout.indent
            tables[H_FIXED + 1 : H_FIXED + 3] = self._add_bytes(item), len(item)
            tables[H_FIXED + 3 : H_FIXED + 5] = self._add_bytes(key), len(key)
        else:
            tables[H_GAPS] = _GAPS[layout]
        classes = self._languages.classes
        starts, numbers = classes.starts, classes.numbers
        ends = np.append(starts[1:], 0x110000)
        sizes = np.zeros(classes.members.shape[1], np.int64)
        np.add.at(sizes, numbers[numbers >= 0], (ends - starts)[numbers >= 0])
        for place, array in ((H_SIZES, sizes), (H_STARTS, starts), (H_NUMBERS, numbers)):
            at = self._add(array)
            self._tables[place] = at
        self._tables[H_NUM_STARTS] = len(starts)
        root = self._value(self._sets.root)
        self._tables[H_ROOT] = root

    def _write_escapes(self, which: tuple[Ranges, Ranges]) -> None:
        for place, ranges in zip((H_ESCAPED, H_CODED), which, strict=True):
            at = self._add([len(ranges), *(number for pair in ranges for number in pair)])
            self._tables[place] = at

    def _add(self, numbers: Sequence[int] | Int64s) -> int:
        """Puts numbers at the end; returns where they are."""
        first, end = self._size, self._size + len(numbers)
        if end > len(self._tables):
            self._tables = _longer(self._tables, max(end, 2 * len(self._tables)))
        self._tables[first:end] = numbers
        self._size = end
        return first

    def _add_bytes(self, data: bytes) -> int:
        first, end = self._num_literals, self._num_literals + len(data)
        if end > len(self._literals):
            self._literals = _longer(self._literals, max(end, 2 * len(self._literals)))
        self._literals[first:end] = np.frombuffer(data, np.uint8)
        self._num_literals = end
        return first

    def _value(self, number: int) -> int:
        """The row of a set in `values`."""
        row = self._number_of.get(number)
        if row is None:
            row = self._number_of[number] = len(self._set_of)
            self._set_of.append(number)
            if row == len(self._values):
                self._values = _longer(self._values, 2 * row)
                self._values[row:] = 0
        return row

    def work_out_all(self) -> None:
        """Works out every set that the root leads to, so that nothing can turn out to be unsupported later
        on. Of the sets where nothing can, only the first ones: the others wait until they are reached."""
        row = 0
        while row < len(self._set_of):
            parts = self._sets.simple_parts(self._set_of[row]) if row >= _EAGER else None
            for part in parts or ():
                self._value(part)
            if parts is None and not self._values[row, V_KNOWN]:
                self.work_out(row)
            row += 1

    def work_out(self, row: int) -> None:
        """Fills in a row of `values`. Raises `UnsupportedConstraint`."""
        number = self._set_of[row]
        forms = self._sets.forms(number)
        found = [0] * VALUE_COLUMNS
        found[V_KNOWN] = 1
        found[V_WORDS] = sum(_WORD_BITS[word] for word in forms.words)
        if forms.numbers:
            found[V_NUMBERS] = self._automaton(forms.numbers)
        if forms.strings:
            found[V_STRINGS] = self._strings(forms.strings)
        objects = [self._object(form) for form in forms.objects]
        found[V_OBJECTS] = self._add([len(objects), *objects])
        arrays = [self._array(form) for form in forms.arrays]
        found[V_ARRAYS] = self._add([len(arrays), *arrays])
        self._values[row] = found

    def _automaton(self, numbers: tuple[Numbers, ...]) -> int:
        known = self._automata.get(numbers)
        if known is None:
            dfa = number_dfa(numbers, self._style)
            at = self._add([len(dfa.accepting)])
            self._add(dfa.table.ravel().astype(np.int64))
            self._add(dfa.accepting.astype(np.int64))
            known = self._automata[numbers] = at
        return known

    def _language(self, strings: Strings) -> int:
        """The number of the regular part of some strings."""
        regular = Strings(strings.every, strings.none, strings.low, strings.high)
        number = self._language_of.setdefault(regular, len(self.strings))
        if number == len(self.strings):
            self.strings.append(regular)
        return number

    def _strings(self, shapes: tuple[Strings, ...]) -> int:
        contains = self._languages.contains
        words: dict[str, int] = {}
        for shape in shapes:
            for word in shape.excluded if shape.only is None else shape.only:
                if word not in words:
                    alone = len(shapes) == 1 and shape.only is not None
                    words[word] = int(alone or any(contains(one, word) for one in shapes))
        regions = [(self._language(shape), 0) for shape in shapes if shape.only is None]
        return self._text_table(words.items(), regions, is_keys=False)

    def _text_table(
        self, words: Iterable[tuple[str, int]], regions: Sequence[tuple[int, int]], *, is_keys: bool
    ) -> int:
        """Literals with their labels, and regions as languages and options. A word with a lone surrogate
        cannot be written and is left out."""
        spelled = sorted((word.encode("utf-8", "surrogatepass"), label) for word, label in words)
        spelled = [(data, label) for data, label in spelled if not _has_surrogate(data)]
        first = self._add_bytes(b"".join(data for data, _ in spelled))
        lengths = np.array([0, *(len(data) for data, _ in spelled)], np.int64)
        ends = self._add(first + np.cumsum(lengths))
        labels = self._add([label for _, label in spelled])
        listed = self._add([number for region in regions for number in region])
        return self._add([int(is_keys), len(spelled), ends, labels, len(regions), listed])

    def _options(self, options: Iterable[Option]) -> int:
        found = [number for option in options for number in (self._value(option.value), option.marks)]
        return self._add([len(found) // 2, *found])

    def _object(self, form: ObjectForm) -> int:
        order = sorted(range(len(form.keys)), key=lambda index: not form.keys[index].declared)
        place = {index: at for at, index in enumerate(order)}
        keys = [form.keys[index] for index in order]
        table = self._text_table(
            ((key.name, at) for at, key in enumerate(keys)),
            [self._region(one) for one in form.regions],
            is_keys=True,
        )
        none = self._add([0])
        described = []
        for key in keys:
            implied = [place[one] for one in key.implies]
            described += [self._options(key.options) if key.options else none]
            described += [self._add([len(implied), *implied]) if implied else none]
        num_words = -(-len(keys) // BITS)
        covers = none
        if form.num_exists:
            marks = [one.marks for region in form.regions for one in region.options]
            fewest = fewest_marked(form.num_exists, marks)
            covers = self._add([MAX_NUMBER if one is None else one for one in fewest])
        return self._add(
            [
                table,
                len(keys),
                sum(key.declared for key in keys),
                min(form.low, MAX_NUMBER),
                _bound(form.high),
                form.num_exists,
                int(bool(form.regions)),
                self._add(described),
                num_words,
                self._add(_bits(keys, num_words, [key.required for key in keys])),
                int(any(key.implies for key in keys)),
                self._add(
                    _bits(keys, num_words, [bool(key.options) and not _unspelled(key.name) for key in keys])
                ),
                covers,
            ]
        )

    def _region(self, region: Region) -> tuple[int, int]:
        return self._language(region.names), self._options(region.options)

    def _array(self, form: ArrayForm) -> int:
        _check_counts(form)
        places = list(form.prefix)
        needed = self._needed_later(form, 0, ()) if form.unique else []
        if needed:
            places[0] = tuple(
                Option(number, option.marks)
                for option in places[0]
                if self._sets.num_values(number := self._without(option.value, needed), 1)
            )
        prefix = self._add([self._options(options) for options in places])
        bounds = [number for one in form.contains for number in (min(one.low, MAX_NUMBER), _bound(one.high))]
        at = self._add(
            [
                len(form.prefix),
                prefix,
                self._options(form.rest),
                min(form.low, MAX_NUMBER),
                _bound(form.high),
                len(form.contains),
                self._add(bounds),
                int(form.unique),
            ]
        )
        if form.unique:
            self._array_forms[at] = form
        return at

    def _has_more(self, number: int, count: int) -> bool:
        """Whether a set has more than so many values."""
        most, at_least = self._at_least.get(number, (False, 0))
        if count >= at_least and not most:
            limit = max(64, 2 * count)
            at_least = self._sets.num_values(number, limit)
            self._at_least[number] = at_least < limit, at_least
        return count < at_least

    def _without(self, number: int, values: Iterable[object]) -> int:
        for value in values:
            number = self._sets.without(number, value)
        return number

    def _needed_later(self, form: ArrayForm, count: int, before: Sequence[object]) -> list[object]:
        """The values that the item after `count` others, which are `before`, must leave to those after it, as
        there would be too few for all that must come. Items that are all of one set need not: it is known
        that there are enough."""
        if form.low - count < 2 or count >= len(form.prefix):
            return []
        gone = {canonical(value) for value in before}
        number_of: dict[Hashable, int] = {}
        known: list[object] = []
        values: list[list[int]] = []
        places: list[int] = []
        size = min(form.low, len(form.prefix))
        for first, end in (*((place, place + 1) for place in range(count + 1, size)), (size, form.low)):
            options = form.prefix[first] if first < len(form.prefix) else form.rest
            lists = [self._sets.few_values(option.value, form.low) for option in options]
            if end <= first or any(some is None for some in lists):
                continue  # one of so many is always left
            row: dict[int, None] = {}
            for value in (value for some in lists for value in some or ()):
                key = canonical(value)
                if key not in gone:
                    if key not in number_of:
                        known.append(value)
                    row[number_of.setdefault(key, len(known) - 1)] = None
            places += [len(values)] * (end - first)
            values.append(list(row))
            if len(places) * sum(map(len, values)) > _MAX_MATCHED:
                reason = "it takes too much to know which values the first items must leave to later ones"
                raise UnsupportedConstraint("uniqueItems", "#", reason, field="schema")
        return [known[number] for number in indispensable(places, values)]

    def item_done(self, template: int, count: int, seen: int, value: object) -> int:
        """Where `tables` says which items an array has once one more is there; `count` has it already."""
        form, before = self._array_forms[template], self._seen[seen]
        options = form.prefix[count] if count < len(form.prefix) else form.rest
        values = (*before.values, value)
        left: dict[int, int] = {}
        found = []
        needed = self._needed_later(form, count, values)
        for option in options:
            number = before.left.get(option.value)
            if number is None:
                number = option.value
                for one in before.values:
                    number = self._sets.without(number, one)
            number = left[option.value] = self._sets.without(number, value)
            number = self._without(number, needed)
            some = self._has_more(option.value, len(values) + len(needed))
            if some or self._sets.num_values(number, 1):
                found.append(Option(number, option.marks))
        at = self._add([0, 0])
        self._tables[at : at + 2] = len(self._seen), self._options(found)
        self._seen[at] = SeenItems(values, left)
        return at


def _check_counts(form: ArrayForm) -> None:
    """Refuses arrays for which the machine cannot tell whether all that is counted can be met."""
    if len(form.contains) > _MAX_CONTAINS:
        reason = f"more than {_MAX_CONTAINS} `contains`, or what counts like one, hold of one array"
        raise UnsupportedConstraint(*form.contains[_MAX_CONTAINS].origin, reason)
    if len(form.contains) == _MAX_CONTAINS:
        for options in (*form.prefix, form.rest):
            if {option.marks for option in options} != set(range(1 << _MAX_CONTAINS)):
                reason = (
                    "two of them hold of one array, and whether an item counts for one depends on the other"
                )
                raise UnsupportedConstraint(*form.contains[-1].origin, reason)
    for one in form.contains:
        if one.low >= 1 << 31 or (one.high or 0) >= 1 << 31:
            raise UnsupportedConstraint(*one.origin, "it counts to more than the limit of 2,147,483,647")


def _bits(keys: Sequence[Key], num_words: int, which: Sequence[bool]) -> list[int]:
    words = [0] * num_words
    for at in range(len(keys)):
        if which[at]:
            words[at // int(BITS)] |= 1 << (at % int(BITS))
    return words


def _bound(high: int | None) -> int:
    return int(NO_END) if high is None or high > MAX_NUMBER else high


def _unspelled(name: str) -> bool:
    return any(0xD800 <= ord(one) < 0xE000 for one in name)


def _has_surrogate(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return True
    return False


def _longer(array: Any, room: int) -> Any:
    longer = np.zeros((room, *array.shape[1:]), array.dtype)
    longer[: len(array)] = array
    return longer
