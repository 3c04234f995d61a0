"""What tests of numbers share: sets, random ones too, and membership worked out anew from their fields."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

from hypothesis import strategies as st

from treille.runtime.schema.numbers import Numbers

Value = str | int


def numbers(
    low: Value | None = None,
    high: Value | None = None,
    *,
    above: Value | None = None,
    below: Value | None = None,
    integer: bool | None = None,
    multiples: tuple[Value, ...] = (),
    none_of: tuple[Value, ...] = (),
    excluded: tuple[Value, ...] = (),
    whole: bool | None = None,
) -> Numbers:
    """A set, written as schemas do: `above` and `below` are the bounds that are left out."""
    first, last = (low if above is None else above), (high if below is None else below)
    return Numbers(
        low=None if first is None else Fraction(first),
        low_open=above is not None,
        high=None if last is None else Fraction(last),
        high_open=below is not None,
        integer=integer,
        multiples=frozenset(map(Fraction, multiples)),
        not_multiples=frozenset(map(Fraction, none_of)),
        excluded=frozenset(map(Fraction, excluded)),
        whole=whole,
    )


def is_member(shape: Numbers, value: Fraction, whole: bool | None = None) -> bool:
    """Whether a decimal number is in a set, from the fields and the arithmetic of fractions alone. `whole`:
    spelled as a whole number or not; None: in some way."""
    ways = (value == int(value), False) if whole is None else (whole,)
    return (
        (shape.whole is None or shape.whole in ways)
        and (shape.low is None or (value > shape.low if shape.low_open else value >= shape.low))
        and (shape.high is None or (value < shape.high if shape.high_open else value <= shape.high))
        and (shape.integer is None or (value == int(value)) == shape.integer)
        and all(value % multiple == 0 for multiple in shape.multiples)
        and all(value % multiple != 0 for multiple in shape.not_multiples)
        and value not in shape.excluded
    )


def has_text(shape: Numbers, text: str) -> bool:
    """Whether a JSON number is in a set, in its spelling."""
    return is_member(shape, value_of(text), is_whole(text))


def is_whole(text: str) -> bool:
    """Whether a JSON number is spelled as a whole number."""
    return text.lstrip("-").isdigit()


def value_of(text: str) -> Fraction:
    """What a JSON number says."""
    return Fraction(Decimal(text))


def short_decimals(limit: int = 300) -> st.SearchStrategy[Fraction]:
    """Numbers of few digits, some of them tiny or large."""
    scale = st.sampled_from((Fraction(1), Fraction(1), Fraction(1, 10), Fraction(1, 100), Fraction(1, 10**6)))
    scales = st.one_of(scale, st.just(Fraction(1000)))
    return st.builds(lambda digits, unit: digits * unit, st.integers(-limit, limit), scales)


def multiples(*, most: int) -> st.SearchStrategy[frozenset[Fraction]]:
    """What `multipleOf` may say."""
    known = ("1", "2", "3", "5", "7", "10", "100", "0.1", "0.01", "0.5", "0.25", "0.3", "1.5", "12")
    return st.frozensets(st.sampled_from(known).map(Fraction), max_size=most)


def any_numbers() -> st.SearchStrategy[Numbers]:
    """Sets of all kinds, empty ones among them."""
    bound = st.none() | short_decimals()
    return st.builds(
        Numbers,
        low=bound,
        low_open=st.booleans(),
        high=bound,
        high_open=st.booleans(),
        integer=st.sampled_from((None, None, True, False)),
        multiples=st.just(frozenset()) | multiples(most=2),
        not_multiples=st.just(frozenset()) | multiples(most=2),
        excluded=st.just(frozenset()) | st.frozensets(short_decimals(12), max_size=4),
        whole=st.sampled_from((None, None, True, False)),
    )
