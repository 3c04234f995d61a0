"""The embedded model's 49,152 tokens: masks against `allows` one by one, and random draws against `re`."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from treille.runtime.errors import UnsupportedConstraint
from treille.runtime.grammar import Matcher, Vocabulary, compile_regex
from treille.runtime.grammar.grammar import RegularGrammar
from treille.runtime.grammar.regex import regex_blueprint
from treille.runtime.tokenizer import Tokenizer

PATTERNS = [
    r"2[0-3]|[01]?\d",
    r"[A-Z]{2,4}-\d{1,5}",
    r"[\w.+-]{1,20}@[\w-]{1,20}\.[a-z]{2,5}",
    r'"(?:[^"\\\x00-\x1f]|\\["\\nt])*"',
    r"(?i)(?:yes|no|straße)(?: \w+){0,3}[.!]?",
    r"(?s).{0,40}",
    r"[^\x00-\x7f]{1,6}",
    r"\b\w+\b(?:\W+\b\w+\b){2}",
]


@pytest.fixture(scope="module")
def vocab(smollm2_folder: Path) -> Vocabulary:
    return Vocabulary.from_tokenizer(Tokenizer.from_folder(smollm2_folder))


def mask_of(matcher: Matcher) -> np.ndarray:
    vocab = matcher.grammar.vocab
    row = np.zeros(vocab.num_words, np.uint32)
    matcher.fill_mask(row)
    return np.unpackbits(row.view(np.uint8), bitorder="little", count=vocab.vocab_size).astype(bool)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_draws(pattern: str, vocab: Vocabulary) -> None:
    grammar = compile_regex(pattern, vocab)
    compiled = re.compile(pattern)
    rng = np.random.default_rng(len(pattern))
    ended = 0
    for _ in range(60):
        matcher, text = grammar.matcher(), b""
        for step in range(60):
            mask = mask_of(matcher)
            scores = rng.random(vocab.vocab_size)
            scores[list(vocab.eos_ids)] += step / 30
            token_id = int(np.where(mask, scores, -1.0).argmax())
            assert mask[token_id]
            matcher.accept(token_id)
            if token_id in vocab.eos_ids:
                assert compiled.fullmatch(text.decode()), text
                ended += 1
                break
            text += vocab.tokens[token_id] or b""
    assert ended > 2  # the others were cut short


@pytest.mark.parametrize("pattern", PATTERNS[:5])
def test_masks_say_what_accept_does(pattern: str, vocab: Vocabulary) -> None:
    rng = np.random.default_rng(3)
    matcher = compile_regex(pattern, vocab).matcher()
    for _ in range(3):
        mask = mask_of(matcher)
        assert mask.tolist() == [matcher.allows(token_id) for token_id in range(vocab.vocab_size)]
        if matcher.is_finished():
            break
        matcher.accept(int(rng.choice(np.flatnonzero(mask))))
        if matcher.is_finished():
            break


def test_a_byte_without_a_token(vocab: Vocabulary) -> None:
    """The vocabulary cannot spell U+0004: what needs it is refused, what does not is fine without."""
    assert not vocab.single_bytes[4]
    with pytest.raises(UnsupportedConstraint, match="cannot spell") as caught:
        compile_regex("a\\x04b", vocab)
    assert caught.value.field == "regex"
    matcher = compile_regex("a(?:\\x04b|c)", vocab).matcher()
    matcher.accept(vocab.tokens.index(b"a"))
    assert {vocab.tokens[one] for one in np.flatnonzero(mask_of(matcher))} == {b"c"}


@pytest.mark.parametrize(
    "pattern", [*PATTERNS, r"(?s).*", r".*\d", r"(?: ?[A-Za-z]+)*[.!?]", r"[^,]{2,99},(?=\w)\w*"]
)
def test_slices_change_no_mask(pattern: str, vocab: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    fast, slow = (RegularGrammar(regex_blueprint(pattern), vocab) for _ in range(2))
    monkeypatch.setattr(slow, "_symbols", slow._symbols[:0])
    one, two, rng = fast.matcher(), slow.matcher(), np.random.default_rng(2)
    for _ in range(12):
        mask = mask_of(one)
        assert np.array_equal(mask, mask_of(two))
        mask[list(vocab.eos_ids)] = False
        if not mask.any():
            break
        token_id = int(rng.choice(np.flatnonzero(mask)))
        one.accept(token_id)
        two.accept(token_id)
