"""Byte automata of sets of characters: exactly the UTF-8 of the members, and minimal."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from treille.runtime.grammar import charset
from treille.runtime.grammar.automaton import Dfa, minimize
from treille.runtime.grammar.limits import Budget
from treille.runtime.grammar.nfa import ClassDfa, Nfa
from treille.runtime.grammar.regex import regex_dfa
from treille.runtime.grammar.utf8 import to_bytes

EDGES = [
    0,
    0x7F,
    0x80,
    0x7FF,
    0x800,
    0xFFF,
    0x1000,
    0xCFFF,
    0xD000,
    0xD7FF,
    0xE000,
    0xFFFF,
    0x10000,
    0x3FFFF,
    0x40000,
]
EDGES += [0xFFFFF, 0x100000, 0x10FFFF, 0x40, 0xC0, 0x30FF]

points = st.one_of(st.integers(0, 0x10FFFF), st.sampled_from(EDGES))
sets = st.lists(st.tuples(points, points).map(lambda pair: (min(pair), max(pair))), min_size=1, max_size=4)


def two_sets(first: charset.Ranges, second: charset.Ranges) -> Dfa | None:
    """One character of the first set and one of the second, or one of the second alone."""
    nfa = Nfa(Budget("test", seconds=60))
    start, middle, end = (nfa.add_state() for _ in range(3))
    nfa.add_chars(start, first, middle)
    nfa.add_chars(middle, second, end)
    nfa.add_chars(start, second, end)
    wide = nfa.determinize(start, end)
    small = minimize(wide.table, wide.accepting)
    return None if small is None else to_bytes(ClassDfa(*small, wide.classes), Budget("test", seconds=60))


@settings(deadline=None, max_examples=60)
@given(sets, sets, st.lists(points, max_size=20))
def test_members_and_nothing_else(
    one: list[tuple[int, int]], two: list[tuple[int, int]], more: list[int]
) -> None:
    first, second = charset.make_set(one), charset.make_set(two)
    dfa = two_sets(first, second)
    near = (
        {code + step for pair in [*one, *two] for code in pair for step in (-1, 0, 1)}
        | set(more)
        | set(EDGES)
    )
    codes = [code for code in near if 0 <= code <= 0x10FFFF and not 0xD800 <= code < 0xE000]
    in_first = [code for code in codes if any(low <= code <= high for low, high in first)]
    in_second = {code for code in codes if any(low <= code <= high for low, high in second)}
    if dfa is None:
        assert not in_second
        return
    assert all(dfa.accepts(chr(code).encode()) == (code in in_second) for code in codes)
    for code, other in itertools.product(in_first[:6], codes[:20]):
        assert dfa.accepts((chr(code) + chr(other)).encode()) == (other in in_second)
    again = minimize(dfa.transitions, dfa.accepting)
    assert again is not None
    assert np.array_equal(again[0], dfa.transitions) and np.array_equal(again[1], dfa.accepting)


def test_everything_is_exactly_utf8() -> None:
    """All sequences of up to two bytes, and of three and four around every edge."""
    dfa = regex_dfa("(?s).")
    edges = [0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xED, 0xEF]
    edges += [0xF0, 0xF1, 0xF4, 0xF5, 0xFF]
    words = [bytes(word) for length in (1, 2) for word in itertools.product(range(256), repeat=length)]
    words += [bytes(word) for length in (3, 4) for word in itertools.product(edges, repeat=length)]
    for word in words:
        try:
            valid = len(word.decode()) == 1
        except UnicodeDecodeError:
            valid = False
        if dfa.accepts(word) != valid:
            raise AssertionError(word)
    assert dfa.num_states == 9  # the start, the end, and 1 + 3 + 3 in the middle of a character
