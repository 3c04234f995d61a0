"""Sets of Unicode scalar values, and the ones that Python's `re` names.

A set is a sorted tuple of disjoint inclusive ranges. Surrogates (U+D800..U+DFFF) are in no set: no
UTF-8 text contains one.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from functools import cache

import numpy as np

Ranges = tuple[tuple[int, int], ...]

MAX_CODE_POINT = 0x10FFFF
SCALARS: Ranges = ((0, 0xD7FF), (0xE000, MAX_CODE_POINT))
NEWLINE: Ranges = ((10, 10),)
EMPTY: Ranges = ()


def make_set(pairs: Iterable[tuple[int, int]]) -> Ranges:
    """Merges inclusive code point ranges into a set; surrogates are dropped."""
    merged: list[list[int]] = []
    for low, high in sorted(pairs):
        if merged and low <= merged[-1][1] + 1:
            merged[-1][1] = max(merged[-1][1], high)
        else:
            merged.append([low, high])
    return tuple(
        (max(low, first), min(high, last))
        for low, high in merged
        for first, last in SCALARS
        if max(low, first) <= min(high, last)
    )


def union(*sets: Ranges) -> Ranges:
    """Every scalar value in one of the sets."""
    return make_set(pair for one in sets for pair in one)


def complement(ranges: Ranges) -> Ranges:
    """Every scalar value that is not in the set."""
    gaps = []
    start = 0
    for low, high in ranges:
        if low > start:
            gaps.append((start, low - 1))
        start = high + 1
    gaps.append((start, MAX_CODE_POINT))
    return make_set(gap for gap in gaps if gap[0] <= gap[1])


@cache
def category(letter: str, *, ascii_only: bool) -> Ranges:
    r"""The set of `\d`, `\w` or `\s`, or of its negation in upper case, as this Python's `re` has it."""
    if letter.isupper():
        return complement(category(letter.lower(), ascii_only=ascii_only))
    runs = re.finditer(rf"\{letter}+", _first_planes(), re.ASCII if ascii_only else 0)
    return make_set((run.start(), run.end() - 1) for run in runs)


def all_characters(end: int = MAX_CODE_POINT + 1) -> str:
    """Every code point below `end` in order, the surrogates too."""
    return np.arange(end, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")


@cache
def _first_planes() -> str:
    """The planes that have letters, digits and spaces: behind them are tags, selectors and private use.

    That is a quarter of all code points, and looking at them is most of what a first compilation takes.
    """
    return all_characters(0x40000)


def ignore_case(ranges: Ranges, *, ascii_only: bool) -> Ranges:
    """Adds every character that `re.IGNORECASE` takes for one in the set."""
    classes = _ascii_case_classes() if ascii_only else _case_classes()
    codes, members = classes
    extra: list[tuple[int, int]] = []
    for low, high in ranges:
        for index in range(bisect_left(codes, low), bisect_right(codes, high)):
            extra.extend((code, code) for code in members[index])
    return make_set([*ranges, *extra]) if extra else ranges


CaseClasses = tuple[list[int], list[tuple[int, ...]]]


@cache
def _ascii_case_classes() -> CaseClasses:
    pairs = sorted(
        (ord(one), ord(one.swapcase())) for one in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    )
    return [code for code, _ in pairs], [(other,) for _, other in pairs]


@cache
def _case_classes() -> CaseClasses:
    """Characters that have others equal to them but for case, sorted, and those others.

    `re` compares the one-character lower case of both sides, and takes two lower-case characters for
    equal when their upper case is the same (so do the long s and s, or the two ligatures of "st").
    """
    by_upper: dict[str, list[int]] = {}
    text = _first_planes()
    for start in range(0, len(text), 256):
        block = text[start : start + 256]
        if block.lower() == block and block.upper() == block:
            continue
        for offset, one in enumerate(block):
            # U+0130 lower-cases to "i" and a combining dot; `re` keeps the first.
            lower = one.lower()[0]
            by_upper.setdefault(lower.upper(), []).append(start + offset)
    members: dict[int, tuple[int, ...]] = {}
    for group in by_upper.values():
        if len(group) > 1:
            members.update((code, tuple(group)) for code in group)
    codes = sorted(members)
    return codes, [members[code] for code in codes]
