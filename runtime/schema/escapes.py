"""Which characters of a string may be written as escapes."""

from __future__ import annotations

from treille.runtime.grammar.store import Flags

Ranges = tuple[tuple[int, int], ...]

_LAST = 0x10FFFF
_ALL: Ranges = ((0, _LAST),)
# What JSON does not allow as it is, and what of it has no short form.
_MUST: Ranges = ((0, 0x1F), (0x22, 0x22), (0x5C, 0x5C))
_MUST_WITHOUT_SHORT: Ranges = ((0, 0x07), (0x0B, 0x0B), (0x0E, 0x1F))


def escapable(escapes: str, single_bytes: Flags) -> tuple[Ranges, Ranges]:
    """The characters that any escape may stand for, and those that one with digits may, in order.

    `single_bytes`: which bytes are a token, bool [256]: a character that is more than one byte and cannot be
    spelled byte by byte may be escaped under "minimal" too.
    """
    if escapes == "any":
        return _ALL, _ALL
    missing = _unspelled(single_bytes)
    return _MUST + missing, _MUST_WITHOUT_SHORT + missing


def _unspelled(single_bytes: Flags) -> Ranges:
    """The characters past ASCII whose first byte is no token; all of them, if there is none for a byte that
    characters go on with."""
    if not single_bytes[0x80:0xC0].all():
        return ((0x80, _LAST),)
    found: list[tuple[int, int]] = []
    for lead in range(0xC2, 0xF5):
        if not single_bytes[lead]:
            found.append(_led_by(lead))
    return tuple(found)


def _led_by(lead: int) -> tuple[int, int]:
    """The first and the last character whose UTF-8 begins with a byte."""
    if lead < 0xE0:
        size, first = 6, (lead & 0x1F) << 6
    elif lead < 0xF0:
        size, first = 12, (lead & 0x0F) << 12
    else:
        size, first = 18, (lead & 0x07) << 18
    smallest = {6: 0x80, 12: 0x800, 18: 0x10000}[size]
    return max(first, smallest), min(first + (1 << size) - 1, _LAST)
