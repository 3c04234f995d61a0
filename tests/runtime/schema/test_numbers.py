"""Sets of numbers: their algebra against membership worked out number by number."""

from __future__ import annotations

import random
from decimal import Decimal
from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles.number_sets import any_numbers, is_member, numbers, short_decimals

from treille.runtime.errors import UnsupportedConstraint
from treille.runtime.schema.decimals import MAX_DIGITS, exact, is_decimal, spelled, to_number
from treille.runtime.schema.numbers import ANY_NUMBER, NO_NUMBERS, Numbers, point

GRID = [Fraction(place, 100) for place in range(-1500, 1501)]


def spellings(value: Fraction) -> tuple[bool, ...]:
    """As a whole number, and with a point or an exponent, if it can be."""
    return (True, False) if value.denominator == 1 else (False,)


@settings(max_examples=80, deadline=None)
@given(any_numbers(), short_decimals() | st.sampled_from(GRID))
def test_membership(shape: Numbers, value: Fraction) -> None:
    assert shape.contains(value) == is_member(shape, value)
    number = to_number(value)
    assert shape.contains(number) == is_member(shape, value, isinstance(number, int))
    assert shape.contains(Decimal(number)) == is_member(shape, value, False)


@settings(max_examples=80, deadline=None)
@given(any_numbers(), any_numbers(), st.lists(short_decimals(30) | st.sampled_from(GRID), max_size=10))
def test_meet(one: Numbers, other: Numbers, values: list[Fraction]) -> None:
    both = one.meet(other)
    ends = [bound for bound in (one.low, one.high, other.low, other.high) if bound is not None]
    for value in [*values, *ends]:
        for spelled_as in spellings(value):
            assert is_member(both, value, spelled_as) == (
                is_member(one, value, spelled_as) and is_member(other, value, spelled_as)
            )
        assert both.contains(value) == is_member(both, value)
    assert len(both.multiples) <= max(1, len(one.multiples))


@settings(max_examples=80, deadline=None)
@given(any_numbers(), st.lists(short_decimals(30) | st.sampled_from(GRID), max_size=10))
def test_complement_is_every_other_number_once(shape: Numbers, values: list[Fraction]) -> None:
    pieces = shape.complement()
    ends = [bound for bound in (shape.low, shape.high) if bound is not None]
    for value in [*values, *ends, *shape.excluded]:
        for spelled_as in spellings(value):
            found = sum(is_member(piece, value, spelled_as) for piece in pieces)
            assert found == (not is_member(shape, value, spelled_as))
    assert not any(piece.is_empty() for piece in pieces)
    for one, other in combinations(pieces, 2):
        assert one.meet(other).is_empty()


@settings(max_examples=80, deadline=None)
@given(any_numbers(), short_decimals(12), st.integers(0, 1200))
def test_finite_sets_are_counted_and_listed(shape: Numbers, low: Fraction, width: int) -> None:
    finite = shape.meet(numbers(low=-14, high=14)).meet(Numbers(low=low, high=low + Fraction(width, 100)))
    step = Fraction(1, 100)
    assume(finite.multiples or finite.integer or finite.whole or finite.is_empty())
    assume(all((multiple / step).denominator == 1 for multiple in finite.multiples))
    near = [value for value in GRID if low <= value <= low + Fraction(width, 100)]
    expected = [value for value in near if is_member(finite, value)]
    assert finite.is_empty() == (not expected)
    assert finite.count(10**9) == len(expected)
    assert finite.values(2000) == expected
    for limit in (0, 1, 3):
        assert finite.count(limit) == min(limit, len(expected))
        assert finite.values(limit) == (expected if len(expected) <= limit else None)


@pytest.mark.parametrize(
    ("shape", "count"),
    [
        (numbers(1, 10**18, integer=True), 10**18),
        (numbers(-(10**30), 10**30, integer=True, none_of=(3,)), 2 * 10**30 - 2 * (10**30 // 3)),
        (numbers(0, 10**20, multiples=("0.01",), excluded=(0, "0.5", "0.001")), 10**22 + 1 - 2),
        (
            numbers(1, 10**12, integer=True, none_of=(2, 3, 6)),
            10**12 - 10**12 // 2 - 10**12 // 3 + 10**12 // 6,
        ),
        (
            numbers(1, 30 * 10**10, integer=True, none_of=(6, 10, 15)),
            10**10 * sum(1 for value in range(30) if value % 6 and value % 10 and value % 15),
        ),
        (numbers(1, 10**12, integer=True, none_of=("0.5",)), 0),
        (numbers(0, 100, multiples=("0.3", "0.2")), 167),
    ],
)
def test_large_sets_are_counted_without_a_walk(shape: Numbers, count: int) -> None:
    assert shape.count(10**40) == count
    assert shape.count(7) == min(7, count)
    assert shape.is_empty() == (count == 0)


def test_too_many_exclusions_at_once_are_refused() -> None:
    primes = [prime for prime in range(1000, 2000) if all(prime % factor for factor in range(2, 50))]
    shape = numbers(1, 10**300, integer=True, none_of=tuple(primes))
    assert not shape.is_empty()
    assert shape.count(1000) == 1000
    with pytest.raises(UnsupportedConstraint, match="multipleOf"):
        shape.count(10**20)


@pytest.mark.parametrize(
    "shape",
    [
        NO_NUMBERS,
        numbers(3, 2),
        numbers(2, 2, integer=False),
        numbers(integer=False, whole=True),
        numbers("0.1", "0.9", whole=True),
        numbers(above=0, below=0),
        numbers(low=1, below=1),
        numbers("0.1", "0.9", integer=True),
        numbers(above=3, below=4, integer=True),
        numbers(integer=True, none_of=("0.5",)),
        numbers(multiples=("0.3",), none_of=("0.1",)),
        numbers(above=0, below=7, multiples=(7,)),
        numbers(0, 2, integer=True, excluded=(0, 1, 2)),
        numbers("0.5", "0.5", excluded=("0.50",)),
        numbers(integer=False, multiples=(2,)),
        Numbers(multiples=frozenset((Fraction(1, 3),)), integer=False),
        Numbers(low=Fraction(1, 3), high=Fraction(1, 3)),
    ],
)
def test_empty(shape: Numbers) -> None:
    assert shape.is_empty()
    assert shape.values(5) == []
    assert shape.count(5) == 0
    with pytest.raises(ValueError, match="no number"):
        shape.sample(random.Random(0))


@pytest.mark.parametrize(
    "shape",
    [
        ANY_NUMBER,
        numbers(1, 1),
        numbers("0.1", "0.9", integer=False),
        numbers(1, 1, whole=True),
        numbers(1, 1, whole=False),
        numbers(above=0, below="1e-300"),
        numbers(integer=True, none_of=(2, 3, 5, 7)),
        numbers(0, 3, integer=True, excluded=(0, 1, 2)),
        numbers("0.1", "0.2", none_of=("0.01", "0.003")),
        Numbers(multiples=frozenset((Fraction(1, 3),))),
    ],
)
def test_not_empty(shape: Numbers) -> None:
    assert not shape.is_empty()
    assert shape.count(1) == 1
    assert shape.contains(shape.sample(random.Random(0)))


def test_a_multiple_that_is_no_decimal_still_has_integers() -> None:
    thirds = Numbers(multiples=frozenset((Fraction(1, 3),)), low=Fraction(0), high=Fraction(2))
    assert thirds.values(9) == [0, 1, 2]
    assert not thirds.contains(Fraction(1, 3))
    assert not ANY_NUMBER.contains(Fraction(1, 3))


def test_multiples_of_a_hundredth_are_decimal() -> None:
    cents = numbers(multiples=("0.01",))
    assert all(cents.contains(Decimal(text)) for text in ("4.35", "0.07", "19.99", "1e-2", "-0", "1e400"))
    assert not any(cents.contains(Decimal(text)) for text in ("4.355", "0.001", "1e-3"))


@settings(max_examples=100, deadline=None)
@given(
    any_numbers(),
    st.integers(-(10**6), 10**6),
    st.integers(1001, 1300) | st.integers(-1300, -1001),
)
def test_far_exponents(shape: Numbers, digits: int, exponent: int) -> None:
    """Decided without writing the number out, as is right for those that can be."""
    value = Decimal(digits).scaleb(exponent)
    assert shape.contains(value) == is_member(shape, Fraction(value), False)


@pytest.mark.parametrize(
    ("shape", "text", "inside"),
    [
        (ANY_NUMBER, "1e999999999999", True),
        (numbers(high=0), "1e-999999999999", False),
        (numbers(above=0), "1e-999999999999", True),
        (numbers(low=0), "-1e-999999999999", False),
        (numbers(high=10), "-1e999999999999", True),
        (numbers(integer=True), "1e999999999999", True),
        (numbers(integer=True), "1e-999999999999", False),
        (numbers(integer=False), "1e-999999999999", True),
        (numbers(integer=False), "1e999999999999", False),
        (numbers(multiples=(7,)), "7e999999999999", True),
        (numbers(multiples=(7,)), "8e999999999999", False),
        (numbers(none_of=(7,)), "8e999999999999", True),
        (numbers(none_of=("0.25",)), "3e999999999999", False),
        (numbers(integer=True), "0e-999999999999", True),
        (numbers(whole=True), "1e999999999999", False),
        (numbers(whole=False), "1e999999999999", True),
        (numbers(whole=False), "1e-999999999999", True),
        (ANY_NUMBER, "Infinity", False),
        (ANY_NUMBER, "NaN", False),
    ],
)
def test_exponents_without_end(shape: Numbers, text: str, inside: bool) -> None:
    assert shape.contains(Decimal(text)) == inside


@settings(max_examples=80, deadline=None)
@given(any_numbers(), st.integers(0, 100))
def test_samples_are_members(shape: Numbers, seed: int) -> None:
    assume(not shape.is_empty())
    rng = random.Random(seed)
    for _ in range(5):
        value = shape.sample(rng)
        is_integer = Fraction(value).denominator == 1
        assert isinstance(value, int) == (is_integer and shape.whole is not False)
        assert is_member(shape, Fraction(value), isinstance(value, int))
        assert shape.contains(value)
        assert Decimal(spelled(value)) == value
        assert "E" not in spelled(value)


@pytest.mark.parametrize(
    "shape",
    [
        ANY_NUMBER,
        numbers(low=0),
        numbers(high=-5),
        numbers(0, 1),
        numbers(1, 65535, integer=True),
        numbers(integer=True),
        numbers(whole=True),
        numbers(whole=False),
        numbers(multiples=("0.25",)),
        numbers(-(10**400), 10**400),
    ],
)
def test_samples_vary(shape: Numbers) -> None:
    rng = random.Random(3)
    assert len({shape.sample(rng) for _ in range(200)}) > 40


def test_samples_of_hard_sets() -> None:
    rng = random.Random(5)
    narrow = Numbers(low=Fraction(10**3000), high=Fraction(10**3000) + Fraction(1, 10**900), low_open=True)
    few = numbers(0, 10**4, integer=True, excluded=tuple(range(10**4)))
    rare = numbers(low=10**6, integer=True, excluded=tuple(range(10**6, 10**6 + 3000)))
    for shape in (narrow, few, rare, numbers(none_of=("1e-300",))):
        value = shape.sample(rng)
        assert is_member(shape, Fraction(value))
    assert few.sample(rng) == 10**4


def test_schema_numbers_are_read_exactly_or_refused() -> None:
    assert exact(Decimal("0.1")) == Fraction(1, 10)
    assert exact(Decimal("-0.0")) == 0
    assert exact(Decimal("0e999999999999")) == 0
    assert exact(-(10**300)) == -(10**300)
    for value in (Decimal("1e1000000000"), Decimal("-1e-1000000000"), 10 ** (MAX_DIGITS + 10)):
        with pytest.raises(UnsupportedConstraint, match="minimum at #/a"):
            exact(value, "minimum", "#/a")
    with pytest.raises(ValueError, match="not a number"):
        exact(Decimal("NaN"))


def test_points_and_constants() -> None:
    assert point(Decimal("1.50")) == Numbers(low=Fraction(3, 2), high=Fraction(3, 2))
    assert point(3).values(1) == [3]
    assert NO_NUMBERS.complement() == (ANY_NUMBER,)
    assert ANY_NUMBER.complement() == ()
    assert is_decimal(Fraction(3, 40))
    assert not is_decimal(Fraction(1, 6))
