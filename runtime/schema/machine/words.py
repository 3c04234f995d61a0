"""null, true, false, and the characters of numbers."""

from __future__ import annotations

from treille.runtime.grammar.store import grafted, inner, int64

NUM_SYMBOLS = 15  # 0123456789-+.eE
NULL, TRUE, FALSE = 0, 1, 2
# The texts, eight bits a character, the first lowest.
_NULL, _TRUE, _FALSE = 0x6C6C756E, 0x65757274, 0x65736C6166


@grafted
def word_byte(word: int, index: int) -> int:  # pragma: no cover
    """A character of null, true or false."""
    text = int64(_NULL if word == NULL else (_TRUE if word == TRUE else _FALSE))
    return int64((text >> (8 * index)) & 0xFF)


@grafted
def word_length(word: int) -> int:  # pragma: no cover
    """The number of characters of null, true or false."""
    return int64(5 if word == FALSE else 4)


@inner
def begins_word(byte: int) -> int:  # pragma: no cover
    """The word that begins with a byte, or -1."""
    if byte == 0x6E:
        return int64(NULL)
    if byte == 0x74:
        return int64(TRUE)
    return int64(FALSE if byte == 0x66 else -1)


@inner
def number_symbol(byte: int) -> int:  # pragma: no cover
    """The column of a byte in the table of a number's automaton, or -1."""
    if 0x30 <= byte <= 0x39:
        return int64(byte - 0x30)
    if byte == 0x2D:
        return int64(10)
    if byte == 0x2B:
        return int64(11)
    if byte == 0x2E:
        return int64(12)
    if byte == 0x65:
        return int64(13)
    return int64(14 if byte == 0x45 else -1)
