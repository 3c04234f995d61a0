r"""Regular expressions in the dialect of ECMA-262 with the u flag, as trees: JSON Schema's `pattern`.

All of Pattern[+U, +N] (https://tc39.es/ecma262/#sec-patterns): sets as `\d \w \s` are ASCII or ECMA's own,
`.` leaves out four line ends, `$` is the very end, `\b` looks for ASCII words. A lone surrogate is in no
text. Refused: back-references, modifiers as in `(?i:...)`, what looks ahead inside of a look-behind, and
properties that `unicode_sets` does not have.

Schemas are written for engines without the u flag too. What it forbids and they all read in one way is
taken (Annex B): a `\` before a sign that is no ASCII letter or digit means the sign; `{`, `}` and `]` are
themselves where they begin or end nothing; a `-` next to a set in a class, as in `[\w-.]`, is itself. A group
name may come twice.
"""

from __future__ import annotations

import re
from functools import lru_cache

from treille.runtime.errors import ConstraintError, InvalidConstraint, UnsupportedConstraint
from treille.runtime.grammar import charset, unicode_sets
from treille.runtime.grammar.charset import Ranges
from treille.runtime.grammar.limits import Budget
from treille.runtime.grammar.parse_common import (
    BEGIN,
    END,
    MAX_NESTING,
    ClassLimit,
    in_sequence,
    no_word_boundary,
    one_char,
    too_deep,
    word_boundary,
)
from treille.runtime.grammar.tree import ANY, Chars, Choice, Look, Repeat, Sequence, Tree

_DOT = Chars(charset.complement(unicode_sets.LINE_ENDS))
_SETS = {letter: Chars(unicode_sets.ecma_category(letter)) for letter in "dDsSwW"}
_BOUNDARY = word_boundary(unicode_sets.WORDS)
_NO_BOUNDARY = no_word_boundary(unicode_sets.WORDS, in_empty_text=True)
_ANY_TEXT = Repeat(ANY, 0, None)

_CONTROLS = {"f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_HEX = "[0-9a-fA-F]"
_ESCAPE = re.compile(
    rf"\\(?:u([dD][89abAB]{_HEX}{{2}})\\u([dD][c-fC-F]{_HEX}{{2}})|(?:u({_HEX}{{4}})|u\{{({_HEX}+)\}}|x({_HEX}{{2}}))"
    r"|(0)(?![0-9])|([fnrtv])|c([A-Za-z])|([^A-Za-z0-9]))",
    re.DOTALL,
)
_PROPERTY = re.compile(r"\\([pP])\{([^}]*)\}")
_QUANTIFIER = re.compile(r"(?:([*+?])|\{([0-9]+)(?:(,)([0-9]*))?\})(\??)")
_BOUNDS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_MAX_COUNT = 2**32 - 2
_CLASS = re.compile(r"\[\^?(?:[^\]\\]|\\.)*\]", re.DOTALL)
_GROUP = re.compile(r"\((?:\?(?:(:)|(<?)([=!])|<((?:[^>\\=!]|\\u\{?[0-9a-fA-F]+\}?)[^>]*)>))?")
_MODIFIERS = re.compile(r"\(\?[ims]*(?:-[ims]*)?:")
_CAPTURE = re.compile(r"\\.|\[(?:[^\]\\]|\\.)*\]|(\((?!\?)|\(\?<(?![=!]))", re.DOTALL)
_NAME_ESCAPE = re.compile(rf"\\u(?:\{{({_HEX}{{1,6}})\}}|({_HEX}{{4}}))")
_SPECIAL = frozenset("^$\\.*+?()[{|")


def parse_ecma(pattern: str, *, budget: Budget | None = None) -> Tree:
    """The tree of a pattern itself: what it matches, not where.

    Raises `InvalidConstraint` (with the offset) for what is no pattern, and `UnsupportedConstraint` (with
    construct and offset) for what is refused, past 64 nested groups, and past the budget's time or the memory
    that its classes may take.
    """
    if not isinstance(pattern, str):
        raise InvalidConstraint("a pattern is a string")
    parser = _Parser(pattern, ClassLimit(budget or Budget("regex")))
    try:
        tree = parser.disjunction(0, behind=False)
    except RecursionError:
        raise too_deep() from None
    if parser.at < len(pattern):
        raise InvalidConstraint("unbalanced parenthesis", offset=parser.at)
    return tree


def search_tree(tree: Tree) -> Tree:
    """The tree of the texts that have a match of `tree` somewhere.

    An anchor at the edge of an option needs no text around it, and goes; all others stay.
    """
    options = tree.options if isinstance(tree, Choice) else (tree,)
    cut = [_without_anchors(option) for option in options]
    if not any(begins or ends for _, begins, ends in cut):
        return Sequence((_ANY_TEXT, tree, _ANY_TEXT))
    found: list[Tree] = []
    for parts, begins, ends in cut:
        around = (parts if begins else (_ANY_TEXT, *parts)) if ends else (*parts, _ANY_TEXT)
        if not begins and not ends:
            around = (_ANY_TEXT, *parts, _ANY_TEXT)
        found.append(in_sequence(list(around)))
    return found[0] if len(found) == 1 else Choice(tuple(found))


def _without_anchors(tree: Tree) -> tuple[tuple[Tree, ...], bool, bool]:
    """The parts of an option without the anchors at its edges, and whether there were any."""
    parts = tree.parts if isinstance(tree, Sequence) else (tree,)
    first, last = 0, len(parts)
    while first < last and parts[first] == BEGIN:
        first += 1
    while last > first and parts[last - 1] == END:
        last -= 1
    return parts[first:last], first > 0, last < len(parts)


class _Parser:
    """One reading of a pattern from left to right; `at` is where it stands."""

    def __init__(self, pattern: str, limit: ClassLimit) -> None:
        self.pattern = pattern
        self._limit = limit
        self.at = 0

    def disjunction(self, depth: int, *, behind: bool) -> Tree:
        """Alternatives, up to their `)` or the end."""
        if depth > MAX_NESTING:
            raise too_deep()
        pattern = self.pattern
        first = self._alternative(depth, behind=behind)
        if not pattern.startswith("|", self.at):
            return first
        options = [first]
        while pattern.startswith("|", self.at):
            self.at += 1
            options.append(self._alternative(depth, behind=behind))
        return Choice(tuple(options))

    def _alternative(self, depth: int, *, behind: bool) -> Tree:
        pattern, size = self.pattern, len(self.pattern)
        parts: list[Tree] = []
        while self.at < size:
            sign = pattern[self.at]
            if sign not in _SPECIAL:
                self.at += 1
                part: Tree = one_char(ord(sign))
            elif sign == "|" or sign == ")":
                break
            else:
                found = self._special(sign, depth, behind=behind)
                if isinstance(found, Look) or found is _BOUNDARY or found is _NO_BOUNDARY:
                    parts.append(found)
                    continue
                part = found
            if self.at < size and pattern[self.at] in "*+?{":
                part = self._repeated(part)
            parts.append(part)
        return in_sequence(parts)

    def _special(self, sign: str, depth: int, *, behind: bool) -> Tree:
        """What begins with a sign of the syntax."""
        if sign == "\\":
            return self._escape(behind=behind)
        if sign == "[":
            return self._class()
        if sign == "(":
            return self._group(depth, behind=behind)
        if sign in "*+?" or (sign == "{" and _QUANTIFIER.match(self.pattern, self.at)):
            raise InvalidConstraint("nothing to repeat", offset=self.at)
        if sign == "$" and behind:
            raise self._looks_ahead("`$`")
        self.at += 1
        if sign == ".":
            return _DOT
        if sign == "{":
            return one_char(ord(sign))
        return BEGIN if sign == "^" else END

    def _repeated(self, body: Tree) -> Tree:
        found = _QUANTIFIER.match(self.pattern, self.at)
        if found is None:
            return body
        sign, first, comma, second, lazy = found.groups()
        if sign:
            low, high = _BOUNDS[sign]
        else:
            if max(len(first), len(second or "")) > 10 or max(int(first), int(second or 0)) > _MAX_COUNT:
                raise UnsupportedConstraint("repetition", f"offset {self.at}", "the number is too large")
            low = int(first)
            high = (int(second) if second else None) if comma else low
            if high is not None and high < low:
                raise InvalidConstraint("numbers out of order in repetition", offset=self.at)
        self.at = found.end()
        return Repeat(body, low, high, bool(lazy))

    def _group(self, depth: int, *, behind: bool) -> Tree:
        start = self.at
        found = _GROUP.match(self.pattern, start)
        if found is None or (found.end() == start + 1 and self.pattern.startswith("?", start + 1)):
            raise self._bad_group()
        _, back, sign, name = found.groups()
        if name is not None and not _is_name(name):
            raise InvalidConstraint("bad character in group name", offset=start + 3)
        if sign and not back and behind:
            raise self._looks_ahead("look-ahead")
        self.at = found.end()
        body = self.disjunction(depth + 1, behind=behind or bool(sign and back))
        if self.at >= len(self.pattern):
            raise InvalidConstraint("missing ), unterminated subpattern", offset=start)
        self.at += 1
        if sign:
            return Look(body, behind=bool(back), negated=sign == "!")
        # A group of nothing but an assertion may be repeated, and must not look like the bare assertion.
        return Sequence((body,)) if isinstance(body, Look) or body in (_BOUNDARY, _NO_BOUNDARY) else body

    def _bad_group(self) -> ConstraintError:
        if _MODIFIERS.match(self.pattern, self.at):
            return UnsupportedConstraint("modifiers", f"offset {self.at}", "flags are not supported")
        return InvalidConstraint("ECMA-262 has no such group", offset=self.at)

    def _class(self) -> Chars:
        found = _CLASS.match(self.pattern, self.at)
        if found is None:
            raise InvalidConstraint("unterminated character set", offset=self.at)
        start, self.at = self.at, found.end()
        try:
            return self._limit.checked(_class_of(found[0]))
        except _ClassError as error:
            raise error.at(start) from None

    def _escape(self, *, behind: bool) -> Tree:
        r"""What a `\` outside of classes means."""
        pattern, at = self.pattern, self.at
        letter = pattern[at + 1 : at + 2]
        if letter and letter in "dDsSwW":
            self.at += 2
            return _SETS[letter]
        if letter and letter in "bB":
            if behind:
                raise self._looks_ahead(f"`\\{letter}`")
            self.at += 2
            return _BOUNDARY if letter == "b" else _NO_BOUNDARY
        if letter and letter in "123456789k":
            raise self._reference()
        try:
            found, self.at = _escaped(pattern, at)
        except _ClassError as error:
            raise error.at(0) from None
        return one_char(found) if isinstance(found, int) else self._limit.checked(_chars(found))

    def _reference(self) -> ConstraintError:
        """What is wrong with a back-reference: it is none, or it is one."""
        found = re.compile(r"\\(?:([0-9]+)|k<([^>]*)>)").match(self.pattern, self.at)
        captures = [one for one in _CAPTURE.finditer(self.pattern) if one[1]]
        if found is None or (found[2] is not None and f"(?<{found[2]}>" not in self.pattern):
            return InvalidConstraint("unknown group name", offset=self.at)
        if found[1] and int(found[1][:9]) > len(captures):
            return InvalidConstraint(f"invalid group reference {found[1][:9]}", offset=self.at)
        return UnsupportedConstraint("back-reference", f"offset {self.at}", "its language is not regular")

    def _looks_ahead(self, what: str) -> UnsupportedConstraint:
        reason = "what looks ahead inside of a look-behind is not supported"
        return UnsupportedConstraint(f"{what} in look-behind", f"offset {self.at}", reason)


class _ClassError(Exception):
    """A fault inside of a piece of a pattern, at an offset in it; a keyword if it is well-formed."""

    def __init__(self, message: str, offset: int, keyword: str = "") -> None:
        super().__init__(message)
        self.message, self.offset, self.keyword = message, offset, keyword

    def at(self, start: int) -> ConstraintError:
        """The error to raise, for a piece that begins at `start`."""
        offset = start + self.offset
        if self.keyword:
            return UnsupportedConstraint(self.keyword, f"offset {offset}", self.message)
        return InvalidConstraint(self.message, offset=offset)


def _escaped(text: str, at: int) -> tuple[int | Ranges, int]:
    r"""The code or set of the escape at an offset, in a class or outside, and where it ends."""
    found = _ESCAPE.match(text, at)
    if found is None:
        return _property(text, at)
    high, low, four, braced, two, null, control, letter, identity = found.groups()
    if identity:
        code = ord(identity)
    elif high:
        code = 0x10000 + ((int(high, 16) & 0x3FF) << 10) + (int(low, 16) & 0x3FF)
    elif letter:
        code = ord(letter) & 31
    elif control:
        code = _CONTROLS[control]
    else:
        code = int(four or braced or two or null, 16)
    if code > charset.MAX_CODE_POINT:
        raise _ClassError("code point out of range", at)
    return code, found.end()


def _property(text: str, at: int) -> tuple[Ranges, int]:
    found = _PROPERTY.match(text, at)
    if found is None or not unicode_sets.is_property_text(found[2]):
        raise _ClassError(
            f"bad escape {text[at : at + 2]}" + ("" if text[at + 1 :] else " (end of pattern)"), at
        )
    ranges = unicode_sets.unicode_property(found[2])
    if ranges is None:
        raise _ClassError("this property is not known", at, f"\\{found[1]}{{{found[2]}}}")
    return _complement(ranges) if found[1] == "P" else ranges, found.end()


@lru_cache(maxsize=128)
def _complement(ranges: Ranges) -> Ranges:
    return charset.complement(ranges)


@lru_cache(maxsize=128)
def _chars(ranges: Ranges) -> Chars:
    return Chars(ranges)


@lru_cache(maxsize=256)
def _class_of(text: str) -> Chars:
    """The set of a class, given with its brackets."""
    negated = text.startswith("[^")
    at = 2 if negated else 1
    pairs: list[tuple[int, int]] = []
    end = len(text) - 1
    while at < end:
        start = at
        first, at = _class_part(text, at)
        if at + 1 < end and text[at] == "-":
            last, at = _class_part(text, at + 1)
            if isinstance(first, int) and isinstance(last, int):
                if last < first:
                    raise _ClassError(f"bad character range {text[start:at]}", start)
                pairs.append((first, last))
                continue
            pairs.append((45, 45))
            pairs.extend(((last, last),) if isinstance(last, int) else last)
        pairs.extend(((first, first),) if isinstance(first, int) else first)
    ranges = charset.make_set(pairs)
    return Chars(charset.complement(ranges) if negated else ranges)


def _class_part(text: str, at: int) -> tuple[int | Ranges, int]:
    if text[at] != "\\":
        return ord(text[at]), at + 1
    letter = text[at + 1]
    if letter == "b":
        return 8, at + 2
    if letter in "dDsSwW":
        return unicode_sets.ecma_category(letter), at + 2
    return _escaped(text, at)


def _is_name(name: str) -> bool:
    plain = _NAME_ESCAPE.sub(lambda found: chr(min(int(found[1] or found[2], 16), 0x10FFFF)), name)
    return re.sub("[$\u200c\u200d]", "_", plain).isidentifier()
