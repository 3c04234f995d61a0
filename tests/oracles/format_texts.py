"""Whether a text has a format, by the automaton; and texts drawn from a format's tree."""

from __future__ import annotations

import random
from functools import cache

import numpy as np

from treille.runtime.grammar.arena import Arena
from treille.runtime.grammar.regex import tree_blueprint
from treille.runtime.grammar.tree import Chars, Choice, Repeat, Sequence, Tree
from treille.runtime.schema.formats import format_tree


@cache
def arena_of(name: str) -> Arena:
    """The states of a format."""
    return Arena.fresh(tree_blueprint(format_tree(name)))


def has_format(name: str, text: str) -> bool:
    """Whether all of a text is in the language of a format's tree."""
    arena = arena_of(name)
    data = np.frombuffer(bytearray(text.encode()), np.uint8)
    state = arena.after(arena.start, data, 0, len(data))
    return state >= 0 and arena.accepts(state)


def drawn(tree: Tree, rng: random.Random) -> str:
    """A text of the tree as if no look-around were in it: most of them have the format."""
    if isinstance(tree, Chars):
        low, high = rng.choice(tree.ranges)
        return chr(rng.randint(low, high))
    if isinstance(tree, Sequence):
        return "".join([drawn(part, rng) for part in tree.parts])
    if isinstance(tree, Choice):
        return drawn(rng.choice(tree.options), rng)
    if isinstance(tree, Repeat):
        most = tree.low + rng.choice((0, 1, 1, 2, 4, 8))
        count = rng.randint(tree.low, most if tree.high is None else min(most, tree.high))
        return "".join([drawn(tree.body, rng) for _ in range(count)])
    return ""


def members(name: str, count: int, seed: int) -> list[str]:
    """So many texts that have a format, drawn from its tree."""
    rng = random.Random(seed)
    tree = format_tree(name)
    found: list[str] = []
    while len(found) < count:
        text = drawn(tree, rng)
        if has_format(name, text):
            found.append(text)
    return found
