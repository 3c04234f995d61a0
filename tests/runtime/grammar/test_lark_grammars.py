"""What a Lark grammar takes through the engine is what Lark parses, with both parsers."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lark import Lark
from lark.exceptions import LarkError, UnexpectedInput
from oracles.lark_texts import CASES, JSON, mutated

from treille.runtime.errors import InvalidConstraint, UnsupportedConstraint
from treille.runtime.grammar import Grammar, Matcher, Vocabulary
from treille.runtime.grammar.lark_compile import compile_lark
from treille.runtime.grammar.lark_loader import Parser

BYTE_EOS = 256
PARSERS: list[Parser] = ["earley", "lalr"]


def takes(grammar: Grammar, text: str) -> bool:
    """Whether a text is accepted, byte by byte and then the end; what is allowed and what is masked agree."""
    matcher = grammar.matcher()
    for byte in text.encode():
        if not matcher.allows(byte):
            return False
        matcher.accept(byte)
    return matcher.can_stop()


def parses(lark: Lark, text: str) -> bool:
    try:
        lark.parse(text)
    except UnexpectedInput:
        return False
    except RuntimeError as error:  # two roots, see `compile_lark`
        assert "multiple start symbol" in str(error)
    return True


def check(source: str, vocab: Vocabulary, texts: list[str], parser: Parser, start: str = "start") -> int:
    """Compares every text; returns how many were taken."""
    grammar = compile_lark(source, vocab, start, parser)
    lark = Lark(source, parser=parser, start=start)
    expected = [parses(lark, text) for text in texts]
    found = [takes(grammar, text) for text in texts]
    wrong = [text for text, one, other in zip(texts, expected, found, strict=True) if one != other]
    assert not wrong, wrong[:5]
    return sum(found)


@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize("name", CASES)
def test_mutated_texts(name: str, parser: Parser, byte_vocab: Vocabulary) -> None:
    source, seeds, letters = CASES[name]
    choose = random.Random(f"{name} {parser}")
    num_texts = 300 if name in ("json", "calculator") else 150
    texts = seeds + [mutated(choose.choice(seeds), letters, choose) for _ in range(num_texts)]
    taken = check(source, byte_vocab, texts, parser)
    assert 20 < taken < len(texts) - 20


@pytest.mark.slow
@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize("name", CASES)
def test_many_mutated_texts(name: str, parser: Parser, byte_vocab: Vocabulary) -> None:
    source, seeds, letters = CASES[name]
    choose = random.Random(f"many {name} {parser}")
    texts = [mutated(choose.choice(seeds), letters, choose) for _ in range(3000)]
    assert check(source, byte_vocab, texts, parser)


ROWS: dict[str, tuple[str, str]] = {
    "left recursion": ('start: start "+" num | num\nnum: /[0-9]+/', "1+2"),
    "loop over nothing": ('start: "k" ("m" |)*', "km"),
    "hidden left recursion": ('start: opt start "x" | "y"\nopt: | "z"', "xyz"),
    "mutual recursion": ('start: a "x" | "y"\na: start "z" | "x"', "xyz"),
    "nullable start": ('start: "a"*\n%ignore " "', "a "),
    "ignored around": ('start: "(" start ")" |\n%ignore " "', "() "),
    "a token may not end early": ('start: A "a"?\nA: /a+/', "ab"),
    "tokens that could be longer": ("start: (A | B)+\nA: /a+b?/\nB: /ba?/", "ab"),
    "lazy": ("start: A B?\nA: /a+?b*?/\nB: /b+/", "ab"),
    "alternatives in order": ('start: A "c"?\nA: /a|ab|abc/', "abc"),
    "look ahead": ("start: (A | B)+\nA: /a(?!b)/\nB: /b(?=ba|$)|ab/", "ab"),
    "word boundary": ('start: ("x" | W)+\nW: /\\bx+\\b/\n%ignore " "', "x "),
    "look behind": ('start: ("b" | A)+\nA: /(?<!b)a|(?<=bb)a/', "ab"),
    "anchors": ('start: A (B | "\\n" | "a")*\nA: /^a/\nB: /(?m:^b$)/', "ab\n"),
    "ignored like a token": ('start: "a" "b"? "a"\n%ignore "b"', "ab"),
    "ignored terminals that run on": ('start: "a" ("b" | "c")\n%ignore /[ b]+/', "ab c"),
    "one terminal within another": ('start: (A | C)*\nA: "a" "b"\nC: A "c"', "abc"),
    "counts": ('start: "a"~2..4 ("b"~3)*', "ab"),
    "template": ('start: sep{A, ","}\nsep{x, y}: x (y x)*\nA: "a"+', "a,"),
    "optional": ('start: ["a"] ["b" "c"] "a"?', "abc"),
    "case": ('start: "if"i NAME?\nNAME: /[a-zA-Z]+/\n%ignore " "', "iFx "),
    "keywords": ('start: "if" NAME | NAME "x"\nNAME: /[ifx]+/\n%ignore " "', "ifx "),
    "priority": ("start: (A | B)+\nA.2: /a/\nB: /aa|b/", "ab"),
    "longer first": ('start: (A | B)+\nA: "a"\nB: "ab" | "b"', "ab"),
    "embedded, other flags": ('start: K | N "x"\nK: "ab"i\nN: /[ab]+/', "abAx"),
    "shift rather than reduce": ('start: s\ns: "i" s | "i" s "e" s | "a"', "iea"),
    "finite": ('start: "{" "}"', "{}"),
}


@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize("name", ROWS)
def test_every_short_text(name: str, parser: Parser, byte_vocab: Vocabulary) -> None:
    source, letters = ROWS[name]
    texts = ["".join(one) for length in range(7) for one in product(letters, repeat=length)]
    if len(letters) > 3:
        texts = [text for text in texts if len(text) < 6]
    try:
        Lark(source, parser=parser)
    except LarkError:
        with pytest.raises(InvalidConstraint):
            compile_lark(source, byte_vocab, parser=parser)
        return
    check(source, byte_vocab, texts, parser)


def test_recursions_of_every_kind(byte_vocab: Vocabulary) -> None:
    def language(source: str, start: str = "start") -> Grammar:
        return compile_lark(source, byte_vocab, start)

    sums = language('e: e "+" num | num\nnum: /[0-9]+/', "e")
    assert all(takes(sums, one) for one in ("1", "1+2", "10+2+3"))
    assert not any(takes(sums, one) for one in ("", "1+", "1++2"))
    loop = language('root: "k" ( | "m")*', "root")
    assert all(takes(loop, "k" + "m" * count) for count in range(5))
    assert not any(takes(loop, one) for one in ("", "m", "kk"))
    hidden = language('s: opt s "x" | "y"\nopt: | "z"', "s")
    assert all(takes(hidden, one) for one in ("y", "yx", "zyx", "zzyxx"))
    assert not any(takes(hidden, one) for one in ("zy", "zzyx", "x"))
    with pytest.raises(InvalidConstraint, match="no text can be derived from the rule 'root'"):
        language("root: root", "root")
    with pytest.raises(InvalidConstraint):
        language('start: A "a"\nA: /a+/')
    finite = language('root: "{" "}"', "root").matcher()
    for byte in b"{}":
        finite.accept(byte)
    assert finite.must_stop()
    assert not finite.allows(ord("}"))


@pytest.mark.parametrize("parser", PARSERS)
def test_stock_strings(parser: Parser, byte_vocab: Vocabulary) -> None:
    source = "start: ESCAPED_STRING+\n%import common.ESCAPED_STRING"
    texts = ['"a"', '"a""b"', r'"a\""', r'"a\\"', r'"\\\""', '"', '"a', '""', '"\n"', r'"a\\""', '"é"']
    assert check(source, byte_vocab, texts, parser) == 7


def test_what_is_refused(byte_vocab: Vocabulary) -> None:
    with pytest.raises(ValueError, match="earley, lalr"):
        compile_lark('start: "a"', byte_vocab, parser="cyk")  # type: ignore[arg-type]
    with pytest.raises(InvalidConstraint) as caught:
        compile_lark("start: (", byte_vocab)
    assert caught.value.field == "grammar"
    with pytest.raises(UnsupportedConstraint, match="terminal T"):
        compile_lark("start: T\nT: /[ab]*a[ab]{20}/", byte_vocab)
    with pytest.raises(InvalidConstraint):
        compile_lark(None, byte_vocab)  # type: ignore[arg-type]


def completes(grammar: Grammar, text: str, budget: int = 3000) -> bool:
    """Whether some text goes on from here to the end, found by a search, shortest first."""
    start = grammar.matcher()
    for byte in text.encode():
        start.accept(byte)
    queue, seen = [start], {start._state}
    for matcher in queue:
        if matcher.can_stop():
            return True
        for byte in range(256):
            if matcher.allows(byte):
                following = matcher.copy()
                following.accept(byte)
                if following._state not in seen:
                    seen.add(following._state)
                    queue.append(following)
        if len(queue) > budget:
            return True  # cannot tell
    return False


DEAD_ENDS = {
    "comments": ('start: (NAME "=" NAME _NL)+\nNAME: /[a-z]+/\n_NL: "\\n"\n%ignore /#[^\\n]*/', "a=#\n"),
    "greedy": ('start: "x" | "(" A "a" ")" | "(" A ")"\nA: /a+/', "xa()"),
    "names": ('start: (W | "1")+ ";"\nW: /[a-z]+/', "a1;"),
    "lists": ('start: "[" [start ("," start)*] "]" | N\nN: /[0-9]+/\n%ignore " "', "[], 1"),
    "lookahead": ('start: A (B | C)\nA: /a(?!b)/\nB: "b"\nC: "c"', "abc"),
    "keyword": ('start: "if" NAME\nNAME: /[fix]+/\n%ignore " "', "ifx "),
}


@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize("name", DEAD_ENDS)
def test_every_allowed_byte_leads_on(name: str, parser: Parser, byte_vocab: Vocabulary) -> None:
    source, letters = DEAD_ENDS[name]
    grammar = compile_lark(source, byte_vocab, parser=parser)
    lark = Lark(source, parser=parser)
    taken = [
        text
        for length in range(6)
        for text in map("".join, product(letters, repeat=length))
        if parses(lark, text)
    ]
    prefixes = {text[:end] for text in taken for end in range(len(text) + 1)}
    for length in range(4):
        for text in map("".join, product(letters, repeat=length)):
            matcher = grammar.matcher()
            allowed = all(_accepted(matcher, byte) for byte in text.encode())
            if allowed:
                assert text in prefixes or completes(grammar, text), text
            else:
                assert text not in prefixes, text


def _accepted(matcher: Matcher, byte: int) -> bool:
    if not matcher.allows(byte):
        return False
    matcher.accept(byte)
    return True


def test_masks_are_what_is_allowed(byte_vocab: Vocabulary) -> None:
    for parser in PARSERS:
        matcher = compile_lark(JSON, byte_vocab, parser=parser).matcher()
        for byte in b'{"k\\"": [1, -2.5e3 , tr':
            row = np.zeros(byte_vocab.num_words, np.uint32)
            matcher.fill_mask(row)
            bits = np.unpackbits(row.view(np.uint8), bitorder="little")[:256]
            assert [bool(bit) for bit in bits] == [matcher.allows(one) for one in range(256)]
            matcher.accept(byte)


symbols = st.sampled_from(["A", "B", '"a"', "a", "b", "A?", "B*", "(a | A)"])
options = st.lists(symbols, min_size=1, max_size=3).map(" ".join)
bodies = st.lists(options, min_size=1, max_size=2).map(" | ".join)
terminals = st.sampled_from(["/a+/", "/ab?/", "/a|ab/", "/b+?/", '"b"', "/ba*/", "/a(?!b)/", "/(?<!a)b/"])
ignored = st.sampled_from(["", '%ignore " "', "%ignore /a b/"])


@settings(max_examples=25, deadline=None)
@given(bodies, bodies, terminals, terminals, ignored)
def test_any_grammar(a: str, b: str, first: str, second: str, ignore: str) -> None:
    vocab = Vocabulary([*(bytes([byte]) for byte in range(256)), None], eos_ids=[BYTE_EOS], vocab_size=257)
    source = f"start: {a} | A\na: {b} | B\nb: A | B {a}\nA: {first}\nB: {second}\n{ignore}"
    texts = ["".join(one) for length in range(6) for one in product("ab", repeat=length)]
    for parser in PARSERS:
        try:
            lark = Lark(source, parser=parser)
        except LarkError:
            continue
        expected = [parses(lark, text) for text in texts]
        try:
            grammar = compile_lark(source, vocab, parser=parser)
            found = [takes(grammar, text) for text in texts]
        except InvalidConstraint:  # one terminal may swallow what another needs, so that no text is left
            found = [False] * len(texts)
        except UnsupportedConstraint as error:
            # Whether a text has an end could not be told in time.
            assert "one step of it" in str(error) or "takes longer" in str(error)
            continue
        assert found == expected
