"""What speculation asks of a matcher: drafts are checked, taken back and never read past the end. B45."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.history_model import EOS, byte_tokenizer

from treille.runtime.errors import GrammarError
from treille.runtime.grammar import Grammar, Matcher, Vocabulary, compile_choices, compile_regex

WORDS = (b'{"', b'"x', b'"}', b"{{", b"ab", b"abc")
TOKENS = byte_tokenizer(words=WORDS)
VOCABULARY = Vocabulary.from_tokenizer(TOKENS)


@cache
def objects() -> Grammar:
    return compile_regex(r'\{("[a-z]{1,3}"(:[0-9])?)?\}', VOCABULARY)


def mask(matcher: Matcher) -> np.ndarray:
    row = np.zeros(VOCABULARY.num_words, np.uint32)
    matcher.fill_mask(row)
    return row


def is_set(row: np.ndarray, token_id: int) -> bool:
    return bool(row[token_id >> 5] >> (token_id & 31) & 1)


def fed(grammar, token_ids) -> Matcher:
    matcher = grammar.matcher()
    for token_id in token_ids:
        matcher.accept(token_id)
    return matcher


def same(first: Matcher, second: Matcher) -> bool:
    return (
        np.array_equal(mask(first), mask(second))
        and first.num_accepted == second.num_accepted
        and (first.can_stop(), first.must_stop()) == (second.can_stop(), second.must_stop())
        and first.forced_bytes(16) == second.forced_bytes(16)
    )


def verify(matcher: Matcher, draft: list[int], target: list[int]) -> tuple[list[int], list[np.ndarray]]:
    """One step of speculation as an engine does it: the rows of all drafted places, as many tokens as the
    target agrees with, then its own next one. `target[i]` is what it prefers at place i, if it may."""
    rows, legal = [mask(matcher)], 0
    for token_id in draft:
        if not matcher.allows(token_id):
            break
        matcher.accept(token_id)
        legal += 1
        rows.append(mask(matcher))
    accepted = 0
    while accepted < legal and target[accepted] == draft[accepted]:
        accepted += 1
    matcher.rollback(legal - accepted)
    bonus = target[accepted]
    if not is_set(rows[accepted], bonus):
        allowed = np.flatnonzero(np.unpackbits(rows[accepted].view(np.uint8), bitorder="little"))
        bonus = int(allowed[0])
    committed = [*draft[:accepted], bonus]
    if not (matcher.is_finished() and bonus in VOCABULARY.eos_ids):
        matcher.accept(bonus)
    return committed, rows


class TestB45:
    def test_two_of_four_are_accepted(self) -> None:
        """The draft `{`, `"`, `x`, `}` where the target wants `{`, `"`, `y`."""
        matcher = objects().matcher()
        committed, rows = verify(matcher, [*b'{"x}'], [*b'{"yz'])
        assert bytes(committed) == b'{"y'
        assert same(matcher, fed(objects(), committed))
        assert len(rows) == 4  # `}` is not legal after `{"x`
        assert not is_set(rows[3], ord("}"))

    def test_never_one_token_behind(self) -> None:
        """The output began `{{` where the matcher had not read the first one."""
        matcher = objects().matcher()
        committed, _ = verify(matcher, [ord("{")], [ord("{"), ord("{")])
        assert committed[0] == ord("{") and committed[1] != ord("{")
        assert same(matcher, fed(objects(), committed))

    def test_illegal_ones_have_no_probability(self) -> None:
        matcher = fed(objects(), b"{")
        row = mask(matcher)
        for token_id in range(TOKENS.vocab_size):
            assert matcher.allows(token_id) == is_set(row, token_id)
        before = mask(matcher)
        with pytest.raises(GrammarError):
            matcher.accept(ord("{"))
        assert np.array_equal(before, mask(matcher))

    def test_a_draft_past_the_end_is_dropped(self) -> None:
        matcher = objects().matcher()
        _, rows = verify(matcher, [*b"{}", EOS, *b"x"], [*b"{}", EOS, EOS, EOS])
        assert matcher.is_finished() and matcher.must_stop()
        assert len(rows) <= 4
        for token_id in (ord("x"), ord("}"), 10**6, -1):
            assert not matcher.allows(token_id)
        assert np.array_equal(mask(matcher), VOCABULARY.eos_words)  # never an empty row

    def test_the_end_can_be_taken_back(self) -> None:
        matcher = fed(objects(), [*b"{}", EOS])
        assert matcher.is_finished()
        matcher.rollback(2)
        assert same(matcher, fed(objects(), b"{"))

    @given(
        st.lists(st.sampled_from(["ab", "abc", "abcab", "ba", '{"x"}', "{}", ""]), min_size=1, max_size=4),
        st.lists(
            st.lists(st.sampled_from([*b'abc{}"x', *range(257, 263), EOS]), max_size=5),
            min_size=1,
            max_size=5,
        ),
        st.data(),
    )
    @settings(max_examples=200, deadline=None)
    def test_after_each_step_it_has_read_what_was_committed(self, texts, drafts, data) -> None:
        grammar = compile_choices(texts, VOCABULARY)
        matcher, committed = grammar.matcher(), []
        for draft in drafts:
            if matcher.is_finished():
                break
            agreed = data.draw(st.integers(0, len(draft)))
            more = data.draw(st.lists(st.sampled_from([*b'abc{}"x', EOS]), min_size=6, max_size=6))
            new, rows = verify(matcher, draft, [*draft[:agreed], *more])
            for row, token_id in zip(rows, new, strict=False):
                assert is_set(row, token_id), "a token was committed that its mask forbids"
            committed += new
            fresh = grammar.matcher()
            for token_id in committed:
                if fresh.is_finished() and token_id in VOCABULARY.eos_ids:
                    break  # the text had ended by itself
                fresh.accept(token_id)
            # An end token that was drafted behind a text that had ended counts for one and not for the other.
            assert matcher.is_finished() == fresh.is_finished()
            assert fresh.is_finished() or same(matcher, fresh)

    def test_copies_do_not_share_what_they_read(self) -> None:
        matcher = fed(objects(), b'{"')
        copies = [matcher.copy() for _ in range(3)]
        copies[0].accept(ord("a"))
        copies[1].rollback(1)
        assert same(matcher, fed(objects(), b'{"')) and same(copies[2], matcher)
        assert same(copies[0], fed(objects(), b'{"a')) and same(copies[1], fed(objects(), b"{"))
