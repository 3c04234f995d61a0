"""Where a text leaves a constraint, and what would have been allowed there, in words for people."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from treille.runtime.grammar.charset import SCALARS, Ranges, complement, make_set
from treille.runtime.grammar.grammar import Grammar, Matcher
from treille.runtime.grammar.vocabulary import Vocabulary

END = 256  # the id that ends a text
MAX_SHOWN = 16  # ranges, before the rest is only counted
ESCAPES = {"\n": r"\n", "\r": r"\r", "\t": r"\t", "\\": r"\\"}
# By the end of a range of first bytes: how many bytes follow one, and which of its bits are the character's.
FIRST_BYTES = ((0x80, 0, 0x7F), (0xE0, 1, 0x1F), (0xF0, 2, 0x0F), (0xF8, 3, 0x07))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a constraint says about a text.

    `offset`      bytes of the text that are allowed: all of them, if it is accepted or ends too soon
    `start`       offset at which the character begins that the byte at `offset` is part of
    `allowed`     the characters that could stand at `start`
    `may_stop`    whether the text could end at `start`
    """

    is_accepted: bool
    offset: int
    start: int
    allowed: Ranges
    may_stop: bool


def byte_vocabulary() -> Vocabulary:
    """The vocabulary in which every byte is a token: grammars compiled for it can judge any text."""
    return Vocabulary([*(bytes([byte]) for byte in range(256)), None], eos_ids=[END])


def judge(grammar: Grammar, data: bytes) -> Verdict:
    """Says whether a text is accepted, and if not, where it fails and what was possible there.

    `grammar` must be compiled for `byte_vocabulary()`. `data` should be UTF-8; what is not is never accepted.
    """
    matcher = grammar.matcher()
    at_start, start = matcher.copy(), 0
    for offset, byte in enumerate(data):
        if not 0x80 <= byte < 0xC0:
            at_start, start = matcher.copy(), offset
        if not matcher.allows(byte):
            return Verdict(False, offset, start, allowed_characters(at_start), at_start.can_stop())
        matcher.accept(byte)
    size = len(data)
    if matcher.can_stop():
        return Verdict(True, size, size, allowed_characters(matcher), may_stop=True)
    in_character = any(_allowed_bytes(matcher)[0x80:0xC0])
    at, place = (at_start, start) if in_character else (matcher, size)
    return Verdict(False, size, place, allowed_characters(at), at.can_stop())


def allowed_characters(matcher: Matcher) -> Ranges:
    """The characters that may come next; the matcher must be of a byte vocabulary and between characters."""
    return make_set(_characters(matcher))


def _characters(matcher: Matcher) -> Iterator[tuple[int, int]]:
    for byte in np.flatnonzero(_allowed_bytes(matcher)).tolist():
        following, bits = next((size, byte & mask) for end, size, mask in FIRST_BYTES if byte < end)
        if following == 0:
            yield byte, byte
        else:
            yield from _continued(_after(matcher, byte), bits, following)


def _continued(matcher: Matcher, bits: int, following: int) -> Iterator[tuple[int, int]]:
    """The code points that begin with `bits`, of which `following` times six are missing."""
    allowed = np.flatnonzero(_allowed_bytes(matcher)[0x80:0xC0])
    if following == 1:
        for run in np.split(allowed, np.flatnonzero(np.diff(allowed) > 1) + 1):
            if len(run):
                yield bits << 6 | int(run[0]), bits << 6 | int(run[-1])
        return
    for low in allowed.tolist():
        yield from _continued(_after(matcher, 0x80 | low), bits << 6 | low, following - 1)


def _after(matcher: Matcher, byte: int) -> Matcher:
    following = matcher.copy()
    following.accept(byte)
    return following


def _allowed_bytes(matcher: Matcher) -> np.ndarray:
    row = np.zeros(matcher.grammar.vocab.num_words, np.uint32)
    matcher.fill_mask(row)
    return np.unpackbits(row.view(np.uint8), bitorder="little")[:256]


def describe(characters: Ranges, limit: int = MAX_SHOWN) -> str:
    """A set of characters as one line: `a-z, 0-9, space`; the larger part of Unicode is told by what it
    lacks. At most `limit` ranges are named."""
    if not characters:
        return "nothing"
    if characters == SCALARS:
        return "any character"
    others = complement(characters)
    if _size(others) < _size(characters) and len(others) <= len(characters) + 1:
        return f"any character but {_listed(others, limit)}"
    return _listed(characters, limit)


def name_of(code: int) -> str:
    """How a character is written: as it is if that can be read, else its escape or code point."""
    character = chr(code)
    if character in ESCAPES:
        return ESCAPES[character]
    if character == " ":
        return "space"
    if character in ",-":
        return f"'{character}'"
    # Marks would join the character before them, and what is written from right to left turns lists around.
    joins = unicodedata.category(character).startswith(("M", "Z"))
    turns = unicodedata.bidirectional(character) in ("R", "AL", "AN")
    return character if character.isprintable() and not joins and not turns else f"U+{code:04X}"


def readable(data: bytes) -> str:
    """Bytes as text on one line: what cannot be printed, and what is not UTF-8, is escaped."""
    return "".join(_plain(character) for character in data.decode("utf-8", "backslashreplace"))


def _plain(character: str) -> str:
    if character in "\n\r\t":
        return ESCAPES[character]
    return character if character.isprintable() else f"\\u{ord(character):04x}"


def _listed(ranges: Ranges, limit: int) -> str:
    # Letters before controls: what a person would look for first.
    ordered = sorted(ranges, key=lambda pair: (not chr(pair[0]).isalnum(), pair))
    named = [_range_name(low, high) for low, high in ordered[:limit]]
    rest = ranges if not named else ordered[limit:]
    if rest:
        named.append(f"{_size(rest)} more")
    return ", ".join(named)


def _range_name(low: int, high: int) -> str:
    if low == high:
        return name_of(low)
    if high == low + 1:
        return f"{name_of(low)}, {name_of(high)}"
    return f"{name_of(low)}-{name_of(high)}"


def _size(ranges: Ranges | list[tuple[int, int]]) -> int:
    return sum(high - low + 1 for low, high in ranges)
