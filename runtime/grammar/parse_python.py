r"""Regular expressions in the dialect of Python's `re`, as trees.

The reading is `re`'s own: its parser reads the pattern, and what it makes is turned into our tree. Measured
against interegular's descent with leaves of our own, which this was before, that is seven to eleven times as
fast (a date in 90 microseconds instead of 700), and it cannot differ from `re`. What `re`'s tree lacks, the
offsets of what is refused, is looked for in the text when it is needed.

Exact: literals, all escapes, classes, `.`, groups, alternation, greedy and lazy repetition (counts stay
numbers), flags `aimsux` for all or part of the pattern, `^ $ \A \Z \b \B`, look-ahead and look-behind.
Refused: back-references and conditionals (not regular), possessive repetition and atomic groups, and what
looks ahead inside of a look-behind.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from functools import cache, lru_cache
from re import _constants as ops
from re import _parser
from typing import Any

from treille.runtime.errors import ConstraintError, InvalidConstraint, UnsupportedConstraint
from treille.runtime.grammar import charset
from treille.runtime.grammar.limits import Budget
from treille.runtime.grammar.parse_common import (
    BEGIN,
    BEGIN_LINE,
    END,
    END_LINE,
    END_OR_LAST_NEWLINE,
    MAX_NESTING,
    ClassLimit,
    in_sequence,
    no_word_boundary,
    too_deep,
    word_boundary,
)
from treille.runtime.grammar.python_offsets import find_refused, nesting
from treille.runtime.grammar.tree import ANY, Chars, Choice, Look, Repeat, Tree

_KNOWN_FLAGS = re.ASCII | re.IGNORECASE | re.MULTILINE | re.DOTALL | re.UNICODE | re.VERBOSE | re.LOCALE
_TYPE_FLAGS = int(re.ASCII | re.UNICODE)
_IGNORE_CASE, _ASCII = int(re.IGNORECASE), int(re.ASCII)
_MULTILINE, _DOTALL = int(re.MULTILINE), int(re.DOTALL)
_NOT_NEWLINE = Chars(charset.complement(charset.NEWLINE))

# `re` warns of classes that may once mean something else. Silence is not free, and not safe among threads.
_AMBIGUOUS = re.compile(r"\[\[|--|&&|~~|\|\||\(\?\(")
_CATEGORIES = {
    ops.CATEGORY_DIGIT: "d",
    ops.CATEGORY_NOT_DIGIT: "D",
    ops.CATEGORY_SPACE: "s",
    ops.CATEGORY_NOT_SPACE: "S",
    ops.CATEGORY_WORD: "w",
    ops.CATEGORY_NOT_WORD: "W",
}
_MAX_CACHED_ITEMS = 64

_REASONS = {
    "back-reference": "its language is not regular",
    "conditional": "its language is not regular",
    "possessive repetition": "it depends on the order in which `re` searches",
    "atomic group": "it depends on the order in which `re` searches",
}


def parse_python(pattern: str, flags: int = 0, *, budget: Budget | None = None) -> Tree:
    """The tree of a pattern as `re` reads it with these flags.

    Raises `InvalidConstraint` (with the offset) for what `re` does not compile, and
    `UnsupportedConstraint` (with construct and offset) for what is refused, past 64 nested groups, and past
    the budget's time or the memory that its classes may take.
    """
    if not isinstance(pattern, str):
        raise InvalidConstraint("a pattern is a string")
    limit = ClassLimit(budget or Budget("regex"))
    flags = int(flags & _KNOWN_FLAGS)
    verbose = bool(flags & re.VERBOSE)
    if pattern.count("(") > MAX_NESTING and nesting(pattern, verbose=verbose) > MAX_NESTING:
        raise too_deep()
    try:
        parsed = _parsed_by_re(pattern, flags)
        return _Reader(limit).sequence(parsed, int(parsed.state.flags), behind=False)
    except re.error as error:
        raise InvalidConstraint(error.msg, offset=error.pos) from None
    except ConstraintError:  # a ValueError, too
        raise
    except (OverflowError, ValueError) as error:
        raise InvalidConstraint(str(error)) from None
    except RecursionError:
        raise too_deep() from None
    except _Refused:
        raise _refusal(pattern, verbose=verbose) from None


class _Refused(Exception):
    """The pattern has a construct that is refused; where, the text has to say."""


def _parsed_by_re(pattern: str, flags: int) -> Any:
    # Not `re.compile`: that also lays out every class, in minutes for some short patterns.
    if _AMBIGUOUS.search(pattern) is None:
        return _parser.parse(pattern, flags)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _parser.parse(pattern, flags)


def _refusal(pattern: str, *, verbose: bool) -> UnsupportedConstraint:
    found = find_refused(pattern, verbose=verbose)
    if found is None:
        return UnsupportedConstraint("pattern", "offset 0", "it has a construct that is not supported")
    reason = _REASONS.get(found.keyword, "what looks ahead inside of a look-behind is not supported")
    return UnsupportedConstraint(found.keyword, f"offset {found.offset}", reason)


class _Reader:
    """Turns what `re` has of one pattern into our tree."""

    def __init__(self, limit: ClassLimit) -> None:
        self._limit = limit

    def sequence(self, items: Iterable[tuple[Any, Any]], flags: int, *, behind: bool) -> Tree:
        """The tree of what `re` has as a list of operations, under these flags."""
        parts: list[Tree] = []
        plain = flags & (_IGNORE_CASE | _ASCII)
        for op, value in items:
            if op is ops.LITERAL:
                parts.append(_literal(value, plain))
            elif op is ops.IN:
                parts.append(self._class(value, plain))
            elif op is ops.MAX_REPEAT or op is ops.MIN_REPEAT:
                low, high, body = value
                tree = self.sequence(body, flags, behind=behind)
                bound = None if high is ops.MAXREPEAT else int(high)
                parts.append(Repeat(tree, int(low), bound, op is ops.MIN_REPEAT))
            elif op is ops.SUBPATTERN:
                _, added, removed, body = value
                inner = ((flags & ~_TYPE_FLAGS if added & _TYPE_FLAGS else flags) | added) & ~removed
                parts.append(self.sequence(body, inner, behind=behind))
            elif op is ops.BRANCH:
                parts.append(Choice(tuple([self.sequence(one, flags, behind=behind) for one in value[1]])))
            elif op is ops.ANY:
                parts.append(ANY if flags & _DOTALL else _NOT_NEWLINE)
            elif op is ops.AT:
                parts.append(self._anchor(value, flags & (_MULTILINE | _ASCII), behind=behind))
            elif op is ops.NOT_LITERAL:
                parts.append(_not_literal(value, plain))
            elif op is ops.ASSERT or op is ops.ASSERT_NOT:
                parts.append(self._look(value, flags, negated=op is ops.ASSERT_NOT, behind=behind))
            else:
                raise _Refused
        return in_sequence(parts)

    def _look(self, value: tuple[int, Any], flags: int, *, negated: bool, behind: bool) -> Tree:
        direction, body = value
        if direction > 0:
            if behind:
                raise _Refused
            return Look(self.sequence(body, flags, behind=False), behind=False, negated=negated)
        shortest, longest = body.getwidth()
        if shortest != longest:
            raise re.error("look-behind requires fixed-width pattern")
        return Look(self.sequence(body, flags, behind=True), behind=True, negated=negated)

    def _anchor(self, value: Any, flags: int, *, behind: bool) -> Tree:
        if value is ops.AT_BEGINNING:
            return BEGIN_LINE if flags & _MULTILINE else BEGIN
        if value is ops.AT_BEGINNING_STRING:
            return BEGIN
        if behind:
            raise _Refused
        if value is ops.AT_END:
            return END_LINE if flags & _MULTILINE else END_OR_LAST_NEWLINE
        if value is ops.AT_END_STRING:
            return END
        return _boundary(value is ops.AT_NON_BOUNDARY, bool(flags & _ASCII))

    def _class(self, items: list[tuple[Any, Any]], flags: int) -> Chars:
        if len(items) > _MAX_CACHED_ITEMS:
            return self._limit.checked(_class_set(items, flags))
        return self._limit.checked(_cached_class(tuple(items), flags))


@cache
def _boundary(negated: bool, ascii_only: bool) -> Tree:  # noqa: FBT001
    words = charset.category("w", ascii_only=ascii_only)
    if not negated:
        return word_boundary(words)
    # Up to Python 3.13 the empty text has neither a boundary nor a place without one.
    return no_word_boundary(words, in_empty_text=re.fullmatch(r"\B", "") is not None)


@lru_cache(maxsize=1024)
def _literal(code: int, flags: int) -> Chars:
    return Chars(_folded(charset.make_set([(code, code)]), flags))


@lru_cache(maxsize=256)
def _not_literal(code: int, flags: int) -> Chars:
    return Chars(charset.complement(_literal(code, flags).ranges))


@lru_cache(maxsize=256)
def _cached_class(items: tuple[tuple[Any, Any], ...], flags: int) -> Chars:
    return _class_set(items, flags)


def _class_set(items: Iterable[tuple[Any, Any]], flags: int) -> Chars:
    negated = False
    pairs: list[tuple[int, int]] = []
    categories: list[charset.Ranges] = []
    for op, value in items:
        if op is ops.LITERAL:
            if value <= 0xFFFF or not flags & _IGNORE_CASE or _is_matched_by_class(value, flags):
                pairs.append((value, value))
        elif op is ops.RANGE:
            pairs.append(value)
        elif op is ops.CATEGORY:
            letter = _CATEGORIES[value]
            categories.append(charset.category(letter, ascii_only=bool(flags & _ASCII)))
        elif op is ops.NEGATE:
            negated = True
        else:
            raise _Refused
    ranges = _folded(charset.make_set(pairs), flags)
    if categories:
        ranges = charset.union(ranges, *categories)
    return Chars(charset.complement(ranges) if negated else ranges)


def _is_matched_by_class(code: int, flags: int) -> bool:
    """Whether a character outside the BMP, as a part of a class, matches anything without regard to case.

    `re` lower-cases the text and, up to some version, not these: upper-case ones match nothing.
    """
    return bool(flags & _ASCII) or chr(code).lower() == chr(code) or _lowers_classes()


@cache
def _lowers_classes() -> bool:
    return re.fullmatch("(?i)[a\U00010400]", "\U00010400") is not None


def _folded(ranges: charset.Ranges, flags: int) -> charset.Ranges:
    if not flags & _IGNORE_CASE:
        return ranges
    return charset.ignore_case(ranges, ascii_only=bool(flags & _ASCII))
