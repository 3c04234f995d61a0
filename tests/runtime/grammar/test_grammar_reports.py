"""What users reported of such engines, by report number: regular expressions and tokens."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from treille.runtime.errors import InvalidConstraint, UnsupportedConstraint
from treille.runtime.grammar import Grammar, Matcher, Vocabulary, compile_choices, compile_regex

Read = Callable[[Matcher], set[int]]
STRING = r'"([^"\\\x00-\x1f]|\\(["\\/bfnrt]|u[0-9a-fA-F]{4}))*"'


def takes(grammar: Grammar, text: str) -> bool:
    """Whether a text is accepted, byte by byte: the ids of a vocabulary of bytes are the bytes."""
    matcher = grammar.matcher()
    for byte in text.encode():
        if not matcher.allows(byte):
            return False
        matcher.accept(byte)
    return matcher.can_stop()


def check(grammar: Grammar, accepted: list[str], rejected: list[str]) -> None:
    assert [text for text in accepted if not takes(grammar, text)] == []
    assert [text for text in rejected if takes(grammar, text)] == []


def test_b01_back_references_are_named(byte_vocab: Vocabulary) -> None:
    with pytest.raises(UnsupportedConstraint) as caught:
        compile_regex(r"([0-9])-\1", byte_vocab)
    assert (caught.value.keyword, caught.value.path) == ("back-reference", "offset 8")


def test_b02_looks_keep_their_meaning(byte_vocab: Vocabulary) -> None:
    grammar = compile_regex("^(?!no)[a-z]{2,4}$", byte_vocab)
    check(grammar, ["yes", "on", "nab"], ["no", "not", "nope", "", "y", "yes\n"[:3] + "yes"])
    escaped = compile_regex(r'".*?(?<!\\)(\\\\)*?"', byte_vocab)
    check(escaped, ['""', r'"a\"b"', r'"a\\"', '"a"b"'], [r'"\"', '"', '"a', '"\n"'])


def test_b06_dialects_of_classes(byte_vocab: Vocabulary) -> None:
    for pattern, accepted, rejected in [
        (r"^\d$", ["7"], ["५", "77", ""]),
        (r"^\w$", ["K", "_"], ["É", "\u212a"]),
        (r"^\s$", ["\u00a0", "\u2003", "\ufeff"], ["\u200b", "a"]),
    ]:
        check(compile_regex(pattern, byte_vocab, dialect="ecma"), accepted, rejected)
    check(compile_regex(r"\d", byte_vocab), ["7", "५"], ["a"])
    check(compile_regex("[\\x00-\\u2fff]+", byte_vocab), ["aé", "\x00"], ["日", ""])


def test_b07_patterns_are_searched(byte_vocab: Vocabulary) -> None:
    check(compile_regex("b+", byte_vocab, dialect="ecma"), ["abc", "b", "xbbx"], ["xyz", ""])
    check(compile_regex("^a|b$", byte_vocab, dialect="ecma"), ["axx", "xxb"], ["xax", "ba"])
    dot = compile_regex("^a.c$", byte_vocab, dialect="ecma")
    check(dot, ["abc", "a😀c"], ["a\nc", "a\rc", "a\u2028c", "a\u2029c", "abcx"])
    check(compile_regex("a.c", byte_vocab), ["a\rc", "a\u2028c"], ["a\nc"])
    check(compile_regex("^a$", byte_vocab, dialect="ecma"), ["a"], ["a\n", "ba"])
    check(compile_regex("^a$", byte_vocab), ["a"], ["ba"])


def test_b20_escapes_of_strings(byte_vocab: Vocabulary, allowed: Read) -> None:
    grammar = compile_regex(STRING, byte_vocab)
    check(
        grammar,
        [r'"\/"', r'"\u00e9"', r'"\u00E9"', '"\x7f"', '""', r'"\n"', '"é🐙"', r'"\\"'],
        [r'"\'"', r'"\x41"', r'"\u12"', '"\t"', '"\n"', '"', r'"\"', '"""'],
    )
    words = [b"\\", b"n", b"u", b"'", b"nn", b"u00e9", b"u12", b"u0", b'\\"', b'n"', b"'x", b'u12"', b"0000"]
    tokens = [bytes([byte]) for byte in range(256)] + words
    vocab = Vocabulary([*tokens, None], eos_ids=[len(tokens)])
    matcher = compile_regex(STRING, vocab).matcher()
    for byte in b'"\\':
        matcher.accept(byte)
    after = {tokens[one] for one in allowed(matcher)}
    assert after == {bytes([one]) for one in b'"\\/bfnrtu'} | {b"nn", b"u00e9", b"u12", b"u0", b'\\"', b'n"'}
    matcher.accept(ord("u"))
    digits = {bytes([one]) for one in b"0123456789abcdefABCDEF"}
    for _ in range(4):
        # Behind the fourth digit the others of `0000` are text.
        assert {tokens[one] for one in allowed(matcher)} == digits | {b"0000"}
        matcher.accept(ord("a"))
    assert ord('"') in allowed(matcher) and ord("'") in allowed(matcher)


def test_b21_special_and_padded_tokens(allowed: Read) -> None:
    """S prints as `<|end|>`: it is masked, its characters are not; 100 tokens in a row 128 wide."""
    tokens = [bytes([byte]) for byte in range(0x20, 0x7F)]
    tokens += [b"x" * n for n in range(2, 6)]
    vocab = Vocabulary([*tokens, None], eos_ids=[], vocab_size=128)
    matcher = compile_regex(r'\["[^"]*"\]', vocab).matcher()
    for byte in b'["x':
        matcher.accept(byte - 0x20)
    assert len(tokens) == 99
    ids = allowed(matcher)
    assert not ids & set(range(99, 128))
    for byte in b"<|end|>":
        assert matcher.allows(byte - 0x20)
        matcher.accept(byte - 0x20)
    assert not any(matcher.allows(one) for one in range(99, 128))


def test_b25_choices_byte_for_byte(byte_vocab: Vocabulary) -> None:
    choices = ["ok", "not\nnow", 'say "hi"', "a|b", "back\\slash", "", "cr\r", "nul\x00"]
    wrong = ["a", "b", " ok", "ok ", "notnow", "say hi", "cr", "cr\n", "nul", "back\\\\slash"]
    check(compile_choices(choices, byte_vocab), choices, wrong)
    with pytest.raises(InvalidConstraint) as caught:
        compile_choices([], byte_vocab)
    assert caught.value.field == "choices"
