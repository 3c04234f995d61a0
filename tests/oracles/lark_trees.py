"""Where a tree may match, by trying: for the conditions inside of terminals."""

from __future__ import annotations

from treille.runtime.grammar.tree import Chars, Choice, Look, Repeat, Sequence, Tree


def holds(look: Look, text: str, at: int) -> bool:
    """Whether a look holds at a place of a text."""
    if look.behind:
        found = any(at in ends(look.body, text, start) for start in range(at + 1))
    else:
        found = bool(ends(look.body, text, at))
    return found != look.negated


def ends(tree: Tree, text: str, at: int) -> set[int]:
    """Every place where a match of the tree from `at` may end."""
    match tree:
        case Chars(ranges):
            inside = at < len(text) and any(low <= ord(text[at]) <= high for low, high in ranges)
            return {at + 1} if inside else set()
        case Sequence(parts):
            places = {at}
            for part in parts:
                places = {end for one in places for end in ends(part, text, one)}
            return places
        case Choice(options):
            return {end for option in options for end in ends(option, text, at)}
        case Repeat(body, low, high):
            places, found = {at}, {at} if low == 0 else set()
            for turn in range(1, (high if high is not None else len(text) + low) + 1):
                places = {end for one in places for end in ends(body, text, one)}
                if turn >= low:
                    if places <= found:
                        break
                    found |= places
            return found
        case Look():
            return {at} if holds(tree, text, at) else set()
