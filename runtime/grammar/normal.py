"""Trees in a form that automata are easily built from, with the same texts.

The point is loops: after `normalize`, no body of a `Repeat` matches the empty text, so every turn of a loop
reads something. What the empty turns asserted (a body may be empty only where a word ends, say) is kept
beside the loop. `whole_text` settles assertions at the edges of a text, where the answer is known.

The order of options and the laziness of repeats are kept only where nothing is rewritten.
"""

from __future__ import annotations

import sys

from treille.runtime.errors import UnsupportedConstraint
from treille.runtime.grammar import charset
from treille.runtime.grammar.tree import EMPTY_TEXT, NOTHING, Chars, Choice, Look, Repeat, Sequence, Tree

MAX_NEW_PARTS = 1000
"""How much larger than it was, written out, the rewriting of loops may make a tree."""


def normalize(tree: Tree) -> Tree:
    """A tree that full-matches the same texts, and whose loops have no body that matches the empty text.

    Sequences and choices are flattened, and options of one character made one. A tree that is so already
    comes back itself. Raises `UnsupportedConstraint` where the rewriting would make the tree too large.
    """
    return _Normalizer().normal(tree)


def whole_text(tree: Tree) -> Tree:
    """A normal tree for matching whole texts: what looks over the edge of the text is settled.

    Looks at the start that look behind, and looks at the end that look ahead, are true or false.
    """
    return _settled(_settled(tree, behind=True), behind=False)


def _settled(tree: Tree, *, behind: bool) -> Tree:
    if isinstance(tree, Look):
        if tree.behind != behind or not _is_plain(tree.body):
            return tree
        return EMPTY_TEXT if (empty_way(tree.body) == EMPTY_TEXT) != tree.negated else NOTHING
    if isinstance(tree, Choice):
        return _choice(tree, [_settled(option, behind=behind) for option in tree.options])
    if not isinstance(tree, Sequence):
        return tree
    parts = list(tree.parts)
    order = range(len(parts)) if behind else range(len(parts) - 1, -1, -1)
    for index in order:
        parts[index] = _settled(parts[index], behind=behind)
        if not _is_zero_width(parts[index]):
            break
    return _sequence(tree, parts)


def empty_way(tree: Tree) -> Tree:
    """When a normal tree matches the empty text: always, never, or where assertions hold."""
    if isinstance(tree, Chars):
        return NOTHING
    if isinstance(tree, Look):
        return tree
    if isinstance(tree, Repeat):
        return EMPTY_TEXT if tree.low == 0 else empty_way(tree.body)
    if isinstance(tree, Choice):
        ways = [empty_way(option) for option in tree.options]
        return EMPTY_TEXT if EMPTY_TEXT in ways else _choice(tree, ways)
    ways = []
    for part in tree.parts:
        way = empty_way(part)
        if way == NOTHING:
            return NOTHING
        ways.append(way)
    return _sequence(tree, ways)


class _Normalizer:
    """One tree's way to normal form. Parts come to be shared, so what is known of them is kept."""

    def __init__(self) -> None:
        self._num_new = 0
        self._ways: dict[int, tuple[Tree, Tree]] = {}
        self._read: dict[int, tuple[Tree, Tree]] = {}

    def normal(self, tree: Tree) -> Tree:
        """The normal form of any tree."""
        if isinstance(tree, Chars):
            return tree if tree.ranges else NOTHING
        if isinstance(tree, Sequence):
            return _sequence(tree, [self.normal(part) for part in tree.parts])
        if isinstance(tree, Choice):
            return _choice(tree, [self.normal(option) for option in tree.options])
        body = self.normal(tree.body)
        if isinstance(tree, Repeat):
            return self._loop(tree, body)
        if body == NOTHING:
            return EMPTY_TEXT if tree.negated else NOTHING
        if self._way(body) == EMPTY_TEXT:
            return NOTHING if tree.negated else EMPTY_TEXT
        return tree if body is tree.body else Look(body, tree.behind, tree.negated)

    def _loop(self, tree: Repeat, body: Tree) -> Tree:
        """A loop over a normal body, which it has instead of its own."""
        low, high, lazy = tree.low, tree.high, tree.lazy
        if high == 0 or body == EMPTY_TEXT:
            return EMPTY_TEXT
        if low == high == 1:
            return body
        if isinstance(body, Repeat) and high is None and body.high is None and body.low <= 1:
            return Repeat(body.body, low * body.low, None, lazy)
        way = self._way(body)
        if way == NOTHING:
            return tree if body is tree.body else _repeat(body, low, high, lazy=lazy)
        found = self._rewritten(tree, body, way)
        before = _size(body)
        self._num_new += max(0, _size(found, before + MAX_NEW_PARTS) - before)
        if self._num_new > MAX_NEW_PARTS:
            raise _too_large()
        return found

    def _rewritten(self, tree: Repeat, body: Tree, way: Tree) -> Tree:
        low, high, lazy = tree.low, tree.high, tree.lazy
        if way == EMPTY_TEXT and high is None:
            return _repeat(self._turns(body), 0, None, lazy=lazy)
        reading = self._reading(body)
        if way == EMPTY_TEXT or low == 0:
            return _repeat(reading, 0, high, lazy=lazy)
        if reading == NOTHING:
            return way
        return self._few_turns(reading, way, tree)

    def _few_turns(self, reading: Tree, way: Tree, tree: Repeat) -> Tree:
        """At least `low` turns, of which some may read nothing where an assertion holds.

        Turns that read nothing can all be taken in one place. So either `low` turns read, or fewer do,
        and somewhere between them the assertion holds.
        """
        if tree.low > MAX_NEW_PARTS:
            raise _too_large()
        options = [_repeat(reading, tree.low, tree.high, lazy=tree.lazy)]
        for before in range(tree.low):
            rest = tree.low - 1 - before
            parts = [_repeat(reading, before, before), way, _repeat(reading, 0, rest)]
            options.append(_sequence(EMPTY_TEXT, parts))
        return _choice(NOTHING, options)

    def _way(self, tree: Tree) -> Tree:
        if id(tree) not in self._ways:
            self._ways[id(tree)] = (tree, empty_way(tree))
        return self._ways[id(tree)][1]

    def _turns(self, tree: Tree) -> Tree:
        """A body without an empty way, such that any number of it is any number of a normal tree.

        Only for a tree that is unconditionally empty, or one that is never.
        """
        if isinstance(tree, Choice):
            plain = [option for option in tree.options if self._way(option) in (EMPTY_TEXT, NOTHING)]
            if len(plain) == len(tree.options):
                return _choice(NOTHING, [self._turns(option) for option in tree.options])
        elif isinstance(tree, Sequence):
            if all(self._way(part) == EMPTY_TEXT for part in tree.parts):
                return _choice(NOTHING, [self._turns(part) for part in tree.parts])
        elif isinstance(tree, Repeat) and tree.low <= 1:
            return self._turns(tree.body)
        return self._reading(tree)

    def _reading(self, tree: Tree) -> Tree:
        """The language of a normal tree without its empty way."""
        if id(tree) not in self._read:
            self._read[id(tree)] = (tree, self._make_reading(tree))
        return self._read[id(tree)][1]

    def _make_reading(self, tree: Tree) -> Tree:
        if isinstance(tree, Chars):
            return tree
        if isinstance(tree, Look):
            return NOTHING
        if self._way(tree) == NOTHING:
            return tree
        if isinstance(tree, Choice):
            return _choice(tree, [self._reading(option) for option in tree.options])
        if isinstance(tree, Repeat):
            return _repeat(tree.body, max(tree.low, 1), tree.high, lazy=tree.lazy)
        if len(tree.parts) ** 2 > 4 * MAX_NEW_PARTS:
            raise _too_large()
        # The first part that reads, after parts that do not; from the right, so that the rests are shared.
        rest: Tree = EMPTY_TEXT
        found: Tree = NOTHING
        for part in reversed(tree.parts):
            later = _sequence(EMPTY_TEXT, [self._way(part), found])
            found = _choice(NOTHING, [_sequence(EMPTY_TEXT, [self._reading(part), rest]), later])
            rest = _sequence(EMPTY_TEXT, [part, rest])
        return found


def _repeat(body: Tree, low: int, high: int | None, *, lazy: bool = False) -> Tree:
    """A loop over a normal body with no empty way."""
    if high == 0:
        return EMPTY_TEXT
    if low == high == 1:
        return body
    if body == NOTHING:
        return EMPTY_TEXT if low == 0 else NOTHING
    return Repeat(body, low, high, lazy)


def _sequence(old: Tree, parts: list[Tree]) -> Tree:
    """The normal parts one after the other; `old` itself where that is what it is."""
    for part in parts:
        kind = type(part)
        if kind is Sequence or (kind is Choice and part == NOTHING):
            return _flat_sequence(parts)
    if len(parts) == 1:
        return parts[0]
    if isinstance(old, Sequence) and _are_same(parts, old.parts):
        return old
    return Sequence(tuple(parts)) if parts else EMPTY_TEXT


def _flat_sequence(parts: list[Tree]) -> Tree:
    flat: list[Tree] = []
    for part in parts:
        if isinstance(part, Sequence):
            flat.extend(part.parts)
        elif part == NOTHING:
            return NOTHING
        else:
            flat.append(part)
    if len(flat) == 1:
        return flat[0]
    return Sequence(tuple(flat)) if flat else EMPTY_TEXT


def _choice(old: Tree, options: list[Tree]) -> Tree:
    """One of the normal options; `old` itself where that is what it is."""
    num_single = num_empty = 0
    nested = False
    for option in options:
        kind = type(option)
        if kind is Chars:
            num_single += 1
        elif kind is Choice:
            nested = True
        elif kind is Sequence and option == EMPTY_TEXT:
            num_empty += 1
    if nested or num_single > 1 or num_empty > 1:
        options = _flat_options(options)
    if len(options) == 1:
        return options[0]
    if isinstance(old, Choice) and _are_same(options, old.options):
        return old
    return Choice(tuple(options)) if options else NOTHING


def _flat_options(options: list[Tree]) -> list[Tree]:
    """The options without choices among them, with no more than one of one character and one empty."""
    flat: list[Tree] = []
    single: list[Chars] = []
    has_empty = False
    for option in options:
        for one in option.options if isinstance(option, Choice) else (option,):
            if isinstance(one, Chars):
                single.append(one)
                if len(single) > 1:
                    continue
            elif one == EMPTY_TEXT:
                if has_empty:
                    continue
                has_empty = True
            flat.append(one)
    if len(single) > 1:
        merged = Chars(charset.union(*[one.ranges for one in single]))
        flat = [merged if one is single[0] else one for one in flat]
    return flat


def _are_same(found: list[Tree], old: tuple[Tree, ...]) -> bool:
    if len(found) != len(old):
        return False
    for one, other in zip(found, old, strict=True):
        if one is not other:
            return False
    return True


def _too_large() -> UnsupportedConstraint:
    return UnsupportedConstraint(
        "repetition", "offset 0", "loops with empty turns make the pattern too large"
    )


def _is_plain(tree: Tree) -> bool:
    """Whether there are no looks in a tree."""
    if isinstance(tree, Chars):
        return True
    if isinstance(tree, Sequence):
        return all(_is_plain(part) for part in tree.parts)
    if isinstance(tree, Choice):
        return all(_is_plain(option) for option in tree.options)
    return isinstance(tree, Repeat) and _is_plain(tree.body)


def _is_zero_width(tree: Tree) -> bool:
    """Whether a tree reads nothing, ever."""
    if isinstance(tree, Sequence):
        return all(_is_zero_width(part) for part in tree.parts)
    if isinstance(tree, Choice):
        return all(_is_zero_width(option) for option in tree.options)
    return isinstance(tree, Look)


def _size(tree: Tree, limit: int = sys.maxsize) -> int:
    """How many parts a tree has, written out; past the limit, some number past the limit."""
    count = 0
    stack = [tree]
    while stack and count <= limit:
        one = stack.pop()
        count += 1
        if isinstance(one, Sequence):
            stack.extend(one.parts)
        elif isinstance(one, Choice):
            stack.extend(one.options)
        elif not isinstance(one, Chars):
            stack.append(one.body)
    return count
