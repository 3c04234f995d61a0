"""What both regex parsers need: the assertions as trees, and the limit on nesting."""

from __future__ import annotations

from functools import lru_cache

from treille.runtime.errors import UnsupportedConstraint
from treille.runtime.grammar import charset
from treille.runtime.grammar.charset import Ranges
from treille.runtime.grammar.limits import Budget
from treille.runtime.grammar.tree import ANY, EMPTY_TEXT, Chars, Choice, Look, Sequence, Tree

MAX_NESTING = 64
"""Groups inside of groups. Every later stage recurses over the tree, with a few frames for each."""

MAX_RANGES = 1_000_000
"""Ranges of characters that the classes of a pattern may have in all; each takes some 100 bytes."""
_FEW_RANGES = 32

_NEWLINE = Chars(charset.NEWLINE)
_NOT_NEWLINE = Chars(charset.complement(charset.NEWLINE))

BEGIN = Look(ANY, behind=True, negated=True)
"""The start of the text."""
END = Look(ANY, behind=False, negated=True)
"""The end of the text."""
BEGIN_LINE = Look(_NOT_NEWLINE, behind=True, negated=True)
"""The start of the text, or after a newline."""
END_LINE = Look(_NOT_NEWLINE, behind=False, negated=True)
"""The end of the text, or before a newline."""
END_OR_LAST_NEWLINE = Look(Choice((_NOT_NEWLINE, Sequence((_NEWLINE, ANY)))), behind=False, negated=True)
"""The end of the text, or before a newline that ends it: the `$` of Python."""


def word_boundary(words: Ranges) -> Tree:
    """Where one side has a character of `words` and the other has none."""
    before, not_before, after, not_after = _sides(words)
    return Choice((Sequence((before, not_after)), Sequence((not_before, after))))


def no_word_boundary(words: Ranges, *, in_empty_text: bool) -> Tree:
    """Where both sides have a character of `words`, or none; in the empty text only if asked for."""
    before, not_before, after, not_after = _sides(words)
    neither: tuple[Tree, ...] = (not_before, not_after)
    if not in_empty_text:
        something = Choice((Look(ANY, behind=True, negated=False), Look(ANY, behind=False, negated=False)))
        neither = (*neither, something)
    return Choice((Sequence((before, after)), Sequence(neither)))


class ClassLimit:
    """Keeps the classes of one pattern within the time of a budget and within memory."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._num_ranges = 0
        self._seen: set[int] = set()  # the ids of classes, which live in the tree or in a cache

    def checked(self, chars: Chars) -> Chars:
        """The class itself; raises `UnsupportedConstraint` if it is one too many."""
        self._budget.check_time()
        if len(chars.ranges) > _FEW_RANGES and id(chars) not in self._seen:
            self._seen.add(id(chars))
            self._num_ranges += len(chars.ranges)
            if self._num_ranges > MAX_RANGES:
                raise self._budget.exceeded("its classes have too many ranges of characters")
        return chars


@lru_cache(maxsize=1024)
def one_char(code: int) -> Chars:
    """A leaf for one code point; a surrogate is in no text."""
    return Chars(charset.make_set([(code, code)]))


def in_sequence(parts: list[Tree]) -> Tree:
    """The parts one after the other, without a wrapper for a single one."""
    if len(parts) == 1:
        return parts[0]
    return Sequence(tuple(parts)) if parts else EMPTY_TEXT


def too_deep() -> UnsupportedConstraint:
    """What to raise for groups nested past the limit."""
    return UnsupportedConstraint("nesting", "offset 0", "groups are nested too deeply")


def _sides(words: Ranges) -> tuple[Tree, Tree, Tree, Tree]:
    one = Chars(words)
    return (
        Look(one, behind=True, negated=False),
        Look(one, behind=True, negated=True),
        Look(one, behind=False, negated=False),
        Look(one, behind=False, negated=True),
    )
