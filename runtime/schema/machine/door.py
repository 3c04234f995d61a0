"""The one door from Python into the machine: what lies behind it is compiled once."""

from __future__ import annotations

from numba import njit

from treille.runtime.grammar.store import WHOLE, int64
from treille.runtime.schema.machine.languages import text_state
from treille.runtime.schema.machine.masks import fill
from treille.runtime.schema.machine.memory import Machine, facts_of, out_of, remember, trie_of
from treille.runtime.schema.machine.moving import transfer
from treille.runtime.schema.machine.states import simpler
from treille.runtime.schema.machine.walking import after_bytes, base_of, forced, is_free, only_byte, start

BASE = WHOLE  # of the machine's own facts, whose place is free
# What `ask` can be asked; before these, what `fill` is to do.
START, AFTER, AFTER_TOKEN, FORCED, ONLY, SIMPLIFIED, TEXT_STATE, NOTE, MOVED = range(10, 19)


@njit(cache=True, nogil=True)
def ask(machine: Machine, other: Machine, what: int, x: int, y: int, z: int) -> int:  # pragma: no cover
    """START: the state of the empty text. AFTER: the state after bytes y to z of the array `out` from state
    x, or a negative number. AFTER_TOKEN: the state after token y. FORCED: how many bytes must follow state
    x, written to `out`. ONLY: see `only_byte`. SIMPLIFIED: the state x without captured texts and long
    counts; where it is x itself, notes in `facts[BASE]` the free state that it differs little from (x: it is
    one), or -1. TEXT_STATE: the state of the text store of expression x with trackers y. NOTE: remembers z
    as the answer to x, y. MOVED: the state that is state x of the machine `other`. For the rest see `fill`.
    """
    if what == AFTER_TOKEN:
        trie = trie_of(machine)
        return after_bytes(machine, x, trie.data, int64(trie.ends[y]), int64(trie.ends[y + 1]))
    if what == AFTER:
        return after_bytes(machine, x, out_of(machine), y, z)
    if what < START:
        return fill(machine, what, x, y)
    if what == SIMPLIFIED:
        simple = simpler(machine, x, int64(1))
        base = int64(-1)
        if simple == x and not is_free(machine, x):
            base = base_of(machine, x)
        elif simple == x:
            base = int64(x)
        facts_of(machine)[BASE] = base
        return simple
    if what == FORCED:
        return forced(machine, x, out_of(machine))
    if what == ONLY:
        return only_byte(machine, x)
    if what == TEXT_STATE:
        return text_state(machine, x, y)
    if what == NOTE:
        remember(machine, x, y, z)
        return int64(0)
    if what == MOVED:
        return transfer(other, machine, x)
    return start(machine)
