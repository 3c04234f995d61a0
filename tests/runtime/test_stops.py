"""Stop strings and patterns against `str.find` and `re.search` on growing prefixes; reported fault B31."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from treille.runtime.errors import InvalidRequest, RequestError
from treille.runtime.stops import StopChecker, check_stop_regex

PATTERNS = [
    None,
    "a+b",
    "ab|ba",
    "[ab]{2,3}c",
    "a.*c",
    "(a|b)*c",
    "é+|水",
    "(?i)AB",
    "^a",
    "a$",
    r"\Aab",
    r"b\Z",
    r"\bab\b",
    r" \bc",
    r"\Bab",
    r"ab\Bc",
    r"\w\b ",
    "(?m)^b",
    "(?x) a b # a comment",
    r"(?x) \b a b # a comment",
    "(?s)b.c",
    "[^a]c",
]


def oracle(text, stop, pattern):
    """The shortest prefix in which a stop is found, cut where the leftmost one starts."""
    for end in range(len(text) + 1):
        prefix = text[:end]
        starts = [prefix.find(one) for one in stop if one in prefix]
        found = re.search(pattern, prefix) if pattern else None
        if found:
            starts.append(found.start())
        if starts:
            return prefix[: min(starts)], True
    return text, False


def run(pieces, stop=(), pattern=None):
    """What comes out, piece by piece, and the stop."""
    checker = StopChecker(stop, pattern)
    emitted = []
    for piece in pieces:
        text, found = checker.push(piece)
        emitted.append(text)
        if found is not None:
            assert checker.flush() == ""
            return emitted, found
    return [*emitted, checker.flush()], None


pieces_of = st.lists(st.text("abc \né水", max_size=5), max_size=6)
strings = st.lists(st.text("abc é", min_size=1, max_size=4), max_size=3).map(tuple)


@settings(max_examples=400, deadline=None)
@given(pieces=pieces_of, stop=strings, pattern=st.sampled_from(PATTERNS))
@example(pieces=["aab", "aabaaab"], stop=("aabaaa",), pattern=None)
@example(pieces=["ab"], stop=("b", "ab"), pattern="[ab]{2,3}c")
def test_the_oracle_agrees_however_the_text_is_cut(pieces, stop, pattern):
    emitted, found = run(pieces, stop, pattern)
    assert ("".join(emitted), found is not None) == oracle("".join(pieces), stop, pattern)
    text = "".join(pieces)
    assert "".join(run(list(text), stop, pattern)[0]) == "".join(emitted)
    assert "".join(run([text], stop, pattern)[0]) == "".join(emitted)


@settings(max_examples=200, deadline=None)
@given(text=st.text("abc", max_size=10), stop=strings)
def test_only_what_may_become_a_stop_is_held(text, stop):
    checker = StopChecker(stop)
    emitted = ""
    for character in text:
        piece, found = checker.push(character)
        emitted += piece
        if found is not None:
            return
    held = text[len(emitted) :]
    prefixes = {one[:n] for one in stop for n in range(1, len(one))}
    longest = max((n for n in range(1, len(text) + 1) if text[-n:] in prefixes), default=0)
    assert len(held) == longest


class TestB31:
    def test_parts_of_a_stop_string_are_not_streamed(self):
        emitted, found = run(["<<", "en", "d>", ">"], ("<<end>>",))
        assert "".join(emitted) == ""
        assert found == "<<end>>"

    def test_nothing_is_lost_at_the_end(self):
        emitted, found = run(["<<", "en", "X"], ("<<end>>",))
        assert emitted == ["", "", "<<enX", ""]
        assert found is None
        assert run(["<<", "en"], ("<<end>>",)) == (["", "", "<<en"], None)

    def test_the_output_ends_where_the_stop_begins(self):
        assert run(["1;2;3"], ("2;3",)) == (["1;"], "2;3")
        assert run(list("1;2;3"), ("2;3",)) == (["1", ";", "", "", ""], "2;3")

    def test_only_the_suffix_that_may_become_a_stop_is_held(self):
        checker = StopChecker(("2;3",))
        assert checker.push("0;2") == ("0;", None)
        assert checker.push(";") == ("", None)
        assert checker.push("2;") == ("2;", None)
        assert checker.push("x") == ("2;x", None)


def test_the_stop_that_was_found_is_named():
    assert run(["xaby"], ("y", "ab"))[1] == "ab"
    assert run(["x12;"], ("zz",), r"\d+;") == (["x"], r"\d+;")
    assert run(["cab"], ("b", "ab")) == (["c"], "ab")


def test_text_after_the_stop_is_dropped():
    checker = StopChecker(("b",))
    assert checker.push("abc") == ("a", "b")
    assert checker.push("def") == ("", "b")
    assert checker.flush() == ""


def test_a_pattern_holds_from_its_leftmost_live_start():
    checker = StopChecker((), r"\d+\.")
    assert checker.push("on 12") == ("on ", None)
    assert checker.push("3 ") == ("123 ", None)
    assert checker.push("45") == ("", None)
    assert checker.push("6.") == ("", r"\d+\.")


def test_characters_of_several_bytes():
    assert run(["a水", "曜x"], ("水曜",)) == (["a", ""], "水曜")
    assert run(["a😀", "😀!"], (), "😀+!") == (["a", ""], "😀+!")


@pytest.mark.parametrize(
    "pattern", ["a*", "", "(?:)", "$", "^", r"\b", r"\B", "x?", "a|", r"\Z", "(?m)^", "(?i)a*"]
)
def test_a_pattern_that_matches_the_empty_text_is_refused(pattern):
    with pytest.raises(InvalidRequest, match="empty") as caught:
        StopChecker((), pattern)
    assert caught.value.field == "stop_regex"


@pytest.mark.parametrize("pattern", ["ab**", "[z-a]", "a{3,1}", "(ab", r"(a)\1", "(?=a)b", "a^b", "x{5000}"])
def test_a_pattern_that_cannot_be_used_is_refused(pattern):
    for attempt in (lambda: check_stop_regex(pattern), lambda: StopChecker((), pattern)):
        with pytest.raises(RequestError) as caught:
            attempt()
        assert caught.value.field == "stop_regex"


def test_the_time_grows_with_the_text_alone():
    # A backtracking search takes 2**60 steps here.
    checker = StopChecker(("a" * 500 + "b",), "(a+)+b")
    for _ in range(60):
        assert checker.push("a") == ("", None)
    assert checker.push("c") == ("a" * 60 + "c", None)


def test_many_samples_prepare_a_stop_once() -> None:
    """128 samples with 64 stop strings of 1024 characters each held the engine for seconds."""
    first, second = (StopChecker(("ab" * 512,)) for _ in range(2))
    assert first._stops[0][1] is second._stops[0][1]
