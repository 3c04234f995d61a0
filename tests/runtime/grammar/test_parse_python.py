"""Python patterns as trees: what `re.fullmatch` says, the tree says too."""

from __future__ import annotations

import re
import sys
import threading
import time
import warnings

import pytest
from hypothesis import given, settings
from oracles.patterns import python_patterns, texts
from oracles.tree_match import matches

from treille.runtime.errors import InvalidConstraint, UnsupportedConstraint
from treille.runtime.grammar import charset
from treille.runtime.grammar.parse_python import parse_python
from treille.runtime.grammar.tree import Chars, Choice, Repeat, Sequence


@settings(max_examples=400, deadline=None)
@given(python_patterns(), texts())
def test_agrees_with_re(pattern: str, text: str) -> None:
    expected = re.fullmatch(pattern, text) is not None
    assert matches(parse_python(pattern), text) == expected


_TEXTS = [
    "", "a", "A", "b", "ab", "aB", "abc", "a b", "a\n", "\n", "a\nb", "\na", "ba", "ab\n", "a1", "a.b", "1",
    "٣", "é", "É", "ß", "ẞ", "ſ", "s", "K", "k", "ŉ", "İ", "i", "ı", "aa", "aaa", "aaaa", "foo", "foobar",
    "foo bar", "_", "-", "]", "^", "\\", "{", "a{", "a{1", "a{,2}", "a#b", "ab#", " ", "\t", "\x1c", "\x85",
    "\xa0", "𐐀", "𐐨",
]  # fmt: skip


@pytest.mark.parametrize(
    "pattern",
    [
        "", "a", "a|b", "a|", "(|a)b", "a*", "a+?", "a??", "a{2}", "a{1,2}?", "a{,2}", "a{2,}", "a{", "a{1",
        "a{}", "a{x}", "{", "}", "]", "[]]", "[^]]", "[]a]", "[a-]", "[-a]", "[\\d-]", "[\\]]", "[\\\\]",
        "[^^]", "[[a]", "\\.", "\\{", "a\\.b", "\\x61", "\\u0061", "\\U00010400",
        "\\N{LATIN SMALL LETTER A}", "\\141", "\\0", "\\n", "(?i)a", "(?i)k", "(?i)s", "(?i)ß", "(?i)i",
        "(?i)ı", "(?ia)k", "(?i)[a-z]", "(?i)[^a-z]", "(?i)𐐀", "(?i)é", "(?i:a)b", "(?i)a(?-i:b)", "(?s).",
        ".", "(?s:.)|a", "(?a)\\d", "\\d", "(?a:\\d)", "(?a)(?u:\\d)", "(?a)\\w", "\\w", "\\s", "(?a)\\s",
        "\\W", "\\D", "\\S", "(?x) a b # comment\n", "(?x)a\\#b", "(?x)[ ]", "(?x: a )b", "(?x)(?-x:a b)",
        "a(?#comment)b", "(?P<n>a)(?P<m>b)", "(a)(b)?", "^a", "a$", "a$\n", "$", "^", "^$", "(?m)^a$\nb",
        "(?m)a$\\s^b", "a\\Z", "\\Aa", "a\\Z\n", "(?m)a\\Z\n", "\\ba\\b", "\\B", "\\b", "a\\B1", "\\Ba",
        "a\\b b", "(?a)\\bé", "\\bé", "(?a:é\\B)", "(?=a)\\w+", "(?!a)\\w+", "\\w+(?<=b)", "\\w+(?<!b)",
        "(?<=a)b|a(?<=a)b", "(?=.*b).*a", "(?!.*b).*a", "foo(?=bar)\\w+", "(foo(?!bar)|x).*", "(?<!^)a|b",
        "(?=a(?<=a)b)..", "(?:(?=a)|b)*a", "(?:^a|b$)", "(?:a|b$)\n?", "a(?:$\n|b)", "(?:)*", "(?:a*)*",
        "(?:a?b?){2}", "(?:^)*a", "(?:\\b|b)+a?", "(?:a|ab)(?:c|bcd)?", "ab|abc|a", "(?:aa|a|b)(?:a|ab)",
        "[a-c][^\\W]", "\\Aab\\Z",
    ],
)  # fmt: skip
def test_table(pattern: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = re.compile(pattern)
    tree = parse_python(pattern)
    for text in _TEXTS:
        assert matches(tree, text) == (compiled.fullmatch(text) is not None), text


@pytest.mark.parametrize(
    "flags",
    [re.IGNORECASE, re.ASCII, re.MULTILINE, re.DOTALL, re.VERBOSE, re.I | re.A, re.M | re.S, re.UNICODE],
)
@pytest.mark.parametrize("pattern", ["a b", "(?-i:a)b|k", "^a$\n.", ".", "\\w", "(?u:\\w)|k", "[^a]"])
def test_flags(pattern: str, flags: re.RegexFlag) -> None:
    tree = parse_python(pattern, flags)
    for text in [*_TEXTS, "a\n\n", "a\nx"]:
        assert matches(tree, text) == (re.fullmatch(pattern, text, flags) is not None), text


@pytest.mark.parametrize(
    "pattern",
    ["(?i)[{}]", "(?i)[^{}]", "(?i)[a{}]", "(?i)[{}\\d]", "(?ia)[{}x]", "(?i)(?:{}|a)", "(?i)[{0}-{0}z]"],
)
def test_case_of_every_cased_character(pattern: str) -> None:
    cased = [chr(code) for code in range(sys.maxunicode) if chr(code).lower() != chr(code).upper()]
    for one in cased[:: len(cased) // 150]:
        made = pattern.format(one)
        tree = parse_python(made)
        assert isinstance(tree, Chars)
        compiled = re.compile(made)
        for text in {one, one.lower()[0], one.upper()[0], one.title()[0], "a", "A", "z", "5"}:
            found = any(low <= ord(text) <= high for low, high in tree.ranges)
            assert found == (compiled.fullmatch(text) is not None), (made, text)


def test_reports() -> None:
    """B01, B02 and B06, as far as a parser goes."""
    with pytest.raises(UnsupportedConstraint) as caught:
        parse_python("([0-9])-\\1")
    assert (caught.value.keyword, caught.value.path) == ("back-reference", "offset 8")
    tree = parse_python("^(?!no)[a-z]{2,4}$")
    assert [text for text in ("yes", "on", "nab", "no", "not", "nope") if matches(tree, text)] == [
        "yes",
        "on",
        "nab",
    ]
    escaped = parse_python('".*?(?<!\\\\)(\\\\\\\\)*?"')  # Lark's ESCAPED_STRING
    assert matches(escaped, '"a\\"b"')
    assert matches(escaped, '"\\\\"')
    assert not matches(escaped, '"a\\"')
    assert matches(parse_python("\\d"), "५")
    low = parse_python("[\\x00-\\u2fff]+")
    assert [text for text in ("aé\0", "日") if matches(low, text)] == ["aé\0"]


def test_shapes() -> None:
    a, b = (Chars(charset.make_set([(ord(one), ord(one))])) for one in "ab")
    assert parse_python("") == Sequence(())
    assert parse_python("((a))") == a
    assert parse_python("ab") == Sequence((a, b))
    assert parse_python("ab|b") == Choice((Sequence((a, b)), b))
    assert parse_python("a{3,10000}?") == Repeat(a, 3, 10_000, lazy=True)
    assert parse_python("(?:a{2}){1000000,}") == Repeat(Repeat(a, 2, 2), 1_000_000, None)
    assert parse_python("\\ud800") == Chars(())
    assert parse_python("[\\ud800-\\ue000]") == Chars(((0xE000, 0xE000),))


@pytest.mark.parametrize(
    ("pattern", "message", "offset"),
    [
        ("ab**", "multiple repeat", 3),
        ("[z-a]", "bad character range z-a", 1),
        ("a{3,1}", "min repeat greater than max repeat", 2),
        ("(ab", "missing ), unterminated subpattern", 0),
        ("ab)", "unbalanced parenthesis", 2),
        ("a\\", "bad escape (end of pattern)", 1),
        ("\\1", "invalid group reference 1", 1),
        ("(?P=n)", "unknown group name 'n'", 4),
        ("a(?i)b", "global flags not at the start of the expression", 1),
        ("(?<=a*)b", "look-behind requires fixed-width pattern", None),
        ("(?<!a|bc)b", "look-behind requires fixed-width pattern", None),
        ("a{99999999999}", "the repetition number is too large", None),
        ("(?au:a)", "bad inline flags: flags 'a', 'u' and 'L' are incompatible", 4),
    ],
)
def test_malformed(pattern: str, message: str, offset: int | None) -> None:
    with pytest.raises(InvalidConstraint) as caught:
        parse_python(pattern)
    assert str(caught.value) == message + ("" if offset is None else f" at offset {offset}")
    assert caught.value.offset == offset


@pytest.mark.parametrize(
    ("pattern", "keyword", "offset"),
    [
        ("(?P<d>\\d)-(?P=d)", "back-reference", 10),
        ("(a)(b)\\2", "back-reference", 6),
        ("(a)\\1{2}", "back-reference", 3),
        ("(a)\\101\\1", "back-reference", 7),
        ("(a)?(?(1)b|c)", "conditional", 4),
        ("(?P<n>a)?(?(n)b)", "conditional", 9),
        ("a*+", "possessive repetition", 1),
        ("[ab]{1,2}+", "possessive repetition", 4),
        ("a?+b", "possessive repetition", 1),
        ("a{x}+b*+", "possessive repetition", 6),
        ("a*?b{,2}+", "possessive repetition", 4),
        ("x(?>a|ab)c", "atomic group", 1),
        ("[\\]](?>a)", "atomic group", 4),
        ("[](?>](?>a)", "atomic group", 6),
        ("[^](?>a)](?>a)", "atomic group", 9),
        ("\\(?>a(?>b)", "atomic group", 5),
        ("\\N{LATIN SMALL LETTER A}(?>b)", "atomic group", 24),
        ("(?x) # (?>a)\n (a)\\1", "back-reference", 17),
        ("(?x:#\\1\n(a)\\1)", "back-reference", 11),
        ("(?x)(?-x:#(a)\\1)", "back-reference", 13),
        ("(?#(?>a)(?>b)", "atomic group", 8),
        ("(?<=(?=a)b)", "look-ahead in look-behind", 4),
        ("(?<!a(?:b|(?!c)b))", "look-ahead in look-behind", 10),
        ("(?=\\b)(?<=a\\b)", "`\\b` in look-behind", 11),
        ("$(?<!a$)", "`$` in look-behind", 6),
        ("(?<=a[$]\\$\\Z)", "`\\Z` in look-behind", 10),
    ],
)
def test_refused(pattern: str, keyword: str, offset: int) -> None:
    re.compile(pattern)
    with pytest.raises(UnsupportedConstraint) as caught:
        parse_python(pattern)
    assert (caught.value.keyword, caught.value.path) == (keyword, f"offset {offset}")


def test_verbose_from_outside_moves_the_offset() -> None:
    with pytest.raises(UnsupportedConstraint) as caught:
        parse_python("# \\1\n(a)\\1", re.VERBOSE)
    assert caught.value.path == "offset 8"


@pytest.mark.parametrize("opening", ["(", "(?:", "(?=", "(?i:", "(?:a|", "((?:a|b)*"])
def test_nesting_is_limited(opening: str) -> None:
    parse_python(opening * 30 + "a" + ")" * 30)
    parse_python("(a)" * 3000)
    for depth in (65, 400, 100_000):
        with pytest.raises(UnsupportedConstraint, match="nested too deeply"):
            parse_python(opening * depth + "a" + ")" * depth)


def test_no_warning_and_no_other_types() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert matches(parse_python("[[a]"), "[")
        assert matches(parse_python("[a&&b]"), "&")
        assert matches(parse_python("[a||b]"), "|")
    with pytest.raises(InvalidConstraint, match="a pattern is a string"):
        parse_python(b"a")  # type: ignore[arg-type]
    with pytest.raises(InvalidConstraint, match="LOCALE"):
        parse_python("a", re.LOCALE)
    with pytest.raises(InvalidConstraint, match="incompatible"):
        parse_python("a", re.ASCII | re.UNICODE)


@pytest.mark.parametrize(
    "pattern",
    [
        "(?i)" + "".join(f"[\x00-{chr(0x3000 + n)}]" for n in range(6000)),
        "".join(f"[\\w{chr(0x3000 + n)}]" for n in range(6000)),
    ],
)
def test_classes_are_limited(pattern: str) -> None:
    start = time.thread_time()
    with pytest.raises(UnsupportedConstraint, match=r"longer than the limit|too many ranges"):
        parse_python(pattern)
    assert time.thread_time() - start < 4
    parse_python("(?i)" + "[^a]\\w[é-ü]" * 3000)


def test_threads_agree() -> None:
    patterns = [f"(?i)[a-{chr(0x100 + n)}]\\w{{{n}}}" for n in range(50)]
    expected = [parse_python(pattern) for pattern in patterns]
    wrong: list[str] = []

    def check() -> None:
        wrong.extend(one for one, tree in zip(patterns, expected, strict=True) if parse_python(one) != tree)

    threads = [threading.Thread(target=check) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
