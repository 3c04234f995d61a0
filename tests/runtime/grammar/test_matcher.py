"""Matchers: any way of accepting, taking back and copying ends where a fresh matcher would."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treille.runtime.errors import GrammarError
from treille.runtime.grammar import Matcher, Vocabulary, compile_choices, compile_regex

Read = Callable[[Matcher], set[int]]

PATTERNS = [
    "2[0-3]|[01]?\\d",
    "[A-Z]{2,4}-\\d{1,5}",
    '"(?:[^"\\\\\\x00-\\x1f]|\\\\["\\\\nt])*"',
    "(?i)yes|no|(?:maybe )+",
    "[é日]+x?",
    "\\w+(?: \\w+){0,3}",
    "(?:ab|aba)*c",
    "\\s*",
    ".*",
    "(?m)(?:^a+$\\n?)+",
    "\\b\\w+\\b \\b\\w+\\b",
    "-?(?:0|[1-9][0-9]*)(?:\\.[0-9]+)?",
]


def pick(ids: set[int], choice: int) -> int:
    return sorted(ids)[choice % len(ids)]


@settings(deadline=None, max_examples=150)
@given(
    pattern=st.sampled_from(PATTERNS),
    steps=st.lists(st.tuples(st.sampled_from("aaaaarcx"), st.integers(0, 10**6)), max_size=25),
)
def test_any_way_there_equals_a_fresh_matcher(
    pattern: str, steps: list[tuple[str, int]], mixed_vocab: Vocabulary, allowed: Read
) -> None:
    grammar = compile_regex(pattern, mixed_vocab)
    matcher, tokens = grammar.matcher(), list[int]()
    aside: list[tuple[Matcher, list[int]]] = []
    for action, number in steps:
        has_ended = bool(tokens) and tokens[-1] in mixed_vocab.eos_ids
        ids = set() if has_ended else allowed(matcher)
        if action == "a" and ids:
            token_id = pick(ids, number)
            matcher.accept(token_id)
            tokens.append(token_id)
        elif action == "r":
            back = number % (len(tokens) + 1)
            matcher.rollback(back)
            tokens = tokens[: len(tokens) - back]
        elif action == "c":
            aside.append((matcher, list(tokens)))
            matcher = matcher.copy()
        elif action == "x":
            bad = number % (mixed_vocab.vocab_size + 5)
            if not matcher.allows(bad):
                with pytest.raises(GrammarError):
                    matcher.accept(bad)
    for one, history in [*aside, (matcher, tokens)]:
        fresh = grammar.matcher()
        for token_id in history:
            fresh.accept(token_id)
        assert same_place(one, fresh)


def same_place(one: Matcher, two: Matcher) -> bool:
    rows = np.zeros((2, one.grammar.vocab.num_words), np.uint32)
    one.fill_mask(rows[0])
    two.fill_mask(rows[1])
    words = [
        (each.num_accepted, each.can_stop(), each.is_finished(), each.must_stop(), each.forced_bytes())
        for each in (one, two)
    ]
    return bool(np.array_equal(rows[0], rows[1])) and words[0] == words[1]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_random_draws_satisfy_the_pattern(pattern: str, mixed_vocab: Vocabulary) -> None:
    grammar = compile_regex(pattern, mixed_vocab)
    rng = np.random.default_rng(sum(map(ord, pattern)))
    compiled = re.compile(pattern)
    for _ in range(40):
        matcher, text = grammar.matcher(), b""
        row = np.zeros(mixed_vocab.num_words, np.uint32)
        for step in range(400):
            matcher.fill_mask(row)
            bits = np.unpackbits(row.view(np.uint8), bitorder="little", count=mixed_vocab.vocab_size).astype(
                bool
            )
            assert bits.any()
            logits = rng.normal(size=mixed_vocab.vocab_size)
            logits[list(mixed_vocab.eos_ids)] += step / 10  # or some would never end
            token_id = int(np.where(bits, logits, -np.inf).argmax())
            matcher.accept(token_id)
            if token_id in mixed_vocab.eos_ids:
                break
            text += mixed_vocab.tokens[token_id] or b""
        else:
            continue
        assert matcher.is_finished()
        assert compiled.fullmatch(text.decode()), text


@pytest.mark.parametrize(
    "pattern", [*PATTERNS, "abc", "a?", "(?:abc|abd)e", "é", "[é-ê]", "日[本日]", "日本a{3}b?", ""]
)
def test_forced_bytes(pattern: str, byte_vocab: Vocabulary, allowed: Read) -> None:
    """With a token a byte: as long as exactly one is allowed, and it is no end."""
    grammar = compile_regex(pattern, byte_vocab)
    rng = np.random.default_rng(7)
    for _ in range(10):
        matcher = grammar.matcher()
        for _ in range(int(rng.integers(8))):
            ids = allowed(matcher) - {256}
            if ids:
                matcher.accept(int(rng.choice(sorted(ids))))
        want = b""
        walker = matcher.copy()
        while len(ids := allowed(walker)) == 1 and 256 not in ids:
            (token_id,) = ids
            want += bytes([token_id])
            walker.accept(token_id)
        assert matcher.forced_bytes() == want
        assert [matcher.forced_bytes(n) for n in range(4)] == [want[:n] for n in range(4)]


def test_the_end_of_a_text(byte_vocab: Vocabulary, allowed: Read) -> None:
    matcher = compile_regex("ab?", byte_vocab).matcher()
    with pytest.raises(GrammarError, match="token 256 is not allowed after 0 tokens"):
        matcher.accept(256)
    matcher.accept(97)
    assert (matcher.can_stop(), matcher.must_stop(), matcher.is_finished()) == (True, False, False)
    matcher.accept(256)
    assert matcher.is_finished() and matcher.must_stop() and matcher.forced_bytes() == b""
    row = np.zeros(9, np.uint32)
    matcher.fill_mask(row)  # one step too far: still not empty
    assert row[8] == 1 and not row[:8].any()
    for token_id in (98, 256):
        assert not matcher.allows(token_id)
        with pytest.raises(GrammarError, match="the text has ended"):
            matcher.accept(token_id)
    matcher.rollback(1)
    assert allowed(matcher) == {98, 256}
    matcher.accept(98)
    assert matcher.is_finished() and matcher.can_stop() and allowed(matcher) == {256}


def test_rolling_back_too_far_changes_nothing(byte_vocab: Vocabulary) -> None:
    matcher = compile_regex("abc", byte_vocab).matcher()
    matcher.accept(97)
    with pytest.raises(GrammarError, match="cannot roll back 2 tokens of 1"):
        matcher.rollback(2)
    with pytest.raises(ValueError, match="cannot roll back -1"):
        matcher.rollback(-1)
    matcher.rollback(0)
    assert matcher.num_accepted == 1 and matcher.forced_bytes() == b"bc"


def test_characters_split_between_tokens(mixed_vocab: Vocabulary) -> None:
    token = {spelling: one for one, spelling in enumerate(mixed_vocab.tokens) if spelling is not None}
    grammar = compile_choices(["日本", "aéb"], mixed_vocab)
    for pieces in (
        [b"\xe6\x97", b"\xa5\xe6\x9c", b"\xac"],
        [b"\xe6", b"\x97\xa5", *(bytes([b]) for b in "本".encode())],
    ):
        matcher = grammar.matcher()
        for piece in pieces:
            matcher.accept(token[piece])
        assert matcher.is_finished()
    matcher = grammar.matcher()
    for piece in (b"a\xc3", b"\xa9b"):
        matcher.accept(token[piece])
    assert matcher.is_finished()
    with pytest.raises(GrammarError):
        grammar.matcher().accept(token[b"\xa9"])


def test_no_end_in_the_vocabulary() -> None:
    vocab = Vocabulary([b"a", b"b"])
    matcher = compile_regex("ab?", vocab).matcher()
    matcher.accept(0)
    row = np.zeros(1, np.uint32)
    matcher.fill_mask(row)
    assert row[0] == 0b10 and matcher.can_stop()
    matcher.accept(1)
    matcher.fill_mask(row)
    assert row[0] == 0 and matcher.must_stop()
