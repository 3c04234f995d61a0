"""What a terminal takes of a text is what `re.match` takes, with any text before and after."""

from __future__ import annotations

import re
from itertools import product

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from treille.runtime.errors import ConstraintError, UnsupportedConstraint
from treille.runtime.grammar.lexing import automaton_of
from treille.runtime.grammar.lexing_match import match_end
from treille.runtime.grammar.parse_python import parse_python

ESCAPED_STRING = r'".*?(?<!\\)(\\\\)*?"'

TABLE = {
    r"[a-z]+": "ab1",
    r"a|ab|abc": "abc",
    r"(a|ab)(c|bcd)": "abcd",
    r"a*?b": "ab",
    r"a+?": "ab",
    r"(?:a|ab)*?c": "abc",
    r"(?:|a)*": "ab",
    r"(?:|a)+": "ab",
    r"(?:a|){2,3}b?": "ab",
    r"(?:a?){2,4}?b": "ab",
    r"(?:a??)*b?": "ab",
    r"(?:(?:a|)*?b?)*c": "abc",
    r"(?:a{0,2}b?){1,2}": "ab",
    r"a{2,4}": "ab",
    r"a{2,4}?b?": "ab",
    r"if\b": "if_ ",
    r"\bif": "if_ ",
    r"a(?!b)": "ab",
    r"a(?=b+c)b?": "abc",
    r"(?:a(?!bb)|ab)b*": "abc",
    r"(?<!\\)a": "\\ab",
    r"(?<=ba)a+": "ab",
    r"^a|ab": "ab\n",
    r"(?m)^a|ab": "ab\n",
    r"a$": "ab\n",
    r"(?m)a+$": "ab\n",
    r"a\Z|ab": "ab\n",
    r"\Ba": "ab ",
    r"[+*]|[?](?![a-z])": "+?a",
    r"\/(?!\/)(\\\/|\\\\|[^\/])*?\/[imslux]*": "/\\i",
    r"(\r?\n)+\s*": "\r\n ",
    r"\s*//[^\n]*|\s*#[^\n]*": " /#\n",
    ESCAPED_STRING: '"\\a',
    r"/\*(.|\n)*?\*/": "/*a",
    r"0(?:_?0)*(?![1-9])|[1-9]": "01_",
    r"a(?:b(?=c)|bc(?!d))*": "abcd",
}


@pytest.mark.parametrize("pattern", TABLE)
def test_every_text(pattern: str) -> None:
    automaton = automaton_of(parse_python(pattern))
    compiled = re.compile(pattern)
    letters = TABLE[pattern]
    for length in range(8 - len(letters)):
        for text in map("".join, product(letters, repeat=length)):
            for at in range(len(text) + 1):
                found = compiled.match(text, at)
                assert match_end(automaton, text, at) == (found and found.end()), (text, at)


atoms = st.sampled_from(
    ["a", "b", "c", "[ab]", "[^a]", ".", "", r"\b", r"\B", "^", "$", "(?!a)", "(?=b)", "(?<!a)"]
)


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    bodies = inner.map(lambda one: f"(?:{one})")
    return st.one_of(
        st.lists(inner, min_size=2, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map("|".join).map(lambda one: f"(?:{one})"),
        st.tuples(
            bodies, st.sampled_from(["*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{0,2}?", "{2,}"])
        ).map("".join),
    )


patterns = st.recursive(atoms, grown, max_leaves=8)


@settings(max_examples=400, deadline=None)
@given(patterns, st.text("abc\n", max_size=6), st.integers(0, 3))
def test_any_pattern(pattern: str, text: str, at: int) -> None:
    assume(at <= len(text))
    try:
        automaton = automaton_of(parse_python(pattern))
    except ConstraintError:
        return
    found = re.compile(pattern).match(text, at)
    assert match_end(automaton, text, at) == (found and found.end())


def test_the_first_closing_quote_ends_a_string() -> None:
    automaton = automaton_of(parse_python(ESCAPED_STRING))
    assert match_end(automaton, '"a" "b"', 0) == 3
    assert match_end(automaton, r'"a\" "b"', 0) == 6
    # Nothing is left that could match later: the state after the quote is the dead one.
    assert all(not leaf.state or not leaf.matched for row in automaton.table for leaf in row)  # type: ignore[union-attr]


def test_equal_states_are_one_and_dead_ends_are_none() -> None:
    assert len(automaton_of(parse_python("a(?:b|c)d|a(?:c|b)d")).table) == 4
    assert len(automaton_of(parse_python(r"a(?:b[^\s\S])*")).table) == 2
    assert automaton_of(parse_python(r"[^\s\S]a")).is_empty


def test_what_is_too_large_is_refused() -> None:
    for pattern in ("(?:a|b){30000}", "(?:[ab]*a[ab]{20})", "(?:a{0,300}){0,300}"):
        with pytest.raises(UnsupportedConstraint, match="more than"):
            automaton_of(parse_python(pattern))
    assert len(automaton_of(parse_python("[a-z]{1,500}")).table) == 501
