"""Sets of strings against `re` and brute force over small alphabets."""

from __future__ import annotations

import itertools
import random
import re
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treille.runtime.errors import InvalidConstraint, UnsupportedConstraint
from treille.runtime.grammar import arena as arenas
from treille.runtime.grammar.derive import transfer
from treille.runtime.grammar.states import START
from treille.runtime.grammar.store import Store
from treille.runtime.schema.expressions import NUM_FIXED
from treille.runtime.schema.formats import FORMATS, NARROWED
from treille.runtime.schema.languages import Languages
from treille.runtime.schema.strings import Strings

# Patterns that `re` and ECMA-262 take for the same, with `\Z` for `$` and ASCII sets.
PATTERNS = [
    "",
    ".*",
    "a",
    "^a",
    "a$",
    "^a*$",
    "^[ab]*$",
    "^(?:ab)*$",
    "^(?:a|bb)*$",
    "^a{2,3}b?$",
    "^.{2}$",
    "^$",
    "^[^a]*$",
    "(?<=a)b",
    "(?<!a)b",
    "(?<=(?<!b)a)b",
    "^(?!.*bb)",
    "^(?=.*a)(?=.*b)",
    "a(?!b)",
    r"\bab\b",
    r"\Bb",
    r"^\w+-\w+$",
    r"^\d*$",
    "é",
    r"^[a-é]+$",
    "^(?:[ab]{2})*$",
    "^a(?:b{1,2}a)?$",
    "a|^b*$",
]
NUMBERS = st.frozensets(st.integers(0, len(PATTERNS) - 1), max_size=2)
ORACLES = [re.compile(pattern.replace("$", r"\Z"), re.ASCII) for pattern in PATTERNS]
TEXTS = ["".join(parts) for size in range(5) for parts in itertools.product("ab-é\n1", repeat=size)]
SMALL = ["".join(parts) for size in range(7) for parts in itertools.product("ab", repeat=size)]
LETTERS = PATTERNS.index("^[ab]*$")


def is_in(strings: Strings, text: str) -> bool:
    """What a set means, according to `re`."""
    return (
        all(ORACLES[number].search(text) for number in strings.every)
        and not any(ORACLES[number].search(text) for number in strings.none)
        and strings.low <= len(text)
        and (strings.high is None or len(text) <= strings.high)
        and (strings.only is None or text in strings.only)
        and text not in strings.excluded
    )


@st.composite
def sets(draw: st.DrawFn) -> Strings:
    low = draw(st.integers(0, 3))
    high = draw(st.none() | st.integers(0, 5))
    some = draw(st.frozensets(st.sampled_from(TEXTS[:100]), max_size=4))
    if draw(st.integers(0, 3)) == 0:
        return Strings(draw(NUMBERS), draw(NUMBERS), low, high, only=some)
    return Strings(draw(NUMBERS), draw(NUMBERS), low, high, excluded=some)


@pytest.fixture(scope="module")
def languages() -> Languages:
    found = Languages(PATTERNS, [])
    assert [found.pattern(pattern) for pattern in PATTERNS] == list(range(len(PATTERNS)))
    return found


def of(*every: int) -> Strings:
    return Strings(every=frozenset(every))


def walks(languages: Languages, strings: Strings, text: str) -> bool:
    """Whether the bytes of a text lead from the start to acceptance."""
    state = languages.start(strings)
    return state < 0 or leads(languages, state, text)


def leads(languages: Languages, state: int, text: str) -> bool:
    """Whether the bytes of a text lead from a state to acceptance."""
    data = np.array(list(text.encode()), np.uint8)
    state = languages.arena.after(state, data, 0, len(data))
    return state >= 0 and languages.arena.accepts(state)


@pytest.mark.parametrize("number", range(len(PATTERNS)), ids=PATTERNS)
def test_patterns(languages: Languages, number: int) -> None:
    for text in TEXTS:
        expected = bool(ORACLES[number].search(text))
        assert languages.contains(of(number), text) == expected, text
        assert walks(languages, of(number), text) == expected, text
        assert languages.contains(Strings(none=frozenset((number,))), text) != expected, text


@settings(max_examples=100, deadline=None)
@given(strings=sets())
def test_members(languages: Languages, strings: Strings) -> None:
    regular = Strings(strings.every, strings.none, strings.low, strings.high)
    members = []
    for text in TEXTS[::3]:
        assert languages.contains(strings, text) == is_in(strings, text), text
        assert walks(languages, regular, text) == is_in(regular, text), text
        if is_in(strings, text):
            members.append(text)
    if members:
        assert not languages.is_empty(strings)
    assert languages.count(strings, 5) >= min(5, len(members))


@settings(max_examples=100, deadline=None)
@given(one=sets(), other=sets())
def test_meet_and_complement(languages: Languages, one: Strings, other: Strings) -> None:
    met = languages.meet(one, other)
    parts = languages.complement(one)
    assert not (met.only is not None and met.excluded)
    for text in TEXTS[:260]:
        assert languages.contains(met, text) == (is_in(one, text) and is_in(other, text)), text
        assert any(languages.contains(part, text) for part in parts) != is_in(one, text), text


@settings(max_examples=100, deadline=None)
@given(strings=sets(), high=st.integers(0, 6))
def test_finite(languages: Languages, strings: Strings, high: int) -> None:
    """All strings of at most six letters: counted, listed and drawn exactly."""
    strings = languages.meet(strings, Strings(every=frozenset((LETTERS,)), high=high))
    members = [text for text in SMALL if is_in(strings, text)]
    assert languages.is_empty(strings) == (not members)
    for limit in (1, len(members), len(members) + 1, 1000):
        assert languages.count(strings, limit) == min(limit, len(members))
    assert languages.words(strings, len(members)) == members
    assert languages.words(strings, 1000) == members
    if members:
        assert languages.words(strings, len(members) - 1) is None
        assert languages.sample(strings, random.Random(1)) in members
    else:
        with pytest.raises(ValueError, match="no string"):
            languages.sample(strings, random.Random(1))


@pytest.mark.parametrize(
    ("pattern", "is_finite"),
    [
        ("^(?:ab|b){0,4}$", True),
        ("^(?:a?){5}$", True),
        ("^(?:ab)*$", False),
        ("^a{7}(?:b{3}a)*$", False),
        ("^(?=a)b", True),
        ("^(?:a{3})*(?<!a)$", True),
        ("^(?!a{4})a*$", True),
        ("a", False),
    ],
)
def test_finiteness(pattern: str, is_finite: bool) -> None:
    languages = Languages([pattern], [])
    members = [text for text in SMALL if re.search(pattern, text)]
    if is_finite:
        members += [text for text in ("abababab", "babababa") if re.search(pattern, text)]
        whole = ["".join(parts) for size in range(9) for parts in itertools.product("ab", repeat=size)]
        members = [text for text in whole if re.search(pattern, text)]
        assert languages.words(of(0), 10_000) == members
        assert languages.count(of(0), 10_000) == len(members)
    else:
        assert languages.words(of(0), 10_000) is None
        assert languages.count(of(0), 10**12) == 10**12


def test_shared_languages_never_meet(languages: Languages) -> None:
    def none_in(*every: str) -> bool:
        return languages.is_empty(of(*(languages.pattern(pattern) for pattern in every)))

    assert none_in("^a", "^[^a]*$")
    assert none_in("^$", "a")
    assert none_in("^.{2}$", "^$")
    assert none_in("^(?:ab)*$", "(?<!a)b")
    assert not none_in("^(?:ab)*$", "(?<=a)b")
    assert none_in(r"^\d*$", r"^\w+-\w+$")
    assert languages.is_empty(Strings(none=frozenset((languages.pattern(".*"),))))
    number = languages.pattern("a")
    assert languages.is_empty(Strings(frozenset((number,)), frozenset((number,))))


def test_any_string(languages: Languages) -> None:
    assert languages.start(Strings()) == -1
    assert languages.start(of(languages.pattern(""))) == -1
    assert languages.start(of(languages.pattern(".*"), languages.pattern(""))) == -1
    assert languages.start(of(languages.pattern("^.{2}$"))) >= 0
    assert languages.start(Strings(low=1)) >= 0
    assert languages.start(Strings(only=frozenset("a"), excluded=frozenset())) == -1


def test_words_alone() -> None:
    languages = Languages([], [])
    words = Strings(only=frozenset(("b", "", "aa", "é")))
    assert languages.words(words, 4) == ["", "b", "é", "aa"]
    assert languages.words(words, 3) is None
    assert languages.meet(words, Strings(low=1, excluded=frozenset(("b",)))).only == {"aa", "é"}
    assert languages.complement(words) == (Strings(excluded=frozenset(("b", "", "aa", "é"))),)
    assert languages.meet(Strings(low=3), Strings(high=2)).only == frozenset()
    assert languages.count(Strings(high=0), 9) == 1
    assert languages.is_empty(Strings(high=0, excluded=frozenset(("",))))
    assert not languages.is_empty(Strings(high=1, excluded=frozenset(("", "a"))))
    assert languages.words(Strings(high=0), 1) == [""]
    assert languages.count(Strings(high=1), 10**7) == 1 + 0x110000 - 0x800
    assert languages.count(Strings(high=10**12), 10**18) == 10**18


def test_unicode() -> None:
    languages = Languages(["^.$", r"^\p{Lu}+$", "^[^a]{2}$", "^\\u{1F600}$", "[\u0400-\u04ff]"], [])
    for text in ("a", "é", "日", "\U0010ffff", "\x00", "\ue000"):
        assert languages.contains(of(0), text)
        assert walks(languages, Strings(low=1, high=1), text)
    assert not languages.contains(of(0), "\u2028")
    assert not languages.contains(of(0), "e\u0301")
    assert languages.contains(of(1), "ÉŁΩ") and not languages.contains(of(1), "Éł")
    assert languages.contains(of(2), "\n😀")
    assert languages.words(of(3), 2) == ["😀"]
    assert languages.count(of(4), 10**6) == 10**6
    assert languages.count(Strings(frozenset((0, 4))), 10**6) == 0x100
    for surrogate in ("\ud800", "a\udfff"):
        assert not languages.contains(Strings(), surrogate)
        assert languages.is_empty(Strings(only=frozenset((surrogate,))))
        assert languages.complement(Strings(only=frozenset((surrogate,)))) == (Strings(),)


@pytest.mark.parametrize(
    "pattern", ["^[a-z]*$", "^[a-z][a-z0-9_]*$", "^(?:[0-9a-f]{2})+$", "^x", r"^\w+\.com$"]
)
@pytest.mark.parametrize("size", [10**9, 2**31, 10**14])
def test_great_lengths(pattern: str, size: int) -> None:
    """A count is a number, however great; nothing is spelt out."""
    languages = Languages([pattern], [])
    before = time.thread_time()
    for bounds in ((size, None), (0, size), (size, size), (5, size), (size, 2 * size)):
        for every in (frozenset((0,)), frozenset[int]()):
            strings = Strings(every, low=bounds[0], high=bounds[1])
            assert not languages.is_empty(strings)
            assert languages.count(strings, 100) == 100
            for text in ("", "xy1234.com", "xyz", "ab12"):
                assert walks(languages, strings, text) == languages.contains(strings, text)
    assert languages.arena.num_states < 1000
    assert time.thread_time() - before < 5
    with pytest.raises(UnsupportedConstraint):
        languages.sample(Strings(frozenset((0,)), low=size), random.Random(1))


def test_lengths_of_looks() -> None:
    """Where the length is no matter of one count, it is followed beside the pattern."""
    languages = Languages([r"^(?=.*\d)(?=.*[a-z]).{4,}$", "^[a-z]+(?:-[a-z]+)*$", "a.*b"], [])
    short = Strings(frozenset((0, 1, 2)), high=7)
    assert languages.is_empty(short)
    assert languages.contains(Strings(frozenset((0, 2)), high=7), "a1234b")
    assert not languages.contains(Strings(frozenset((0, 2)), high=7), "a123456b")
    for text in ("a", "ab-c", "abc-def", "abcd-efg", "abcdefgh"):
        for low, high in ((0, 7), (4, 4), (5, None)):
            strings = Strings(frozenset((1,)), low=low, high=high)
            fits = low <= len(text) <= (high or 99)
            assert languages.contains(strings, text) == walks(languages, strings, text) == fits


@pytest.mark.parametrize("pattern", PATTERNS)
def test_samples(languages: Languages, pattern: str) -> None:
    number = PATTERNS.index(pattern)
    rng = random.Random(number)
    for low, high in ((0, None), (1, 3), (3, 40)):
        strings = Strings(frozenset((number,)), low=low, high=high, excluded=frozenset(("a", "", "ab")))
        if languages.is_empty(strings):
            continue
        drawn = [languages.sample(strings, rng) for _ in range(60)]
        assert all(languages.contains(strings, text) and len(text) < 200 for text in drawn)
        # `.` is not the same in `re` where other line ends are in play.
        assert all(is_in(strings, text) for text in drawn if not set(text) & set("\r\u2028\u2029"))
        assert len(set(drawn)) >= min(10, languages.count(strings, 20) // 2)


def test_samples_vary() -> None:
    languages = Languages(["^a*$", "^[^x]{3,}$"], [])
    rng = random.Random(3)
    drawn = [languages.sample(Strings(high=30), rng) for _ in range(300)]
    assert {len(text) for text in drawn} >= {0, 1, 2, 3, 5, 8}
    assert sum(not text.isascii() for text in drawn) > 50
    assert any('"' in text for text in drawn) and any("\\" in text for text in drawn)
    assert any(character < " " for text in drawn for character in text)
    likely = frozenset("a" * size for size in range(60))
    rare = Strings(frozenset((0,)), excluded=likely)
    assert all(languages.sample(rare, rng) not in likely for _ in range(20))
    assert all(languages.contains(of(1), languages.sample(of(1), rng)) for _ in range(100))


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_formats(name: str) -> None:
    languages = Languages([], [name])
    strings = of(languages.format(name))
    assert not languages.is_empty(strings)
    rng = random.Random(7)
    drawn = [languages.sample(strings, rng) for _ in range(10)]
    assert len(set(drawn)) > 5
    assert all(languages.contains(strings, text) and walks(languages, strings, text) for text in drawn)
    if name in NARROWED:
        with pytest.raises(UnsupportedConstraint, match="not known exactly"):
            languages.complement(strings)
        for question in (languages.is_empty, languages.start, lambda one: languages.contains(one, "a")):
            with pytest.raises(UnsupportedConstraint, match="not known exactly"):
                question(Strings(none=strings.every))
    else:
        (other,) = languages.complement(strings)
        assert not any(languages.contains(other, text) for text in drawn)


def test_released(languages: Languages) -> None:
    """Expressions can be moved to the other arena, row by row, or be made anew there."""
    given = languages.release()
    first = languages.arena.num_states
    for strings in (of(6, 13), Strings(frozenset((8,)), frozenset((2,)), low=2), of(14, 15)):
        node, trackers = (
            languages.arena.run(_transfer, given.arena.store, row, NUM_FIXED) if row >= NUM_FIXED else row
            for row in given.expression(strings)
        )
        state = languages.arena.ask(START, node, trackers, -1)
        for text in SMALL:
            assert leads(languages, state, text) == walks(languages, strings, text) == is_in(strings, text)
    assert first == 0
    assert [languages.pattern(pattern) for pattern in PATTERNS] == list(range(len(PATTERNS)))


def _transfer(target: Store, source: Store, node: int, shared: int) -> int:
    return int(transfer(source, target, node, shared))


def test_numbers() -> None:
    languages = Languages(["a", "b", "a"], ["date", "date"])
    assert (languages.pattern("a"), languages.pattern("b"), languages.format("date")) == (0, 1, 2)
    with pytest.raises(KeyError):
        languages.pattern("c")
    with pytest.raises(KeyError):
        languages.format("time")


def test_faults() -> None:
    with pytest.raises(InvalidConstraint, match="offset 2") as invalid:
        Languages(["ok", "ab("], [])
    assert invalid.value.offset == 2 and invalid.value.field == "schema"
    with pytest.raises(InvalidConstraint, match=r"#/properties/x/pattern: .*offset 2"):
        Languages({"ok": "#/a", "ab(": "#/properties/x/pattern"}, [])
    with pytest.raises(UnsupportedConstraint, match="offset 3") as unsupported:
        Languages({r"(a)\1": "#/pattern"}, [])
    assert (unsupported.value.keyword, unsupported.value.path) == ("back-reference", "#/pattern")


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    languages = Languages({"^[ab]*a[ab]{9}$": "#/x", "^[ab]*b[ab]{12}$": "#/y"}, [])
    assert not languages.is_empty(of(0, 1))
    monkeypatch.setattr(arenas, "MAX_STATES", 64)
    languages = Languages({"^[ab]*a[ab]{9}$": "#/x", "^[ab]*b[ab]{12}$": "#/y"}, [])
    with pytest.raises(UnsupportedConstraint) as error:
        languages.count(of(1), 10**30)
    assert error.value.path == "#/y"
    assert languages.contains(of(1), "b" * 13)
    assert languages.words(of(1), 3) is None
    looks = [f"(?<=a{{{count}}})b" for count in range(1, 40)]
    others = [f"(?<=b{{{count}}})a" for count in range(1, 40)]
    languages = Languages([*looks, *others], [])
    with pytest.raises(UnsupportedConstraint, match="look-behind"):
        languages.start(of(*range(78)))
