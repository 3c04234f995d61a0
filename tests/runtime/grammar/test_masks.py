"""Masks, bit for bit, against brute force over finite languages and small vocabularies."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treille.runtime.errors import GrammarError, UnsupportedConstraint
from treille.runtime.grammar import Grammar, Matcher, Vocabulary, compile_choices, compile_regex
from treille.runtime.grammar.masks import Trie, build_trie

Brute = Callable[[Vocabulary, Iterable[bytes], bytes], set[int]]
Read = Callable[[Matcher], set[int]]

FINITE = [
    ("2[0-3]|[01]?\\d", [f"{n}" for n in range(24)] + [f"0{n}" for n in range(10)]),
    ("(ab|aba|b){1,3}", None),
    ("[a-c]{0,3}", None),
    ("(?i)[ab]b?", None),
    ("é|日本|日x", ["é", "日本", "日x"]),
    ("a$\\n?", ["a", "a\n"]),
    ("(a|a)b??", ["a", "ab"]),
]


def language(pattern: str, texts: list[str] | None) -> list[bytes]:
    if texts is None:
        candidates = (
            "".join(word)
            for n in range(10)
            for word in itertools.product("abABc"[: 5 if n < 5 else 2], repeat=n)
        )
        texts = [text for text in candidates if re.fullmatch(pattern, text)]
    assert all(re.fullmatch(pattern, text) for text in texts)
    return [text.encode() for text in texts if "\\d" not in pattern or text.isascii()]


def check_everywhere(grammar: Grammar, texts: list[bytes], allowed: Read, expected: Brute) -> int:
    """Walks every way that tokens can spell a text, and compares the mask at each step."""
    vocab = grammar.vocab
    seen = 0
    stack: list[tuple[Matcher, bytes]] = [(grammar.matcher(), b"")]
    known: set[bytes] = set()
    while stack:
        matcher, prefix = stack.pop()
        if prefix in known:
            continue
        known.add(prefix)
        ids = allowed(matcher)
        assert ids == expected(vocab, texts, prefix), prefix
        assert matcher.can_stop() == (prefix in texts)
        seen += 1
        for token_id in ids - set(vocab.eos_ids):
            following = matcher.copy()
            following.accept(token_id)
            stack.append((following, prefix + (vocab.tokens[token_id] or b"")))
    return seen


@pytest.mark.parametrize(("pattern", "texts"), FINITE)
def test_regex_masks(
    pattern: str, texts: list[str] | None, mixed_vocab: Vocabulary, allowed: Read, expected_mask: Brute
) -> None:
    ascii_pattern = pattern.replace("\\d", "[0-9]")
    grammar = compile_regex(ascii_pattern, mixed_vocab)
    assert check_everywhere(grammar, language(pattern, texts), allowed, expected_mask) > 2


small_tokens = st.lists(st.text("abé", min_size=1, max_size=3).map(str.encode), min_size=1, max_size=8)


@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_masks_without_every_byte(data: st.DataObject, allowed: Read, expected_mask: Brute) -> None:
    """A vocabulary that cannot spell everything: a token is allowed only if the rest can be spelled."""
    tokens: list[bytes | None] = list(data.draw(small_tokens))
    tokens += data.draw(st.lists(st.sampled_from([b"\xc3", b"\xa9", b"a\xc3", b"\xa9b", None]), max_size=3))
    vocab = Vocabulary(
        [*tokens, None], eos_ids=[len(tokens)], vocab_size=len(tokens) + data.draw(st.integers(1, 40))
    )
    choices = data.draw(st.lists(st.text("abé", max_size=5), min_size=1, max_size=6))
    texts = [one.encode() for one in choices]
    try:
        grammar = compile_choices(choices, vocab)
    except UnsupportedConstraint as error:
        assert error.keyword == "vocabulary"
        assert not expected_mask(vocab, texts, b"")
        return
    check_everywhere(grammar, texts, allowed, expected_mask)


def test_dead_ends_are_masked_in_infinite_languages(allowed: Read) -> None:
    vocab = Vocabulary([b"a", b"ab", b"ba", b"c", None], eos_ids=[4])
    matcher = compile_regex("(ab)*c?", vocab).matcher()
    assert allowed(matcher) == {1, 3, 4}  # "a" would need "b", which is no token
    matcher.accept(1)
    assert allowed(matcher) == {1, 3, 4}
    ending = compile_regex("c(ab)*b?", Vocabulary([b"c", b"a", None], eos_ids=[2])).matcher()
    ending.accept(0)
    assert allowed(ending) == {2} and ending.is_finished()
    with pytest.raises(UnsupportedConstraint, match="cannot spell"):
        compile_regex("(ab)+d", vocab)


def test_hour(byte_vocab: Vocabulary, allowed: Read) -> None:
    """Report B04: a model that always prefers `1` gets `11`, and then the text ends."""
    matcher = compile_regex("2[0-3]|[01]?\\d", byte_vocab).matcher()
    text = b""
    while not matcher.is_finished():
        ids = allowed(matcher)
        best = ord("1") if ord("1") in ids else min(ids)
        matcher.accept(best)
        text += bytes([best])
    assert text == b"11" and allowed(matcher) == {256}
    two = compile_regex("2[0-3]|[01]?\\d", byte_vocab).matcher()
    two.accept(ord("2"))
    assert allowed(two) == {256, *b"0123"} and two.can_stop() and not two.is_finished()


def test_special_tokens_and_padding_are_never_allowed(allowed: Read) -> None:
    """Report B21: a special token is not its letters, and ids past the tokens are nothing."""
    tokens = [*(bytes([byte]) for byte in range(97)), b"<|end|>", None, None]
    vocab = Vocabulary(tokens, eos_ids=[99], vocab_size=128)
    matcher = compile_regex('\\["[^"]*"\\]', vocab).matcher()
    for byte in b'["':
        matcher.accept(byte)
    ids = allowed(matcher)
    assert 97 in ids and 98 not in ids and not ids & set(range(99, 128))
    for token_id in (98, 99, 100, 127, 128, 10**9, -1):
        with pytest.raises(GrammarError, match="is not allowed"):
            matcher.accept(token_id)
    assert matcher.num_accepted == 2


def test_same_spelling_twice_and_empty_spellings(allowed: Read) -> None:
    vocab = Vocabulary([b"a", b"", b"a", b"aa", b"a", None], eos_ids=[5])
    matcher = compile_regex("a", vocab).matcher()
    assert allowed(matcher) == {0, 2, 4}
    assert allowed(compile_regex("a{1,2}", vocab).matcher()) == {0, 2, 3, 4}


def test_rows(byte_vocab: Vocabulary) -> None:
    matcher = compile_regex("a", byte_vocab).matcher()
    row = np.full(12, 0xFFFFFFFF, np.uint32)
    matcher.fill_mask(row)
    assert np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist() == [97]
    for wrong in (np.zeros(8, np.uint32), np.zeros(9, np.int32), np.zeros((1, 9), np.uint32)):
        with pytest.raises(ValueError, match="a mask is uint32"):
            matcher.fill_mask(wrong)


@settings(deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=4), max_size=30))
def test_trie_layout(spellings: list[bytes]) -> None:
    trie = build_trie(spellings)
    prefixes = sorted({spelling[:n] for spelling in spellings for n in range(1, len(spelling) + 1)})
    assert read_nodes(trie) == prefixes
    for node, prefix in enumerate(prefixes):
        assert prefixes[node + 1 : trie.skip[node]] == [
            one for one in prefixes if one.startswith(prefix) and one != prefix
        ]
        ids = trie.token_ids[trie.token_start[node] : trie.token_start[node + 1]].tolist()
        assert ids == [one for one, spelling in enumerate(spellings) if spelling == prefix]
    assert trie.nbytes < 1000 + 40 * sum(map(len, spellings))


def read_nodes(trie: Trie) -> list[bytes]:
    path: list[int] = []
    nodes = []
    for byte, depth in zip(trie.byte.tolist(), trie.depth.tolist(), strict=True):
        path[depth - 1 :] = [byte]
        nodes.append(bytes(path))
    return nodes
