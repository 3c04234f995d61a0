"""Sets of characters against `re` and `str`, over all of Unicode where that is quick."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from treille.runtime.grammar import charset

CODES = [*range(0xD800), *range(0xE000, 0x110000)]
CASED = [chr(code) for code in CODES if chr(code).lower() != chr(code) or chr(code).upper() != chr(code)]


def members(ranges: charset.Ranges) -> set[int]:
    return {code for low, high in ranges for code in range(low, high + 1)}


def is_proper(ranges: charset.Ranges) -> bool:
    inside = all(
        low <= high and any(a <= low and high <= b for a, b in charset.SCALARS) for low, high in ranges
    )
    apart = all(
        one[1] + 1 < two[0] or (one[1], two[0]) == (0xD7FF, 0xE000) for one, two in itertools.pairwise(ranges)
    )
    return inside and apart


def flags(ranges: charset.Ranges) -> NDArray[np.bool_]:
    """By code point, whether it is in the set."""
    found = np.zeros(0x110000, np.bool_)
    for low, high in ranges:
        found[low : high + 1] = True
    return found


@pytest.mark.parametrize(
    ("letter", "test"),
    [("d", str.isdecimal), ("s", str.isspace), ("w", lambda one: one.isalnum() or one == "_")],
)
def test_categories(letter: str, test: Callable[[str], bool]) -> None:
    scalars = flags(charset.SCALARS)
    want = np.fromiter(map(test, map(chr, range(0x110000))), np.bool_)
    small = want & (np.arange(0x110000) < 128)
    if letter == "s":
        small[0x1C:0x20] = False  # separators are white space in Unicode only
    for ascii_only, expected in ((False, want), (True, small)):
        assert np.array_equal(flags(charset.category(letter, ascii_only=ascii_only)), expected)
        assert np.array_equal(
            flags(charset.category(letter.upper(), ascii_only=ascii_only)), scalars & ~expected
        )


def test_every_cased_character_folds_as_in_re() -> None:
    text = "".join(CASED)
    for one in CASED:
        want = {ord(other) for other in re.findall(re.escape(one), text, re.IGNORECASE)}
        assert members(charset.ignore_case(((ord(one), ord(one)),), ascii_only=False)) == want, hex(ord(one))


def test_no_other_character_is_taken_for_a_cased_one() -> None:
    everything = "".join(map(chr, CODES))
    inside = re.escape("".join(CASED))
    found = {ord(one) for one in re.findall(f"[{inside}]", everything, re.IGNORECASE)}
    assert found == {ord(one) for one in CASED}


def test_categories_do_not_depend_on_case() -> None:
    """`re` looks up the lower case of a character in a class; so the sets here may stay as they are."""
    for pattern in (r"[\d]", r"[\s]", r"[\w]", r"[\W\d]"):
        text = "".join(CASED)
        assert re.findall(pattern, text) == re.findall(pattern, text, re.IGNORECASE)


def test_ascii_folding() -> None:
    assert members(charset.ignore_case(((ord("j"), ord("k")),), ascii_only=True)) == set(map(ord, "jkJK"))
    assert members(charset.ignore_case(((0x212A, 0x212A),), ascii_only=True)) == {0x212A}


pairs = st.lists(st.tuples(st.integers(0, 0x10FFFF), st.integers(0, 0x3000)), max_size=5).map(
    lambda found: [(low, min(0x10FFFF, low + length)) for low, length in found]
)


@settings(deadline=None)
@given(pairs, pairs)
def test_set_algebra(one: list[tuple[int, int]], two: list[tuple[int, int]]) -> None:
    first, second = charset.make_set(one), charset.make_set(two)
    joined = charset.union(first, second)
    assert all(map(is_proper, (first, second, joined, charset.complement(first))))
    assert charset.make_set([*one, *two]) == joined
    assert charset.complement(charset.complement(first)) == first
    assert charset.union(first, charset.complement(first)) == charset.SCALARS
    for low, high in one:
        for code in {low, high, min(high + 1, 0x10FFFF)} - set(range(0xD800, 0xE000)):
            inside = any(a <= code <= b for a, b in one)
            assert any(a <= code <= b for a, b in first) == inside
            assert any(a <= code <= b for a, b in charset.complement(first)) != inside


def test_edges() -> None:
    assert charset.make_set([]) == charset.EMPTY == charset.complement(charset.SCALARS)
    assert charset.complement(()) == charset.SCALARS
    assert charset.make_set([(0xD800, 0xDFFF)]) == ()
    assert charset.make_set([(0xD000, 0xE001)]) == ((0xD000, 0xD7FF), (0xE000, 0xE001))


def test_later_planes_have_nothing_that_a_category_or_case_needs() -> None:
    later = charset.all_characters()[0x40000:]
    assert re.search(r"[\d\s\w]", later) is None
    assert later.lower() == later.upper() == later
