"""Exact arithmetic of decimal fractions: the numbers that JSON can write.

A number is a `Fraction` whose denominator has no prime factor but 2 and 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from math import gcd, lcm

from treille.runtime.errors import UnsupportedConstraint

MAX_DIGITS = 4000
"""Digits a number of a schema may have before its point, and after it: its automaton has a state for each."""


@dataclass(frozen=True, slots=True, order=True)
class Far:
    """A number that is too long to be written out: `digits` as an integer, the first and the last not 0,
    times 10**`exponent`. Over `MAX_DIGITS` zeros stand behind its digits, or between the point and them: so
    it is past every bound of a schema, or nearer to 0 than any, and no bounds leave few numbers with it."""

    negative: bool
    digits: tuple[int, ...]
    exponent: int

    @classmethod
    def of(cls, value: Decimal) -> Far:
        """A number in this form, be it far or not. Raises ValueError for what is not finite."""
        sign, digits, exponent = value.as_tuple()
        if not isinstance(exponent, int):
            raise ValueError(f"not a number: {value}")
        text = "".join(map(str, digits)).lstrip("0")
        short = text.rstrip("0")
        return cls(bool(sign), tuple(map(int, short)), exponent + len(text) - len(short) if short else 0)

    def __abs__(self) -> Far:
        return replace(self, negative=False)

    @property
    def scientific_exponent(self) -> int:
        """e, for the number as d.ddd * 10**e."""
        return self.exponent + len(self.digits) - 1


def exact(value: int | Decimal, keyword: str = "number", path: str = "#") -> Fraction:
    """A number of a schema, exactly.

    Raises `UnsupportedConstraint` for one with more than `MAX_DIGITS` digits on a side of its point, such as
    1e1000000, before it takes the memory.
    """
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise ValueError(f"not a number: {value}")
        _, digits, exponent = value.as_tuple()
        if not any(digits):
            return Fraction(0)
        if not isinstance(exponent, int) or value.adjusted() >= MAX_DIGITS or exponent < -MAX_DIGITS:
            raise UnsupportedConstraint(keyword, path, f"a number of more than {MAX_DIGITS} digits")
    elif value.bit_length() > 3.33 * MAX_DIGITS:
        raise UnsupportedConstraint(keyword, path, f"a number of more than {MAX_DIGITS} digits")
    return Fraction(value)


def number_of_text(text: str) -> int | Decimal | Far:
    """The number that a JSON text spells: an integer where it is spelled as a whole number, and `Far` where
    its exponent makes it too long to be written out."""
    mantissa, _, power = text.lower().partition("e")
    if not power:
        value = Decimal(text)
        return value if "." in text else int(value)
    whole, _, behind = mantissa.lstrip("-").partition(".")
    written = (whole + behind).lstrip("0")
    digits = written.rstrip("0")
    if not digits:
        return Decimal(0)
    exponent = int(Decimal(power)) - len(behind) + len(written) - len(digits)
    if exponent + len(digits) - 1 >= -MAX_DIGITS and exponent <= MAX_DIGITS:
        return Decimal(text)
    return Far(mantissa.startswith("-"), tuple(map(int, digits)), exponent)


def to_number(value: Fraction) -> int | Decimal:
    """The same number as Python's `json` would read it: an integer where it is one. It must be decimal."""
    if value.denominator == 1:
        return value.numerator
    whole, scale = scaled(value)
    return Decimal((int(whole < 0), tuple(digits_of(abs(whole))), -scale))


def spelled(value: int | Decimal) -> str:
    """Its plain JSON text, without an exponent: the automaton of any set that has the number takes it."""
    return format(Decimal(value), "f")


def scaled(value: Fraction) -> tuple[int, int]:
    """(w, k) with value = w / 10**k and k >= 0 as small as can be. Raises ValueError if it is not decimal."""
    rest, twos, fives = factors(value.denominator)
    if rest != 1:
        raise ValueError(f"{value} is no decimal fraction")
    scale = max(twos, fives)
    return value.numerator * 2 ** (scale - twos) * 5 ** (scale - fives), scale


def factors(value: int) -> tuple[int, int, int]:
    """(r, a, b) with value = r * 2**a * 5**b and r free of 2 and 5. `value` is above 0."""
    twos = (value & -value).bit_length() - 1
    value >>= twos
    fives = 0
    while value % 5 == 0:
        value //= 5
        fives += 1
    return value, twos, fives


def is_decimal(value: Fraction) -> bool:
    """Whether JSON can write it."""
    return value.denominator == 1 or factors(value.denominator)[0] == 1


def size(value: Fraction) -> int:
    """More digits than it has before its point, and more than it has after it (if it is decimal)."""
    return max(value.numerator.bit_length(), value.denominator.bit_length()) + 1


def writable(multiple: Fraction) -> Fraction:
    """The number whose multiples are those multiples of `multiple` that JSON can write."""
    return multiple * factors(multiple.denominator)[0]


def common_multiple(values: Iterable[Fraction]) -> Fraction:
    """The smallest number above 0 that is a multiple of each of them."""
    numerator, denominator = 1, 0
    for value in values:
        numerator = lcm(numerator, value.numerator)
        denominator = gcd(denominator, value.denominator)
    return Fraction(numerator, denominator or 1)


def compare(a: Fraction, b: Fraction) -> int:
    """-1, 0 or 1 as a is less than, equal to or more than b; some times as fast as their operators."""
    left, right = a.numerator * b.denominator, b.numerator * a.denominator
    return (left > right) - (left < right)


def floor_div(value: Fraction, step: Fraction) -> int:
    """The largest integer that is not above value / step."""
    return (value.numerator * step.denominator) // (value.denominator * step.numerator)


def ceil_div(value: Fraction, step: Fraction) -> int:
    """The smallest integer that is not below value / step."""
    return -((-value.numerator * step.denominator) // (value.denominator * step.numerator))


def is_multiple(value: Fraction, multiple: Fraction) -> bool:
    """Whether value / multiple is an integer."""
    return (value.numerator * multiple.denominator) % (value.denominator * multiple.numerator) == 0


def num_free(first: int, last: int, divisors: Sequence[int], limit: int, place: str = "#") -> int:
    """How many integers from `first` to `last` no divisor divides, by inclusion and exclusion.

    The divisors are above 1. Raises `UnsupportedConstraint` at `place` if there are more than `limit` terms.
    """
    if divisors and first <= 0 <= last:
        return num_free(first, -1, divisors, limit, place) + num_free(1, last, divisors, limit, place)
    if first > last:
        return 0
    largest = max(abs(first), abs(last))
    terms = {1: 1}
    for divisor in divisors:
        for old, sign in list(terms.items()):
            new = lcm(old, divisor)
            if new <= largest:
                terms[new] = terms.get(new, 0) - sign
        if len(terms) > limit:
            reason = "too many different multiples are ruled out at once"
            raise UnsupportedConstraint("multipleOf", place, reason)
    return sum(sign * (last // term - (first - 1) // term) for term, sign in terms.items())


def digits_of(value: int) -> list[int]:
    """The decimal digits of an integer that is not below 0, of any length."""
    return list(Decimal(value).as_tuple().digits)


def split(value: Fraction) -> tuple[list[int], list[int]]:
    """The digits before the point (at least one) and behind it, the last not 0; `value` is not below 0."""
    whole, scale = scaled(value)
    digits = digits_of(whole)
    digits = [0] * (scale + 1 - len(digits)) + digits
    return digits[: len(digits) - scale], digits[len(digits) - scale :]


def mantissa_of(value: Fraction) -> tuple[list[int], int]:
    """(digits, e) with value = d.ddd * 10**e, the first digit and the last not 0; `value` is above 0."""
    whole, scale = scaled(value)
    digits = digits_of(whole)
    exponent = len(digits) - 1 - scale
    while not digits[-1]:
        digits.pop()
    return digits, exponent
