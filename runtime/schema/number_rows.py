"""Small automata over the texts of numbers: building them row by row, joining them.

The symbols are those of `SYMBOLS`, in that order; a text here has no sign in front unless said otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from treille.runtime.grammar.automaton import Flags, Table
from treille.runtime.schema.number_minimal import smallest

SYMBOLS = "0123456789-+.eE"
NUM_SYMBOLS = len(SYMBOLS)
MINUS, PLUS, DOT, SMALL_E, LARGE_E = range(10, NUM_SYMBOLS)

NOWHERE = -1
NO_DIGIT = [NOWHERE] * 10


class Texts(NamedTuple):
    """A deterministic automaton; 0 is the start, and without states it takes nothing.

    `table`: int32 [n, 15], -1 where nothing goes on; `accepting`: bool [n].
    """

    table: Table
    accepting: Flags

    @property
    def is_empty(self) -> bool:
        """Whether it takes no text; right only of minimal ones."""
        return not len(self.accepting)


NO_TEXT = Texts(np.empty((0, NUM_SYMBOLS), np.int32), np.empty(0, np.bool_))


class Rows:
    """An automaton in the making. State 0 is the start; its row comes last."""

    def __init__(self) -> None:
        self._rows: list[list[int]] = [[NOWHERE] * NUM_SYMBOLS]
        self._accepting = [False]
        self._exponents: dict[object, int] = {}

    @property
    def exponents(self) -> dict[object, int]:
        """States that exponents begin at, by what they are for."""
        return self._exponents

    @property
    def following(self) -> int:
        """The state that comes next."""
        return len(self._rows)

    def add(
        self, digits: list[int], *, dot: int = NOWHERE, exponent: int = NOWHERE, accepting: bool = False
    ) -> int:
        """A state, by where ten digits, a point and an `e` go."""
        self._rows.append([*digits, NOWHERE, NOWHERE, dot, exponent, exponent])
        self._accepting.append(accepting)
        return len(self._rows) - 1

    def loop(self, *, dot: int = NOWHERE, exponent: int = NOWHERE, accepting: bool = False) -> int:
        """A state where every digit stays."""
        return self.add([self.following] * 10, dot=dot, exponent=exponent, accepting=accepting)

    def add_signed(self, digits: list[int], *, minus: int, plus: int) -> int:
        """The state after the `e`."""
        self._rows.append([*digits, minus, plus, NOWHERE, NOWHERE, NOWHERE])
        self._accepting.append(False)
        return len(self._rows) - 1

    def start(self, digits: list[int]) -> None:
        """Where the first digit leads."""
        self._rows[0][:10] = digits

    def texts(self) -> Texts:
        """The automaton."""
        return Texts(np.array(self._rows, np.int32), np.array(self._accepting))


def compared(digit: int, less: int, equal: int, more: int) -> list[int]:
    """Where ten digits go that are held against one."""
    return [less] * digit + [equal] + [more] * (9 - digit)


def minimal(texts: Texts) -> Texts:
    """The smallest automaton of the same texts."""
    if texts.is_empty:
        return NO_TEXT
    found = smallest(texts.table, texts.accepting)
    return NO_TEXT if found is None else Texts(*found)


def either(one: Texts, other: Texts) -> Texts:
    """The texts of one or both."""
    if one.is_empty or other.is_empty:
        return other if one.is_empty else one
    return Texts(*_product(one.table, one.accepting, other.table, other.accepting, 1))


def both(one: Texts, other: Texts) -> Texts:
    """The texts of both."""
    if one.is_empty or other.is_empty:
        return NO_TEXT
    return Texts(*_product(one.table, one.accepting, other.table, other.accepting, 2))


def any_of(several: Sequence[Texts]) -> Texts:
    """The texts of one or more of several, as a minimal automaton."""
    layer = list(several) or [NO_TEXT]
    while len(layer) > 1:
        pairs = zip(layer[::2], layer[1::2], strict=False)
        layer = [minimal(either(*pair)) for pair in pairs] + ([layer[-1]] if len(layer) % 2 else [])
    return layer[0]


def signed(positive: Texts, negative: Texts) -> Texts:
    """The texts of one as they are, and those of the other behind a minus sign; as a minimal automaton, if
    both are."""
    if negative.is_empty:
        return Texts(positive.table.copy(), positive.accepting.copy())
    if positive is negative and not positive.is_empty:
        table = np.concatenate((positive.table[:1], positive.table))
        table = _moved(table, 1)
        table[0, MINUS] = 1
        return Texts(table, np.concatenate((positive.accepting[:1], positive.accepting)))
    sizes = len(positive.accepting), len(negative.accepting)
    table = np.full((1 + sum(sizes), NUM_SYMBOLS), NOWHERE, np.int32)
    accepting = np.zeros(len(table), np.bool_)
    if sizes[0]:
        table[1 : 1 + sizes[0]] = _moved(positive.table, 1)
        accepting[1 : 1 + sizes[0]] = positive.accepting
        table[0] = table[1]
    if sizes[1]:
        table[1 + sizes[0] :] = _moved(negative.table, 1 + sizes[0])
        accepting[1 + sizes[0] :] = negative.accepting
        table[0, MINUS] = 1 + sizes[0]
    return minimal(Texts(table, accepting))


def _moved(table: Table, distance: int) -> Table:
    """The same rows with higher numbers."""
    return np.where(table < 0, table, table + np.int32(distance))


@njit(cache=True, nogil=True)
def _hash(key: np.int64, mask: int) -> np.int64:  # pragma: no cover
    """A place for a pair of states in a hash table."""
    mixed = key * np.int64(0x9E3779B97F4A7C1)
    return (mixed ^ (mixed >> np.int64(29))) & mask


@njit(cache=True, nogil=True)
def _rehashed(keys: NDArray[np.int64], count: int, size: int) -> Table:  # pragma: no cover
    """A hash table of the given size (a power of two) from pairs to their numbers."""
    slots = np.full(size, -1, np.int32)
    for number in range(count):
        place = _hash(keys[number], size - 1)
        while slots[place] >= 0:
            place = (place + 1) & (size - 1)
        slots[place] = number
    return slots


@njit(cache=True, nogil=True)
def _product(
    one: Table, one_accepting: Flags, other: Table, other_accepting: Flags, needed: int
) -> tuple[Table, Flags]:  # pragma: no cover
    """Pairs of states, numbered as they are reached. `needed`: how many of the two automata must take a text;
    if it is 1, one of them may be over (its state n)."""
    n, m = len(one_accepting), len(other_accepting)
    k = one.shape[1]
    capacity = max(64, n + m)
    keys = np.empty(capacity, np.int64)
    table = np.empty((capacity, k), np.int32)
    keys[0] = 0
    count = 1
    size = 256
    slots = _rehashed(keys, 1, size)
    at = 0
    while at < count:
        if count + k > capacity:
            capacity *= 2
            grown_keys = np.empty(capacity, np.int64)
            grown_keys[:count] = keys[:count]
            keys = grown_keys
            grown = np.empty((capacity, k), np.int32)
            grown[:at] = table[:at]
            table = grown
        if 2 * (count + k) > size:
            size *= 4
            slots = _rehashed(keys, count, size)
        a, b = keys[at] // (m + 1), keys[at] % (m + 1)
        for symbol in range(k):
            to_a = one[a, symbol] if a < n else -1
            to_b = other[b, symbol] if b < m else -1
            if (to_a < 0 and to_b < 0) or (needed == 2 and (to_a < 0 or to_b < 0)):
                table[at, symbol] = -1
                continue
            key = np.int64(to_a if to_a >= 0 else n) * (m + 1) + (to_b if to_b >= 0 else m)
            place = _hash(key, size - 1)
            while slots[place] >= 0 and keys[slots[place]] != key:
                place = (place + 1) & (size - 1)
            if slots[place] < 0:
                slots[place] = count
                keys[count] = key
                count += 1
            table[at, symbol] = slots[place]
        at += 1
    accepting = np.zeros(count, np.bool_)
    for number in range(count):
        a, b = keys[number] // (m + 1), keys[number] % (m + 1)
        in_a, in_b = a < n and one_accepting[a], b < m and other_accepting[b]
        accepting[number] = in_a + in_b >= needed
    return table[:count].copy(), accepting
