"""Vocabularies, and the slow way to say what a mask must hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pytest

from treille.runtime.grammar import Matcher, Vocabulary, compile_regex
from treille.runtime.grammar.regex import regex_dfa

BYTE_EOS = 256


@pytest.fixture(scope="session")
def byte_vocab() -> Vocabulary:
    """Every byte is a token by itself; 256 ends a text, 257 is special, 258 and 259 are padding. What the
    first use compiles is compiled here: no test's time counts it."""
    vocab = Vocabulary(
        [*(bytes([byte]) for byte in range(256)), None, None], eos_ids=[BYTE_EOS], vocab_size=260
    )
    row = np.zeros(vocab.num_words, np.uint32)
    compile_regex(r"\w\s", vocab).matcher().fill_mask(row)
    regex_dfa("[ab]{2}|c")
    return vocab


@pytest.fixture(scope="session")
def mixed_vocab() -> Vocabulary:
    """Single bytes and longer tokens: doubles, parts of characters, and some that no language has."""
    words = [
        "sun",
        "set",
        "su",
        "moon",
        "ab",
        "aba",
        "11",
        "1",
        "2",
        "é",
        "日本",
        "\n\n",
        "a|b",
        "bc",
        "cab",
        "no",
    ]
    parts = [
        b"\xc3",
        b"\xa9",
        b"\xe6\x97",
        b"\x97\xa5",
        b"\xa5\xe6\x9c",
        b"a\xc3",
        b"\xff\xfe",
        b"\xa9b",
        b"",
    ]
    tokens = [*(bytes([byte]) for byte in range(256)), *(word.encode() for word in words), *parts]
    return Vocabulary([*tokens, None, None], eos_ids=[len(tokens), 0], vocab_size=len(tokens) + 70)


@pytest.fixture(scope="session")
def allowed() -> Callable[[Matcher], set[int]]:
    """The ids in the mask of a text that has not ended; `allows` must agree with it id by id."""

    def read(matcher: Matcher) -> set[int]:
        vocab = matcher.grammar.vocab
        row = np.full(vocab.num_words, 0xA5A5A5A5, np.uint32)
        matcher.fill_mask(row)
        bits = np.unpackbits(row.view(np.uint8), bitorder="little")
        ids = set(np.flatnonzero(bits).tolist())
        assert ids == {one for one in range(-3, vocab.vocab_size + 40) if matcher.allows(one)}
        return ids

    return read


@pytest.fixture(scope="session")
def expected_mask() -> Callable[[Vocabulary, Iterable[bytes], bytes], set[int]]:
    """The mask after `prefix` for a finite language, by spelling every text in every way."""

    def brute(vocab: Vocabulary, language: Iterable[bytes], prefix: bytes) -> set[int]:
        texts = list(language)
        tokens = {one: spelling for one, spelling in enumerate(vocab.tokens) if spelling is not None}
        spellable: dict[bytes, bool] = {b"": True}

        def can_spell(rest: bytes) -> bool:
            if rest not in spellable:
                spellable[rest] = any(
                    rest.startswith(spelling) and can_spell(rest[len(spelling) :])
                    for spelling in tokens.values()
                )
            return spellable[rest]

        rests = [text[len(prefix) :] for text in texts if text.startswith(prefix)]
        ids = {
            one
            for one, spelling in tokens.items()
            if any(rest.startswith(spelling) and can_spell(rest[len(spelling) :]) for rest in rests)
        }
        return ids | (set(vocab.eos_ids) if b"" in rests else set())

    return brute
