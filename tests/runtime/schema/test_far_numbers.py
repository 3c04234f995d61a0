"""Numbers that are too long to be written out, among items that must differ: against exact fractions."""

from __future__ import annotations

import random
import re
from decimal import Decimal
from fractions import Fraction

import pytest
from oracles.number_sets import numbers

from benchmarks.suite_cases import takes
from treille.runtime.grammar import Vocabulary
from treille.runtime.schema.compile import compile_json_schema
from treille.runtime.schema.decimals import Far, number_of_text
from treille.runtime.schema.number_texts import number_dfa
from treille.runtime.schema.numbers import Numbers
from treille.runtime.schema.values import canonical

SCIENTIFIC = re.compile(r"-?[1-9](\.[0-9]+)?[eE][+-]?[0-9]+")
FAR_VALUES = [
    f"{sign}{digits}e{power}" for sign in ("", "-") for digits in (1, 12, 5) for power in (4005, -4010)
]
LONG = ("1e99999999999999999999", "-2e-99999999999999999999", "1.25e5000", "1e" + "9" * 600)


@pytest.mark.parametrize("item", LONG)
def test_items_are_told_apart_and_none_is_refused(byte_vocab: Vocabulary, item: str) -> None:
    grammar = compile_json_schema({"type": "array", "uniqueItems": True}, byte_vocab, whitespace="compact")
    for text in (f"[{item},{item}0]", f"[{item},1,2]", f"[[{item}],[1]]", f'[{{"a":{item}}},{{"a":1}}]'):
        assert takes(grammar, text.encode()), text
    for text in (f"[{item},{item}]", f"[1,[{item}],[{item}]]", f'[{{"a":{item}}},{{"a":{item}}}]'):
        assert not takes(grammar, text.encode()), text


def test_one_number_in_all_spellings(byte_vocab: Vocabulary) -> None:
    grammar = compile_json_schema({"type": "array", "uniqueItems": True}, byte_vocab, whitespace="compact")
    for one in ("3e6000", "30e5999", "0.3e6001", "3.00e+06000"):
        for other in ("3e6000", "3.0e6000", "3" + "0" * 6000):
            assert not takes(grammar, f"[{one},{other}]".encode()), (one, other[:9])
        for other in ("-3e6000", "3e-6000", "3e6001", "3" + "0" * 200, "3.1e6000"):
            assert takes(grammar, f"[{one},{other}]".encode()), (one, other[:9])
    assert takes(grammar, b"[0e99999,1]")
    assert not takes(grammar, b"[0e99999,0]")


def test_integers_of_many_digits(byte_vocab: Vocabulary) -> None:
    grammar = compile_json_schema({"type": "array", "uniqueItems": True}, byte_vocab, whitespace="compact")
    long = "1" * 4400  # more than Python reads by itself
    for item, allowed in (("1", True), (long + "1", True), (long, False), (f"1.{long[1:]}e4399", False)):
        matcher = grammar.matcher()
        for byte in f"[{long},{item}".encode():
            matcher.accept(byte)
        assert matcher.allows(ord("]")) == allowed, item[:9]


def test_what_begins_like_a_long_number_can_be_ended(byte_vocab: Vocabulary) -> None:
    schema = {"type": "array", "uniqueItems": True, "minItems": 3, "items": {"minimum": 10**600}}
    grammar = compile_json_schema(schema, byte_vocab, whitespace="compact")
    matcher = grammar.matcher()
    for byte in b"[1e9999,1" + b"0" * 400:
        matcher.accept(byte)
    assert not matcher.allows(ord("0"))
    for byte in b"1" * 200 + b",1e601]":
        matcher.accept(byte)
    assert matcher.can_stop()


@pytest.mark.parametrize("seed", range(4))
def test_texts_of_all_other_numbers(seed: int) -> None:
    rng = random.Random(seed)
    ruled_out = rng.sample(FAR_VALUES, 3) + rng.sample(["0", "1e300", "1e-300", "12", "-5"], 2)
    read = [number_of_text(text) for text in ruled_out]
    far = frozenset(one for one in read if isinstance(one, Far))
    assert len(far) == 3
    near = frozenset(Fraction(one) for one in read if not isinstance(one, Far))
    dfa = number_dfa((Numbers(excluded=near, far=far),))
    values = {Fraction(Decimal(text)) for text in ruled_out}
    for text in (*ruled_out, *(some_spelling(rng, rng.choice(FAR_VALUES)) for _ in range(60))):
        allowed = Fraction(Decimal(text)) not in values
        if SCIENTIFIC.fullmatch(text):
            assert dfa.accepts(text) == allowed, text
        else:
            assert allowed or not dfa.accepts(text), text
    for text in ("1" + "0" * 299, "0." + "0" * 299 + "2", "5" * 5000):
        assert dfa.accepts(text)


def some_spelling(rng: random.Random, text: str) -> str:
    """A number near or equal to that of a text, spelled with an exponent or without."""
    sign, digits, power = Decimal(text).as_tuple()
    exponent = int(power) + rng.choice((0, 0, 0, 1, -1))
    if rng.random() < 0.2:
        return "-" * sign + format(Decimal((0, digits, exponent)), "f")
    places = rng.randrange(len(digits))
    whole, behind = digits[: places + 1], (*digits[places + 1 :], *([0] * rng.choice((0, 0, 1, 3))))
    mantissa = "".join(map(str, whole)) + ("." + "".join(map(str, behind)) if behind else "")
    exponent += len(digits) - places - 1
    more = rng.choice(("", "0", "+", "+00")) if exponent > 0 else ""
    return "-" * sign + mantissa + rng.choice("eE") + more + str(exponent)


def test_numbers_of_texts() -> None:
    for text in ("0", "-0", "12", "-1.50", "1e3", "-0.0e99999", "1.2e-4", "0.05E4001", "1e4000"):
        value = number_of_text(text)
        assert not isinstance(value, Far)
        assert Fraction(value) == Fraction(Decimal(text)), text
    assert number_of_text("1" * 5000) == int(Decimal("1" * 5000))
    assert isinstance(number_of_text("1.0"), Decimal)
    for text in ("1e4001", "100e3999", "0.01e4003", "-12.0e9999", "5e-4001", "-0.5e-4000", "0.00012e-3997"):
        found = number_of_text(text)
        assert isinstance(found, Far), text
        assert found == Far.of(Decimal(text)), text
        assert canonical(found) == canonical(Decimal(text)), text
    huge = number_of_text("1e" + "9" * 5000)
    assert huge == Far(negative=False, digits=(1,), exponent=int(Decimal("9" * 5000)))


def test_sets_without_them() -> None:
    ruled_out = (Decimal("12e5000"), Decimal("-3e-5000"))
    shape = numbers(low=-5).meet(Numbers(far=frozenset(map(Far.of, ruled_out))))
    for value in (*ruled_out, Decimal("1.20e5001"), 12 * 10**5000, Decimal("-30e-5001")):
        assert not shape.contains(value)
    for value in (Decimal("13e5000"), Decimal("12e5001"), Decimal("3e-5000"), 12):
        assert shape.contains(value)
    assert not shape.contains(Decimal("-12e5000"))
    assert not shape.is_empty()
    assert shape.count(9) == 9
