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

from treille.runtime.errors import InvalidConstraint, UnsupportedConstraint
from treille.runtime.grammar import charset
from treille.runtime.grammar.automaton import Dfa, minimize
from treille.runtime.grammar.limits import Budget
from treille.runtime.grammar.nfa import Assertion, ClassDfa, Nfa
from treille.runtime.grammar.regex import regex_dfa
from treille.runtime.grammar.utf8 import to_bytes

ALPHABET = "abkKsſ\u212a1५_- \n\té日"


class Twin:
    """Walks the tree that `re` parsed; one method an operation, and nothing clever."""

    def __init__(self) -> None:
        self.nfa = Nfa(Budget("twin", seconds=60))

    def dfa(self, pattern: str) -> Dfa | None:
        tree = _parser.parse(pattern)
        start = self.nfa.add_state()
        accept = self.walk(tree, start, tree.state.flags)
        wide = self.nfa.determinize(start, accept)
        small = minimize(wide.table, wide.accepting)
        return None if small is None else to_bytes(ClassDfa(*small, wide.classes), Budget("twin", seconds=60))

    def walk(self, tree: Any, start: int, flags: int) -> int:
        for op, value in tree:
            start = getattr(self, str(op).lower())(value, start, flags)
        return start

    def read(self, ranges: charset.Ranges, start: int) -> int:
        end = self.nfa.add_state()
        self.nfa.add_chars(start, ranges, end)
        return end

    def fold(self, ranges: charset.Ranges, flags: int) -> charset.Ranges:
        if not flags & re.IGNORECASE:
            return ranges
        return charset.ignore_case(ranges, ascii_only=bool(flags & re.ASCII))

    def literal(self, code: int, start: int, flags: int) -> int:
        return self.read(self.fold(charset.make_set([(code, code)]), flags), start)

    def not_literal(self, code: int, start: int, flags: int) -> int:
        return self.read(charset.complement(self.fold(charset.make_set([(code, code)]), flags)), start)

    def any(self, _: None, start: int, flags: int) -> int:
        newline = charset.EMPTY if flags & re.DOTALL else charset.NEWLINE
        return self.read(charset.complement(newline), start)

    def in_(self, items: Any, start: int, flags: int) -> int:
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
        return self.read(charset.complement(ranges) if items[0][0] is ops.NEGATE else ranges, start)

    def branch(self, value: Any, start: int, flags: int) -> int:
        end = self.nfa.add_state()
        for option in value[1]:
            self.nfa.add_empty(self.walk(option, start, flags), end)
        return end

    def subpattern(self, value: Any, start: int, flags: int) -> int:
        _, added, removed, inner = value
        if added & (re.ASCII | re.UNICODE):
            flags &= ~(re.ASCII | re.UNICODE)
        return self.walk(inner, start, (flags | added) & ~removed)

    def max_repeat(self, value: Any, start: int, flags: int) -> int:
        low, high, inner = value
        for _ in range(low):
            start = self.walk(inner, start, flags)
        if high is ops.MAXREPEAT:
            loop = self.nfa.add_state()
            self.nfa.add_empty(start, loop)
            self.nfa.add_empty(self.walk(inner, loop, flags), loop)
            return loop
        end = self.nfa.add_state()
        self.nfa.add_empty(start, end)
        for _ in range(high - low):
            start = self.walk(inner, start, flags)
            self.nfa.add_empty(start, end)
        return end

    min_repeat = max_repeat

    def at(self, value: Any, start: int, flags: int) -> int:
        many, narrow = bool(flags & re.MULTILINE), bool(flags & re.ASCII)
        kind = {
            "AT_BEGINNING": Assertion.BEGIN_LINE if many else Assertion.BEGIN,
            "AT_BEGINNING_STRING": Assertion.BEGIN,
            "AT_END": Assertion.END_LINE if many else Assertion.END,
            "AT_END_STRING": Assertion.END_TEXT,
            "AT_BOUNDARY": Assertion.ASCII_BOUNDARY if narrow else Assertion.BOUNDARY,
            "AT_NON_BOUNDARY": Assertion.NOT_ASCII_BOUNDARY if narrow else Assertion.NOT_BOUNDARY,
        }[str(value)]
        end = self.nfa.add_state()
        self.nfa.add_empty(start, end, kind)
        return end


setattr(Twin, "in", Twin.in_)

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
        twin = Twin().dfa(pattern)
    if dfa is None or twin is None:
        assert dfa is twin
        return
    assert np.array_equal(dfa.transitions, twin.transitions)
    assert np.array_equal(dfa.accepting, twin.accepting)
    rng = random.Random(seed)
    texts = ["".join(rng.choices(ALPHABET, k=rng.randrange(5))) for _ in range(60)]
    for text in texts:
        assert dfa.accepts(text.encode()) == bool(matcher.fullmatch(text)), text
    for text in accepted_texts(dfa, seed, 10):
        assert matcher.fullmatch(text), text
