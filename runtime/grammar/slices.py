"""Slices of a vocabulary: tokens made of certain characters only, whose walk every constraint shares.

Where a constraint allows any text over a slice's characters (inside a JSON string, a word, a number, white
space), all the tokens of the slice are allowed at once, and only what is left of the trie is walked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numba import njit
from numpy.typing import NDArray

from treille.runtime.grammar import charset
from treille.runtime.grammar.charset import Ranges
from treille.runtime.grammar.classes import Classes
from treille.runtime.grammar.masks import Slices
from treille.runtime.grammar.store import Flags, Int64s

# The largest first: the first that a constraint allows is taken.
_SETS: tuple[tuple[str, Ranges], ...] = (
    (r'[^"\\\x00-\x1f]+', charset.complement(((0, 0x1F), (0x22, 0x22), (0x5C, 0x5C)))),
    (r"[ -!#-\[\]-~]+", ((0x20, 0x21), (0x23, 0x5B), (0x5D, 0x7E))),
    (r"[A-Za-z0-9_]+", ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))),
    (r"[A-Za-z0-9]+", ((0x30, 0x39), (0x41, 0x5A), (0x61, 0x7A))),
    (r"[A-Za-z]+", ((0x41, 0x5A), (0x61, 0x7A))),
    (r"[a-z]+", ((0x61, 0x7A),)),
    (r"[A-Z]+", ((0x41, 0x5A),)),
    (r"[0-9]+", ((0x30, 0x39),)),
    (r"[ \t\n\r]+", ((0x09, 0x0A), (0x0D, 0x0D), (0x20, 0x20))),
)


# The same as arrays: where the ranges begin and end, and whose they are.
_PAIRS = np.array([pair for _, ranges in _SETS for pair in ranges], np.int64)
_OWNERS = np.repeat(np.arange(len(_SETS)), [len(ranges) for _, ranges in _SETS])


def cut(tokens: Sequence[bytes | None], num_words: int) -> tuple[Slices, NDArray[np.uint16]]:
    """The slices of a vocabulary, and by token its slices as bits."""
    bits = np.zeros(len(tokens), np.uint16)
    longest = [0] * len(_SETS)
    patterns = [re.compile(pattern).fullmatch for pattern, _ in _SETS]
    members: list[list[int]] = [[] for _ in _SETS]
    for token_id, spelling in enumerate(tokens):
        if spelling is None:
            continue
        try:
            text = spelling.decode()
        except UnicodeDecodeError:
            continue  # part of a character
        if patterns[0](text) is None:
            number = len(_SETS) - 1  # white space is the only set that is not part of the first
            numbers = [number] if patterns[number](text) else []
        else:
            numbers = [number for number, matches in enumerate(patterns) if matches(text)]
        for number in numbers:
            members[number].append(token_id)
            longest[number] = max(longest[number], len(spelling))
    words = np.zeros((len(_SETS), num_words), np.uint32)
    for number, ids in enumerate(members):
        chosen = np.array(ids, np.int64)
        bits[chosen] |= np.uint16(1 << number)
        np.bitwise_or.at(words[number], chosen >> 5, np.uint32(1) << (chosen & 31).astype(np.uint32))
    return Slices(words, np.array(longest, np.int64)), bits


def symbols_of(classes: Classes) -> Flags:
    """bool [num_slices, num_classes]: the classes in which characters of each slice are."""
    return _symbols(classes.starts, classes.numbers, classes.members.shape[1], _PAIRS, _OWNERS, len(_SETS))


@njit(cache=True, nogil=True)
def _symbols(
    starts: Int64s, numbers: Int64s, num_classes: int, pairs: Int64s, owners: Int64s, num_slices: int
) -> Flags:  # pragma: no cover
    found = np.zeros((num_slices, num_classes), np.bool_)
    for index in range(len(pairs)):
        for place in range(len(starts)):
            end = starts[place + 1] if place + 1 < len(starts) else 0x110000
            if starts[place] > pairs[index, 1]:
                break
            if end > pairs[index, 0] and numbers[place] >= 0:
                found[owners[index], numbers[place]] = True
    return found
