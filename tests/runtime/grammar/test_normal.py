"""Normal trees: the same texts, and no loop whose body may be empty."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.patterns import ecma_patterns, python_patterns, texts
from oracles.tree_match import matches

from treille.runtime.errors import UnsupportedConstraint
from treille.runtime.grammar.normal import empty_way, normalize, whole_text
from treille.runtime.grammar.parse_ecma import parse_ecma
from treille.runtime.grammar.parse_python import parse_python
from treille.runtime.grammar.tree import (
    EMPTY_TEXT,
    NOTHING,
    Chars,
    Choice,
    Look,
    Repeat,
    Sequence,
    Tree,
)

_SETS = [Chars(((97, 97),)), Chars(((98, 98),)), Chars(((97, 98),)), Chars(())]


def _trees() -> st.SearchStrategy[Tree]:
    """Trees of a's and b's, rich in empty ways and assertions."""
    leaf = st.sampled_from([*_SETS, EMPTY_TEXT, NOTHING, *(Look(one, True, False) for one in _SETS[:2])])

    def larger(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
        bounds = st.sampled_from(
            [(0, None), (1, None), (2, None), (0, 1), (0, 2), (1, 1), (2, 3), (3, 3), (0, 0)]
        )
        loops = st.builds(lambda body, ends, lazy: Repeat(body, *ends, lazy), inner, bounds, st.booleans())
        return st.one_of(
            st.lists(inner, max_size=3).map(lambda parts: Sequence(tuple(parts))),
            st.lists(inner, max_size=3).map(lambda options: Choice(tuple(options))),
            loops,
            loops,
            st.builds(Look, inner, st.booleans(), st.booleans()),
        )

    return st.recursive(leaf, larger, max_leaves=10)


def _check(tree: Tree) -> None:
    """The form that is promised."""
    if isinstance(tree, Repeat):
        assert empty_way(tree.body) == NOTHING
        assert tree.high != 0
        assert (tree.low, tree.high) != (1, 1)
        _check(tree.body)
    elif isinstance(tree, Look):
        _check(tree.body)
    elif isinstance(tree, Sequence):
        assert len(tree.parts) != 1
        assert not any(isinstance(part, Sequence) or part == NOTHING for part in tree.parts)
        for part in tree.parts:
            _check(part)
    elif isinstance(tree, Choice):
        assert len(tree.options) != 1
        assert not any(isinstance(option, Choice) for option in tree.options)
        assert sum(isinstance(option, Chars) for option in tree.options) < 2
        for option in tree.options:
            _check(option)
    else:
        assert tree.ranges


@settings(max_examples=500, deadline=None)
@given(_trees(), st.lists(st.text(alphabet="ab", max_size=5), min_size=1, max_size=5))
def test_the_same_texts(tree: Tree, some: list[str]) -> None:
    normal = normalize(tree)
    _check(normal)
    whole = whole_text(normal)
    _check(whole)
    for text in some:
        expected = matches(tree, text)
        assert matches(normal, text) == expected
        assert matches(whole, text) == expected
    assert normalize(normal) is normal


@settings(max_examples=300, deadline=None)
@given(python_patterns(), texts())
def test_python_patterns(pattern: str, text: str) -> None:
    normal = normalize(parse_python(pattern))
    _check(normal)
    expected = re.fullmatch(pattern, text) is not None
    assert matches(normal, text) == expected
    assert matches(whole_text(normal), text) == expected


@settings(max_examples=200, deadline=None)
@given(ecma_patterns(), texts())
def test_ecma_patterns(pattern: str, text: str) -> None:
    tree = parse_ecma(pattern)
    normal = normalize(tree)
    _check(normal)
    assert matches(normal, text) == matches(tree, text)


@pytest.mark.parametrize(
    ("pattern", "same"),
    [
        ("(?:a*)*", "a*"),
        ("(?:a+)+", "a+"),
        ("(?:a+)*", "a*"),
        ("(?:a*){3,}", "a*"),
        ("(?:a{2,})*", "(?:a{2,})*"),
        ("(?:a?){3,7}", "a{0,7}"),
        ("(?:a?b?)*", "[ab]*"),
        ("(?:a*|b)*", "[ab]*"),
        ("(?:a?|bc){2}", "(?:a|bc){0,2}"),
        ("a{1}", "a"),
        ("a{0}", ""),
        ("(?:){5}", ""),
        ("(?:^)*a", "a"),
        ("(?:^|a)*", "a*"),
        ("a(?:b(?:c))", "abc"),
        ("a|(?:[bc]|(?:d|e))|fg", "[a-e]|fg"),
        ("(?=|a)b", "b"),
        ("(?!a*)b|c", "c"),
    ],
)
def test_rewritten(pattern: str, same: str) -> None:
    assert normalize(parse_python(pattern)) == parse_python(same)


@pytest.mark.parametrize(
    ("pattern", "same"),
    [
        ("^abc$", "abc"),
        ("^(?:a|b)$", "[ab]"),
        ("^a|b\\Z", "[ab]"),
        ("(?m)^a$", "a"),
        ("(?<=a)b|c", "c"),
        ("\\A$^", ""),
        ("a$^|b", "a^|b"),
        ("(?=a)^\\w", "(?=a)\\w"),
    ],
)
def test_edges_are_settled(pattern: str, same: str) -> None:
    assert whole_text(normalize(parse_python(pattern))) == normalize(parse_python(same))


@pytest.mark.parametrize(
    "pattern",
    ["[A-Z]{2,4}-\\d{1,5}", "^(https?|ftp)://[^\\s/$.?#].[^\\s]*$", "(a|bc)*?d", "\\bfoo\\b|(?!x)y"],
)
def test_what_is_normal_stays_itself(pattern: str) -> None:
    tree = parse_python(pattern)
    assert normalize(tree) is tree


@pytest.mark.parametrize(
    "pattern",
    [
        "(?:" + "a?" * 3000 + "){2,5}",
        "(?:" * 40 + "a" + "".join("c?){0,5}" for _ in range(40)),
        "".join("(?:c?" for _ in range(60)) + "a?" + "){0,5}" * 60,
        "(?:\\b|a){2000,}",
        "(?:\\b|a){500}",
        "(?:(?:\\b|a){20}b?){20}",
    ],
)
def test_too_large_is_told_soon(pattern: str) -> None:
    tree = parse_python(pattern)
    start = time.thread_time()
    try:
        _check(normalize(tree))
    except UnsupportedConstraint as error:
        assert error.keyword == "repetition"
    assert time.thread_time() - start < 2


def test_large_patterns_that_need_nothing_are_never_refused() -> None:
    tree = parse_python("(?:ab|c)*" * 5000)
    assert normalize(tree) is tree
