"""Automata as pictures, and where a text leaves a constraint."""

from __future__ import annotations

import re
import shutil
import subprocess

import numpy as np
import pytest

from treille.runtime.errors import UnsupportedConstraint
from treille.runtime.grammar import Vocabulary, compile_choices, compile_regex
from treille.runtime.grammar.charset import SCALARS, complement, make_set
from treille.runtime.grammar.drawing import MAX_DRAWN, Characters, draw_dfa, in_character, label_of
from treille.runtime.grammar.explain import Verdict, byte_vocabulary, describe, judge, readable
from treille.runtime.grammar.regex import regex_dfa


def ranges_of(characters: str) -> tuple[tuple[int, int], ...]:
    return make_set((ord(one), ord(one)) for one in characters)


@pytest.fixture(scope="module")
def vocab() -> Vocabulary:
    return byte_vocabulary()


def arrows(drawing: str) -> set[tuple[str, str, str]]:
    return set(re.findall(r'^  (\d+) -> (\d+) \[label="(.*)"\];$', drawing, re.MULTILINE))


def test_a_picture_by_characters() -> None:
    drawing = draw_dfa(regex_dfa("a[é-ï]?"), "a[é-ï]?")
    assert drawing.startswith("digraph automaton {\n") and drawing.endswith("}\n")
    assert arrows(drawing) == {("0", "1", "a"), ("1", "2", "é-ï")}
    assert "  0;\n  1 [shape=doublecircle];\n  2 [shape=doublecircle];\n" in drawing
    assert "dotted" not in drawing and "  start -> 0;" in drawing


def test_a_picture_by_bytes() -> None:
    dfa = regex_dfa("a[é-ï]?")
    drawing = draw_dfa(dfa, in_bytes=True)
    assert {label for _, _, label in arrows(drawing)} == {"a", "0xC3", "0xA9-0xAF"}
    assert len(re.findall(r"^  \d+ \[style=dotted", drawing, re.MULTILINE)) == 1 == in_character(dfa).sum()


def test_what_would_end_a_string_is_escaped() -> None:
    drawing = draw_dfa(regex_dfa(r'["\\]\n'), '"\\n\n')
    assert arrows(drawing) == {("0", "1", r"\", \\\\"), ("1", "2", r"\\n")}
    assert r'label="\"\\n\\u000a"; labelloc=t' in drawing


@pytest.mark.skipif(shutil.which("dot") is None, reason="needs graphviz")
@pytest.mark.parametrize("in_bytes", [False, True])
def test_graphviz_draws_it(in_bytes: bool) -> None:
    drawing = draw_dfa(regex_dfa(r'"([^"\\\n]|\\[^<>&é])*"[\t ]'), r'a "title" \N <&>', in_bytes=in_bytes)
    done = subprocess.run(
        ["dot", "-Tsvg"], input=drawing.encode(), capture_output=True, timeout=60, check=True
    )
    assert done.stderr == b""
    assert b"</svg>" in done.stdout and rb"a &quot;title&quot; \N &lt;&amp;&gt;" in done.stdout


def test_too_many_states_for_a_picture() -> None:
    with pytest.raises(UnsupportedConstraint, match=rf"has {MAX_DRAWN + 1} states.* can show {MAX_DRAWN}"):
        draw_dfa(regex_dfa(f"a{{{MAX_DRAWN}}}"))
    wide = regex_dfa(r"\w")  # by bytes only
    assert wide.num_states > MAX_DRAWN
    assert "0 -> 1" in draw_dfa(wide)
    with pytest.raises(UnsupportedConstraint, match=str(wide.num_states)):
        draw_dfa(wide, in_bytes=True)


@pytest.mark.parametrize("pattern", [".", r"\w", "[^é€😀]", "[a-zé€\U0001f600-\U0001f64f]", r"(?s:.)"])
def test_whole_characters_are_those_of_the_class(pattern: str) -> None:
    dfa = regex_dfa(pattern)
    (characters,) = Characters(dfa).after(0).values()
    codes = np.r_[0:0x3000, 0xD7F0:0xD800, 0xE000:0xE010, 0x1F5F0:0x1F700, 0x10FFF0:0x110000]
    for code in codes.tolist():
        in_set = any(low <= code <= high for low, high in characters)
        assert in_set == bool(re.fullmatch(pattern, chr(code))), hex(code)


def test_labels_of_bytes() -> None:
    assert label_of([*range(97, 123), 45, 32]) == "a-z, '-', space"
    assert label_of([0x7E, 0x7F, 0x80, 0x81, 0x82]) == "~, U+007F, 0x80-0x82"
    assert label_of(list(range(0, 60, 3))).endswith(", 12 more")


def test_sets_in_words() -> None:
    assert describe(()) == "nothing"
    assert describe(SCALARS) == "any character"
    assert describe(ranges_of("az -,\n\\é")) == r"a, z, é, \n, space, ',', '-', \\"
    assert describe(ranges_of("abyz0123")) == "0-3, a, b, y, z"
    assert describe(complement(ranges_of('"\\\n'))) == r'any character but \n, ", \\'
    assert describe(ranges_of("\x00\u0301\u200b\u0661")) == "U+0661, U+0000, U+0301, U+200B"
    assert describe(ranges_of("acegi"), limit=2) == "a, c, 3 more"
    assert readable(b"a\n\x1b\\\xc3") == r"a\n\u001b\\xc3"


@pytest.mark.parametrize(
    ("pattern", "text", "verdict"),
    [
        ("ab?", b"ab", Verdict(True, 2, 2, (), True)),
        ("ab?", b"a", Verdict(True, 1, 1, ranges_of("b"), True)),
        ("ab?", b"", Verdict(False, 0, 0, ranges_of("a"), False)),
        ("ab?", b"ac", Verdict(False, 1, 1, ranges_of("b"), True)),
        ("ab?", b"abc", Verdict(False, 2, 2, (), True)),
        ("x[é-ï]", "xñ".encode(), Verdict(False, 2, 1, ((0xE9, 0xEF),), False)),
        ("x[é-ï]", "x€".encode(), Verdict(False, 1, 1, ((0xE9, 0xEF),), False)),
        ("x[é-ï]", b"x\xc3", Verdict(False, 2, 1, ((0xE9, 0xEF),), False)),
        ("[😀-😃]", "😄".encode(), Verdict(False, 3, 0, ((0x1F600, 0x1F603),), False)),
        ("(?s:.)", b"\xff", Verdict(False, 0, 0, SCALARS, False)),
        ("(?s:.)", b"\x80", Verdict(False, 0, 0, SCALARS, False)),
    ],
)
def test_where_a_text_fails(vocab: Vocabulary, pattern: str, text: bytes, verdict: Verdict) -> None:
    assert judge(compile_regex(pattern, vocab), text) == verdict


def test_finite_sets_are_judged_too(vocab: Vocabulary) -> None:
    verdict = judge(compile_choices(["red", "green", "grün"], vocab), b"gray")
    assert (verdict.offset, verdict.allowed) == (2, ranges_of("eü"))
