"""`Numbers`: a set of numbers as a conjunction of simple ones, in exact arithmetic.

Numbers are those that JSON can write: decimal fractions (`decimals.py`). One third is in no set, and a
multiple of one third is in a set only if it is an integer.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from itertools import islice

from treille.runtime.schema.decimals import (
    Far,
    ceil_div,
    common_multiple,
    compare,
    digits_of,
    floor_div,
    is_decimal,
    is_multiple,
    num_free,
    size,
    to_number,
    writable,
)
from treille.runtime.schema.number_draws import draw

_FEW = 64
_SCAN = 1000
_ZERO = Fraction(0)
_ONE = Fraction(1)
_MAX_TERMS = 4096


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers that hold all of this at once.

    From `low` to `high` (None: no bound), which are in it themselves unless `low_open` or `high_open`.
    `integer`: only integers (True), only others (False), or both (None). Multiples of each of `multiples`,
    which are above 0, and of none of `not_multiples` (0 is a multiple of everything). Not one of `excluded`.
    `whole`: only integers, and spelled as such, like 1 and -0 (True); spelled with a point or an exponent,
    like 1.0, 1e2 and 1.5 (False); or both (None). That apart, a number is in it however it is spelled, and
    numbers that are equal are one. Not one of `far` either; what a complement would have of these is left
    out. `place`: the pointer of the `multipleOf` that asks for the longest of the
    multiples, for refusals.
    """

    low: Fraction | None = None
    low_open: bool = False
    high: Fraction | None = None
    high_open: bool = False
    integer: bool | None = None
    multiples: frozenset[Fraction] = frozenset()
    not_multiples: frozenset[Fraction] = frozenset()
    excluded: frozenset[Fraction] = frozenset()
    far: frozenset[Far] = frozenset()
    whole: bool | None = None
    place: str = field(default="#", compare=False)

    def meet(self, other: Numbers) -> Numbers:
        """The numbers in both. What contradicts itself at sight comes out as `NO_NUMBERS`."""
        if {True, False} in ({self.integer, other.integer}, {self.whole, other.whole}):
            return NO_NUMBERS
        integer = self.integer if other.integer is None else other.integer
        whole = self.whole if other.whole is None else other.whole
        if whole and integer is False:
            return NO_NUMBERS
        lower = other if _tighter(self.low, other.low, strict=other.low_open, sign=1) else self
        upper = other if _tighter(self.high, other.high, strict=other.high_open, sign=-1) else self
        multiples = self.multiples | other.multiples
        if len(multiples) > 1:
            multiples = frozenset((common_multiple(multiples),))
        both = Numbers(
            low=lower.low,
            low_open=lower.low_open,
            high=upper.high,
            high_open=upper.high_open,
            integer=None if whole else integer,
            multiples=multiples,
            not_multiples=self.not_multiples | other.not_multiples,
            excluded=self.excluded | other.excluded,
            far=self.far | other.far,
            whole=None if integer is False else whole,
            place=other.place if other._longest() > self._longest() else self.place,
        )
        return NO_NUMBERS if both._bounds_cross() else both

    def complement(self) -> tuple[Numbers, ...]:
        """The numbers not in it, as sets of which no two have a number in common (in one spelling) and none
        is empty."""
        if self._bounds_cross():
            return (ANY_NUMBER,)
        pieces: list[Numbers] = []
        if self.low is not None:
            pieces.append(Numbers(high=self.low, high_open=not self.low_open))
        if self.high is not None:
            pieces.append(Numbers(low=self.high, low_open=not self.high_open))
        rest = Numbers(self.low, self.low_open, self.high, self.high_open, place=self.place)
        if self.whole is not None:
            pieces.append(replace(rest, whole=not self.whole))
            rest = replace(rest, whole=self.whole)
        if self.integer is not None:
            pieces.append(rest.meet(Numbers(integer=not self.integer)))
            rest = rest.meet(Numbers(integer=self.integer))
        for multiple in sorted(self.multiples):
            pieces.append(replace(rest, not_multiples=frozenset((multiple,))))
            rest = replace(rest, multiples=rest.multiples | {multiple})
        for multiple in sorted(self.not_multiples):
            pieces.append(replace(rest, multiples=rest.multiples | {multiple}))
            rest = replace(rest, not_multiples=rest.not_multiples | {multiple})
        points = (point(value) for value in sorted(self.excluded) if rest.contains(value))
        pieces.extend(replace(one, whole=rest.whole) for one in points)
        return tuple(piece for piece in pieces if not piece.is_empty())

    def contains(self, value: int | Decimal | Fraction) -> bool:
        """Whether a number is in it: as read from JSON, where an int was spelled as a whole number and a
        Decimal was not, or as a Fraction in any spelling. Any exponent is decided at once; infinity and NaN
        are in none."""
        if not isinstance(value, Fraction) and self.whole not in (None, isinstance(value, int)):
            return False
        if isinstance(value, Decimal):
            if not value.is_finite():
                return False
            if self.far and Far.of(value) in self.far:
                return False
            if not -_SCAN < value.adjusted() < _SCAN and value:
                return self._contains_extreme(value)
        number = Fraction(value)
        if self.far and number.denominator == 1 and Far.of(Decimal(number.numerator)) in self.far:
            return False
        if self.low is not None and compare(number, self.low) < self.low_open:
            return False
        if self.high is not None and compare(self.high, number) < self.high_open:
            return False
        is_integer = number.denominator == 1
        if (is_integer and self.integer is False) or not (is_integer or self._fractions):
            return False
        if not is_decimal(number) or number in self.excluded:
            return False
        return all(is_multiple(number, multiple) for multiple in self.multiples) and not any(
            is_multiple(number, multiple) for multiple in self.not_multiples
        )

    def is_empty(self) -> bool:
        """Whether no number is in it."""
        return self._is_finite() and next(self._members(), None) is None

    def count(self, limit: int) -> int:
        """How many numbers are in it, or `limit` if there are at least so many.

        Raises `UnsupportedConstraint` for a large limit where very many multiples are ruled out.
        """
        if not self._is_finite():
            return max(limit, 0)
        step, first, last = self._places()
        if step is None or first is None or last is None or min(limit, last - first) <= _SCAN:
            return sum(1 for _ in islice(self._members(), max(min(limit, sys.maxsize), 0)))
        ratios = self._ratios(step)
        if 1 in ratios:
            return 0
        rest = replace(self, excluded=frozenset())
        missing = sum(1 for value in self.excluded if rest.contains(value))
        return min(limit, num_free(first, last, ratios, _MAX_TERMS, self.place) - missing)

    def values(self, limit: int) -> list[Fraction] | None:
        """All numbers in it, the smallest first; None if there are more than `limit`."""
        if not self._is_finite():
            return None
        found = list(islice(self._members(), min(max(limit, 0) + 1, sys.maxsize)))
        return found if len(found) <= limit else None

    def sample(self, rng: random.Random) -> int | Decimal:
        """A number in it, an integer as `int`: near the bounds or far away, with few digits or many.

        Raises ValueError if it is empty.
        """
        if self._is_finite():
            few = list(islice(self._members(), _FEW))
            if not few:
                raise ValueError("no number is in the set")
            if len(few) < _FEW:
                return self.read(rng.choice(few))
        step, first, last = self._places()
        return self.read(
            draw(rng, self.contains, step, (first, last), (self.low, self.high), self.not_multiples)
        )

    def read(self, value: Fraction) -> int | Decimal:
        """A number in it as `json` would read a spelling that is in it: an integer as `int` if it can be."""
        if self.whole is False and value.denominator == 1:
            return Decimal((int(value < 0), (*digits_of(abs(value.numerator)), 0), -1))
        return to_number(value)

    def step(self) -> Fraction | None:
        """The number that everything in it is a multiple of, if there is one."""
        if not self.multiples:
            return None if self._fractions else _ONE
        steps = [writable(multiple) for multiple in self.multiples]
        if not self._fractions:
            steps.append(_ONE)
        return common_multiple(steps)

    def tight_bounds(self) -> tuple[Fraction | None, bool, Fraction | None, bool]:
        """Its bounds (lowest, left out itself?, highest, left out itself?) as tight as its step makes them.

        Where that is one step from 0, they are 0, left out.
        """
        step, first, last = self._places()
        if step is None:
            return self.low, self.low_open, self.high, self.high_open
        low = None if first is None else _ZERO if first == 1 else first * step
        high = None if last is None else _ZERO if last == -1 else last * step
        return low, first == 1, high, last == -1

    @property
    def _fractions(self) -> bool:
        """Whether it may have numbers that are no integers."""
        return not self.integer and not self.whole

    def _longest(self) -> int:
        """More digits than any of its multiples has; 0 if there are none."""
        return max(map(size, (*self.multiples, *self.not_multiples)), default=0)

    def _bounds_cross(self) -> bool:
        """Whether the bounds alone leave nothing."""
        if self.low is None or self.high is None:
            return False
        order = compare(self.low, self.high)
        return order > 0 or (order == 0 and (self.low_open or self.high_open))

    def _places(self) -> tuple[Fraction | None, int | None, int | None]:
        """The step, and its first and last multiple between the bounds, in steps; None: there is none."""
        step, first, last = self.step(), None, None
        if step is None:
            return None, None, None
        if self.low is not None:
            first = ceil_div(self.low, step) if not self.low_open else floor_div(self.low, step) + 1
        if self.high is not None:
            last = floor_div(self.high, step) if not self.high_open else ceil_div(self.high, step) - 1
        return step, first, last

    def _ratios(self, step: Fraction) -> list[int]:
        """The numbers of steps whose multiples are ruled out; none divides another."""
        ruled_out = {writable(multiple) for multiple in self.not_multiples}
        if self.integer is False:
            ruled_out.add(_ONE)
        kept: list[int] = []
        for ratio in sorted(int(common_multiple((step, multiple)) / step) for multiple in ruled_out):
            if all(ratio % smaller for smaller in kept):
                kept.append(ratio)
        return kept

    def _is_finite(self) -> bool:
        """Whether only finitely many numbers are in it."""
        step, first, last = self._places()
        if step is None:
            return self.low is not None and self.high is not None and compare(self.low, self.high) >= 0
        if first is not None and last is not None:
            return True
        return bool(self.not_multiples or self.integer is False) and 1 in self._ratios(step)

    def _members(self) -> Iterator[Fraction]:
        """The numbers in a finite set, the smallest first."""
        step, first, last = self._places()
        if step is None:
            if self.low is not None and self.contains(self.low):
                yield self.low
            return
        ratios = self._ratios(step)
        if 1 in ratios or first is None or last is None:
            return
        for place in range(first, last + 1):
            if all(place % ratio for ratio in ratios) and place * step not in self.excluded:
                yield place * step

    def _contains_extreme(self, value: Decimal) -> bool:
        """`contains` for a number other than 0 that may be too long to write out."""
        own = [*self.multiples, *self.not_multiples, *self.excluded]
        own.extend(bound for bound in (self.low, self.high) if bound is not None)
        sign, digits, exponent = value.as_tuple()
        reach = max((size(number) for number in own), default=0) + len(digits)
        if not isinstance(exponent, int) or abs(value.adjusted()) <= reach:
            return self.contains(Fraction(value))
        if value.adjusted() < 0:  # nearer to 0 than any bound but 0, with more digits than any multiple
            inside = (self.low is None or self.low < 0 or (self.low == 0 and value > 0)) and (
                self.high is None or self.high > 0 or (self.high == 0 and value < 0)
            )
            return inside and self._fractions and not self.multiples
        if (self.high if value > 0 else self.low) is not None or self.integer is False:
            return False
        whole = int(Decimal((sign, digits, 0)))
        return all(_divides(multiple, whole, exponent) for multiple in self.multiples) and not any(
            _divides(multiple, whole, exponent) for multiple in self.not_multiples
        )


def _divides(multiple: Fraction, whole: int, exponent: int) -> bool:
    """Whether whole * 10**exponent is a multiple of `multiple`; the exponent is above 0, and of any size."""
    return whole * multiple.denominator * pow(10, exponent, multiple.numerator) % multiple.numerator == 0


def _tighter(bound: Fraction | None, other: Fraction | None, *, strict: bool, sign: int) -> bool:
    """Whether `other`, left out itself if `strict`, rules out what `bound` does and maybe more."""
    if bound is None or other is None:
        return bound is None
    order = compare(other, bound) * sign
    return order > 0 or (order == 0 and strict)


def point(value: int | Decimal | Fraction) -> Numbers:
    """The set of one number."""
    number = Fraction(value)
    return Numbers(low=number, high=number)


ANY_NUMBER = Numbers()
NO_NUMBERS = Numbers(low=_ZERO, low_open=True, high=_ZERO, high_open=True)
