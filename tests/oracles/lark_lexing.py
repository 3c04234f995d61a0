"""Runs a terminal's automaton over a text, whose rest is known: conditions are asked of `re`."""

from __future__ import annotations

from bisect import bisect_right

from oracles.lark_trees import holds

from treille.runtime.grammar.lexing import DEAD, Automaton, Leaf, Reference


def match_end(automaton: Automaton, text: str, at: int) -> int | None:
    """Where `re.match(terminal, text, at)` ends, by the automaton."""
    end = None
    leaf = _decided(automaton, automaton.start, text, at)
    if leaf.matched:
        end = at
    while leaf.state != DEAD and at < len(text):
        place = bisect_right(automaton.classes.starts.tolist(), ord(text[at])) - 1
        at += 1
        leaf = _decided(automaton, automaton.table[leaf.state][automaton.classes.numbers[place]], text, at)
        if leaf.matched:
            end = at
    return end


def _decided(automaton: Automaton, one: Reference, text: str, at: int) -> Leaf:
    while not isinstance(one, Leaf):
        one = one.if_so if holds(automaton.conditions[one.condition], text, at) else one.if_not
    return one
