"""Solved grammars derive the sequences that Lark's Earley parser takes, and no left recursion is left."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lark import Lark
from lark.exceptions import GrammarError, UnexpectedInput
from oracles.lark_cfg import derives

from treille.runtime.errors import InvalidConstraint, UnsupportedConstraint
from treille.runtime.grammar.cfg import NO_MORE, Bnf, Cfg, components, solve
from treille.runtime.grammar.limits import Budget

LETTERS = "xyz"
NAMES = "abcd"


def solved(bnf: Bnf, start: int = 0) -> Cfg:
    return solve(bnf, start, Budget("grammar"))


def lark_text(bnf: Bnf) -> str:
    def spell(symbol: int) -> str:
        return f'"{LETTERS[~symbol]}"' if symbol < 0 else NAMES[symbol]

    return "\n".join(
        f"{NAMES[rule]}: " + " | ".join(" ".join(map(spell, one)) for one in dict.fromkeys(options))
        for rule, options in bnf.items()
    )


def lark_takes(parser: Lark, tokens: tuple[int, ...]) -> bool:
    try:
        parser.parse("".join(LETTERS[one] for one in tokens))
    except UnexpectedInput:
        return False
    return True


def check_against_lark(bnf: Bnf, longest: int) -> None:
    try:
        parser = Lark(lark_text(bnf), start="a")
    except GrammarError:  # an alternative given twice, after its options are spelt out
        return
    texts = [one for length in range(longest + 1) for one in product(range(len(LETTERS)), repeat=length)]
    expected = {one for one in texts if lark_takes(parser, one)}
    try:
        cfg = solved(bnf)
    except InvalidConstraint:
        assert not expected
        return
    assert {one for one in texts if derives(cfg, one)} == expected


X, Y, Z = ~0, ~1, ~2
TABLE = {
    "hidden left recursion": {0: [(1, 0, X), (Y,)], 1: [(), (Z,)]},
    "left": {0: [(0, X), (Y,)]},
    "right": {0: [(X, 0), (Y,)]},
    "both sides": {0: [(0, X, 0), (Y,)]},
    "ambiguous": {0: [(0, 0), (X,), ()]},
    "mutual": {0: [(1, X), (Y,)], 1: [(0, Z), (X,)]},
    "mutual, three": {0: [(1, X), (Z,)], 1: [(2, Y), (0,)], 2: [(0, Z), (1, 1), (X,)]},
    "units": {0: [(1,), (X,)], 1: [(0,), (2, Y)], 2: [(0,), (1,)]},
    "only units": {0: [(1,), (X,)], 1: [(0,), (Y,)]},
    "unit to itself": {0: [(0,), (X,)]},
    "nullable loop": {0: [(1, 1, 1)], 1: [(0,), (X,), ()]},
    "hidden twice": {0: [(1, 1, 0, 1), (X,)], 1: [(), (Y,), (2,)], 2: [(), (1, Z)]},
    "empty rule": {0: [(1, X, 1)], 1: [()]},
    "empty alone": {0: [()]},
    "nothing but empty": {0: [(1, 1), (0, 1)], 1: [()]},
    "nothing": {0: [(0,)]},
    "nothing, longer": {0: [(1, X)], 1: [(0, Y), (X, 1)]},
    "a part of it nothing": {0: [(1,), (X,)], 1: [(1, Y)]},
}


@pytest.mark.parametrize("name", TABLE)
def test_rows(name: str) -> None:
    check_against_lark(TABLE[name], 5)


def test_hidden_left_recursion() -> None:
    cfg = solved(TABLE["hidden left recursion"])
    takes = {text: derives(cfg, [LETTERS.index(one) for one in text]) for text in ("y", "yx", "zyx", "zzyxx")}
    assert all(takes.values())
    for text in ("zy", "zzyx", "x", ""):
        assert not derives(cfg, [LETTERS.index(one) for one in text])


def test_no_text_at_all() -> None:
    with pytest.raises(InvalidConstraint, match="no text can be derived from the rule 'root'"):
        solve({0: [(0,)]}, 0, Budget("grammar"), name="root")
    with pytest.raises(InvalidConstraint, match="no text"):
        solve({0: [(X,)]}, 0, Budget("grammar"), dead_terminals=[0])


def test_only_the_empty_text() -> None:
    assert solved({0: [(1, 1)], 1: [()]}) == Cfg((), NO_MORE)


def test_a_dead_terminal_takes_its_alternatives() -> None:
    cfg = solve({0: [(X,), (Y, 0)]}, 0, Budget("grammar"), dead_terminals=[1])
    assert derives(cfg, [0])
    assert not derives(cfg, [1, 0])


def test_large_grammars_end() -> None:
    ring: Bnf = {rule: [((rule + 1) % 400, X), (Y, (rule + 7) % 400), (Z,)] for rule in range(400)}
    with pytest.raises(UnsupportedConstraint, match="limit"):
        solved(ring)
    chain = {rule: [(rule + 1, X), (Y,)] for rule in range(5000)} | {5000: [(Y,)]}
    assert len(solved(chain).bodies) == 5001
    optional = {0: [(1,) * 2000], 1: [(X,), ()]}
    with pytest.raises(UnsupportedConstraint, match="limit"):
        solved(optional)


symbols = st.sampled_from([X, Y, Z, 0, 0, 1, 1, 2])
alternatives = st.lists(symbols, max_size=3).map(tuple)
rules = st.lists(alternatives, min_size=1, max_size=4)


@settings(max_examples=100, deadline=None)
@given(st.fixed_dictionaries({0: rules, 1: rules, 2: rules}))
def test_any_grammar(bnf: Bnf) -> None:
    check_against_lark(bnf, 4)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=20))
def test_components(pairs: list[tuple[int, int]]) -> None:
    edges = {node: [b for a, b in pairs if a == node] for node in range(8)}
    reach = {node: {node} for node in edges}
    for _ in edges:
        for node in edges:
            reach[node] |= {far for near in edges[node] for far in reach[near]}
    expected = {a: frozenset(b for b in edges if b in reach[a] and a in reach[b]) for a in edges}
    assert components(edges) == expected
