"""Automata for texts of numbers that are less than, equal to or more than a given one.

Every builder here and in its sister files is exact on the texts it is for, and takes no others: plain ones
(no exponent, any number of zeros at the end) or scientific ones (one digit that is not 0 before the point,
any number behind it, an exponent with or without sign and leading zeros; or zeros alone, with an exponent).
"""

from __future__ import annotations

from fractions import Fraction

from treille.runtime.schema.decimals import mantissa_of, split
from treille.runtime.schema.number_exponents import Wanted, exponents, scientific_zero
from treille.runtime.schema.number_rows import NO_DIGIT, Rows, Texts, compared


def plain_bound(value: Fraction, wanted: Wanted) -> Texts:
    """Plain texts of numbers on the wanted sides of `value`, which is above 0."""
    whole, behind = split(value)
    rows = Rows()
    less, more = rows.loop(accepting=wanted.less), rows.loop(accepting=wanted.more)
    less_point, more_point = rows.add([less] * 10), rows.add([more] * 10)
    equal = rows.add([rows.following] + [more] * 9, accepting=wanted.equal)
    point = rows.add([equal] + [more] * 9)
    for digit in reversed(behind):
        point = rows.add(compared(digit, less, equal, more))
        equal = rows.add(compared(digit, less, equal, more), accepting=wanted.less)
    longer = rows.loop(dot=more_point, accepting=wanted.more)
    fewer = [longer] * 10
    at_equal = wanted.less if behind else wanted.equal
    states = (
        rows.add(fewer, dot=less_point, accepting=wanted.less),
        rows.add(fewer, dot=point, accepting=at_equal),
        rows.add(fewer, dot=more_point, accepting=wanted.more),
    )
    zero = rows.add(NO_DIGIT, dot=less_point, accepting=wanted.less)
    if whole == [0]:
        zero = rows.add(NO_DIGIT, dot=point, accepting=wanted.less)
    for digit in reversed(whole[1:]):
        states = (
            rows.add([states[0]] * 10, dot=less_point, accepting=wanted.less),
            rows.add(compared(digit, *states), dot=less_point, accepting=wanted.less),
            rows.add([states[2]] * 10, dot=less_point, accepting=wanted.less),
        )
    rows.start([zero, *compared(whole[0], *states)[1:]])
    return rows.texts()


def scientific_bound(value: Fraction, wanted: Wanted) -> Texts:
    """Scientific texts of numbers on the wanted sides of `value`, which is above 0."""
    mantissa, exponent = mantissa_of(value)
    rows = Rows()
    sides = [exponents(rows, exponent, Wanted(wanted.less, side, wanted.more)) for side in wanted]
    less, more = rows.loop(exponent=sides[0]), rows.loop(exponent=sides[2])
    row, side = [rows.following] + [more] * 9, sides[1]
    equal = rows.add(row, exponent=side)
    for digit in reversed(mantissa[1:]):
        row, side = compared(digit, less, equal, more), sides[0]
        equal = rows.add(row, exponent=side)
    first = (
        rows.add(NO_DIGIT, dot=rows.add([less] * 10), exponent=sides[0]),
        rows.add(NO_DIGIT, dot=rows.add(row), exponent=side),
        rows.add(NO_DIGIT, dot=rows.add([more] * 10), exponent=sides[2]),
    )
    rows.start([scientific_zero(rows, wanted=wanted.less), *compared(mantissa[0], *first)[1:]])
    return rows.texts()
