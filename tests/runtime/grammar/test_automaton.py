"""Minimal automata against the textbook's table of distinguishable pairs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treille.runtime.grammar.automaton import Dfa, minimize, renumber

SYMBOLS = 2


@st.composite
def tables(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    n = draw(st.integers(1, 9))
    row = st.lists(st.integers(-1, n - 1), min_size=SYMBOLS, max_size=SYMBOLS)
    table = np.array(draw(st.lists(row, min_size=n, max_size=n)), np.int32)
    return table, np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)), np.bool_)


def follow(table: np.ndarray, accepting: np.ndarray, word: tuple[int, ...]) -> bool:
    state = 0
    for symbol in word:
        state = int(table[state, symbol])
        if state < 0:
            return False
    return bool(accepting[state])


def count_classes(table: np.ndarray, accepting: np.ndarray) -> int:
    """Classes of reachable states that can accept, by their behaviour on all words of length < n."""
    n = len(table)
    reached, stack = {0}, [0]
    while stack:
        for target in table[stack.pop()].tolist():
            if target >= 0 and target not in reached:
                reached.add(target)
                stack.append(target)
    behaviour: dict[int, tuple[object, ...]] = {state: (bool(accepting[state]),) for state in range(n)}
    names = {state: int(accepting[state]) for state in range(n)}
    names[-1] = -2
    for _ in range(n + 1):
        behaviour = {
            state: (names[state], *(names[int(target)] for target in table[state])) for state in range(n)
        }
        known: dict[tuple[object, ...], int] = {}
        fresh = {state: known.setdefault(behaviour[state], len(known)) for state in range(n)}
        names = {**fresh, -1: -2}
    alive = {state for state in range(n) if accepting[state]}
    for _ in range(n):
        alive |= {state for state in range(n) if any(int(target) in alive for target in table[state])}
    return len({names[state] for state in reached & alive})


@settings(deadline=None)
@given(tables())
def test_minimal_and_equivalent(case: tuple[np.ndarray, np.ndarray]) -> None:
    table, accepting = case
    words = [word for length in range(8) for word in itertools.product(range(SYMBOLS), repeat=length)]
    small = minimize(table, accepting)
    if small is None:
        assert not any(follow(table, accepting, word) for word in words)
        return
    assert [follow(table, accepting, word) for word in words] == [follow(*small, word) for word in words]
    again = minimize(*small)
    assert again is not None
    assert np.array_equal(again[0], small[0]) and np.array_equal(again[1], small[1])
    # Dead states are not told from no way on, so only the classes that accept something count.
    merged = np.where(np.isin(table, alive_states(table, accepting)), table, -1)
    assert len(small[0]) == count_classes(merged, accepting)


def alive_states(table: np.ndarray, accepting: np.ndarray) -> list[int]:
    alive = set(np.flatnonzero(accepting).tolist())
    for _ in range(len(table)):
        alive |= {state for state in range(len(table)) if alive & set(table[state].tolist())}
    return sorted(alive)


@settings(deadline=None)
@given(tables(), st.randoms(use_true_random=False))
def test_numbering_does_not_depend_on_the_input(case: tuple[np.ndarray, np.ndarray], random: object) -> None:
    table, accepting = case
    order = list(range(1, len(table)))
    random.shuffle(order)  # type: ignore[attr-defined]
    order = [0, *order]
    place = np.empty(len(table) + 1, np.int32)
    place[order] = np.arange(len(table))
    place[-1] = -1
    one, two = minimize(table, accepting), minimize(place[table[order]], accepting[order])
    assert (one is None) == (two is None)
    if one is not None and two is not None:
        assert np.array_equal(one[0], two[0]) and np.array_equal(one[1], two[1])


def test_renumber_is_breadth_first() -> None:
    table = np.array([[2, 1], [-1, -1], [1, -1]], np.int32)
    small, final = renumber(table, np.array([False, True, False]))
    assert small.tolist() == [[1, 2], [2, -1], [-1, -1]]
    assert final.tolist() == [False, False, True]


def test_dfa_is_read_only_and_checks_its_shape() -> None:
    table = np.full((2, 256), -1, np.int32)
    table[0, ord("a")] = 1
    dfa = Dfa(table, np.array([False, True]))
    assert (dfa.num_states, dfa.nbytes) == (2, 2050)
    assert (dfa.accepts(b"a"), dfa.accepts(b""), dfa.accepts(b"aa"), dfa.run(b"a"), dfa.run(b"b")) == (
        True,
        False,
        False,
        1,
        None,
    )
    with pytest.raises(ValueError, match="read-only"):
        dfa.transitions[0, 0] = 1
    with pytest.raises(ValueError, match="shape"):
        Dfa(np.zeros((2, 255), np.int32), np.array([False, True]))
    with pytest.raises(ValueError, match="shape"):
        Dfa(np.zeros((0, 256), np.int32), np.zeros(0, np.bool_))
