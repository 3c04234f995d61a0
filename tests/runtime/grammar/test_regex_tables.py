"""Rows of patterns and texts. `re.fullmatch` decides; the rows say what it is asked."""

from __future__ import annotations

import re
import warnings

import pytest

from treille.runtime.grammar.regex import regex_dfa

TEXTS = [
    "", "a", "b", "c", "k", "A", "B", "K", "s", "S", "ſ", "\u212a", "0", "1", "7", "9", "_", "-", ".", "|",
    " ", "\t", "\n", "\r", "\x00", "\x0b", "\x0c", "\x1c", "\x1f", "\x7f", "\x85", "\xa0", "é", "É", "ß", "ẞ",
    "ss", "İ", "i", "ı", "I", "ﬅ", "ﬆ", "µ", "μ", "Μ", "ς", "σ", "Σ", "५", "७", "\u2003", "\u2028", "\u200b",
    "\ufeff", "日", "☃", "\ud7ff", "\ue000", "\uffff", "\U00010000", "😀", "\U0010ffff", "𐐀", "𐐨", "ab", "ba",
    "aa", "bb", "abc", "aaa", "abab", "a\n", "\na", "a\nb", "\n\n", "a\n\n", "ab\n", "a b", "a-b", "a.b",
    "a|b", "]", "[", "{", "}", "a{x}", "a{2", "{2}", "\\", "^", "$", "a$", "#", "a#b", "(", ")", "é5", "日本",
    "4-4", "12", "23", "111", "11", "2", "24", "19", "x", "y", "xy", "xxy", "yes", "no", "K\u212a", "straße",
    "STRASSE", "STRAßE", "ſtraẞe", "a{", "a,", "a{,",
]  # fmt: skip

PATTERNS = [
    # literals, alternation, groups
    "", "a", "ab", "a|b", "a|", "|a", "a||b", "(a|b)c", "(?:a|b)+", "(x|)y", "(|a)(b|)", "((((a))))",
    "(?P<n>a)b", "(?P<é>a)", "()", "()*", "(a()b)", "a|ab|abc", "(?:)", "(?:|)", "(?:a|b|ab)*", "[a]|b|[c]",
    # repetition
    "a*", "a+", "a?", "a*?", "a+?", "a??", "a{2}", "a{2}?", "a{1,}", "a{,2}", "a{0,1}", "a{0}", "a{0,0}b",
    "a{,}", "(ab){1,2}", "(a*)*", "(a*)+", "(a?){3}", "(a|b*)*", "(?:a{2}){2}", "a{1,2}b{1,2}", "a{01}",
    "(?:a?b?)*c?",
    # braces that are no quantifier
    "a{", "a{x}", "a{2", "a{,", "{", "}", "a}", "{x", "a{1,2", "x{ 1}", "a{2 }", "a{-1}", "{{2}", "{}", "a{}",
    # dot and classes
    ".", ".*", "a.b", "(?s:.)", "[ab]", "[^ab]", "[a-c]", "[^a-c]", "[]a]", "[^]a]", "[a\\]]", "[a-]", "[-a]",
    "[a\\-c]", "[a-c-]", "[\\d-]", "[-\\d]", "[\\w.]", "[\\W]", "[^\\W]", "[^\\W\\d]", "[\\W\\d]", "[\\s\\S]",
    "[^\\s]", "[\\b]", "[\\x41-\\x43]", "[\\101]", "[\\0-\\37]", "[\\7]", "[.]", "[|]", "[$^]", "[{}]",
    "[(?:)]", "[[]", "[[a]", "[a||b]", "[a&&b]", "[~~]", "[\\n\\r\\t\\v\\f\\a]", "[\\x00-\\u2fff]+",
    "[\\u0000-\\U0010ffff]", "[\\ud7ff-\\ue000]", "[^\\x00-\\uffff]", "[\\U00010000-\\U0010ffff]",
    "[\u00e9-\u00ea\u65e5]", "[^\\n]", "[\\^a]", "[a^]", "[\\\\]", "[\\]]", "[\\[]", "[a-\\x63]",
    "[\\N{LATIN SMALL LETTER A}-c]", "[#]", "[ ]",
    # categories
    "\\d", "\\D", "\\w", "\\W", "\\s", "\\S", "\\d+", "\\w+", "\\s+", "(?a)\\d", "(?a)\\w", "(?a)\\s",
    "(?a)\\W", "(?a)\\S", "(?a)[^\\w]", "(?a:\\d)|\\w", "(?u:\\d)", "(?a)(?u:\\w)",
    # escapes
    "\\.", "\\|", "\\\\", "\\-", "\\ ", "\\#", "\\_", "\\n", "\\t", "\\r", "\\v", "\\f", "\\a", "\\x61",
    "\\x00", "\\u00e9", "\\U0001f600", "\\0", "\\00", "\\000", "\\01", "\\101", "\\141", "\\377", "\\012",
    "\\N{SNOWMAN}", "\\N{LATIN SMALL LETTER A}", "\\é", "\\{", "\\]", "\\$", "\\^", "\\08", "\\0018",
    "\\1411", "\\\n",
    # anchors
    "^", "$", "^$", "^a$", "^a", "a$", "a^", "$a", "^^a$$", "a$\\n", "a$\\n?", "a$\\s", "a\\Z\\n?", "\\Aa\\Z",
    "a\\A", "(^a|b)", "(a$|b)c?", "(^|a)b", "a($|b)", "(?:^a)*", "(?:a$)*", "(^)*a", "a(\\Z)*", "^(?:a|b)$",
    "a$^", "$^", "\\n^a", "(?m)a$\\n^b", "(?m)^a$\\n?", "(?m)\\n^\\n", "(?m:^)a", "(?m)$\\n$",
    "(?m)(^a$\\n?)*", "(?m)a^", "(?m)a\\Z\\n?", "(?m)\\Aa", "(?s).$", ".$", ".$\\n", "(?s)a.\\Z", "[^a]$",
    "a$\\Z", "a\\Z$", "(?m)$^", "a$\\n\\Z",
    # word boundaries
    "\\ba\\b", "a\\b", "a\\Bb", "a\\bb", "\\b", "\\Ba", "a\\B", "\\ba b\\b", "a\\b b", "\\b\\w+\\b",
    "\\B\\W\\B", "\\bé", "(?a)\\bé", "(?a)\\Bé", "(?a:\\b)a", "é\\b5", "(?a)é\\b5", "(?a)é\\B5", "\\b.\\b",
    "\\B.\\B", "(\\b|a)*b?", "(?:\\ba)+", "(?:a\\b)+", "(a\\b|b)*", ".\\b.", ".\\B.", "(?s).\\b.", "(?m)$\\b",
    "(?m)a$\\b\\n", "\\b^a$\\b",
    # flags
    "(?i)k", "(?i)K", "(?i)\u212a", "(?i)s", "(?i)ſ", "(?i)straße", "(?i)STRASSE", "(?i)ẞ", "(?i)ß", "(?i)i",
    "(?i)İ", "(?i)ı", "(?i)I", "(?i)ﬅ", "(?i)µ", "(?i)ς", "(?i)[a-c]", "(?i)[^a-c]", "(?i)[k]", "(?i)[^k]",
    "(?i)[^s]", "(?i)[r-t]", "(?ai)[r-t]", "(?ai)k", "(?ai)é", "(?i)é", "(?i)[\\W]", "(?i)[^\\W_]",
    "(?i)[\\dk]", "(?i)𐐀", "(?i)[𐐨]", "(?i)[\ufffe-\U00010400]", "(?i)[a-\U00010428]",
    "(?i)[^\ufffe-\U00010427]", "(?i:a)b", "a(?i:b)", "(?i)a(?-i:b)", "(?i:a(?-i:b))c", "(?i:a|b)|c",
    "(?is:a.)", "(?s-i:a.)", "(?i)(?s).A", "(?i)\\x61", "(?i)\\101", "(?i)\\u00e9", "(?i)\\d", "(?i)(?:a|b)+",
    "(?i)σ+", "(?im)^A$", "(?i)[\u0130]", "(?i)[i]", "(?i)[^i]", "(?i)\\N{KELVIN SIGN}",
    # comments and verbose patterns
    "a(?#x)b", "a(?#x)*", "(?#x)a", "(?#)", "a(?#x)(?#y)+b", "(?x) a b", "(?x) a + ", "(?x)a#b",
    "(?x)a #b\nb", "(?x)[ #]", "(?x)a\\ b", "(?x)a\\#b", "(?x) ( a | b ) {2} ", "(?x)a {2}", "(?x)a{1, 2}",
    "(?x: a )b", "(?x: a ) b", "(?x) a (?-x: b)", "(?x)a(?#y) *", "(?x)\na\t|\x0bb",
    "(?x)a # (\n b", "(?x:a # )\n) b", "(?x)|\n a",
    "a(?#\\)x)b", "(?x)a # \\\n b\n b", "(?x)(?#\\\n)a",
    # from reports
    "2[0-3]|[01]?\\d", "red|blue", "([0-9])-[0-9]", "yes|no", "[A-Z]{2,4}-\\d{1,5}", "\\d{4}-\\d\\d",
    "[^@]+@[^@]+",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_full_match(pattern: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = re.compile(pattern)
    try:
        dfa = regex_dfa(pattern)
    except ValueError as error:
        assert "no text matches" in str(error)
        assert not any(compiled.fullmatch(text) for text in TEXTS)
        return
    for text in TEXTS:
        assert dfa.accepts(text.encode()) == bool(compiled.fullmatch(text)), text


ROWS = [
    ("2[0-3]|[01]?\\d", ["11", "2", "23", "07"], ["111", "24", ""], ["", "1", "2"]),
    ("(x|)y", ["y", "xy"], ["x", "xxy", ""], ["x"]),
    ("\\d", ["7", "५"], ["a", "", "77"], [""]),
    ("[\\x00-\\u2fff]+", ["aé", "\x00"], ["日", ""], [""]),
    ("^a$", ["a", "a\n"][:1], ["b", "aa"], [""]),
    ("[A-Z]{2,4}-\\d{1,5}", ["AB-1", "ABCD-12345"], ["A-1", "ABCDE-1", "AB-", "AB-123456"], ["A", "ABCD-"]),
]


@pytest.mark.parametrize(("pattern", "accepts", "rejects", "incomplete"), ROWS)
def test_rows(pattern: str, accepts: list[str], rejects: list[str], incomplete: list[str]) -> None:
    dfa = regex_dfa(pattern)
    assert [text for text in accepts if not dfa.accepts(text.encode())] == []
    assert [text for text in rejects if dfa.accepts(text.encode())] == []
    assert [text for text in incomplete if dfa.run(text.encode()) is None] == []
