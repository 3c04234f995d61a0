"""Random members of sets of numbers, for examples and for tests that look for trouble."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from decimal import Decimal
from fractions import Fraction
from itertools import count
from math import ceil, floor

from treille.runtime.schema.decimals import scaled, writable

_ATTEMPTS = 60


def draw(
    rng: random.Random,
    contains: Callable[[Fraction], bool],
    step: Fraction | None,
    places: tuple[int | None, int | None],
    bounds: tuple[Fraction | None, Fraction | None],
    not_multiples: Collection[Fraction],
) -> Fraction:
    """A number that `contains` says yes to, of a set that has very many.

    Multiples of `step` from the first to the last of `places` (in steps), or, without a step, numbers within
    `bounds` that are multiples of none of `not_multiples`.
    """
    if step is not None:
        return _draw_multiple(rng, contains, step, *places)
    low, high = bounds
    deepest = max((scaled(writable(multiple))[1] for multiple in not_multiples), default=0)
    for attempt in count():
        digits = rng.choice((0, 1, 2, 3, deepest, deepest + 1, 17)) + attempt // 8
        if low is not None and high is not None:
            digits += _first_digit(high - low)
        unit = Fraction(1, 10**digits) if digits >= 0 else Fraction(10**-digits)
        place = _place(
            rng, None if low is None else ceil(low / unit), None if high is None else floor(high / unit)
        )
        if contains(place * unit):
            return place * unit
    raise AssertionError  # the loop has no end


def _draw_multiple(
    rng: random.Random,
    contains: Callable[[Fraction], bool],
    step: Fraction,
    first: int | None,
    last: int | None,
) -> Fraction:
    """A member among the multiples of `step`; one that no chance found is looked for one by one."""
    for _ in range(_ATTEMPTS):
        value = _place(rng, first, last) * step
        if contains(value):
            return value
    start, way = (first, 1) if first is not None else (1, 1) if last is None else (last, -1)
    return next(value for value in (place * step for place in count(start, way)) if contains(value))


def _place(rng: random.Random, first: int | None, last: int | None) -> int:
    """An integer from `first` to `last`: often close to one of them or to 0, sometimes far away."""
    distance = rng.randrange(10 ** rng.choice((1, 1, 2, 3, 6, 17)))
    if first is not None and last is not None:
        if last <= first:
            return first
        distance %= last - first + 1
        near_zero = min(max(rng.choice((-1, 1)) * distance, first), last)
        return rng.choice((first + distance, last - distance, rng.randint(first, last), near_zero))
    if first is not None:
        return first + distance
    return (0 if last is None else last) - distance * (1 if last is not None else rng.choice((-1, 1)))


def _first_digit(width: Fraction) -> int:
    """Digits after the point (before it if negative) so that a unit of the last is less than `width`."""
    return Decimal(width.denominator).adjusted() - Decimal(width.numerator).adjusted() + 2
