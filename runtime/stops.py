"""Stop conditions on text: stop strings and a stop pattern, found while the text still arrives.

A stop is complete at the first character where one of the strings, or a match of the pattern, ends; of
several that end there, the one that begins first counts. For the pattern this is: the shortest prefix of
the text in which `re.search` finds it, cut where that match starts. The text before it is the output.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from treille.runtime.errors import ConstraintError, InvalidConstraint, InvalidRequest
from treille.runtime.grammar.automaton import Dfa
from treille.runtime.grammar.regex import regex_dfa

MAX_STATES = 1024
_CACHED = 64
_CACHED_BORDERS = 256
_ANCHOR = re.compile(r"[\^$]|\\[bBAZ]")
_GLOBAL_FLAGS = re.compile(r"(?:\(\?[aimsux]+\))*")


def check_stop_regex(pattern: str) -> None:
    """Compiles a stop pattern for the checkers that follow; raises what they would.

    This may take seconds and `StopChecker` then takes none, so do it where nobody waits.
    """
    _compile(pattern)


class StopChecker:
    """One output's search. Text goes in by pieces; what cannot belong to a stop any more comes out.

    Raises `InvalidRequest` or a `ConstraintError`, with field `stop_regex`, for a pattern that is not
    well-formed, not regular, too large, or that matches the empty text.
    """

    def __init__(self, stop: Sequence[str] = (), stop_regex: str | None = None) -> None:
        self._stops = [(text, _borders(text)) for text in stop]
        self._matched = [0] * len(self._stops)  # characters of each stop string that the text ends with
        self._pattern = None if stop_regex is None else _compile(stop_regex)
        self._threads = {} if self._pattern is None else self._pattern.begin()
        self._read = 0  # characters
        self._held = ""
        self._found: str | None = None

    def push(self, text: str) -> tuple[str, str | None]:
        """Reads a piece. Returns the text that is now certain, and the stop if one is complete.

        The stop is the string or the pattern itself. Once it is found, all further text is dropped.
        """
        if self._found is not None:
            return "", self._found
        whole = self._held + text
        first = self._read - len(self._held)  # where `whole` begins in the output
        for character in text:
            start = self._step(character)
            if start is not None:
                self._held = ""
                return whole[: start - first], self._found
        keep = self._earliest() - first
        self._held = whole[keep:]
        return whole[:keep], None

    def flush(self) -> str:
        """What was held back, when no more text comes."""
        held, self._held = self._held, ""
        return held

    def _step(self, character: str) -> int | None:
        """Reads one character; if that completes a stop, sets `_found` and returns where it starts."""
        self._read += 1
        complete: list[tuple[int, str]] = []
        for n, (text, borders) in enumerate(self._stops):
            matched = self._matched[n]
            while matched and text[matched] != character:
                matched = borders[matched - 1]
            if text[matched] == character:
                matched += 1
            self._matched[n] = matched
            if matched == len(text):
                complete.append((self._read - matched, text))
        if self._pattern is not None:
            start = self._pattern.step(self._threads, character, self._read)
            if start is not None:
                complete.append((start, self._pattern.source))
        if not complete:
            return None
        start, self._found = min(complete, key=lambda stop: stop[0])
        return start

    def _earliest(self) -> int:
        """Where the longest suffix begins that may still become a stop."""
        longest = max(self._matched, default=0)
        return min(self._read - longest, min(self._threads.values(), default=self._read))


@dataclass(frozen=True, slots=True)
class _Pattern:
    """A pattern as a table: state -> byte -> state, -1 for none; every state can come to accept.

    A thread is one way to read the pattern from one start; of those in the same state only the leftmost
    start matters, so threads are kept as {state: start}. A pattern with anchors looks at the character
    before its start: its threads begin in `first` at the start of the text, and later one character
    early, in `late`. Without anchors they begin in `first` everywhere, and `late` is None.
    """

    source: str
    table: list[list[int]]
    accepting: list[bool]
    first: int | None
    late: int | None
    anchored: bool

    def begin(self) -> dict[int, int]:
        """The threads before any text."""
        return {} if self.first is None else {self.first: 0}

    def step(self, threads: dict[int, int], character: str, read: int) -> int | None:
        """Moves the threads over the character that ends at `read`; the leftmost start that accepts.

        The thread that may start at the next character is added.
        """
        moving = dict(threads)
        if self.late is not None:
            moving[self.late] = read
        for byte in character.encode("utf-8", "surrogatepass"):
            moved: dict[int, int] = {}
            for state, start in moving.items():
                target = self.table[state][byte]
                if target >= 0 and moved.get(target, start) >= start:
                    moved[target] = start
            moving = moved
        threads.clear()
        threads.update(moving)
        found = min((start for state, start in moving.items() if self.accepting[state]), default=None)
        if not self.anchored and self.first is not None:
            threads.setdefault(self.first, read)
        return found


@lru_cache(maxsize=_CACHED)
def _compile(source: str) -> _Pattern:
    anchored = _ANCHOR.search(source) is not None
    try:
        first, late = _automata(source, anchored=anchored)
    except ConstraintError as fault:
        fault.field = "stop_regex"
        raise
    table: list[list[int]] = []
    accepting: list[bool] = []
    begins: list[int | None] = []
    for dfa in (first, late):
        begins.append(None if dfa is None else len(table))
        if dfa is not None:
            shift = len(table)
            table += [[t + shift if t >= 0 else -1 for t in row] for row in dfa.transitions.tolist()]
            accepting += dfa.accepting.tolist()
    if len(table) > MAX_STATES:
        raise InvalidRequest(
            f"stop_regex is too large: it needs {len(table)} states, the limit is {MAX_STATES}",
            field="stop_regex",
        )
    pattern = _Pattern(source, table, accepting, begins[0], begins[1], anchored)
    if any(accepting[state] for state in _starts(pattern)):
        raise InvalidRequest(
            "stop_regex matches the empty text: it would stop before anything was written",
            field="stop_regex",
        )
    return pattern


def _automata(source: str, *, anchored: bool) -> tuple[Dfa | None, Dfa | None]:
    """The pattern at the start of a text, and (only if it is `anchored`) after one more character.

    Either is None if the pattern cannot match there.
    """
    if not anchored:
        return regex_dfa(source), None
    found = _GLOBAL_FLAGS.match(source)
    flags = found.group() if found else ""
    # A verbose pattern may end in a comment; there a line break ends it and means nothing else.
    end = "\n)" if "x" in flags else ")"
    first = _automaton(source)
    late = _automaton(f"{flags}(?s:.)(?:{source[len(flags) :]}{end}")
    if isinstance(first, InvalidConstraint) and isinstance(late, InvalidConstraint):
        raise first
    return first if isinstance(first, Dfa) else None, late if isinstance(late, Dfa) else None


def _automaton(source: str) -> Dfa | InvalidConstraint:
    try:
        return regex_dfa(source)
    except InvalidConstraint as error:
        return error


def _starts(pattern: _Pattern) -> Iterator[int]:
    """The states in which nothing of a match has been read."""
    if pattern.first is not None:
        yield pattern.first
    if pattern.late is None:
        return
    # UTF-8: lead bytes, and how many continuation bytes complete the character.
    for low, high, more in ((0x00, 0x80, 0), (0xC2, 0xE0, 1), (0xE0, 0xF0, 2), (0xF0, 0xF5, 3)):
        states = set(pattern.table[pattern.late][low:high]) - {-1}
        for _ in range(more):
            states = {target for state in states for target in pattern.table[state][0x80:0xC0]} - {-1}
        yield from states


@lru_cache(maxsize=_CACHED_BORDERS)
def _borders(text: str) -> tuple[int, ...]:
    """For each prefix, the length of its longest border: a proper prefix that is also a suffix.

    Kept, since all samples of a request look for the same texts.
    """
    borders = [0] * len(text)
    length = 0
    for n in range(1, len(text)):
        while length and text[n] != text[length]:
            length = borders[length - 1]
        if text[n] == text[length]:
            length += 1
        borders[n] = length
    return tuple(borders)
