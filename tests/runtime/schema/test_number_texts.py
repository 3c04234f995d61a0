"""Automata of number texts, against the grammar of JSON as an expression and exact decimals."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from decimal import Decimal
from fractions import Fraction
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles.number_sets import any_numbers, has_text, is_member, is_whole, numbers, value_of

from treille.runtime.errors import UnsupportedConstraint
from treille.runtime.grammar.automaton import minimize
from treille.runtime.schema.decimals import spelled, to_number
from treille.runtime.schema.number_points import texts_of_points
from treille.runtime.schema.number_rows import minimal
from treille.runtime.schema.number_texts import SYMBOLS, NumberDfa, number_dfa
from treille.runtime.schema.numbers import ANY_NUMBER, Numbers, point

ALPHABET = "0159-+.eE"
JSON = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
FAR = re.compile(r"[eE][+-]?0*[1-9][0-9]{2}")
PLAIN = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")
ONE_A_NUMBER = re.compile(r"(?!-0$)-?(0|[1-9][0-9]*)(\.[0-9]*[1-9])?")
SCIENTIFIC = re.compile(r"-?([1-9](\.[0-9]{1,20})?|0(\.0+)?)[eE][+-]?[0-9]+")

DECIDED = [
    ANY_NUMBER,
    numbers(low=0),
    numbers(above=0),
    numbers(high="-0.0"),
    numbers(below=0),
    numbers(low=1),
    numbers(above=1),
    numbers(below=10),
    numbers(-90, 90),
    numbers(0, 1),
    numbers(above=0, below=1),
    numbers("0.05", "0.15"),
    numbers("1.5", "99.95"),
    numbers(above="-0.0015", high=1500),
    numbers(-500, -51),
    numbers(low="0.00001", high="1e5"),
    numbers(5, 5),
    numbers(0, 0),
    numbers("-1e5", "-1e5"),
    numbers(excluded=(0,)),
    numbers(excluded=(1, "0.5", "-1.5", 100)),
    numbers(excluded=(1, "1.05", "1.005", 50, "50.01")),
    numbers(low=0, excluded=(0, 10, "0.1")),
    numbers(integer=True),
    numbers(integer=False),
    numbers(low=0, integer=True),
    numbers(above=0, integer=True),
    numbers(high=-1, integer=True),
    numbers(1, 65535, integer=True),
    numbers(-15, 950, integer=True),
    numbers("0.5", "99.5", integer=True, excluded=(50,)),
    numbers(0, 5, integer=False),
    numbers(1, 5, integer=True),
    numbers(whole=True),
    numbers(whole=False),
    numbers(integer=True, whole=False),
    numbers(-5, 15, whole=True),
    numbers(-5, 15, integer=True, whole=False),
    numbers(above="-0.5", excluded=(0, 10), whole=True),
    numbers(low="0.5", multiples=(10,), whole=False),
    numbers(multiples=("0.01",)),
    numbers(multiples=("0.1", "0.01")),
    numbers(multiples=(100,)),
    numbers(low=0, multiples=(10,)),
    numbers(none_of=("0.1",)),
    numbers(none_of=(10,)),
    numbers(integer=True, none_of=(100,)),
]
NARROWED = [
    numbers(multiples=("0.25",)),
    numbers(multiples=("0.5",), low=0),
    numbers(multiples=(3,)),
    numbers(multiples=(5,)),
    numbers(multiples=(7,), low="-1e4", high=1000),
    numbers(multiples=("0.3",)),
    numbers(multiples=("1.5",)),
    numbers(multiples=("0.15", "0.1")),
    numbers(multiples=(15,), integer=True),
    numbers(multiples=(55,)),
    numbers(multiples=(3600,)),
    numbers(none_of=(3,)),
    numbers(none_of=("0.5", 15)),
    numbers(integer=True, none_of=(5,)),
    numbers(none_of=(5,), whole=True),
    numbers(multiples=(3,), none_of=(5,)),
    numbers(multiples=(3001,)),
]
UNIONS = [
    (numbers(low=0, integer=True), numbers(-1, 1)),
    (numbers(above=10, integer=True), numbers(below=0, integer=True)),
    (numbers(below=-5), numbers(above="5.5")),
    tuple(point(Decimal(text)) for text in ("1", "1.05", "1.009", "-50", "-50.01", "-5.005")),
    (point(0), point(5), point(Fraction(1, 10)), point(-500), numbers(low=900)),
    tuple(point(value) for value in (1, 10, 100, 1000, 10000, Fraction(1, 100))),
    (numbers(0, 3, whole=True), numbers(2, 5, integer=True, whole=False), point(4)),
    (numbers(whole=True), numbers(integer=False)),
    (numbers(whole=False), numbers(-1, 1, whole=True)),
]


@cache
def values() -> dict[str, Fraction]:
    """Every JSON number of up to six characters of `ALPHABET` whose exponent is small."""
    texts = ("".join(chars) for length in range(1, 7) for chars in product(ALPHABET, repeat=length))
    return {text: value_of(text) for text in texts if JSON.fullmatch(text) and not FAR.search(text)}


@cache
def spellings() -> dict[tuple[Fraction, bool], frozenset[str]]:
    """The same texts by what they say, and by whether they are spelled as whole numbers."""
    found = defaultdict[tuple[Fraction, bool], set[str]](set)
    for text, value in values().items():
        found[value, is_whole(text)].add(text)
    return {key: frozenset(texts) for key, texts in found.items()}


def members(shapes: tuple[Numbers, ...]) -> set[str]:
    """Those of the texts that are in one of the sets."""
    own = [
        texts
        for (value, whole), texts in spellings().items()
        if any(is_member(shape, value, whole) for shape in shapes)
    ]
    return set().union(*own)


def taken(dfa: NumberDfa, length: int) -> set[str]:
    """Every text of characters of `ALPHABET` that an automaton takes."""
    found = set()
    columns = [SYMBOLS.index(char) for char in ALPHABET]
    layer = [("", 0)]
    for _ in range(length + 1):
        found.update(text for text, state in layer if dfa.accepting[state])
        rows = dfa.table.tolist()
        layer = [
            (text + char, rows[state][column])
            for text, state in layer
            for char, column in zip(ALPHABET, columns, strict=True)
            if rows[state][column] >= 0
        ]
    return found


def check_form(dfa: NumberDfa) -> None:
    """Every state is reached, reaches acceptance, and is needed; the arrays are as promised."""
    assert dfa.table.dtype == np.int32
    assert dfa.accepting.dtype == np.bool_
    assert not dfa.table.flags.writeable
    assert not dfa.accepting.flags.writeable
    least = minimize(dfa.table, dfa.accepting)
    assert least is not None
    assert len(least[1]) == len(dfa.accepting)


@pytest.mark.parametrize("shapes", [(shape,) for shape in DECIDED + NARROWED] + UNIONS, ids=str)
def test_short_texts(shapes: tuple[Numbers, ...]) -> None:
    dfa = number_dfa(shapes)
    check_form(dfa)
    wanted = members(shapes)
    found = taken(dfa, 6)
    far = {text for text in found if FAR.search(text)}
    assert found - far <= wanted
    assert all(any(shape.contains(Decimal(text)) for shape in shapes) for text in far)
    assert {text for text in wanted if PLAIN.fullmatch(text)} <= found
    if not any(shape in NARROWED for shape in shapes):
        assert {text for text in wanted if SCIENTIFIC.fullmatch(text)} <= found


@pytest.mark.parametrize("shape", DECIDED[:5], ids=str)
def test_signs_alone_keep_every_spelling(shape: Numbers) -> None:
    found = {text for text in taken(number_dfa((shape,)), 6) if not FAR.search(text)}
    assert found == {text for text, value in values().items() if is_member(shape, value)}


def test_one_text_a_number() -> None:
    """The expression has for each of the short decimals one of its texts without exponent."""
    without = [text for text in values() if PLAIN.fullmatch(text)]
    found = [text for text in without if ONE_A_NUMBER.fullmatch(text)]
    assert {values()[text] for text in found} == {values()[text] for text in without}
    assert len({values()[text] for text in found}) == len(found) > 1000


@pytest.mark.parametrize("shapes", [(shape,) for shape in DECIDED + NARROWED] + UNIONS, ids=str)
def test_plain_style_is_one_text_a_number(shapes: tuple[Numbers, ...]) -> None:
    wanted = {text for text in members(shapes) if ONE_A_NUMBER.fullmatch(text)}
    if all(shape.whole is False and (shape.integer or shape.multiples) for shape in shapes):
        with pytest.raises(ValueError, match="no number"):
            number_dfa(shapes, "plain")
        assert not wanted
        return
    dfa = number_dfa(shapes, "plain")
    check_form(dfa)
    assert taken(dfa, 6) == wanted
    free = [shape for shape in shapes if shape.whole is None]
    free_values = {value for value, _ in spellings() if any(shape.contains(value) for shape in free)}
    texts = (spelled(to_number(value)) for value in free_values)
    assert all(dfa.accepts(text) for text in texts)


def test_plain_texts_by_hand() -> None:
    """What is possible after each beginning."""

    def follows(shape: Numbers, beginning: str) -> str:
        dfa = number_dfa((shape,), "plain")
        state = 0
        for char in beginning:
            state = int(dfa.table[state, SYMBOLS.index(char)])
        found = "".join(SYMBOLS[symbol] for symbol in np.flatnonzero(dfa.table[state] >= 0))
        return found + "$" * bool(dfa.accepting[state])

    assert follows(point(1), "") == "1" and follows(point(1), "1") == "$"
    assert follows(point(0), "") == "0" and follows(point(0), "0") == "$"
    assert follows(point(Fraction(-1, 2)), "") == "-" and follows(point(Fraction(-1, 2)), "-0.5") == "$"
    assert follows(numbers(1, 5, integer=True), "5") == "$"
    assert follows(numbers(1, 15, integer=True), "1") == "012345$"
    assert follows(numbers(0, 1), "1") == "$" and follows(numbers(0, 1), "0.50") == "0123456789"
    assert follows(numbers(-1, 0), "-0") == "." and follows(numbers(-1, 0), "-") == "01"
    assert follows(numbers("1.5", "1.5"), "1.") == "5" and follows(numbers("1.5", "1.5"), "1.5") == "$"
    assert follows(numbers(multiples=("0.25",)), "3.") == "257"
    assert follows(numbers(multiples=("0.25",)), "3.2") == "5"
    assert follows(numbers(multiples=("0.25",)), "3.5") == "$"
    assert follows(numbers(1, "1.1", excluded=(1, "1.1")), "1.0") == "0123456789"
    assert follows(numbers(integer=False), "3") == "0123456789."


def close_texts(rng: random.Random, ends: Iterable[Fraction]) -> Iterator[str]:
    """Texts of numbers near some, plain and scientific, and of others."""
    for end in ends:
        digits = spelled_digits(end)
        for _ in range(12):
            cut = rng.randrange(len(digits) + 1)
            changed = digits[:cut] + "".join(rng.choice("0123456789") for _ in range(rng.randrange(4)))
            mantissa = (changed.lstrip("0") or "0")[:20]
            behind = mantissa[1:]
            exponent = rng.choice((-2, -1, 0, 0, 1, 2)) + magnitude(end)
            sign = rng.choice(("", "-")) if not end else "-" if end < 0 else ""
            point_and = f".{behind}" if behind and mantissa[0] != "0" else ""
            zeros = "0" * rng.randrange(3)
            mark = rng.choice("eE") + (
                rng.choice(("", "+")) + zeros + str(exponent)
                if exponent >= 0
                else "-" + zeros + str(-exponent)
            )
            yield f"{sign}{mantissa[0]}{point_and}{mark}"
            plain = format(abs(Decimal(f"{mantissa[0]}{point_and}E{exponent}")), "f")
            yield sign + plain
            yield sign + plain + ("" if "." in plain else ".") + "0" * (1 + rng.randrange(30))


def spelled_digits(value: Fraction) -> str:
    return "".join(map(str, Decimal(value.numerator * 10**12 // value.denominator).as_tuple().digits))


def magnitude(value: Fraction) -> int:
    return (Decimal(abs(value.numerator) or 1) / Decimal(value.denominator)).adjusted()


def check_text(dfa: NumberDfa, shapes: tuple[Numbers, ...], text: str) -> None:
    """A text is taken only if it should be, and if plain then whenever it should be."""
    assert JSON.fullmatch(text), text
    member = any(has_text(shape, text) for shape in shapes)
    if dfa.accepts(text):
        assert member, text
    elif member:
        assert not PLAIN.fullmatch(text), text
        tens = {Fraction(10) ** power for power in range(-6, 4)}
        steps = [*(shape.multiples for shape in shapes), *(shape.not_multiples for shape in shapes)]
        assert not (SCIENTIFIC.fullmatch(text) and all(step <= tens for step in steps)), text


@settings(max_examples=60, deadline=None)
@given(st.lists(any_numbers(), min_size=1, max_size=3), st.integers(0, 10**6))
def test_random_sets(shapes: list[Numbers], seed: int) -> None:
    assume(not all(shape.is_empty() for shape in shapes))
    union = tuple(shapes)
    dfa = number_dfa(union)
    check_form(dfa)
    rng = random.Random(seed)
    ends = {Fraction(0), Fraction(1), Fraction(rng.randrange(-(10**9), 10**9), 10 ** rng.randrange(7))}
    for shape in shapes:
        ends |= {*shape.excluded, *shape.multiples}
        ends |= {bound for bound in (shape.low, shape.high) if bound is not None}
        if not shape.is_empty():
            text = spelled(shape.sample(rng))
            assert dfa.accepts(text), text
            if ONE_A_NUMBER.fullmatch(text):
                assert number_dfa(union, "plain").accepts(text), text
    try:
        plain = number_dfa(union, "plain")
    except ValueError:  # integers only that must not be spelled as such
        assert all(shape.is_empty() or shape.whole is False for shape in shapes)
        return
    check_form(plain)
    for text in close_texts(rng, ends):
        check_text(dfa, union, text)
        one = ONE_A_NUMBER.fullmatch(text) is not None and any(has_text(shape, text) for shape in shapes)
        assert plain.accepts(text) == one, text


@settings(max_examples=60, deadline=None)
@given(any_numbers(), st.integers(0, 10**6))
def test_a_set_and_its_complement_share_no_text(shape: Numbers, seed: int) -> None:
    pieces = shape.complement()
    assume(pieces and not shape.is_empty())
    inside, outside = number_dfa((shape,)), number_dfa(pieces)
    for text in close_texts(random.Random(seed), [Fraction(0), shape.low or Fraction(7, 2)]):
        assert not (inside.accepts(text) and outside.accepts(text)), text
        if PLAIN.fullmatch(text):
            assert inside.accepts(text) != outside.accepts(text), text


@pytest.mark.parametrize("shape", [*DECIDED, *NARROWED], ids=str)
def test_any_walk_ends_in_a_member(shape: Numbers) -> None:
    rng = random.Random(11)
    dfa = number_dfa((shape,))
    for _ in range(40):
        text, state = "", 0
        while not (dfa.accepting[state] and rng.random() < 0.3) and len(text) < 16:
            allowed = np.flatnonzero(dfa.table[state] >= 0)
            if not len(allowed):
                break
            symbol = int(rng.choice(allowed))
            text, state = text + SYMBOLS[symbol], int(dfa.table[state, symbol])
        if dfa.accepting[state]:
            assert shape.contains(json.loads(text, parse_float=Decimal)), text


ROWS = [
    (
        numbers(-90, 90),
        "90 -90.000 89.999 9e1 9.0E+01 -9e1 1e-1000000 0e99999999 8.99e1 -0",
        "90.1 9.1e1 1e1000000 -1E+1000000 90.0001",
    ),
    (numbers(low=0), "0 -0 -0.0e7 1e1000000 12e5 0.5e-7", "-1 -0.1 -1e-1000000"),
    (numbers(above=0), "1 1e-1000000 0.01", "0 -0 0e5 -1"),
    (numbers(0, 1), "0 1 1.0 0.999 1e0 1e-7 9.9e-1 1e-00", "1.01 1e1 1.1e0 -0.1"),
    (
        numbers(integer=True),
        "1 1.0 -0 1e2 1e20 1E+20 1.5e+300 0.0e-3 1.50e1 1e00 1e1000000",
        "1.5 1e-1 1.55e1 1e-0000001 1e-1000000 true",
    ),
    (
        numbers(1, 65535, integer=True),
        "1 65535 65535.0 6.5535e4 6e4 1e4 1e0",
        "0 65536 6.5536e4 7e4 1e5 1e-1 00001",
    ),
    (numbers(multiples=("0.01",)), "4.35 0.07 19.99 1e-2 -4.35 1e300 4.35e0", "4.355 0.001 1e-3 4.355e0"),
    (
        numbers("-1e308", "1e308", multiples=("0.5",)),
        "0.5 1e308 1.5 -1e308 9e307 5e0 -1.0e+10",
        "0.25 1.1e308 1e309 1e-1",
    ),
    (numbers(high=10**400), "1 -1e999 1e400 9.99e399", "1e401 1.0000001e400 1e1000"),
    (numbers("1e-30", "2e-30"), "1e-30 2e-30 1.99999E-030", "1e-31 2.01e-30 0 1"),
    (numbers(low="-0.0", below="1.50"), "0 1.49999999999 -0", "1.5 1.50 15e-1 1.5e0 -0.1"),
    (numbers(integer=False), "3.5 0.1 1e-1 1.55e1", "3 3.0 1e0 1.5e1 0"),
    (numbers(excluded=(1,)), "0 2 1.1 1e1 1.0e1 10", "1 1.0 1e0 1.00e-0 10e-1"),
    (numbers(whole=True), "0 -0 1 -10 123456789", "1.0 1e2 0e0 0.0 01 1.5"),
    (numbers(whole=False), "1.0 1e2 0e0 -0.0 1.5 12e3 1E-1000000", "0 -0 1 -10"),
    (numbers(0, 10, integer=True, whole=False), "1.0 1e1 0e0 10.00", "0 1 1.5 11.0 1e2"),
    (numbers(whole=True, multiples=(3,)), "3 -12 0", "3.0 3e1 4"),
]


@pytest.mark.parametrize(("shape", "good", "bad"), ROWS, ids=str)
def test_texts_by_hand(shape: Numbers, good: str, bad: str) -> None:
    dfa = number_dfa((shape,))
    for text in good.split():
        assert dfa.accepts(text), text
    for text in bad.split():
        assert not dfa.accepts(text), text


def test_exactly_one_of_two_ranges() -> None:
    """Report B17: the union of what is in one and not in the other."""
    one, other = numbers(low=0, integer=True), numbers(high=10, integer=True)
    only = (
        *(one.meet(rest) for rest in other.complement()),
        *(other.meet(rest) for rest in one.complement()),
    )
    dfa = number_dfa(only)
    assert all(dfa.accepts(text) for text in ("11", "-1", "11.0", "1e2", "-5e0"))
    assert not any(dfa.accepts(text) for text in ("0", "5", "10", "1.5", "-0", "1e1", "-1.5", "5.0"))


@pytest.mark.parametrize("seed", range(4))
def test_a_point_by_itself_has_the_automaton_of_its_texts(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(150):
        value = Fraction(rng.randrange(1, 10 ** rng.randrange(1, 9))) * Fraction(10) ** rng.randrange(-9, 9)
        alone, texts = number_dfa((point(value),)), minimal(texts_of_points((value,)))
        assert np.array_equal(alone.table, texts.table), value
        assert np.array_equal(alone.accepting, texts.accepting), value


def test_many_points() -> None:
    shapes = tuple(point(value * value) for value in range(3000))
    dfa = number_dfa(shapes)
    check_form(dfa)
    squares = {value * value for value in range(3000)}
    for value in [*range(1000), 2999 * 2999, 2999 * 2999 + 1]:
        assert dfa.accepts(str(value)) == (value in squares)
        assert dfa.accepts(f"{value}.0") == (value in squares)
    assert dfa.accepts("1.6e1")
    assert not dfa.accepts("1.7e1")
    without = number_dfa((Numbers(excluded=frozenset(map(Fraction, squares))),))
    assert not without.accepts("8.994001e6")
    assert without.accepts("8.994002e6")


def test_sizes() -> None:
    assert len(number_dfa((ANY_NUMBER,)).accepting) <= 9
    assert len(number_dfa((numbers(low=0),)).accepting) <= 12
    assert len(number_dfa((numbers(-90, 90),)).accepting) <= 24
    assert len(number_dfa((numbers(1, 65535, integer=True),)).accepting) <= 63
    assert len(number_dfa((numbers(integer=True),)).accepting) <= 300
    assert len(number_dfa((numbers(integer=True),), "plain").accepting) <= 7
    assert len(number_dfa((numbers(whole=True),)).accepting) <= 4


@pytest.mark.parametrize("multiple", ["0.0000152587890625", "1000003", "1e-3900"])
def test_large_multiples_are_right_or_refused(multiple: str) -> None:
    shape = numbers(multiples=(multiple,))
    try:
        dfa = number_dfa((shape,))
    except UnsupportedConstraint as refusal:
        assert refusal.keyword == "multipleOf"
        return
    for factor in (0, 1, 3, -(10**5)):
        assert dfa.accepts(spelled(Decimal(multiple) * factor))


def test_refusals() -> None:
    with pytest.raises(UnsupportedConstraint, match=r"multipleOf at #: the multiples of 1000003 take"):
        number_dfa((numbers(multiples=(1000003,)),))
    with pytest.raises(ValueError, match="no number"):
        number_dfa((numbers(3, 2),))
    with pytest.raises(ValueError, match="no number"):
        number_dfa(())
    with pytest.raises(ValueError, match="style"):
        number_dfa((ANY_NUMBER,), "roman")


def test_the_same_question_is_answered_once() -> None:
    assert number_dfa((numbers(1, 7),)) is number_dfa((numbers(1, 7),))


WARMED = """
import sys
from fractions import Fraction
from numba.core.dispatcher import Dispatcher
from treille.runtime.schema.number_texts import number_dfa, prepare_numbers
from treille.runtime.schema.numbers import Numbers, point

def compiled():
    modules = [vars(one) for name, one in sys.modules.items() if name.startswith("treille.runtime.")]
    loops = [one for names in modules for one in list(names.values()) if isinstance(one, Dispatcher)]
    return sum(len(one.signatures) for one in loops)

prepare_numbers()
ready = compiled()
some = frozenset((Fraction(3), Fraction(1, 4)))
shapes = [Numbers(), Numbers(integer=True, high=Fraction(5)), Numbers(whole=True), point(3)]
shapes += [Numbers(multiples=some), Numbers(not_multiples=some, low=Fraction(2)), Numbers(excluded=some)]
for shape in shapes:
    number_dfa((shape,))
    number_dfa((shape,), "plain")
number_dfa(tuple(shapes[1:]))
assert ready > 5 and compiled() == ready, (ready, compiled())
"""


def test_what_was_prepared_need_not_be_compiled() -> None:
    subprocess.run([sys.executable, "-c", WARMED], check=True, timeout=300)
