"""How long the texts of a tree are, and trees whose texts are as long as asked for.

A pattern and a length are two conditions at once, which the regular engine can follow. Where only one part of
a pattern may be longer or shorter, as in `^[a-z][a-z0-9]*$`, the length is a matter of that part's count, and
counts are cheaper.
"""

from __future__ import annotations

from treille.runtime.grammar.tree import NOTHING, Chars, Choice, Look, Repeat, Sequence, Tree

MAX_OPTIONS = 64  # of a choice that is looked into

Lengths = tuple[int, int | None]


def lengths_of(tree: Tree) -> Lengths:
    """No text of a normal tree is shorter or longer, in code points (None: any length)."""
    if isinstance(tree, Chars):
        return 1, 1
    if isinstance(tree, Look):
        return 0, 0
    if isinstance(tree, Repeat):
        low, high = lengths_of(tree.body)
        return low * tree.low, (
            0 if high == 0 else None if high is None or tree.high is None else high * tree.high
        )
    inside = [lengths_of(part) for part in (tree.parts if isinstance(tree, Sequence) else tree.options)]
    highs = [high for _, high in inside if high is not None]
    is_bounded = len(highs) == len(inside)
    if isinstance(tree, Sequence):
        return sum(low for low, _ in inside), sum(highs) if is_bounded else None
    # A choice without options has no text: whatever is said of them is true.
    return min((low for low, _ in inside), default=0), max(highs, default=0) if is_bounded else None


def fitted(tree: Tree, low: int, high: int | None) -> Tree | None:
    """A normal tree for the texts of another that have from `low` to `high` code points; None where that is
    not a matter of counts."""
    shortest, longest = lengths_of(tree)
    if (longest is not None and longest < low) or (high is not None and shortest > high):
        return NOTHING
    if shortest >= low and (high is None or (longest is not None and longest <= high)):
        return tree
    if isinstance(tree, Choice) and len(tree.options) <= MAX_OPTIONS:
        options = [fitted(option, low, high) for option in tree.options]
        kept = [option for option in options if option is not None]
        return Choice(tuple(kept)) if len(kept) == len(options) else None
    if isinstance(tree, Repeat):
        return _fitted_repeat(tree, low, high)
    return _fitted_sequence(tree, low, high) if isinstance(tree, Sequence) else None


def _fitted_repeat(tree: Repeat, low: int, high: int | None) -> Tree | None:
    size, longest = lengths_of(tree.body)
    if size != longest or not size:
        return None
    least = max(tree.low, -(-low // size))
    bounds = [bound for bound in (tree.high, None if high is None else high // size) if bound is not None]
    most = min(bounds, default=None)
    if most is not None and most < least:
        return NOTHING
    return Repeat(tree.body, least, most)


def _fitted_sequence(tree: Sequence, low: int, high: int | None) -> Tree | None:
    """All parts but one have one length each; that one has to make up for the rest."""
    fixed, place = 0, -1
    for index, part in enumerate(tree.parts):
        shortest, longest = lengths_of(part)
        if shortest == longest:
            fixed += shortest
        elif place >= 0:
            return None
        else:
            place = index
    if place < 0 or (high is not None and high < fixed):
        return None
    part_fitted = fitted(tree.parts[place], max(0, low - fixed), None if high is None else high - fixed)
    if part_fitted is None:
        return None
    return Sequence((*tree.parts[:place], part_fitted, *tree.parts[place + 1 :]))
