"""A finished automaton as a picture: the text that graphviz's `dot` draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from treille.runtime.errors import UnsupportedConstraint
from treille.runtime.grammar.automaton import Dfa, Flags
from treille.runtime.grammar.charset import Ranges, make_set
from treille.runtime.grammar.explain import FIRST_BYTES, describe, name_of

MAX_DRAWN = 200  # states: with more of them nobody can follow an arrow
MAX_LABEL = 8  # ranges on one arrow, before the rest is only counted
_DOTTED = " [style=dotted, width=0.2, fontsize=8]"

Piece = tuple[int, int, int]  # first, last, and the state that they lead to
Arrows = Callable[[int], Iterator[tuple[int, str]]]


def draw_dfa(dfa: Dfa, title: str = "", *, in_bytes: bool = False) -> str:
    """The automaton in the DOT language: one arrow for all that leads from one state to another.

    The arrows are whole characters, or with `in_bytes` the bytes of UTF-8: then the states in the middle of a
    character are small and dotted, and the arrows that leave them bear bytes in hexadecimal. Accepting states
    have a double ring. Raises `UnsupportedConstraint` for more than `MAX_DRAWN` states.
    """
    inside = in_character(dfa)
    drawn = range(dfa.num_states) if in_bytes else np.flatnonzero(~inside).tolist()
    if len(drawn) > MAX_DRAWN:
        reason = f"the automaton has {len(drawn)} states, and a picture can show {MAX_DRAWN}"
        raise UnsupportedConstraint("drawing", "offset 0", reason)
    lines = [
        "digraph automaton {",
        "  rankdir=LR;",
        f"  label={_quoted(title)}; labelloc=t; fontname=monospace;",
        '  node [shape=circle, fontname="sans-serif", fontsize=11, width=0.4];',
        "  edge [fontname=monospace, fontsize=10];",
        '  start [shape=none, label="", width=0];',
        "  start -> 0;",
    ]
    number = {state: at for at, state in enumerate(drawn)}
    arrows = _byte_arrows(dfa) if in_bytes else _character_arrows(dfa)
    for state, at in number.items():
        look = " [shape=doublecircle]" if dfa.accepting[state] else _DOTTED if inside[state] else ""
        lines.append(f"  {at}{look};")
    for state, at in number.items():
        lines += [f"  {at} -> {number[end]} [label={_quoted(label)}];" for end, label in arrows(state)]
    return "\n".join([*lines, "}", ""])


def _byte_arrows(dfa: Dfa) -> Arrows:
    def arrows(state: int) -> Iterator[tuple[int, str]]:
        row = dfa.transitions[state]
        for target in dict.fromkeys(row[row >= 0].tolist()):
            yield target, label_of(np.flatnonzero(row == target).tolist())

    return arrows


def _character_arrows(dfa: Dfa) -> Arrows:
    spelled = Characters(dfa)

    def arrows(state: int) -> Iterator[tuple[int, str]]:
        for target, characters in spelled.after(state).items():
            yield target, describe(characters, MAX_LABEL)

    return arrows


class Characters:
    """An automaton over bytes, read by whole characters."""

    def __init__(self, dfa: Dfa) -> None:
        self._dfa = dfa
        self._known: dict[int, list[Piece]] = {}

    def after(self, state: int) -> dict[int, Ranges]:
        """By the states that one character leads to: which characters do. `state` is not inside of one."""
        found: dict[int, list[tuple[int, int]]] = {}
        for byte, target in self._steps(state, 0, 256):
            following, bits = next((size, byte & mask) for end, size, mask in FIRST_BYTES if byte < end)
            pieces = [(0, 0, target)] if following == 0 else self._rest(target, following)
            base = bits << 6 * following
            for low, high, end in pieces:
                found.setdefault(end, []).append((base + low, base + high))
        return {end: make_set(pairs) for end, pairs in found.items()}

    def _rest(self, state: int, following: int) -> list[Piece]:
        """What the last `following` bytes of a character may be: first and last, as numbers, and where they
        lead. Runs that lead to the same state are one."""
        if state in self._known:
            return self._known[state]
        pieces: list[Piece] = []
        for byte, target in self._steps(state, 0x80, 0xC0):
            base = (byte & 0x3F) << 6 * (following - 1)
            for low, high, end in [(0, 0, target)] if following == 1 else self._rest(target, following - 1):
                if pieces and pieces[-1][1] + 1 == base + low and pieces[-1][2] == end:
                    pieces[-1] = (pieces[-1][0], base + high, end)
                else:
                    pieces.append((base + low, base + high, end))
        self._known[state] = pieces
        return pieces

    def _steps(self, state: int, first: int, end: int) -> Iterator[tuple[int, int]]:
        row = self._dfa.transitions[state, first:end].tolist()
        return ((byte, target) for byte, target in enumerate(row, first) if target >= 0)


def in_character(dfa: Dfa) -> Flags:
    """Which states lie between the bytes of one character: there, and only there, a byte from 0x80 to 0xBF
    can follow. bool [num_states]."""
    return np.asarray((dfa.transitions[:, 0x80:0xC0] >= 0).any(axis=1), np.bool_)


def label_of(allowed: list[int]) -> str:
    """Byte values in ascending order as ranges: ASCII as characters, others in hexadecimal."""
    ranges = _runs(allowed)
    named = [_range_label(low, high) for low, high in ranges[:MAX_LABEL]]
    rest = sum(high - low + 1 for low, high in ranges[MAX_LABEL:])
    return ", ".join(named) + (f", {rest} more" if rest else "")


def _runs(values: list[int]) -> list[tuple[int, int]]:
    """Runs of values that follow each other; ASCII and what is past it are never in one run."""
    runs: list[tuple[int, int]] = []
    for value in values:
        if runs and value == runs[-1][1] + 1 and value != 0x80:
            runs[-1] = (runs[-1][0], value)
        else:
            runs.append((value, value))
    return runs


def _range_label(low: int, high: int) -> str:
    first, last = _byte_name(low), _byte_name(high)
    return first if low == high else f"{first}, {last}" if high == low + 1 else f"{first}-{last}"


def _byte_name(byte: int) -> str:
    return name_of(byte) if byte < 0x80 else f"0x{byte:02X}"


def _quoted(text: str) -> str:
    """A string of the DOT language that shows the text as it is: in it, a backslash begins an escape."""
    shown = "".join(
        character if character.isprintable() else f"\\u{ord(character):04x}" for character in text
    )
    return '"' + shown.replace("\\", "\\\\").replace('"', '\\"') + '"'
