"""Whether a text matches a regex tree, the slow way: sets of positions, straight from the definitions."""

from __future__ import annotations

from functools import cache

from treille.runtime.grammar.tree import Chars, Choice, Look, Repeat, Sequence, Tree


def matches(tree: Tree, text: str) -> bool:
    """Whether all of the text is in the language of the tree; looks see the whole text and its ends."""

    @cache
    def ends(node: Tree, start: int) -> frozenset[int]:
        """Where a match of the node that begins at `start` may end."""
        if isinstance(node, Chars):
            here = ord(text[start]) if start < len(text) else -1
            return frozenset({start + 1} if any(low <= here <= high for low, high in node.ranges) else ())
        if isinstance(node, Choice):
            return frozenset().union(*(ends(option, start) for option in node.options))
        if isinstance(node, Sequence):
            found = frozenset({start})
            for part in node.parts:
                found = after(part, found)
            return found
        if isinstance(node, Look):
            return frozenset({start} if seen(node, start) != node.negated else ())
        return repeated(node, start)

    def after(node: Tree, starts: frozenset[int]) -> frozenset[int]:
        return frozenset().union(*(ends(node, start) for start in starts))

    def seen(node: Look, at: int) -> bool:
        if node.behind:
            return any(at in ends(node.body, start) for start in range(at + 1))
        return bool(ends(node.body, at))

    def repeated(node: Repeat, start: int) -> frozenset[int]:
        # A path longer than the text stays somewhere twice, and then may as well stay once more or less.
        settled = len(text) + 2
        now = frozenset({start})
        for _ in range(min(node.low, settled)):
            now = after(node.body, now)
        found = now
        extra = settled if node.high is None else min(node.high - node.low, settled)
        for _ in range(extra):
            now = after(node.body, now)
            found |= now
        return found

    return len(text) in ends(tree, 0)
