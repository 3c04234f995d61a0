"""The engine as a whole against `re`, against the definitions, and against brute force."""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Callable, Iterable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracles.patterns import ecma_patterns, python_patterns, texts
from oracles.re_table import rows
from oracles.tree_match import matches

from treille.runtime.errors import ConstraintError, InvalidConstraint, UnsupportedConstraint
from treille.runtime.grammar import Grammar, Matcher, Vocabulary, compile_regex
from treille.runtime.grammar.parse_ecma import parse_ecma, search_tree
from treille.runtime.grammar.regex import regex_dfa

Read = Callable[[Matcher], set[int]]
Brute = Callable[[Vocabulary, Iterable[bytes], bytes], set[int]]
relaxed = settings(
    deadline=None, max_examples=120, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow]
)


def accepts(grammar: Grammar, text: str) -> bool:
    """Whether a text is taken, byte by byte: the ids of a vocabulary of bytes are the bytes."""
    matcher = grammar.matcher()
    for byte in text.encode():
        if not matcher.allows(byte):
            return False
        matcher.accept(byte)
    return matcher.can_stop()


def grammar_or_none(pattern: str, vocab: Vocabulary, dialect: str = "python") -> Grammar | None:
    """None where no text matches."""
    try:
        return compile_regex(pattern, vocab, dialect=dialect)
    except InvalidConstraint as error:
        assert "no text matches" in str(error)
        return None


def test_table_of_cpython(byte_vocab: Vocabulary) -> None:
    checked = 0
    for row in rows():
        try:
            grammar = grammar_or_none(row.pattern, byte_vocab)
        except UnsupportedConstraint as error:
            assert error.keyword == "back-reference"
            continue
        for text in row.texts:
            want = re.fullmatch(row.pattern, text) is not None
            assert (grammar is not None and accepts(grammar, text)) == want, (row.pattern, text)
            checked += 1
    assert checked > 4500


@relaxed
@given(pattern=python_patterns(), many=st.lists(texts(), min_size=4, max_size=16))
def test_python(pattern: str, many: list[str], byte_vocab: Vocabulary) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = re.compile(pattern)
    grammar = grammar_or_none(pattern, byte_vocab)
    for text in many:
        want = compiled.fullmatch(text) is not None
        assert (grammar is not None and accepts(grammar, text)) == want, text


@relaxed
@given(pattern=ecma_patterns(), many=st.lists(texts(), min_size=4, max_size=16))
def test_ecma_is_a_search(pattern: str, many: list[str], byte_vocab: Vocabulary) -> None:
    grammar = grammar_or_none(pattern, byte_vocab, "ecma")
    tree = search_tree(parse_ecma(pattern))
    for text in many:
        assert (grammar is not None and accepts(grammar, text)) == matches(tree, text), text


def random_vocabulary(rng: random.Random) -> Vocabulary:
    """Merges of a few letters and of parts of characters; all single bytes, or some, or none."""
    pieces = [*"abcA1_ -\n", "é", "日"]
    tokens = {"".join(rng.choices(pieces, k=rng.randint(1, 4))).encode() for _ in range(rng.randint(3, 30))}
    tokens |= {rng.choice([b"\xc3", b"\xa9a", b"\xe6\x97", b"a\xe6", b"\xa5b"]) for _ in range(3)}
    kept = rng.choice([1.0, 1.0, 0.9, 0.5, 0.0])
    tokens |= {bytes([byte]) for byte in range(256) if rng.random() < kept}
    listed: list[bytes | None] = [*sorted(tokens), None]
    rng.shuffle(listed)
    listed.append(None)
    return Vocabulary(listed, eos_ids=[len(listed) - 1], vocab_size=len(listed) + rng.randint(0, 40))


@settings(relaxed, max_examples=100)
@given(pattern=python_patterns(), seed=st.integers(0, 2**32))
def test_masks_of_any_language(pattern: str, seed: int, allowed: Read) -> None:
    """By the whole minimal automaton: a token is allowed iff tokens can spell a way from where it leads."""
    rng = random.Random(seed)
    vocab = random_vocabulary(rng)
    try:
        dfa = regex_dfa(pattern)
    except ConstraintError:
        return
    if dfa.num_states > 60:
        return
    spellings = {one: spelling for one, spelling in enumerate(vocab.tokens) if spelling is not None}
    ways = {
        state: {
            one: to for one, spelling in spellings.items() if (to := dfa.run(spelling, state)) is not None
        }
        for state in range(dfa.num_states)
    }
    live = set(np.flatnonzero(dfa.accepting).tolist())
    size = -1
    while size != len(live):
        size = len(live)
        live |= {state for state, to in ways.items() if live & set(to.values())}
    try:
        grammar = compile_regex(pattern, vocab)
    except UnsupportedConstraint as error:
        assert error.keyword == "vocabulary"
        assert 0 not in live
        return
    assert 0 in live
    todo, seen = [(grammar.matcher(), 0)], {0}
    while todo and len(seen) < 25:
        matcher, state = todo.pop(rng.randrange(len(todo)))
        want = {one for one, to in ways[state].items() if to in live}
        end = set(vocab.eos_ids) if dfa.accepting[state] else set()
        assert allowed(matcher) == want | end
        for one in want:
            if ways[state][one] not in seen:
                seen.add(ways[state][one])
                todo.append((matcher.copy(), ways[state][one]))
                todo[-1][0].accept(one)


@pytest.mark.parametrize(
    ("pattern", "language"),
    [
        ("(?=a[bc]$)[ab]{1,2}[bc]?", ["ab", "ac"]),
        ("(?!no$)[no]{1,3}(?<!oo)", None),
        (r"a\b-?\bb|a\Bb", ["a-b", "ab"]),
        ("(?:(?<!a)b|a(?!c)|c){1,3}", None),
        ("(?=(?!ab)a)[abc]{2}(?<=c)", ["ac"]),
        ("(?<![^a])[abc](?=b(?<=ab)|$)b?", None),
        ("(?:(?=aa)a|(?!aa)[ab]){1,3}", None),
        ("a(?=b|c)(?!c)[abc]{1,2}", None),
        ("(?<=^a|b)?[abc](?!(?<=c)a).?", None),
    ],
)
def test_masks_of_looks(
    pattern: str, language: list[str] | None, mixed_vocab: Vocabulary, allowed: Read, expected_mask: Brute
) -> None:
    """A state that only a look makes dead is masked before it is entered."""
    letters = "abc" if "o" not in pattern else "no"
    found, level = [], [""]
    if language is None:
        for _ in range(4):
            found += [text for text in level if re.fullmatch(pattern, text)]
            level = [text + letter for text in level for letter in letters]
        pattern = f"(?=[{letters}]*$)(?:{pattern})"  # `.` and the like no more than these
    else:
        found = language
        assert all(re.fullmatch(pattern, text) for text in found)
    spelled = [text.encode() for text in found]
    todo, seen = [(compile_regex(pattern, mixed_vocab).matcher(), b"")], {b""}
    while todo:
        matcher, prefix = todo.pop()
        ids = allowed(matcher)
        assert ids == expected_mask(mixed_vocab, spelled, prefix), prefix
        for one in ids - set(mixed_vocab.eos_ids):
            longer = prefix + (mixed_vocab.tokens[one] or b"")
            if longer not in seen:
                seen.add(longer)
                todo.append((matcher.copy(), longer))
                todo[-1][0].accept(one)
