"""Byte automata of sets of characters: exactly the UTF-8 of the members, and minimal."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from treille.runtime.errors import InvalidConstraint
from treille.runtime.grammar import charset
from treille.runtime.grammar.arena import Arena
from treille.runtime.grammar.automaton import Dfa, minimize
from treille.runtime.grammar.classes import Classes, classes_of
from treille.runtime.grammar.regex import regex_dfa, tree_blueprint, whole_dfa
from treille.runtime.grammar.tree import Chars, Repeat, Sequence

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
    try:
        return whole_dfa(Arena.fresh(tree_blueprint(Sequence((Repeat(Chars(first), 0, 1), Chars(second))))))
    except InvalidConstraint:
        return None


def class_at(classes: Classes, data: bytes) -> int:
    """The class of the one character that the bytes spell, by the lattice; -1 if they spell none."""
    node = int(classes.lead[data[0]])
    if data[0] < 0x80:
        return node if len(data) == 1 else -1
    for index, byte in enumerate(data[1:], 1):
        if node < 0 or not 0x80 <= byte < 0xC0:
            return -1
        last = classes.lattice[node, 64] == 1
        node = int(classes.lattice[node, byte - 0x80])
        if last:
            return node if index == len(data) - 1 else -1
    return -1


def ways(classes: Classes) -> list[int]:
    """How many byte paths lead to each class."""
    count = classes.members.shape[1]
    below = np.zeros((len(classes.lattice), count), np.int64)
    for node in sorted(range(len(below)), key=lambda one: classes.lattice[one, 64] != 1):
        children = [int(child) for child in classes.lattice[node, :64] if child >= 0]
        if classes.lattice[node, 64] == 1:
            np.add.at(below[node], children, 1)
        else:
            below[node] = below[children].sum(axis=0)
    total = np.zeros(count, np.int64)
    for byte in range(256):
        start = int(classes.lead[byte])
        if start >= 0 and byte < 0x80:
            total[start] += 1
        elif start >= 0:
            total += below[start]
    return [int(one) for one in total]


@settings(deadline=None, max_examples=40)
@given(st.lists(sets, max_size=4), st.lists(points, max_size=40))
def test_every_scalar_has_one_way_to_its_class(many: list[list[tuple[int, int]]], more: list[int]) -> None:
    ranges = [charset.make_set(one) for one in many]
    classes = classes_of([charset.SCALARS, *ranges])
    near = {code + step for one in many for pair in one for code in pair for step in (-1, 0, 1)}
    codes = [
        code
        for code in near | set(more) | set(EDGES)
        if 0 <= code <= 0x10FFFF and not 0xD800 <= code < 0xE000
    ]
    for code in codes:
        number = class_at(classes, chr(code).encode())
        assert number >= 0
        want = [True, *(any(low <= code <= high for low, high in one) for one in ranges)]
        assert classes.members[:, number].tolist() == want, hex(code)
    # Different classes differ in some set, and all paths together are as many as there are scalars.
    assert len({tuple(column) for column in classes.members.T.tolist()}) == classes.members.shape[1]
    assert sum(ways(classes)) == 0x110000 - 0x800
    for owner, one in enumerate(ranges, 1):
        size = sum(high - low + 1 for low, high in one)
        assert sum(np.array(ways(classes))[classes.members[owner]]) == size


def test_no_way_for_what_is_no_character() -> None:
    classes = classes_of([charset.SCALARS, ((0x61, 0x7A), (0xE9, 0x1F600))])
    wrong = [b"\xc0\x80", b"\xc1\xbf", b"\xe0\x80\x80", b"\xe0\x9f\xbf", b"\xed\xa0\x80", b"\xed\xbf\xbf"]
    wrong += [
        b"\xf0\x80\x80\x80",
        b"\xf0\x8f\xbf\xbf",
        b"\xf4\x90\x80\x80",
        b"\xf5\x80\x80\x80",
        b"\x80",
        b"\xff",
    ]
    assert [class_at(classes, one) for one in wrong] == [-1] * len(wrong)


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
