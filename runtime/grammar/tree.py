"""Regular expressions as data: what the parsers make and the automata are built from.

Groups vanish, anchors and word boundaries are `Look`s, flags are already worked into the sets. The order of
a `Choice` and the laziness of a `Repeat` do not change which texts match whole, but they decide how much of
a longer text `re.match` takes; grammars with a lexer need to know.
"""

from __future__ import annotations

from dataclasses import dataclass

from treille.runtime.grammar import charset
from treille.runtime.grammar.charset import Ranges


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of a set."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Sequence:
    """One part after the other; without parts, the empty text."""

    parts: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the options, the earlier preferred; without options, nothing matches."""

    options: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """From `low` to `high` times the body (None: any number); `lazy` prefers fewer."""

    body: Tree
    low: int
    high: int | None
    lazy: bool = False


@dataclass(frozen=True, slots=True)
class Look:
    """Reads nothing: what follows (stands before, if `behind`) begins (ends) with the body, or must not."""

    body: Tree
    behind: bool
    negated: bool


Tree = Chars | Sequence | Choice | Repeat | Look

EMPTY_TEXT = Sequence(())
NOTHING = Choice(())
ANY = Chars(charset.SCALARS)
