"""Automata for the texts of multiples of a number, and of the numbers that are none."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from treille.runtime.errors import UnsupportedConstraint
from treille.runtime.schema.decimals import factors, scaled, to_number
from treille.runtime.schema.number_exponents import Wanted, any_exponent, exponents, scientific_zero
from treille.runtime.schema.number_rows import DOT, NO_DIGIT, NOWHERE, NUM_SYMBOLS, Rows, Texts

MAX_STATES = 200_000
"""States a remainder automaton may have before it is made minimal."""

MAX_SIGNIFICANT = 20
"""Digits behind the point that a scientific text may have, zeros at the end aside."""

_MAX_SCIENTIFIC = 400


def check_states(multiple: Fraction, place: str) -> None:
    """Raises `UnsupportedConstraint` where `plain_multiples` takes more than `MAX_STATES` states."""
    modulus, power = _modulus(multiple)
    num_levels = abs(power) + 1
    if modulus * (num_levels + 1) + 3 > MAX_STATES:
        reason = f"the multiples of {to_number(multiple)} take more than {MAX_STATES} states"
        raise UnsupportedConstraint("multipleOf", place, reason)


def plain_multiples(multiple: Fraction, *, wanted: bool) -> Texts:
    """Plain texts of the multiples of a number above 0, or of the others; see `check_states`."""
    modulus, power = _modulus(multiple)
    return (
        _with_fraction(modulus, -power, wanted=wanted)
        if power < 0
        else _without(modulus, power, wanted=wanted)
    )


def scientific_multiples(multiple: Fraction, *, wanted: bool) -> Texts:
    """Scientific texts of multiples of a number above 0, or of others. Not all of them.

    Let m be r * 2**a * 5**b * 10**p, r free of 2 and 5, a or b 0; f the number of digits behind the point,
    zeros at the end aside; e the exponent. If r is 1, a text is a multiple for certain from
    e = f + p + max(a, b) on, and none below e = f + p; what is between is left out (nothing if m is a power
    of 10), and so is f > 20. Otherwise it is a multiple if r divides the digits written and e is as large,
    zeros at the end now counted, and none if r does not divide them; the rest is left out, and so are long
    mantissas (all, if r is above 400).
    """
    modulus, power = _modulus(multiple)
    rest, twos, fives = factors(modulus)
    rows = Rows()
    zero = scientific_zero(rows, wanted=wanted)
    if rest == 1:
        first = _by_length(rows, power + max(twos, fives) if wanted else power, wanted=wanted)
        rows.start([zero] + [first] * 9)
    else:
        rows.start([zero, *_by_remainder(rows, rest, power + max(twos, fives), wanted=wanted)])
    return rows.texts()


def _modulus(multiple: Fraction) -> tuple[int, int]:
    """(m, p) with multiple = m * 10**p and m not a multiple of 10."""
    whole, scale = scaled(multiple)
    rest, twos, fives = factors(whole)
    tens = min(twos, fives)
    return rest * 2 ** (twos - tens) * 5 ** (fives - tens), tens - scale


def _with_fraction(modulus: int, scale: int, *, wanted: bool) -> Texts:
    """Plain multiples of modulus / 10**scale: all digits up to the last that counts, as an integer modulo it.

    States: 0 the start, 1 after a 0 in front, 2 after digits that make it no multiple, then, for each
    remainder, before the point, right behind it, and after each digit that counts.
    """
    remainders = np.arange(modulus, dtype=np.int32)
    after = (10 * remainders[:, None] + np.arange(10, dtype=np.int32)) % modulus
    num_behind = max(scale, 1)
    table = np.full((3 + modulus * (2 + num_behind), NUM_SYMBOLS), NOWHERE, np.int32)
    accepting = np.zeros(len(table), np.bool_)
    table[0, 1:10] = 3 + after[0, 1:]
    table[0, 0] = 1
    table[1, DOT] = 3 + modulus
    table[2, :10] = 2
    accepting[1], accepting[2] = wanted, not wanted
    whole = slice(3, 3 + modulus)
    table[whole, :10] = 3 + after
    table[whole, DOT] = 3 + modulus + remainders
    accepting[whole] = (remainders * pow(10, scale, modulus) % modulus == 0) == wanted
    for level in range(num_behind + 1):
        here = slice(3 + modulus * (1 + level), 3 + modulus * (2 + level))
        if level < scale:
            table[here, :10] = 3 + modulus * (2 + level) + after
        else:
            table[here, :10] = 2
            table[here, 0] = 3 + modulus * (1 + num_behind) + remainders
        if level:
            missing = pow(10, max(scale - level, 0), modulus)
            accepting[here] = (remainders * missing % modulus == 0) == wanted
    return Texts(table, accepting)


def _without(modulus: int, power: int, *, wanted: bool) -> Texts:
    """Plain multiples of modulus * 10**power: the number of zeros at the end, up to `power`, and the
    remainder of what is in front of them.

    States: 0 the start, 1 after a 0 in front, 2 and 3 zeros behind the point of a multiple, 4 and 5 behind
    the point of another, then, for each number of zeros, the remainders.
    """
    remainders = np.arange(modulus, dtype=np.int32)
    table = np.full((6 + modulus * (power + 1), NUM_SYMBOLS), NOWHERE, np.int32)
    accepting = np.zeros(len(table), np.bool_)
    digits = np.arange(1, 10, dtype=np.int32)
    table[0, 1:10] = 6 + digits % modulus
    table[0, 0] = 1
    table[1, DOT] = 2
    table[2:4, :10] = 5
    table[2:4, 0] = 3
    table[4:6, :10] = 5
    accepting[[1, 3]], accepting[5] = wanted, not wanted
    for zeros in range(power + 1):
        here = slice(6 + modulus * zeros, 6 + modulus * (zeros + 1))
        shifted = remainders * pow(10, zeros + 1, modulus) % modulus
        table[here, 1:10] = 6 + (shifted[:, None] + digits) % modulus
        if zeros < power:
            table[here, 0] = 6 + modulus * (zeros + 1) + remainders
        else:
            table[here, 0] = 6 + modulus * power + 10 * remainders % modulus
        right = (remainders == 0) & (zeros == power)
        table[here, DOT] = np.where(right, 2, 4)
        accepting[here] = right == wanted
    return Texts(table, accepting)


def _by_length(rows: Rows, power: int, *, wanted: bool) -> int:
    """The state after the first digit, if e - f decides: from `power` on, or below it for what is none."""
    sides = Wanted(not wanted, wanted, wanted)
    after = [exponents(rows, power + length, sides) for length in range(MAX_SIGNIFICANT + 1)]
    # By digits that count, once so many are written as may be: zeros follow.
    states = [rows.add([rows.following] + [NOWHERE] * 9, exponent=state) for state in after]
    digits: list[int] = []
    for written in range(MAX_SIGNIFICANT - 1, -1, -1):
        digits = [NOWHERE] + [states[written + 1]] * 9
        if written:
            states = [
                rows.add([states[length], *digits[1:]], exponent=after[length])
                for length in range(written + 1)
            ]
    point = rows.add([states[0], *digits[1:]])
    return rows.add(NO_DIGIT, dot=point, exponent=after[0])


def _by_remainder(rows: Rows, modulus: int, power: int, *, wanted: bool) -> list[int]:
    """The states after each first digit but 0, if the digits modulo `modulus` decide."""
    length = min(MAX_SIGNIFICANT, _MAX_SCIENTIFIC // modulus - 1)
    if length < 0:
        return [NOWHERE] * 9
    states: list[int] = []
    points: list[int] = []
    for written in range(length, -1, -1):
        right = exponents(rows, power + written, Wanted(False, True, True)) if wanted else NOWHERE
        wrong = NOWHERE if wanted else any_exponent(rows)
        digits = [
            [states[(10 * rest + digit) % modulus] for digit in range(10)] if states else NO_DIGIT
            for rest in range(modulus)
        ]
        if not written:
            points = [rows.add(row) for row in digits] if states else [NOWHERE] * modulus
            digits = [NO_DIGIT] * modulus
        states = [
            rows.add(
                digits[rest],
                dot=NOWHERE if written else points[rest],
                exponent=wrong if rest else right,
            )
            for rest in range(modulus)
        ]
    return [states[digit % modulus] for digit in range(1, 10)]
