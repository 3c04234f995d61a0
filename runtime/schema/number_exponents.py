"""The part of a scientific text behind its `e`: a sign or none, zeros, digits; decided however long it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from treille.runtime.schema.decimals import digits_of
from treille.runtime.schema.number_rows import NO_DIGIT, NOWHERE, Rows, compared


class Wanted(NamedTuple):
    """Which sides of a number are wanted."""

    less: bool
    equal: bool
    more: bool


def exponents(rows: Rows, threshold: int, wanted: Wanted) -> int:
    """The state before exponents on the wanted sides of a threshold; nowhere if there are none."""
    if len(set(wanted)) == 1:
        return any_exponent(rows) if wanted.equal else NOWHERE

    def make() -> int:
        mirrored = Wanted(wanted.more, wanted.equal, wanted.less)
        above = (
            _size_bound(rows, threshold, wanted) if threshold >= 0 else _any_size(rows, wanted=wanted.more)
        )
        below = (
            _size_bound(rows, -threshold, mirrored) if threshold <= 0 else _any_size(rows, wanted=wanted.less)
        )
        return _before_sign(rows, above, below)

    return _shared(rows, (threshold, wanted), make)


def any_exponent(rows: Rows) -> int:
    """The state before any exponent."""

    def make() -> int:
        digits = _any_size(rows, wanted=True)
        return _before_sign(rows, digits, digits)

    return _shared(rows, "any", make)


def exponents_among(rows: Rows, values: frozenset[int], *, inside: bool) -> int:
    """The state before the exponents that are among `values`, or before all others."""
    if not values:
        return NOWHERE if inside else any_exponent(rows)

    def make() -> int:
        positive = _size_among(rows, {value for value in values if value >= 0}, inside=inside)
        negative = _size_among(rows, {-value for value in values if value <= 0}, inside=inside)
        return _before_sign(rows, positive, negative)

    return _shared(rows, (values, inside), make)


def scientific_zero(rows: Rows, *, wanted: bool) -> int:
    """The state after a first digit 0: zeros behind a point, and any exponent."""
    if not wanted:
        return NOWHERE
    exponent = any_exponent(rows)
    zeros = rows.add([rows.following] + [NOWHERE] * 9, exponent=exponent)
    return rows.add(NO_DIGIT, dot=rows.add([zeros] + [NOWHERE] * 9), exponent=exponent)


def _shared(rows: Rows, key: object, make: Callable[[], int]) -> int:
    """A state that is made once."""
    if key not in rows.exponents:
        rows.exponents[key] = make()
    return rows.exponents[key]


def _before_sign(rows: Rows, positive: list[int], negative: list[int]) -> int:
    """The state after an `e`, by where the first digit leads."""
    return rows.add_signed(positive, minus=rows.add(negative), plus=rows.add(positive))


def _any_size(rows: Rows, *, wanted: bool) -> list[int]:
    """Where the first digit of any exponent leads."""
    return [rows.loop(accepting=True)] * 10 if wanted else NO_DIGIT


def _size_bound(rows: Rows, bound: int, wanted: Wanted) -> list[int]:
    """Where the first digit of an integer leads that is on the wanted sides of `bound`, 0 or more."""
    longer = rows.loop(accepting=wanted.more)
    if bound == 0:
        return [rows.add([rows.following] + [longer] * 9, accepting=wanted.equal)] + [longer] * 9
    states = [rows.add([longer] * 10, accepting=side) for side in wanted]
    first, *others = digits_of(bound)
    for digit in reversed(others):
        rising = ([states[0]] * 10, compared(digit, *states), [states[2]] * 10)
        states = [rows.add(row, accepting=wanted.less) for row in rising]
    digits = compared(first, *states)[1:]
    return [rows.add([rows.following, *digits], accepting=wanted.less), *digits]


def _size_among(rows: Rows, values: set[int], *, inside: bool) -> list[int]:
    """Where the first digit of an integer leads that is among `values`, or is not."""
    other = NOWHERE if inside else rows.loop(accepting=True)
    children: list[dict[int, int]] = [{}]  # a trie, each node before those below it
    ends = set()
    for value in values - {0}:
        node = 0
        for digit in digits_of(value):
            if digit not in children[node]:
                children[node][digit] = len(children)
                children.append({})
            node = children[node][digit]
        ends.add(node)
    states = [NOWHERE] * len(children)
    for node in range(len(children) - 1, -1, -1):
        below = children[node]
        digits = [states[below[digit]] if digit in below else other for digit in range(10)]
        if node:
            states[node] = rows.add(digits, accepting=(node in ends) == inside)
    return [rows.add([rows.following, *digits[1:]], accepting=(0 in values) == inside), *digits[1:]]
