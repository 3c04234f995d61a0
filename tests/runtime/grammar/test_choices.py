"""Choices: the texts given, byte for byte."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treille.runtime.constraints import compile_constraint
from treille.runtime.errors import InvalidConstraint, UnsupportedConstraint
from treille.runtime.grammar import Matcher, Vocabulary, compile_choices
from treille.runtime.grammar.automaton import minimize
from treille.runtime.grammar.compile import choices_dfa
from treille.runtime.params import Constraint

AWKWARD = ["ok", "not\nnow", 'say "hi"', "a|b", "back\\slash", ""]  # report B25


def test_awkward_choices_are_taken_byte_for_byte(byte_vocab: Vocabulary) -> None:
    grammar = compile_choices(AWKWARD, byte_vocab)
    for text in AWKWARD:
        matcher = grammar.matcher()
        for byte in text.encode():
            matcher.accept(byte)
        assert matcher.can_stop()
        matcher.accept(256)
        assert matcher.is_finished()
    for text in [
        "a",
        "b",
        " ok",
        "ok ",
        "ok\n",
        "notnow",
        "not\r\nnow",
        "say hi",
        "backslash",
        "back\\\\slash",
    ]:
        matcher = grammar.matcher()
        taken = all(matcher.allows(byte) and matcher.accept(byte) is None for byte in text.encode())
        assert not (taken and matcher.can_stop()), text


def test_the_empty_choice_stops_at_once(
    byte_vocab: Vocabulary, allowed: Callable[[Matcher], set[int]]
) -> None:
    matcher = compile_choices([""], byte_vocab).matcher()
    assert allowed(matcher) == {256}
    assert matcher.can_stop() and matcher.must_stop() and matcher.is_finished()
    assert compile_choices(["", "a"], byte_vocab).matcher().must_stop() is False


def test_prefixes(mixed_vocab: Vocabulary, allowed: Callable[[Matcher], set[int]]) -> None:
    """Report B28: after `sun` the text may end, or go on toward `set`."""
    token = {spelling: one for one, spelling in enumerate(mixed_vocab.tokens) if spelling is not None}
    (stop,) = mixed_vocab.eos_ids - {0}
    matcher = compile_choices(["sun", "sunset", "moon"], mixed_vocab).matcher()
    assert allowed(matcher) == {token[one] for one in (b"s", b"su", b"sun", b"m", b"moon")}
    matcher.accept(token[b"sun"])
    assert allowed(matcher) == {stop, 0, token[b"s"], token[b"set"]}
    assert matcher.can_stop() and not matcher.is_finished() and matcher.forced_bytes() == b""
    matcher.accept(token[b"s"])
    assert matcher.forced_bytes() == b"et" and not matcher.can_stop()


def test_duplicates_count_once(byte_vocab: Vocabulary) -> None:
    once, twice = compile_choices(["a", "b"], byte_vocab), compile_choices(["b", "a", "b"], byte_vocab)
    assert once is twice
    assert compile_constraint(Constraint("choices", ("a", "b")), byte_vocab) is once


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ([], "at least one"),
        (["a", 7], "choices are strings, not 7"),
        ([None], "choices are strings"),
        (["a", b"b"], "choices are strings"),
        ("ab", "a list of strings"),
        (7, "a list of strings"),
        (["fine", "x\ud800"], r"lone surrogate U\+D800"),
    ],
)
def test_not_choices(byte_vocab: Vocabulary, choices: object, message: str) -> None:
    with pytest.raises(InvalidConstraint, match=message) as caught:
        compile_choices(choices, byte_vocab)  # type: ignore[arg-type]
    assert caught.value.field == "choices"


@settings(deadline=None)
@given(
    st.lists(st.text("abé日\n", max_size=5), min_size=1, max_size=12),
    st.lists(st.text("abé日\n", max_size=5)),
)
def test_language_and_size(choices: list[str], others: list[str]) -> None:
    dfa = choices_dfa(choices)
    assert all(dfa.accepts(one.encode()) for one in choices)
    assert all(dfa.accepts(one.encode()) == (one in choices) for one in others)
    again = minimize(dfa.transitions, dfa.accepting)
    assert again is not None
    assert np.array_equal(again[0], dfa.transitions) and np.array_equal(again[1], dfa.accepting)


def test_many_choices_and_too_many() -> None:
    many = [f"item-{n:05d}-{n * 7919 % 10007}" for n in range(4000)]
    dfa = choices_dfa(many)
    assert all(dfa.accepts(one.encode()) for one in many) and not dfa.accepts(b"item-00001-1")
    with pytest.raises(UnsupportedConstraint, match="bytes long"):
        choices_dfa([f"{n:04d}" + "x" * 1000 for n in range(2000)])
    with pytest.raises(UnsupportedConstraint, match="states"):
        choices_dfa([f"{n:04d}" + chr(97 + n % 26) * 30 + str(n * n) * 5 for n in range(4000)])
