"""Slices of a vocabulary: tokens of certain characters only, whose walk every constraint shares.

Where a constraint allows any text over a slice's characters (inside a JSON string, a word, a number, white
space), all the tokens of the slice are allowed at once, and only what is left of the trie is walked. A slice
may begin with other characters than it goes on with, as most words begin with a space.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numba import njit
from numpy.typing import NDArray

from treille.runtime.grammar import charset
from treille.runtime.grammar.charset import Ranges
from treille.runtime.grammar.classes import Classes
from treille.runtime.grammar.masks import Slices
from treille.runtime.grammar.store import Flags, Int64s, int64

_UPPER, _LOWER, _DIGIT = (0x41, 0x5A), (0x61, 0x7A), (0x30, 0x39)
_WORD: Ranges = (_DIGIT, _UPPER, (0x5F, 0x5F), _LOWER)


_ESCAPED: Ranges = ((0, 0x1F), (0x22, 0x22), (0x5C, 0x5C))


@dataclass(frozen=True, slots=True)
class _Slice:
    """Tokens that match `pattern`: one character of `first`, then any of `body`."""

    pattern: str
    body: Ranges
    first: Ranges


@cache
def _all() -> tuple[_Slice, ...]:
    """The slices, the larger first: the first that a constraint allows is taken."""
    word = charset.category("w", ascii_only=False)
    text = charset.complement(_ESCAPED)
    space, blank = ((0x20, 0x20),), ((0x09, 0x0A), (0x0D, 0x0D), (0x20, 0x20))
    visible = ((0x20, 0x21), (0x23, 0x5B), (0x5D, 0x7E))
    ends = ((0xA, 0xA), (0xD, 0xD), (0x2028, 0x2029))
    line = charset.complement(ends)
    found = [
        _Slice(r"[\s\S]+", charset.SCALARS, charset.SCALARS),
        _Slice(r"[^\n\r\u2028\u2029]+", line, line),
        _Slice(r'[^"\\\x00-\x1f]+', text, text),
        _Slice(r"[ -!#-\[\]-~]+", visible, visible),
    ]
    words = ((r"\w", word), ("[A-Za-z0-9_]", _WORD), ("[A-Za-z]", (_UPPER, _LOWER)), ("[a-z]", (_LOWER,)))
    for pattern, body in words:
        found.append(_Slice(f" ?{pattern}+", body, charset.union(space, body)))
    for pattern, body in words:
        found.append(_Slice(f" {pattern}*", body, space))
        found.append(_Slice(f"{pattern}+", body, body))
    found.append(_Slice("[A-Z][a-z]*", (_LOWER,), (_UPPER,)))
    for pattern, body in (("[A-Z]", (_UPPER,)), ("[0-9]", (_DIGIT,)), (r"[ \t\n\r]", blank)):
        found.append(_Slice(f"{pattern}+", body, body))
    return tuple(found)


@cache
def in_strings() -> Flags:
    """bool [num_slices]: whether the characters of a slice may stand in a JSON string as they are."""
    escaped = _ascii(_ESCAPED)
    return np.array([not (escaped & (_ascii(one.body) | _ascii(one.first))).any() for one in _all()])


@cache
def _ranges() -> tuple[Int64s, Int64s]:
    """All ranges as pairs, and by range twice the number of its slice, and one if it is of the first."""
    pairs: list[tuple[int, int]] = []
    owners: list[int] = []
    for number, one in enumerate(_all()):
        for which, ranges in enumerate((one.body, one.first)):
            pairs.extend(ranges)
            owners.extend([2 * number + which] * len(ranges))
    return np.array(pairs, np.int64), np.array(owners, np.int64)


def cut(tokens: Sequence[bytes | None], num_words: int) -> tuple[Slices, NDArray[np.uint32]]:
    """The slices of a vocabulary, and by token its slices as bits."""
    slices = _all()
    bits = np.zeros(len(tokens), np.uint32)
    lengths = np.array([len(spelling or b"") for spelling in tokens], np.int64)
    ids = np.flatnonzero(lengths)
    plain, others = _split(ids, tokens)
    data = np.frombuffer(b"".join(tokens[one] or b"" for one in plain), np.uint8)
    starts = np.cumsum(lengths[plain]) - lengths[plain]
    texts = [(one, (tokens[one] or b"").decode()) for one in others]
    members: list[NDArray[np.int64]] = []
    for one in slices:
        inside = _ascii(one.body)[data]
        found = np.zeros(0, np.bool_)
        if len(plain):
            inside[starts] = _ascii(one.first)[data[starts]]
            found = np.logical_and.reduceat(inside, starts)
        matches = re.compile(one.pattern).fullmatch
        rest = [token_id for token_id, text in texts if matches(text)]
        members.append(np.concatenate([plain[found], np.array(rest, np.int64)]))
    words = np.zeros((len(slices), num_words), np.uint32)
    longest = np.zeros(len(slices), np.int64)
    for number, chosen in enumerate(members):
        bits[chosen] |= np.uint32(1 << number)
        np.bitwise_or.at(words[number], chosen >> 5, np.uint32(1) << (chosen & 31).astype(np.uint32))
        longest[number] = lengths[chosen].max(initial=0)
    return Slices(words, longest), bits


def _ascii(ranges: Ranges) -> Flags:
    """bool [256]: which ASCII characters are in a set."""
    found = np.zeros(256, np.bool_)
    for low, high in ranges:
        found[low : min(high, 0x7F) + 1] = True
    return found


def _split(ids: Int64s, tokens: Sequence[bytes | None]) -> tuple[Int64s, list[int]]:
    """The tokens that are ASCII, and those that are other whole characters; parts of characters are in no
    slice."""
    plain, others = [], []
    for one in ids.tolist():
        spelling = tokens[one] or b""
        if spelling.isascii():
            plain.append(one)
        else:
            try:
                spelling.decode()
            except UnicodeDecodeError:
                continue
            others.append(one)
    return np.array(plain, np.int64), others


def symbols_of(classes: Classes) -> Flags:
    """bool [num_slices, 2, num_classes]: the classes of the characters of each slice's body and first."""
    return _symbols(classes.starts, classes.numbers, classes.members.shape[1], *_ranges(), len(_all()))


@njit(cache=True, nogil=True)
def _symbols(
    starts: Int64s, numbers: Int64s, num_classes: int, pairs: Int64s, owners: Int64s, num_slices: int
) -> Flags:  # pragma: no cover
    found = np.zeros((num_slices, 2, num_classes), np.bool_)
    place, last = 0, int64(-1)
    for index in range(len(pairs)):
        owner = owners[index]
        if owner != last:
            place, last = 0, owner  # ranges of one owner are in order
        while place + 1 < len(starts) and starts[place + 1] <= pairs[index, 0]:
            place += 1
        at = place
        while at < len(starts) and starts[at] <= pairs[index, 1]:
            if numbers[at] >= 0:
                found[owner >> 1, owner & 1, numbers[at]] = True
            at += 1
    return found
