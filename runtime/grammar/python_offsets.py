r"""Where in a Python pattern a construct stands that cannot be enforced.

Only the way to an error comes here: `re`'s own tree has no offsets, so the text is read once more, for no
more than what may hide a construct (escapes, classes, comments, verbose white space) and the nesting.
The pattern must be one that `re` takes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_CLASS = re.compile(r"\[\^?(?:\]|\\.|[^\]\\])(?:\\.|[^\]\\])*\]", re.DOTALL)
_COMMENT = re.compile(r"\(\?#(?:[^)\\]|\\.)*\)?", re.DOTALL)
_VERBOSE_BLANK = re.compile(r"[ \t\n\r\v\f]+|#(?:[^\n\\]|\\.)*\n?", re.DOTALL)
_GLOBAL_FLAGS = re.compile(r"\(\?[aimsux]+\)")
_LOCAL_FLAGS = re.compile(r"\(\?([aimsux]*)(?:-([imsx]+))?:")
_QUANTIFIER = re.compile(r"(?:[*+?]|\{(?!\})[0-9]*(?:,[0-9]*)?\})(\??)(\+?)")
_ESCAPE = re.compile(r"\\(?:N\{[^}]*\}|([0-3][0-7]{2})|([1-9])|(.))", re.DOTALL)
_OPENING = re.compile(r"\(\?(?:P=|\(|>|<?[=!]|P?<[^>]*>)|\(")
_GROUPS = {"(?P=": "back-reference", "(?(": "conditional", "(?>": "atomic group"}


@dataclass(frozen=True, slots=True)
class Construct:
    """A construct and its offset in the pattern."""

    keyword: str
    offset: int


def find_refused(pattern: str, *, verbose: bool) -> Construct | None:
    """The first construct of a pattern that has no place in our trees, or None.

    That is a back-reference, a conditional, an atomic group or a possessive repetition, and inside of a
    look-behind whatever looks ahead: a look-ahead, the end of a text or line, a word boundary.
    """
    return _Scan(pattern, verbose=verbose).first_refused()


def nesting(pattern: str, *, verbose: bool) -> int:
    """How many groups stand inside of each other at most. The pattern need not be well-formed."""
    scan = _Scan(pattern, verbose=verbose)
    while scan.step() is not None:
        pass
    return scan.deepest


class _Scan:
    """One reading of a pattern from left to right."""

    def __init__(self, pattern: str, *, verbose: bool) -> None:
        self._pattern = pattern
        self._at = 0
        self._verbose = verbose
        self._outer: list[tuple[bool, bool]] = []  # for every open group: verbose and behind, outside of it
        self._behind = False
        self.deepest = 0

    def first_refused(self) -> Construct | None:
        at = self._at
        while (found := self.step()) is not None:
            if found:
                return Construct(found, at)
            at = self._at
        return None

    def step(self) -> str | None:
        """Reads one sign; returns its keyword if it is refused, an empty one if not, None at the end."""
        if self._at >= len(self._pattern):
            return None
        sign = self._pattern[self._at]
        blank = _COMMENT.match(self._pattern, self._at)
        if blank is None and self._verbose:
            blank = _VERBOSE_BLANK.match(self._pattern, self._at)
        if blank is not None:
            return self._past(blank)
        if sign == "\\":
            return self._escape()
        if sign == "(":
            return self._open()
        if sign == ")" and self._outer:
            self._verbose, self._behind = self._outer.pop()
        elif sign == "[" and (found := _CLASS.match(self._pattern, self._at)) is not None:
            return self._past(found)
        elif sign in "*+?{" and (found := _QUANTIFIER.match(self._pattern, self._at)) is not None:
            return self._past(found, "possessive repetition" if found[2] and not found[1] else "")
        self._at += 1
        return "`$` in look-behind" if sign == "$" and self._behind else ""

    def _past(self, found: re.Match[str], keyword: str = "") -> str:
        self._at = found.end()
        return keyword

    def _escape(self) -> str:
        found = _ESCAPE.match(self._pattern, self._at)
        if found is None:
            self._at += 1
            return ""
        if found[2]:
            return self._past(found, "back-reference")
        if self._behind and found[3] and found[3] in "bBZz":
            return self._past(found, f"`{found[0]}` in look-behind")
        return self._past(found)

    def _open(self) -> str:
        if (found := _GLOBAL_FLAGS.match(self._pattern, self._at)) is not None:
            self._verbose |= "x" in found[0]
            return self._past(found)
        inner, behind = self._verbose, self._behind
        keyword = ""
        if (found := _LOCAL_FLAGS.match(self._pattern, self._at)) is not None:
            inner = (inner or "x" in found[1]) and "x" not in (found[2] or "")
        elif (found := _OPENING.match(self._pattern, self._at)) is not None:
            keyword = _GROUPS.get(found[0], "")
            if found[0] in ("(?=", "(?!") and behind:
                keyword = "look-ahead in look-behind"
            behind = behind or found[0] in ("(?<=", "(?<!")
        self._outer.append((self._verbose, self._behind))
        self.deepest = max(self.deepest, len(self._outer))
        self._verbose, self._behind = inner, behind
        self._at = found.end() if found is not None else self._at + 1
        return keyword
