"""Runs a terminal's automaton over a text whose rest is known."""

from __future__ import annotations

from bisect import bisect_right

from treille.runtime.grammar.lexing import DEAD, Automaton, Leaf, Reference
from treille.runtime.grammar.tree import Chars, Choice, Look, Repeat, Sequence, Tree


def match_end(automaton: Automaton, text: str, at: int) -> int | None:
    """Where `re.match(terminal, text, at)` ends; None if there is no match."""
    starts = automaton.classes.starts.tolist()
    leaf = _decided(automaton, automaton.start, text, at)
    end = at if leaf.matched else None
    while leaf.state != DEAD and at < len(text):
        number = automaton.classes.numbers[bisect_right(starts, ord(text[at])) - 1]
        at += 1
        leaf = _decided(automaton, automaton.table[leaf.state][number], text, at)
        end = at if leaf.matched else end
    return end


def _decided(automaton: Automaton, one: Reference, text: str, at: int) -> Leaf:
    while not isinstance(one, Leaf):
        one = one.if_so if holds(automaton.conditions[one.condition], text, at) else one.if_not
    return one


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
        case Look():
            return {at} if holds(tree, text, at) else set()
        case Repeat(body, low, high):
            return _turns(body, low, high, text, at)


def _turns(body: Tree, low: int, high: int | None, text: str, at: int) -> set[int]:
    places, found = {at}, {at} if low == 0 else set()
    turn = 0
    while places and (high is None or turn < high):
        turn += 1
        places = {end for one in places for end in ends(body, text, one)}
        if turn >= low:
            if places <= found:
                break
            found |= places
    return found
