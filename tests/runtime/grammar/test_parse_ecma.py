"""ECMA-262 patterns as trees, against tables and, where node is installed, against node."""

from __future__ import annotations

import re
import time
import unicodedata
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.node_regex import NodeRegex, is_installed
from oracles.patterns import ecma_patterns, texts
from oracles.tree_match import matches

from treille.runtime.errors import InvalidConstraint, UnsupportedConstraint
from treille.runtime.grammar import charset, unicode_sets
from treille.runtime.grammar.normal import normalize
from treille.runtime.grammar.parse_ecma import parse_ecma, search_tree
from treille.runtime.grammar.tree import Chars, Repeat

_with_node = pytest.mark.skipif(not is_installed(), reason="node is not installed")


@pytest.fixture(scope="module")
def node() -> Iterator[NodeRegex]:
    with NodeRegex() as started:
        yield started


def _found(pattern: str, text: str) -> bool:
    return matches(search_tree(parse_ecma(pattern)), text)


@_with_node
@settings(max_examples=300, deadline=None)
@given(ecma_patterns(), st.lists(texts(), min_size=1, max_size=4))
def test_agrees_with_node(node: NodeRegex, pattern: str, some: list[str]) -> None:
    expected = node.ask(pattern, some)
    assert expected is not None
    tree = parse_ecma(pattern)
    search = search_tree(tree)
    assert [(matches(tree, text), matches(search, text)) for text in some] == expected
    assert [matches(normalize(search), text) for text in some] == [found for _, found in expected]


_TEXTS = [
    "", "a", "b", "ab", "abc", "7", "५", "K", "_", "é", "É", " ", "\xa0", "\u2003", "\ufeff", "\u200b",
    "\u2028", "\n", "\r", "a\n", "a\nb", "a b", "a1", "-", "]", "{", "}", "{1}", "a{,2}", "/", "\x08",
    "\x01", "\0", "😀", "ǅ", "a-b", "🐙", "\x85",
]  # fmt: skip
_STRICT = [
    "", "a|", "a*", "a{2,}", "a{0}b", "^a$", "^", "$", "a$|^b", "\\b", "\\B", "\\ba", "a\\B", ".", "[^]",
    "[]", "[]|a", "\\d", "\\w", "\\s", "\\D", "\\W", "\\S", "[\\d]", "[^\\w]", "[^\\s\\S]", "\\x61",
    "\\u0061", "\\u{61}", "\\u{1F600}", "\\ud83d\\ude00", "[\\ud83d\\ude00]", "[\\u{1F600}-\\u{1F64F}]",
    "😀", "[😀-🙏]", "\\cA", "[\\cA]", "\\0", "[\\0]", "[\\b]", "\\t\\n|\\n", "\\f|\\v|\\r", "\\/", "\\]",
    "\\}", "\\{1\\}", "[\\-]", "[a\\-b]", "[-a]", "[a-]", "[^-]", "[a-c-]", "\\^|\\$|\\\\|\\.",
    "(a)(?:b)(?<n>c)", "(?<$_é>a)", "(?<\\u{61}b>a)", "(?=a).", "(?!a).", "(?<=a)b", "(?<!a)b", "(?<=a*)b",
    "(?<=^a?)b", "(?<=(?<!a)b)c", "a??", "a{1,2}?", "(?:a*)*", "(?:)*", "(?:^)*a", "(?:(?=a))*a",
    "(?:\\b)+a", "\\p{L}", "\\P{L}", "[\\p{Lu}\\d]", "[^\\P{Ll}]", "\\p{Letter}", "\\p{gc=Lu}",
    "\\p{General_Category=Nd}", "\\p{LC}", "\\p{Any}", "\\p{ASCII}", "\\p{Assigned}", "\\p{Cs}",
    "\\p{AHex}", "\\p{Lowercase}", "\\p{Upper}", "\\p{White_Space}", "\\p{space}", "\\p{XIDS}",
    "\\p{XID_Continue}", "\\p{punct}", "\\p{digit}",
]  # fmt: skip


@_with_node
@pytest.mark.parametrize("pattern", _STRICT)
def test_table_agrees_with_node(node: NodeRegex, pattern: str) -> None:
    tree = parse_ecma(pattern)
    assert [(matches(tree, text), _found(pattern, text)) for text in _TEXTS] == node.ask(pattern, _TEXTS)


@pytest.mark.parametrize(
    ("pattern", "accepted", "rejected"),
    [
        ("^\\d$", "7", "५"),
        ("^\\w$", "K_", "É"),
        ("^\\s$", "\xa0\u2003\ufeff\u2028 \t", "\u200b\x85\x1c"),
        ("^.$", "a\x85é\0", "\n\r\u2028\u2029"),
        ("^[\\x00-\\u2fff]$", "aé\0", "日"),
        ("^\\p{Lu}$", "AÉ", "aǅ1"),
        ("^[\\ud83d\\udc19]$", "🐙", "a"),
        ("^\\ud83d$", "", "🐙a"),
        ("^[\\ud800-\\udfff]$", "", "🐙a\ue000"),
        ("^[^\\ud800]$", "🐙a\ue000", ""),
        ("^[]$", "", "a"),
    ],
)
def test_sets(pattern: str, accepted: str, rejected: str) -> None:
    assert [one for one in accepted if not _found(pattern, one)] == []
    assert [one for one in rejected if _found(pattern, one)] == []


@pytest.mark.parametrize(
    ("pattern", "accepted", "rejected"),
    [
        ("b+", ["abc", "b"], ["xyz", ""]),
        ("^a|b$", ["axx", "xxb", "a", "b"], ["xax", "ba"]),
        ("^a.c$", ["abc", "a\x85c"], ["a\nc", "a\rc", "a\u2028c", "abc\n"]),
        ("^a$", ["a"], ["a\n", "ba"]),
        ("^^a", ["ab"], ["ba"]),
        ("(^a|b$)", ["ax", "xb"], ["xa", "bx"]),
        ("^(a|b)$|c", ["a", "b", "xcx"], ["ab", "xa"]),
        ("x|^a|b$", ["1x1", "a1", "1b"], ["1a", "b1"]),
        ("$^", [""], ["a"]),
        ("a^", [], ["a", "", "aa"]),
        ("", ["", "a"], []),
        ("^", ["", "a"], []),
        ("\\bcat\\b", ["a cat!", "cat"], ["cats", "écats"]),
        ("^(?!no)[a-z]{2,4}$", ["yes", "on", "nab"], ["no", "not", "nope"]),
        ("(?<=\\$)\\d+$", ["$12", "a$1"], ["12", "$12 "]),
    ],
)
def test_pattern_is_a_search(pattern: str, accepted: list[str], rejected: list[str]) -> None:
    """B07 among others."""
    assert [text for text in [*accepted, *rejected] if _found(pattern, text)] == accepted


def test_anchors_at_the_edges_need_no_search() -> None:
    assert search_tree(parse_ecma("^ab$")) == parse_ecma("ab")
    assert search_tree(parse_ecma("^[a-z]+$|^$")) == parse_ecma("[a-z]+|")


@pytest.mark.parametrize("sign", "-_@\"'#%&,:;<=>`~! é–\n")
def test_harmless_escapes(sign: str) -> None:
    assert matches(parse_ecma("\\" + sign), sign)
    assert matches(parse_ecma(f"[\\{sign}]"), sign)


@pytest.mark.parametrize(
    ("pattern", "accepted", "rejected"),
    [
        ("{", ["{"], [""]),
        ("}", ["}"], [""]),
        ("]", ["]"], [""]),
        ("a{", ["a{"], ["a"]),
        ("a{,2}", ["a{,2}"], ["a", ""]),
        ("{a}", ["{a}"], ["a"]),
        ("{{a}}*", ["{{a}}}", "{{a}"], ["{{a"]),
        ("a{1", ["a{1"], ["a"]),
        ("[\\w-.]", ["a", "-", "."], ["/"]),
        ("[.-\\w]", ["a", "-", "."], ["/"]),
        ("[\\d-\\w]", ["a", "-", "1"], ["/"]),
        ("[\\s-]", [" ", "-"], ["/"]),
        ("(?<n>a)|(?<n>b)", ["a", "b"], ["ab"]),
    ],
)
def test_taken_from_other_engines(pattern: str, accepted: list[str], rejected: list[str]) -> None:
    tree = parse_ecma(pattern)
    assert [text for text in [*accepted, *rejected] if matches(tree, text)] == accepted


@pytest.mark.parametrize(
    ("pattern", "message", "offset"),
    [
        ("ab**", "nothing to repeat", 3),
        ("*a", "nothing to repeat", 0),
        ("a++", "nothing to repeat", 2),
        ("^*", "nothing to repeat", 1),
        ("a\\b?", "nothing to repeat", 3),
        ("(?=a)*", "nothing to repeat", 5),
        ("{1}", "nothing to repeat", 0),
        ("a|{1,2}", "nothing to repeat", 2),
        ("a{3,1}", "numbers out of order in repetition", 1),
        ("[z-a]", "bad character range z-a", 1),
        ("x[a\\u{62}-a]", "bad character range \\u{62}-a", 3),
        ("(ab", "missing ), unterminated subpattern", 0),
        ("a(?:b(c)", "missing ), unterminated subpattern", 1),
        ("ab)", "unbalanced parenthesis", 2),
        ("a\\", "bad escape \\ (end of pattern)", 1),
        ("[a", "unterminated character set", 0),
        ("a[b\\]", "unterminated character set", 1),
        ("\\q", "bad escape \\q", 0),
        ("a\\Z", "bad escape \\Z", 1),
        ("a[b\\A]", "bad escape \\A", 3),
        ("[\\B]", "bad escape \\B", 1),
        ("\\c1", "bad escape \\c", 0),
        ("\\x4", "bad escape \\x", 0),
        ("\\u12", "bad escape \\u", 0),
        ("\\u{110000}", "code point out of range", 0),
        ("[\\u{FFFFFFFFFFFF}]", "code point out of range", 1),
        ("\\01", "bad escape \\0", 0),
        ("[\\1]", "bad escape \\1", 1),
        ("(a)\\2", "invalid group reference 2", 3),
        ("\\k<n>", "unknown group name", 0),
        ("(?<n>a)\\k", "unknown group name", 7),
        ("\\p{}", "bad escape \\p", 0),
        ("\\pL", "bad escape \\p", 0),
        ("[\\p{L]", "bad escape \\p", 1),
        ("(?i)a", "ECMA-262 has no such group", 0),
        ("(?P<n>a)", "ECMA-262 has no such group", 0),
        ("a(?>b)", "ECMA-262 has no such group", 1),
        ("a(?#b)", "ECMA-262 has no such group", 1),
        ("(?", "ECMA-262 has no such group", 0),
        ("(?<>a)", "ECMA-262 has no such group", 0),
        ("(?<1>a)", "bad character in group name", 3),
        ("(?<a-b>a)", "bad character in group name", 3),
    ],
)
def test_malformed(pattern: str, message: str, offset: int) -> None:
    with pytest.raises(InvalidConstraint) as caught:
        parse_ecma(pattern)
    assert (str(caught.value), caught.value.offset) == (f"{message} at offset {offset}", offset)


@_with_node
def test_node_takes_none_of_the_malformed_ones(node: NodeRegex) -> None:
    [mark] = [one for one in test_malformed.pytestmark if one.name == "parametrize"]  # type: ignore[attr-defined]
    assert [pattern for pattern, _, _ in mark.args[1] if node.ask(pattern, [""]) is not None] == []


@pytest.mark.parametrize(
    ("pattern", "keyword", "offset"),
    [
        ("([0-9])-\\1", "back-reference", 8),
        ("\\1(a)", "back-reference", 0),
        ("(?<n>a)\\k<n>", "back-reference", 7),
        ("a(?i:b)", "modifiers", 1),
        ("(?s-m:b)", "modifiers", 0),
        ("\\p{Script=Latin}", "\\p{Script=Latin}", 0),
        ("a[b\\P{sc=Greek}]", "\\P{sc=Greek}", 3),
        ("\\p{Emoji}", "\\p{Emoji}", 0),
        ("\\p{Alphabetic}", "\\p{Alphabetic}", 0),
        ("\\p{gc=Latin}", "\\p{gc=Latin}", 0),
        ("\\p{lu}", "\\p{lu}", 0),
        ("(?<=(?=a)b)", "look-ahead in look-behind", 4),
        ("(?<!(b(?!a)))", "look-ahead in look-behind", 6),
        ("(?<=a$)", "`$` in look-behind", 5),
        ("(?<=\\ba)", "`\\b` in look-behind", 4),
        ("a{1,99999999999}", "repetition", 1),
    ],
)
def test_refused(pattern: str, keyword: str, offset: int) -> None:
    with pytest.raises(UnsupportedConstraint) as caught:
        parse_ecma(pattern)
    assert (caught.value.keyword, caught.value.path) == (keyword, f"offset {offset}")


def test_shapes() -> None:
    assert parse_ecma("a{3,10000}?") == Repeat(Chars(((97, 97),)), 3, 10_000, lazy=True)
    assert parse_ecma("[^]") == Chars(charset.SCALARS)
    with pytest.raises(InvalidConstraint, match="a pattern is a string"):
        parse_ecma(1)  # type: ignore[arg-type]


@pytest.mark.parametrize("opening", ["(", "(?:", "(?=", "(?<!", "(?:a|"])
def test_nesting_is_limited(opening: str) -> None:
    parse_ecma(opening * 30 + "a" + ")" * 30)
    parse_ecma("(a)" * 3000)
    for depth in (65, 400, 100_000):
        with pytest.raises(UnsupportedConstraint, match="nested too deeply"):
            parse_ecma(opening * depth + "a" + ")" * depth)


def test_long_patterns_take_linear_time() -> None:
    start = time.thread_time()
    parse_ecma("(a|[b-d]{2}\\d)?" * 20_000)
    parse_ecma("[" + "ab-c\\d" * 20_000 + "]")
    for pattern in ("[" * 50_000, "a{" * 50_000, "(?" * 50_000, "{" * 50_000 + "1"):
        try:
            parse_ecma(pattern)
        except InvalidConstraint:
            continue
    assert time.thread_time() - start < 5


def test_classes_are_limited() -> None:
    start = time.thread_time()
    with pytest.raises(UnsupportedConstraint, match=r"longer than the limit|too many ranges"):
        parse_ecma("".join(f"[\\P{{Ll}}{chr(0x3000 + n)}]" for n in range(6000)))
    assert time.thread_time() - start < 4
    parse_ecma("\\p{L}[\\P{Lu}]" * 3000)


def test_general_categories_are_those_of_unicodedata() -> None:
    whole: list[tuple[int, int]] = []
    for name in sorted({unicodedata.category(chr(code)) for code in range(0xE001)}):
        ranges = unicode_sets.unicode_property(name)
        assert ranges is not None
        assert ranges == unicode_sets.unicode_property(f"gc={name}")
        whole.extend(ranges)
        for low, high in ranges[:20]:
            assert {unicodedata.category(chr(code)) for code in (low, high)} == {name}
    assert charset.make_set(whole) == charset.SCALARS
    assert unicode_sets.unicode_property("L") == unicode_sets.unicode_property("Letter")
    with_other = unicode_sets.unicode_property("C")
    assigned = unicode_sets.unicode_property("Assigned")
    assert with_other is not None
    assert assigned is not None
    assert any(low <= 0xE000 <= high for low, high in with_other)
    assert not any(low <= 0x378 <= high for low, high in assigned)


def test_white_space_is_what_the_sets_say() -> None:
    spaces = unicode_sets.unicode_property("White_Space")
    assert spaces is not None
    added = charset.union(unicode_sets.SPACES, ((0x85, 0x85),))
    assert charset.union(spaces, ((0xFEFF, 0xFEFF),)) == added
    assert re.fullmatch(r"\s+", "".join(chr(low) for low, _ in spaces))
