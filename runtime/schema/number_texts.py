"""Automata for the JSON texts of sets of numbers.

What they take is exact: a text is taken only if its value is in the set. Of the spellings of a member they
take

- every one without exponent: any number of zeros at the end (`1`, `1.0`, `-0`);
- where the set is all numbers of a sign, with 0 or without, every spelling that JSON has;
- otherwise the scientific ones, d or d.ddd with an exponent (`1e20`, `1.5E+07`, `0e3`), that all conditions
  decide: bounds and exclusions decide all of them, multiples and integers those that `number_multiples.py`
  names. Spellings such as `12e3` and `0.5e1` are left out.

Where a set asks for a spelling, they take those of these that have it. Style "plain" leaves of all these one
to a number: no exponent, no zero at the end of a fraction, no point without fraction, no `-0`.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from treille.runtime.grammar.automaton import Flags, Table
from treille.runtime.schema.decimals import Far, mantissa_of, spelled, to_number, writable
from treille.runtime.schema.number_bounds import plain_bound, scientific_bound
from treille.runtime.schema.number_exponents import Wanted, any_exponent
from treille.runtime.schema.number_multiples import check_states, plain_multiples, scientific_multiples
from treille.runtime.schema.number_points import plain_others, scientific_others, texts_of_points
from treille.runtime.schema.number_rows import (
    NO_DIGIT,
    NO_TEXT,
    NOWHERE,
    NUM_SYMBOLS,
    SYMBOLS,
    Rows,
    Texts,
    any_of,
    both,
    either,
    minimal,
    signed,
)
from treille.runtime.schema.numbers import Numbers

__all__ = ["NUM_SYMBOLS", "SYMBOLS", "NumberDfa", "number_dfa", "prepare_numbers"]

_FEW = 12
_ZERO = Fraction(0)


@dataclass(frozen=True, slots=True, eq=False)
class NumberDfa:
    """A minimal automaton over `SYMBOLS`. From every state there is a way to acceptance; 0 is the start.

    `table`: int32 [n, 15], -1 where a symbol is not allowed. `accepting`: bool [n]. Both are read-only.
    """

    table: Table
    accepting: Flags

    def __post_init__(self) -> None:
        if self.table.shape != (len(self.accepting), NUM_SYMBOLS) or not len(self.accepting):
            raise ValueError(f"the table has shape {self.table.shape} for {len(self.accepting)} states")
        self.table.flags.writeable = False
        self.accepting.flags.writeable = False

    def accepts(self, text: str) -> bool:
        """Whether a text is taken."""
        state = 0
        for char in text:
            symbol = SYMBOLS.find(char)
            if symbol < 0:
                return False
            state = int(self.table[state, symbol])
            if state < 0:
                return False
        return bool(self.accepting[state])


def prepare_numbers() -> None:
    """Loads the compiled loops now, so that no schema waits for them: some 50 ms once they are compiled."""
    number_dfa((Numbers(low=Fraction(-8), multiples=frozenset((Fraction(7),))),))


@lru_cache(maxsize=512)
def number_dfa(shapes: tuple[Numbers, ...], style: str = "json") -> NumberDfa:
    """The automaton of the numbers in any of `shapes`; `style` is "json", or "plain" for one text a number.

    Raises ValueError if no number is in any of them, or in style "plain" none but integers that may not be
    spelled as such; `UnsupportedConstraint` where it takes too many states.
    """
    if style not in ("json", "plain"):
        raise ValueError(f"unknown number style: {style!r}")
    points: dict[bool | None, set[Fraction]] = {}
    positive, negative = [], []
    for shape in shapes:
        few = shape.values(_FEW)
        if few is not None:
            points.setdefault(shape.whole, set()).update(few)
            continue
        one, other = _texts_of(shape)
        positive.append(one)
        negative.append(other)
    for whole, few_of_it in points.items():
        for sign, texts_of_sign in ((1, positive), (-1, negative)):
            values = frozenset(sign * value for value in few_of_it if sign * value >= 0)
            texts_of_sign.append(_every([_points(values), *_spelled(whole=whole)]))
    one, other = any_of(positive), any_of(negative)
    if style == "plain":
        one, other = _every([one, _only(zero=True)]), _every([other, _only(zero=False)])
    texts = signed(one, other)
    if texts.is_empty:
        raise ValueError("no number is in the set")
    return NumberDfa(*texts)


@lru_cache(maxsize=512)
def _texts_of(shape: Numbers) -> tuple[Texts, Texts]:
    """The texts of a set with very many numbers, without their signs: those from 0 on, those up to 0."""
    low, low_open, high, high_open = shape.tight_bounds()
    steps = [*_steps(shape), *_spelled(whole=shape.whole)]
    above = _within(low, high, low_open=low_open, high_open=high_open)
    below = _within(_negated(high), _negated(low), low_open=high_open, high_open=low_open)
    above_excluded = frozenset(value for value in shape.excluded if value >= 0)
    below_excluded = frozenset(-value for value in shape.excluded if value <= 0)
    above_far = frozenset(value for value in shape.far if not value.negative)
    below_far = frozenset(abs(value) for value in shape.far if value.negative)
    one = _every([above, *_without(above_excluded, above_far), *steps])
    if above is below and above_excluded == below_excluded and above_far == below_far:
        return one, one
    return one, _every([below, *_without(below_excluded, below_far), *steps])


def _steps(shape: Numbers) -> list[Texts]:
    """What multiples and integers ask for."""
    step = shape.step()
    ruled_out = {writable(multiple) for multiple in shape.not_multiples}
    if shape.integer is False:
        ruled_out.add(Fraction(1))
    asked = [(multiple, False) for multiple in sorted(ruled_out)]
    if step is not None:
        asked.insert(0, (step, True))
    for multiple, _ in asked:
        check_states(multiple, shape.place)
    return [_multiples(multiple, wanted=wanted) for multiple, wanted in asked]


def _spelled(*, whole: bool | None) -> list[Texts]:
    """What a spelling asks for."""
    if whole is None:
        return []
    rows = Rows()
    exponent = NOWHERE if whole else any_exponent(rows)
    dot = NOWHERE if whole else rows.add([rows.following + 1] * 10)
    if not whole:
        rows.loop(exponent=exponent, accepting=True)
    zero = rows.add(NO_DIGIT, dot=dot, exponent=exponent, accepting=whole)
    rows.start([zero] + [rows.loop(dot=dot, exponent=exponent, accepting=whole)] * 9)
    return [minimal(rows.texts())]


@lru_cache(maxsize=2)
def _only(*, zero: bool) -> Texts:
    """The one text without sign of each number: 3, 0.5, and `zero`."""
    rows = Rows()
    behind = rows.following
    rows.add([behind] + [behind + 1] * 9)
    rows.add([behind] + [behind + 1] * 9, accepting=True)
    first = rows.add(NO_DIGIT, dot=behind, accepting=zero)
    rows.start([first] + [rows.loop(dot=behind, accepting=True)] * 9)
    return minimal(rows.texts())


def _without(excluded: frozenset[Fraction], far: frozenset[Far]) -> list[Texts]:
    """What exclusions ask for."""
    if not excluded and not far:
        return []
    if excluded == {0} and not far:
        return [_sign(zero=False, more=True)]
    return [_other_points(excluded, far)]


def _every(conditions: list[Texts]) -> Texts:
    """The texts that all conditions take."""
    whole = _sign(zero=True, more=True)
    conditions = [condition for condition in conditions if condition is not whole]
    if not conditions:
        return whole
    texts = conditions[0]
    for condition in conditions[1:]:
        texts = minimal(both(texts, condition))
    return texts


@lru_cache(maxsize=512)
def _within(low: Fraction | None, high: Fraction | None, *, low_open: bool, high_open: bool) -> Texts:
    """The texts without sign of numbers within bounds."""
    if high is not None and (high < 0 or (high_open and high == 0)):
        return NO_TEXT
    if high == 0:
        return (
            NO_TEXT
            if low is not None and low >= 0 and (low_open or low > 0)
            else _sign(zero=True, more=False)
        )
    conditions = []
    if low is not None and low >= 0 and (low > 0 or low_open):
        wanted = Wanted(less=False, equal=not low_open, more=True)
        conditions.append(_bound(low, wanted) if low else _sign(zero=False, more=True))
    if high is not None:
        conditions.append(_bound(high, Wanted(less=True, equal=not high_open, more=False)))
    return _every(conditions)


def _negated(bound: Fraction | None) -> Fraction | None:
    return None if bound is None else -bound


@lru_cache(maxsize=4)
def _sign(*, zero: bool, more: bool) -> Texts:
    """Every JSON spelling, without sign, of zero or of all other numbers or of both."""
    rows = Rows()
    exponent = any_exponent(rows)
    of_zero, of_more = (exponent if zero else NOWHERE), (exponent if more else NOWHERE)
    behind = rows.loop(exponent=of_more, accepting=more)
    zeros = rows.add([rows.following] + [behind] * 9, exponent=of_zero, accepting=zero)
    whole = rows.loop(dot=rows.add([behind] * 10), exponent=of_more, accepting=more)
    first = rows.add(NO_DIGIT, dot=rows.add([zeros] + [behind] * 9), exponent=of_zero, accepting=zero)
    rows.start([first] + [whole] * 9)
    return minimal(rows.texts())


@lru_cache(maxsize=512)
def _bound(value: Fraction, wanted: Wanted) -> Texts:
    return minimal(either(plain_bound(value, wanted), scientific_bound(value, wanted)))


@lru_cache(maxsize=256)
def _points(values: frozenset[Fraction]) -> Texts:
    if len(values) == 1 and 0 not in values:
        return _point(*mantissa_of(*values))
    return minimal(texts_of_points(values))


def _point(digits: list[int], exponent: int) -> Texts:
    """The texts of one number above 0: those of the number that has a 1 for each of its digits, with its
    digits put in."""
    texts, places = _point_of_ones(len(digits), exponent)
    table = texts.table.copy()
    for (state, following), digit in zip(places, [*digits, *digits], strict=True):
        table[state, 1], table[state, digit] = NOWHERE, following
    return Texts(table, texts.accepting)


@lru_cache(maxsize=512)
def _point_of_ones(num_digits: int, exponent: int) -> tuple[Texts, list[tuple[int, int]]]:
    """The texts of 1.11 * 10**exponent, as many ones; and where each of these stands in the plain text, and
    then in the scientific one: the state before it and that after it."""
    value = Fraction((10**num_digits - 1) // 9) * Fraction(10) ** (exponent - num_digits + 1)
    texts = minimal(texts_of_points((value,)))
    places = []
    for text in (spelled(to_number(value)), "1." + "1" * (num_digits - 1) if num_digits > 1 else "1"):
        state = 0
        for char in text:
            following = int(texts.table[state, SYMBOLS.index(char)])
            if char == "1":
                places.append((state, following))
            state = following
    return texts, places


@lru_cache(maxsize=256)
def _other_points(values: frozenset[Fraction], far: frozenset[Far]) -> Texts:
    return minimal(either(plain_others(values, far), scientific_others(values, far)))


@lru_cache(maxsize=64)
def _multiples(multiple: Fraction, *, wanted: bool) -> Texts:
    plain = minimal(plain_multiples(multiple, wanted=wanted))
    return minimal(either(plain, scientific_multiples(multiple, wanted=wanted)))
