r"""Regular expressions in the dialect of Python's `re`, as a full match, to automata.

`re` itself says first whether a pattern is well-formed. Then the pattern is parsed by interegular's
parser, with all of its leaves replaced: its own know neither Unicode classes, flags, anchors,
offsets, nor several spellings that `re` takes (`[]a]`, `a{x}`, `(?#...)`, verbose patterns). What
`re` accepts and this parser cannot follow to the last character is refused.

Exact: literals, all escapes, classes, `.`, groups, alternation, greedy and lazy repetition, flags
`aimsux` for all or part of the pattern, `^ $ \A \Z \b \B`. Refused: back-references and
conditionals (not regular), look-around, possessive repetition and atomic groups.
"""

from __future__ import annotations

import re
import unicodedata
import warnings
from dataclasses import dataclass
from re import _parser  # type: ignore[attr-defined]
from typing import Any

from interegular.patterns import Pattern, _Concatenation, _ParsePattern, _Repeated
from interegular.utils.simple_parser import nomatch

from treille.runtime.errors import InvalidConstraint, UnsupportedConstraint
from treille.runtime.grammar import charset
from treille.runtime.grammar.automaton import Dfa, minimize
from treille.runtime.grammar.charset import Ranges
from treille.runtime.grammar.limits import MAX_NFA_STATES, Budget
from treille.runtime.grammar.nfa import Assertion, ClassDfa, Nfa
from treille.runtime.grammar.subset import load_loops
from treille.runtime.grammar.utf8 import to_bytes

_CONTROLS = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}
_FLAGS = {
    "a": re.ASCII,
    "i": re.IGNORECASE,
    "m": re.MULTILINE,
    "s": re.DOTALL,
    "u": re.UNICODE,
    "x": re.VERBOSE,
}
# In comments too, `re` takes a backslash and what follows for one sign, which ends nothing.
_BLANK = re.compile(r"\(\?[aimsux]+\)|\(\?#(?:[^)\\]|\\.)*\)", re.DOTALL)
_VERBOSE_BLANK = re.compile(r"[ \t\n\r\v\f]+|#(?:[^\n\\]|\\.)*\n?", re.DOTALL)
_LOCAL_FLAGS = re.compile(r"([aimsux]*)(?:-([imsx]+))?:")
_QUANTIFIER = re.compile(r"[*+?]|\{(?!\})([0-9]*)(?:(,)([0-9]*))?\}")
_GROUP_NAME = re.compile(r"<[^>]*>")
_LOOK_AROUND = {"=": "look-ahead", "!": "look-ahead", "<=": "look-behind", "<!": "look-behind"}


def regex_dfa(pattern: str) -> Dfa:
    """The automaton of the texts that `re.fullmatch(pattern, text)` takes, in UTF-8.

    Raises `InvalidConstraint` (with the offset) for what `re` does not compile and for a pattern that
    no text matches; `UnsupportedConstraint` for what cannot be enforced exactly, and past the limits.
    """
    load_loops()
    budget = Budget("regex")
    tree = _parsed(pattern, budget)
    nfa = Nfa(budget)
    start = nfa.add_state()
    try:
        if _size(tree) > MAX_NFA_STATES:
            raise budget.exceeded(f"written out it has more than the limit of {MAX_NFA_STATES} parts")
        accept = _add(nfa, tree, start)
    except RecursionError:
        raise _too_deep() from None
    wide = nfa.determinize(start, accept)
    small = minimize(wide.table, wide.accepting)
    if small is None:
        raise InvalidConstraint("no text matches the pattern")
    return to_bytes(ClassDfa(*small, wide.classes), budget)


def _parsed(pattern: str, budget: Budget) -> Pattern:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Not `re.compile`: that also lays out every class, in minutes for some short patterns.
            flags = _parser.parse(pattern).state.flags
        return _Parser(pattern, flags, budget).parse()
    except re.error as error:
        raise InvalidConstraint(error.msg, offset=error.pos) from None
    except OverflowError as error:
        raise InvalidConstraint(str(error)) from None
    except RecursionError:
        raise _too_deep() from None


def _too_deep() -> UnsupportedConstraint:
    return UnsupportedConstraint("nesting", "offset 0", "groups are nested too deeply")


@dataclass(frozen=True, slots=True)
class _Chars:
    """A leaf that reads one character of a set."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class _Anchor:
    """A leaf that reads nothing and asserts something."""

    assertion: Assertion


def _chars(code: int) -> Ranges:
    return charset.make_set([(code, code)])


class _Parser(_ParsePattern):  # type: ignore[no-untyped-call]
    """interegular's descent through alternatives, sequences and groups, with leaves as in `re`."""

    def __init__(self, pattern: str, flags: int, budget: Budget) -> None:
        super().__init__(pattern)
        self._flags = flags
        self._budget = budget
        self._classes: dict[tuple[str, int], _Chars] = {}

    def parse(self) -> Pattern:
        """The tree; the pattern must be one that `re` compiles."""
        try:
            tree = self._alternatives()
        except (nomatch, LookupError):  # nomatch is no Exception
            tree = None
        if tree is None or self.index < len(self.data):
            raise self._refused("pattern", self.index, "it cannot be read the way `re` reads it")
        return tree

    def conc(self) -> _Concatenation:
        """A sequence, up to its `|`, `)` or end."""
        parts = []
        self._skip_blanks()
        while self.index < len(self.data) and self.data[self.index] not in "|)":
            self._budget.check_time()
            parts.append(self.obj())  # type: ignore[no-untyped-call]
            self._skip_blanks()
        return _Concatenation(tuple(parts))

    def _alternatives(self) -> Pattern:
        tree: Pattern = self.pattern()  # type: ignore[no-untyped-call]
        return tree

    def repetition(self, base: Any) -> Any:
        """`base` with the quantifier that follows it, if one does."""
        self._skip_blanks()
        found = _QUANTIFIER.match(self.data, self.index)
        if found is None:
            return base
        at, self.index = self.index, found.end()
        sign = found.group()
        if sign in ("*", "+", "?"):
            low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}[sign]
        else:
            first, comma, second = found.groups()
            low = int(first or 0)
            high = (int(second) if second else None) if comma else low
        if not self.static_b("?") and self.static_b("+"):
            raise self._refused("possessive repetition", at, "it depends on the order in which `re` searches")
        return _Repeated(base, low, high)

    def extension_group(self) -> object:
        """What follows `(?`. Comments and global flags are blanks, and never get here."""
        at = self.index - 2
        local = _LOCAL_FLAGS.match(self.data, self.index)
        outer = self._flags
        if local is not None:
            self.index = local.end()
            self._set_flags(local.group(1), local.group(2) or "")
        elif self.static_b("P"):
            name = _GROUP_NAME.match(self.data, self.index)
            if name is None:
                raise self._refused("back-reference", at, "its language is not regular")
            self.index = name.end()
        else:
            for sign, keyword in _LOOK_AROUND.items():
                if self.data.startswith(sign, self.index):
                    raise self._refused(keyword, at, "look-around is not supported")
            if self.static_b(">"):
                raise self._refused("atomic group", at, "it depends on the order in which `re` searches")
            raise self._refused("conditional", at, "its language is not regular")
        inner = self._alternatives()
        self.static(")")
        self._flags = outer
        return self.repetition(inner)

    def atom(self) -> object:
        """One character, class, escape or anchor, with its quantifier."""
        sign = self.any()
        leaf: object
        if sign == "[":
            leaf = self._class()
        elif sign == "\\":
            leaf = self._escape()
        elif sign == ".":
            leaf = _Chars(charset.SCALARS if self._flags & re.DOTALL else charset.complement(charset.NEWLINE))
        elif sign == "^":
            leaf = _Anchor(Assertion.BEGIN_LINE if self._flags & re.MULTILINE else Assertion.BEGIN)
        elif sign == "$":
            leaf = _Anchor(Assertion.END_LINE if self._flags & re.MULTILINE else Assertion.END)
        else:
            leaf = self._literal(ord(sign))
        return self.repetition(leaf)

    def _literal(self, code: int) -> _Chars:
        return _Chars(self._folded(_chars(code)))

    def _folded(self, ranges: Ranges) -> Ranges:
        if not self._flags & re.IGNORECASE:
            return ranges
        return charset.ignore_case(ranges, ascii_only=self._is_ascii())

    def _is_ascii(self) -> bool:
        return bool(self._flags & re.ASCII)

    def _set_flags(self, added: str, removed: str) -> None:
        for letter in added:
            if letter in "au":
                self._flags &= ~(re.ASCII | re.UNICODE)
            self._flags |= _FLAGS[letter]
        for letter in removed:
            self._flags &= ~_FLAGS[letter]

    def _skip_blanks(self) -> None:
        """Skips comments, global flags (which were taken from `re`) and, if verbose, white space."""
        while self.index < len(self.data):
            blank = _BLANK.match(self.data, self.index)
            if blank is None and self._flags & re.VERBOSE:
                blank = _VERBOSE_BLANK.match(self.data, self.index)
            if blank is None:
                return
            self.index = blank.end()

    def _escape(self) -> _Chars | _Anchor:
        r"""What a `\` outside of classes means; it has just been read."""
        at = self.index - 1
        letter = self.data[self.index]
        ascii_only = self._is_ascii()
        anchors = {
            "A": Assertion.BEGIN,
            "Z": Assertion.END_TEXT,
            "z": Assertion.END_TEXT,
            "b": Assertion.ASCII_BOUNDARY if ascii_only else Assertion.BOUNDARY,
            "B": Assertion.NOT_ASCII_BOUNDARY if ascii_only else Assertion.NOT_BOUNDARY,
        }
        if letter in anchors:
            self.index += 1
            return _Anchor(anchors[letter])
        if letter in "dDsSwW":
            self.index += 1
            return _Chars(charset.category(letter, ascii_only=ascii_only))
        if letter in "123456789":
            octal = re.compile("[0-3][0-7]{2}").match(self.data, self.index)
            if octal is None:
                raise self._refused("back-reference", at, "its language is not regular")
            self.index = octal.end()
            return self._literal(int(octal.group(), 8))
        return self._literal(self._character("[0-7]{1,3}"))

    def _character(self, octal: str) -> int:
        r"""The code of an escape that means one character; the `\` has been read."""
        at = self.index - 1
        found = re.compile(octal).match(self.data, self.index)
        if found is not None:
            self.index = found.end()
            return int(found.group(), 8)
        letter = self.any()
        if letter in _CONTROLS:
            return _CONTROLS[letter]
        if letter in _HEX_DIGITS:
            return int(self.any(_HEX_DIGITS[letter]), 16)
        if letter == "N":
            end = self.data.index("}", self.index)
            name, self.index = self.data[self.index + 1 : end], end + 1
            return ord(unicodedata.lookup(name))
        if letter.isascii() and letter.isalnum():
            raise self._refused(f"escape \\{letter}", at, "it is not known")
        return ord(letter)

    def _class(self) -> _Chars:
        """A class; its `[` has just been read."""
        start = self.index
        negated = self.static_b("^")
        first = self.index
        pairs: list[tuple[int, int]] = []
        categories: list[Ranges] = []
        while self.index == first or not self.static_b("]"):
            one = self._class_part()
            if not isinstance(one, int):
                categories.append(one)
            elif self.data.startswith("-", self.index) and not self.data.startswith("-]", self.index):
                self.index += 1
                last = self._class_part()
                if not isinstance(last, int):
                    raise self._refused("class", start - 1, "it has a range that ends in a class")
                pairs.append((one, last))
            else:
                pairs.append((one, one))
        key = (self.data[start : self.index], self._flags)
        if key not in self._classes:
            ranges = charset.union(self._folded(charset.make_set(pairs)), *categories)
            self._classes[key] = _Chars(charset.complement(ranges) if negated else ranges)
        return self._classes[key]

    def _class_part(self) -> int | Ranges:
        if not self.static_b("\\"):
            return ord(self.any())
        letter = self.data[self.index]
        if letter in "dDsSwW":
            self.index += 1
            return charset.category(letter, ascii_only=self._is_ascii())
        if self.static_b("b"):
            return 8
        return self._character("[0-7]{1,3}")

    def _refused(self, keyword: str, offset: int, reason: str) -> UnsupportedConstraint:
        return UnsupportedConstraint(keyword, f"offset {offset}", reason)


def _size(node: object) -> int:
    """An upper bound of the states that a tree needs."""
    if isinstance(node, Pattern):
        return 1 + sum(_size(option) for option in node.options)
    if isinstance(node, _Concatenation):
        return sum(_size(part) for part in node.parts)
    if isinstance(node, _Repeated):
        return 2 + (1 + _size(node.base)) * (node.min + 1 if node.max is None else node.max)
    return 1


def _add(nfa: Nfa, node: object, start: int) -> int:
    """Adds a tree's edges from state `start`; returns the state where it ends.

    No edge is ever added that enters `start`: only then may alternatives share it.
    """
    if isinstance(node, _Concatenation):
        for part in node.parts:
            start = _add(nfa, part, start)
        return start
    if isinstance(node, _Repeated):
        return _add_repeated(nfa, node, start)
    if isinstance(node, Pattern) and len(node.options) == 1:
        return _add(nfa, node.options[0], start)
    if isinstance(node, Pattern):
        ends = [_add(nfa, option, start) for option in node.options]
        end = nfa.add_state()
        for one in ends:
            nfa.add_empty(one, end)
        return end
    end = nfa.add_state()
    if isinstance(node, _Anchor):
        nfa.add_empty(start, end, node.assertion)
    elif isinstance(node, _Chars):
        nfa.add_chars(start, node.ranges, end)
    else:
        raise TypeError(f"not a part of a pattern: {node!r}")
    return end


def _add_repeated(nfa: Nfa, node: _Repeated, start: int) -> int:
    for _ in range(node.min):
        start = _add(nfa, node.base, start)
    if node.max is None:
        loop = nfa.add_state()
        nfa.add_empty(start, loop)
        nfa.add_empty(_add(nfa, node.base, loop), loop)
        return loop
    if node.max == node.min:
        return start
    end = nfa.add_state()
    for _ in range(node.max - node.min):
        nfa.add_empty(start, end)
        start = _add(nfa, node.base, start)
    nfa.add_empty(start, end)
    return end
