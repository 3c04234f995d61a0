"""Patterns that are refused, with the place and the reason; nothing is taken for something else."""

from __future__ import annotations

import re
import threading
import time
import warnings

import numpy as np
import pytest

from treille.runtime.constraints import compile_constraint
from treille.runtime.errors import InvalidConstraint, UnsupportedConstraint
from treille.runtime.grammar import Vocabulary, compile_regex
from treille.runtime.grammar.regex import regex_dfa
from treille.runtime.params import Constraint


@pytest.mark.parametrize(
    ("pattern", "message", "offset"),
    [
        ("ab**", "multiple repeat", 3),
        ("[z-a]", "bad character range z-a", 1),
        ("a{3,1}", "min repeat greater than max repeat", 2),
        ("(ab", "missing ), unterminated subpattern", 0),
        ("ab)", "unbalanced parenthesis", 2),
        ("*a", "nothing to repeat", 0),
        ("a\\", "bad escape (end of pattern)", 1),
        ("\\q", "bad escape \\q", 0),
        ("[a", "unterminated character set", 0),
        ("[\\d-z]", "bad character range \\d-z", 1),
        ("\\1", "invalid group reference 1", 1),
        ("(?P=n)", "unknown group name 'n'", 4),
        ("a(?i)b", "global flags not at the start of the expression", 1),
        ("\\400", "octal escape value \\400 outside of range 0-0o377", 0),
        ("\\N{NO SUCH NAME}", "undefined character name 'NO SUCH NAME'", 0),
        ("(?P<1>a)", "bad character in group name '1'", 4),
    ],
)
def test_malformed(byte_vocab: Vocabulary, pattern: str, message: str, offset: int) -> None:
    with pytest.raises(InvalidConstraint) as caught:
        compile_regex(pattern, byte_vocab)
    assert (str(caught.value), caught.value.offset) == (f"{message} at offset {offset}", offset)
    assert caught.value.field == "regex"


@pytest.mark.parametrize(
    "pattern",
    [
        "[^\\s\\S]",
        "a[^\\w\\W]b",
        "b^a",
        "a$b",
        "a\\Zb",
        "[\\ud800]",
        "\\ud800",
        "a\\bb",
        "(?=a)b",
        "(?!a)a",
        "a(?<=b)",
        "(?!)",
        "a*(?!)",
        "(?=(?!))",
    ],
)
def test_empty_language(byte_vocab: Vocabulary, pattern: str) -> None:
    with pytest.raises(InvalidConstraint, match="no text matches the pattern"):
        regex_dfa(pattern)
    with pytest.raises(InvalidConstraint, match="no text matches the pattern"):
        compile_regex(pattern, byte_vocab)


@pytest.mark.parametrize(
    ("pattern", "keyword", "offset"),
    [
        ("([0-9])-\\1", "back-reference", 8),
        ("(?P<d>\\d)-(?P=d)", "back-reference", 10),
        ("(a)(b)\\2", "back-reference", 6),
        ("(a)\\1{2}", "back-reference", 3),
        ("(a)?(?(1)b|c)", "conditional", 4),
        ("(?P<n>a)?(?(n)b)", "conditional", 9),
        ("a*+", "possessive repetition", 1),
        ("[ab]{1,2}+", "possessive repetition", 4),
        ("a?+b", "possessive repetition", 1),
        ("x(?>a|ab)c", "atomic group", 1),
        ("(?x) # (?=a)\n (a)\\1", "back-reference", 17),
    ],
)
def test_not_enforceable(byte_vocab: Vocabulary, pattern: str, keyword: str, offset: int) -> None:
    if keyword in ("possessive repetition", "atomic group"):
        re.compile(pattern)
    with pytest.raises(UnsupportedConstraint) as caught:
        compile_regex(pattern, byte_vocab)
    found = caught.value
    assert (found.keyword, found.path, found.field) == (keyword, f"offset {offset}", "regex")


@pytest.mark.usefixtures("byte_vocab")
@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("[ab]*a[ab]{40}", "32768 states|longer"),
        ("(.{0,300}x){2}", "32768 states|longer"),
        ("\\w" * 1000, "32768 states|longer"),
        ("\\b(\\w+\\b ?){8000}", "states|longer|steps"),
        ("(?i)" + "[\x00-\uffff]" * 2_000 + "\\w{500}", "states|longer"),
        (
            "".join(f"[{chr(0x100 + n)}-{chr(0x3000 + n)}]" for n in range(8000)),
            "too many kinds of characters",
        ),
    ],
)
def test_limits_of_whole_automata(pattern: str, reason: str) -> None:
    start = time.thread_time()
    with pytest.raises(UnsupportedConstraint, match=reason) as caught:
        regex_dfa(pattern)
    assert caught.value.keyword in ("constraint", "pattern")
    assert time.thread_time() - start < 5


def test_limits_of_patterns(byte_vocab: Vocabulary) -> None:
    start = time.thread_time()
    many = "".join(f"[{chr(0x100 + n)}-{chr(0x3000 + n)}]" for n in range(8000))
    with pytest.raises(UnsupportedConstraint, match="too many kinds of characters") as caught:
        compile_regex(many, byte_vocab)
    assert (caught.value.keyword, caught.value.field) == ("pattern", "regex")
    looks = "".join(f"(?<!{chr(0x4E00 + n)})a" for n in range(70))
    with pytest.raises(UnsupportedConstraint, match="there are more than 62") as caught:
        compile_regex(looks, byte_vocab)
    assert (caught.value.keyword, caught.value.field) == ("look-behind", "regex")
    with pytest.raises(UnsupportedConstraint, match=r"more than 200000 parts|takes longer"):
        compile_regex("(?:ab|c)" * 70_000, byte_vocab)
    assert time.thread_time() - start < 10


@pytest.mark.parametrize(
    "pattern",
    [
        "(a{1000}){1000}",
        "((a{1000}){1000}){1000}",
        "(){4000000000}",
        "[ab]*a[ab]{40}",
        "(.{0,300}x){2}",
        "\\w" * 1000,
    ],
)
def test_what_was_too_large_for_automata_is_compiled(pattern: str, byte_vocab: Vocabulary) -> None:
    start = time.thread_time()
    grammar = compile_regex(pattern, byte_vocab)
    row = np.zeros(byte_vocab.num_words, np.uint32)
    grammar.matcher().fill_mask(row)
    assert row.any() and grammar.nbytes < 1 << 22
    assert time.thread_time() - start < 1


def test_nesting_is_limited() -> None:
    assert regex_dfa("(" * 30 + "a" + ")" * 30).accepts(b"a")
    for pattern in ("(" * 3000 + "a" + ")" * 3000, "(?:" * 400 + "a" + ")" * 400):
        with pytest.raises(UnsupportedConstraint, match="nested too deeply"):
            regex_dfa(pattern)


def test_too_large_a_repetition_is_malformed() -> None:
    with pytest.raises(InvalidConstraint, match="too large"):
        regex_dfa("a{99999999999}")


def test_ambiguous_classes_give_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert regex_dfa("[[a]").accepts(b"[")


def test_a_pattern_is_a_string(byte_vocab: Vocabulary) -> None:
    with pytest.raises(InvalidConstraint, match="a pattern is a string") as caught:
        compile_regex(b"a", byte_vocab)  # type: ignore[arg-type]
    assert caught.value.field == "regex"
    with pytest.raises(InvalidConstraint, match="no constraint has kind"):
        compile_constraint(Constraint("regex", ("a",)), byte_vocab)


def test_constraint_dispatch(byte_vocab: Vocabulary) -> None:
    assert compile_constraint(Constraint("regex", "a|b"), byte_vocab) is compile_regex("a|b", byte_vocab)


def test_a_failure_reaches_every_thread_that_waits(byte_vocab: Vocabulary) -> None:
    failures: list[str] = []
    many = "".join(f"[{chr(0x100 + n)}-{chr(0x3000 + n)}]" for n in range(5000))

    def compile_it() -> None:
        try:
            compile_regex(many, byte_vocab)
        except UnsupportedConstraint as error:
            failures.append(error.reason)

    threads = [threading.Thread(target=compile_it) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(failures) == 4
