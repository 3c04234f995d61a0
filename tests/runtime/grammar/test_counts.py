"""Long counts: compiled at once, in little memory, and their masks right where a count comes to its end."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest

from treille.runtime.grammar import Matcher, Vocabulary, compile_regex
from treille.runtime.grammar.regex import regex_dfa

Read = Callable[[Matcher], set[int]]
LONG = (2, 3, 15, 16, 17, 18, 24, 40)


def vocabulary(words: list[bytes]) -> Vocabulary:
    tokens = [*(bytes([byte]) for byte in range(256)), *words]
    return Vocabulary([*tokens, None], eos_ids=[len(tokens)])


ONLY_ENDS = vocabulary([b"a" * n + b"b" for n in (16, 17, 18)])
VOCABULARIES = [
    vocabulary([b"a" * n for n in LONG]),
    vocabulary([b"a" * n + b"b" for n in LONG] + [b"b" + b"a" * 20]),
    vocabulary(
        [b"a" * n + b"bc" for n in LONG] + [b"a" * 17, b"ab" * 20, b"\xc3\xa9" * 12, b"\xa9" + b"a" * 17]
    ),
    ONLY_ENDS,
]


def brute(automaton: object, vocab: Vocabulary, state: int) -> set[int]:
    """The mask by the whole automaton: every state of a minimal one leads to acceptance."""
    found = {
        one
        for one, spelling in enumerate(vocab.tokens)
        if spelling is not None and automaton.run(spelling, state) is not None  # type: ignore[attr-defined]
    }
    return found | (set(vocab.eos_ids) if automaton.accepting[state] else set())  # type: ignore[attr-defined]


@pytest.mark.parametrize("vocab", VOCABULARIES)
@pytest.mark.parametrize(
    "pattern",
    [
        "a{17}b",
        "a{58}b",
        "a{20,59}b",
        "a{0,57}b?c?",
        "(?:a{30}b|a{41,50}c){1,2}",
        "(?:a?){44}b",
        "(?:ab){40}",
        "(?:ab?){18,40}c",
        "a{19}b{18}a{20}",
        "[aé]{40}b",
        "(?:a{20}|a{37}b)(?:bc)?",
        "a{5,9}(?:ba{20}){2}",
        "(?:a|b){17,36}(?:a|c){17,19}",
    ],
)
def test_masks_at_every_count(pattern: str, vocab: Vocabulary) -> None:
    dfa = regex_dfa(pattern)
    rng = np.random.default_rng(len(pattern))
    for _ in range(2):
        matcher, state, row = compile_regex(pattern, vocab).matcher(), 0, np.zeros(vocab.num_words, np.uint32)
        for step in range(130):
            matcher.fill_mask(row)
            bits = np.unpackbits(row.view(np.uint8), bitorder="little")
            assert set(np.flatnonzero(bits).tolist()) == brute(dfa, vocab, state), step
            ways = [byte for byte in range(256) if dfa.transitions[state, byte] >= 0]
            if not ways:
                break
            byte = int(rng.choice([97] * 6 + ways if 97 in ways else ways))
            matcher.accept(byte)
            state = int(dfa.transitions[state, byte])


@pytest.mark.parametrize(
    "pattern",
    [
        "a{10000}",
        "[a-z]{1,10000}",
        ".{0,10000}",
        r"(\w+\s?){1,500}",
        "(a|b)*a(a|b){20}",
        r"(?:[^,]{1,9000},){9000}",
    ],
)
def test_long_counts_are_cheap(pattern: str, byte_vocab: Vocabulary) -> None:
    row = np.zeros(byte_vocab.num_words, np.uint32)
    start = time.thread_time()
    grammar = compile_regex(pattern, byte_vocab)
    matcher = grammar.matcher()
    matcher.fill_mask(row)
    assert time.thread_time() - start < 0.25
    for _ in range(40):
        matcher.accept(97)
        matcher.fill_mask(row)
    assert grammar.nbytes < 1 << 21


def test_ten_thousand(byte_vocab: Vocabulary, allowed: Read) -> None:
    matcher = compile_regex("a{10000}", vocabulary([b"a" * 40, b"a" * 1000])).matcher()
    for _ in range(9):
        matcher.accept(257)
    for left in range(1000, 0, -40):
        assert matcher.allows(257) == (left >= 1000)
        if left in (1000, 40):
            assert allowed(matcher) == {97, 256} | ({257} if left == 1000 else set())
        matcher.accept(256)
    assert matcher.is_finished() and allowed(matcher) == {258}
    ranged = compile_regex("[a-z]{1,10000}", byte_vocab).matcher()
    assert not ranged.can_stop()
    for step in range(10000):
        assert ranged.allows(97 + step % 26)
        ranged.accept(97 + step % 26)
    assert ranged.must_stop() and allowed(ranged) == {256}
