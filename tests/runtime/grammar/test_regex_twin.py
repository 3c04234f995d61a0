"""Random patterns: the parser against `re`'s own parse tree, and the automaton against `re` itself."""

from __future__ import annotations

import random
import re
import warnings
from re import _constants as ops  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

import numpy as np
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from oracles.tree_match import matches

from treille.runtime.errors import InvalidConstraint, UnsupportedConstraint
from treille.runtime.grammar import charset
from treille.runtime.grammar.arena import Arena
from treille.runtime.grammar.automaton import Dfa
from treille.runtime.grammar.build import Blueprint, Program
from treille.runtime.grammar.regex import regex_dfa, whole_dfa
from treille.runtime.grammar.tree import ANY, Chars, Choice, Look, Repeat, Sequence, Tree

ALPHABET = "abkKsſ\u212a1५_- \n\té日"


class Twin:
    """Walks the tree that `re` parsed; one method an operation, and nothing clever."""

    def tree(self, pattern: str) -> Tree:
        parsed = _parser.parse(pattern)
        return self.walk(parsed, parsed.state.flags)

    def walk(self, parsed: Any, flags: int) -> Tree:
        return Sequence(tuple(getattr(self, str(op).lower())(value, flags) for op, value in parsed))

    def fold(self, ranges: charset.Ranges, flags: int) -> charset.Ranges:
        if not flags & re.IGNORECASE:
            return ranges
        return charset.ignore_case(ranges, ascii_only=bool(flags & re.ASCII))

    def literal(self, code: int, flags: int) -> Tree:
        return Chars(self.fold(charset.make_set([(code, code)]), flags))

    def not_literal(self, code: int, flags: int) -> Tree:
        return Chars(charset.complement(self.fold(charset.make_set([(code, code)]), flags)))

    def any(self, _: None, flags: int) -> Tree:
        return Chars(charset.complement(charset.EMPTY if flags & re.DOTALL else charset.NEWLINE))

    def in_(self, items: Any, flags: int) -> Tree:
        found = []
        for op, value in items:
            if op is ops.LITERAL:
                found.append(self.fold(charset.make_set([(value, value)]), flags))
            elif op is ops.RANGE:
                found.append(self.fold(charset.make_set([value]), flags))
            elif op is ops.CATEGORY:
                name = str(value).removeprefix("CATEGORY_")
                letter = {"DIGIT": "d", "SPACE": "s", "WORD": "w"}[name.removeprefix("NOT_")]
                letter = letter.upper() if name.startswith("NOT_") else letter
                found.append(charset.category(letter, ascii_only=bool(flags & re.ASCII)))
        ranges = charset.union(*found)
        return Chars(charset.complement(ranges) if items[0][0] is ops.NEGATE else ranges)

    def branch(self, value: Any, flags: int) -> Tree:
        return Choice(tuple(self.walk(option, flags) for option in value[1]))

    def subpattern(self, value: Any, flags: int) -> Tree:
        _, added, removed, inside = value
        if added & (re.ASCII | re.UNICODE):
            flags &= ~(re.ASCII | re.UNICODE)
        return self.walk(inside, (flags | added) & ~removed)

    def max_repeat(self, value: Any, flags: int) -> Tree:
        low, high, inside = value
        return Repeat(self.walk(inside, flags), low, None if high is ops.MAXREPEAT else high)

    min_repeat = max_repeat

    def at(self, value: Any, flags: int) -> Tree:
        line = Chars(charset.complement(charset.NEWLINE))
        word = Chars(charset.category("w", ascii_only=bool(flags & re.ASCII)))
        newline = Chars(charset.NEWLINE)
        many = flags & re.MULTILINE
        name = str(value)
        if name in ("AT_BOUNDARY", "AT_NON_BOUNDARY"):
            # Of the two sides both or one is a word's; in an empty text `re` has no \\B either.
            differ = name == "AT_BOUNDARY"
            ways = [
                Sequence((self.look(word, True, behind), self.look(word, False, behind != differ)))
                for behind in (False, True)
            ]
            some = Choice((self.look(ANY, True, False), self.look(ANY, False, False)))
            return Sequence((some, Choice(tuple(ways))))
        if name in ("AT_BEGINNING", "AT_BEGINNING_STRING"):
            return self.look(line if many and name == "AT_BEGINNING" else ANY, True, True)
        if name == "AT_END_STRING":
            return self.look(ANY, False, True)
        return self.look(line if many else Choice((line, Sequence((newline, ANY)))), False, True)

    def look(self, body: Tree, behind: bool, negated: bool) -> Tree:
        return Look(body, behind, negated)

    def assert_(self, value: Any, flags: int) -> Tree:
        return self.look(self.walk(value[1], flags), value[0] < 0, False)

    def assert_not(self, value: Any, flags: int) -> Tree:
        return self.look(self.walk(value[1], flags), value[0] < 0, True)


setattr(Twin, "in", Twin.in_)
setattr(Twin, "assert", Twin.assert_)

CLASS_PARTS = [
    "a",
    "b-k",
    "k",
    "K",
    "s",
    "ſ",
    "\u212a",
    "é",
    "日-本",
    "\\d",
    "\\w",
    "\\s",
    "\\W",
    "\\S",
    "\\n",
    "\\x61",
]
CLASS_PARTS += [
    "-",
    "^",
    "[",
    "\\]",
    "\\b",
    "\\101",
    " ",
    "#",
    "A-ſ",
    "\\u00e9",
    "\U00010400-\U00010428",
    "1",
    "५",
]
ATOMS = [
    "a",
    "b",
    "k",
    "K",
    "s",
    "ſ",
    "\u212a",
    "1",
    "é",
    "日",
    "-",
    " ",
    "_",
    "\\n",
    "\n",
    ".",
    "{",
    "}",
    "]",
    "\\d",
]
ATOMS += [
    "\\w",
    "\\s",
    "\\D",
    "\\W",
    "\\S",
    "\\x6b",
    "\\141",
    "\\0",
    "\\u65e5",
    "\\.",
    "(?#c)",
    "#",
    "\\N{DIGIT ONE}",
]
ANCHORS = ["^", "$", "\\A", "\\Z", "\\b", "\\B"]
QUANTIFIERS = [
    "*",
    "+",
    "?",
    "{2}",
    "{1,2}",
    "{,1}",
    "{1,}",
    "{0}",
    "*?",
    "+?",
    "??",
    "{1,2}?",
    "{",
    "{x",
    "{,}",
]
FLAGS = ["", "", "", "(?i)", "(?s)", "(?m)", "(?a)", "(?x)", "(?im)", "(?ai)", "(?is)(?m)"]
GROUPS = ["(", "(?:", "(?P<g>", "(?i:", "(?m:", "(?s:", "(?a:", "(?u:", "(?x:", "(?-i:", "(?i-s:", "(?s-im:"]

classes = st.tuples(
    st.sampled_from(["[", "[^", "[]", "[^]"]), st.lists(st.sampled_from(CLASS_PARTS), max_size=3)
).map(lambda found: found[0] + "".join(found[1]) + "]")
atoms = st.one_of(st.sampled_from(ATOMS), st.sampled_from(ATOMS), classes, st.sampled_from(ANCHORS))


def extend(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.lists(inner, min_size=1, max_size=4).map("".join),
        st.lists(inner, min_size=2, max_size=3).map("|".join),
        st.tuples(st.sampled_from(GROUPS), inner).map(lambda found: f"{found[0]}{found[1]})"),
        st.tuples(inner, st.sampled_from(QUANTIFIERS)).map("".join),
        st.tuples(st.sampled_from(GROUPS), inner, st.sampled_from(QUANTIFIERS)).map(
            lambda found: f"{found[0]}{found[1]}){found[2]}"
        ),
    )


patterns = st.tuples(st.sampled_from(FLAGS), st.recursive(atoms, extend, max_leaves=10)).map("".join)


def compiled(pattern: str) -> re.Pattern[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return re.compile(pattern)
        except re.error:
            assume(False)
            raise


def accepted_texts(dfa: Dfa, seed: int, count: int) -> list[str]:
    """Random walks to acceptance; every one must be UTF-8."""
    rng = random.Random(seed)
    texts = []
    for _ in range(count):
        state, text = 0, bytearray()
        while len(text) < 40:
            ways = np.flatnonzero(dfa.transitions[state] >= 0).tolist()
            if not ways or (dfa.accepting[state] and rng.random() < 0.3):
                break
            usual = [way for way in ways if way < 128]
            text.append(rng.choice(usual if usual and rng.random() < 0.7 else ways))
            state = int(dfa.transitions[state, text[-1]])
        if dfa.accepting[state]:
            texts.append(text.decode())
    return texts


@settings(
    deadline=None, max_examples=200, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow]
)
@example("(?x) a{1, 2}", 0)
@example("(?i)[\ufffe-\U00010400]", 0)
@example("(?:\\Ba|b\\b){2}", 0)
@given(patterns, st.integers(0, 2**32))
def test_random_patterns(pattern: str, seed: int) -> None:
    matcher = compiled(pattern)
    dfa = None
    try:
        dfa = regex_dfa(pattern)
    except InvalidConstraint as error:
        assert "no text matches" in str(error)
    except UnsupportedConstraint as error:
        assert error.keyword == "possessive repetition"
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        twin = Twin().tree(pattern)
    rng = random.Random(seed)
    texts = ["".join(rng.choices(ALPHABET, k=rng.randrange(5))) for _ in range(60)]
    for text in texts[:20]:
        assert matches(twin, text) == bool(matcher.fullmatch(text)), text
    if dfa is None:
        assert not any(matcher.fullmatch(text) for text in texts)
        return
    # What was made of our own parser's tree and of that of `re`, without normal forms, is the same automaton.
    # Not where anchors are repeated, as in `(a|^){2}`: normal forms are what resolves those.
    if not any(anchor in pattern for anchor in "^$\\"):
        program = Program()
        program.add(twin)
        plain = whole_dfa(Arena.fresh(Blueprint(program)))
        assert np.array_equal(dfa.transitions, plain.transitions)
        assert np.array_equal(dfa.accepting, plain.accepting)
    for text in texts:
        assert dfa.accepts(text.encode()) == bool(matcher.fullmatch(text)), text
    for text in accepted_texts(dfa, seed, 10):
        assert matcher.fullmatch(text), text
