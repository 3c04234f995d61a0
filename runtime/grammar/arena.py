"""`Arena`: one store in use, from Python. It gives room and steps, and remembers masks."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from treille.runtime.errors import UnsupportedConstraint
from treille.runtime.grammar.automaton import Dfa
from treille.runtime.grammar.build import NO_LEXER, Blueprint, empty_store
from treille.runtime.grammar.classes import classes_of
from treille.runtime.grammar.derive import transfer
from treille.runtime.grammar.states import AFTER, FORCED, ONLY, START, along, ask
from treille.runtime.grammar.store import (
    ACCEPTS,
    FULL,
    LIVE,
    MIDDLE,
    NUM_MEMOS,
    NUM_NODES,
    NUM_STATES,
    STATUS,
    STEPS,
    TOO_DEEP,
    TROUBLE,
    UNKNOWN,
    Bytes,
    Flags,
    Store,
    rehash,
)

# What one call may take of the thread's processor time, while a constraint is compiled and afterwards. It is
# looked at between two lots of steps, of which each is as large as all before.
MAX_COMPILE_SECONDS = 2.0
MAX_STEP_SECONDS = 0.5
_FIRST_STEPS = 1 << 16
MAX_NODES = 1 << 20
MAX_STATES = 1 << 16
_MAX_MEMOS = 1 << 19
NO_BYTES = np.zeros(0, np.uint8)
ALL_BYTES = np.ones(256, np.bool_)


class ArenaFull(Exception):
    """There is no more room: go on in a fresh arena."""


class Arena:
    """The states of one constraint that were reached so far. Not safe to share between threads by itself.

    `start` is the state of the empty text.
    """

    def __init__(self, store: Store, start: int, blueprint: Blueprint | None) -> None:
        self.store = store
        self.start = start
        self.blueprint = blueprint
        self.seconds = MAX_COMPILE_SECONDS

    @classmethod
    def fresh(cls, blueprint: Blueprint, possible: Flags = ALL_BYTES) -> Arena:
        """An arena in which nothing but the start was reached; for `possible` see `Blueprint.store`."""
        arena = cls(blueprint.store(1024, 16, possible), 0, blueprint)
        arena.start = arena.ask(START, blueprint.start, blueprint.trackers, -1)
        return arena

    @classmethod
    def of_dfa(cls, dfa: Dfa) -> Arena:
        """An arena in which every state of a finished automaton was reached."""
        store = empty_store(classes_of([]), NO_LEXER, 0, num_nodes=2, num_states=dfa.num_states)
        store.rows[:] = dfa.transitions
        store.states[:] = (1, 0, -1, LIVE, 0, 0)
        store.states[dfa.accepting, STATUS] |= ACCEPTS
        store.nodes[:] = 0
        store.facts[NUM_NODES], store.facts[NUM_STATES] = 2, dfa.num_states
        return cls(store, 0, None)

    @property
    def num_states(self) -> int:
        """States reached so far."""
        return int(self.store.facts[NUM_STATES])

    @property
    def nbytes(self) -> int:
        """Memory of the arrays that grow."""
        store = self.store
        return sum(
            array.nbytes for array in (store.nodes, store.buckets, store.memo, store.states, store.rows)
        )

    def accepts(self, state: int) -> bool:
        """Whether the text may end in a state."""
        return bool(self.store.states[state, STATUS] & ACCEPTS)

    def ask(self, what: int, x: int, y: int = 0, z: int = 0, data: Bytes = NO_BYTES) -> int:
        """Puts a question to `states.ask`."""
        return self.run(ask, what, x, y, z, data)

    def after(self, state: int, data: Bytes, first: int, end: int) -> int:
        """The live state after `data[first:end]`, or -1."""
        following = int(along(self.store.rows, state, data, first, end))
        return self.ask(AFTER, state, first, end, data) if following == UNKNOWN else following

    def only_byte(self, state: int) -> int:
        """The one byte that may follow; -1 if none may, -2 if there is a choice, of which stopping is one."""
        return self.ask(ONLY, state)

    def forced(self, state: int, out: Bytes) -> int:
        """Writes the bytes that must follow into `out`, uint8; returns how many."""
        return self.ask(FORCED, state, data=out)

    def moved(self, other: Arena, state: int) -> int:
        """The state of this arena that is the same as a state of another one of the same blueprint."""
        if self.blueprint is None:
            raise TypeError("an arena of a finished automaton is never full")
        node, trackers, middle = (int(one) for one in other.store.states[state, : MIDDLE + 1])
        fixed = self.blueprint.num_fixed
        node, trackers = (
            self.run(_transfer, other.store, one, fixed) if one >= fixed else one for one in (node, trackers)
        )
        return self.ask(START, node, trackers, middle)

    def run(self, function: Callable[..., Any], *arguments: Any) -> int:
        """Calls compiled code, whose first parameter is the store, until it has had room and steps enough.

        What it found out before it stopped for want of either is remembered, so calling it again goes on.
        Raises `ArenaFull`, and `UnsupportedConstraint` once the call has taken `seconds`.
        """
        steps = _FIRST_STEPS
        started = 0.0
        while True:
            facts = self.store.facts
            facts[STEPS], facts[TROUBLE] = steps, 0
            result = function(self.store, *arguments)
            trouble = int(facts[TROUBLE])
            if not trouble:
                return cast(int, result)
            facts[TROUBLE] = 0
            if trouble == TOO_DEEP:
                raise UnsupportedConstraint("constraint", "offset 0", "it is nested too deeply")
            if not started:
                started = time.thread_time()
            elif time.thread_time() - started > self.seconds:
                reason = f"one step of it takes longer than the limit of {self.seconds:g} s"
                raise UnsupportedConstraint("constraint", "offset 0", reason)
            if trouble == FULL:
                self.grow()
            else:
                steps *= 2

    def grow(self) -> None:
        """Gives room where it is wanting. Raises `ArenaFull`."""
        self.store = grown(self.store)


def grown(store: Store) -> Store:
    """The store with room where it was wanting. Raises `ArenaFull`."""
    old, memo = store, store.memo
    if store.facts[NUM_NODES] == len(store.nodes):
        room = 2 * len(store.nodes)
        if room > MAX_NODES:
            raise ArenaFull
        store = store._replace(nodes=_longer(store.nodes, room), buckets=np.full(2 * room, -1, np.int64))
    if 2 * store.facts[NUM_MEMOS] > len(memo):
        # Past the limit what is known is forgotten, and found again.
        room = min(4 * len(memo), _MAX_MEMOS)
        store = store._replace(memo=np.full((room, 3), -1, np.int64))
        store.facts[NUM_MEMOS] *= room > len(memo)
    if store is not old:
        if store.buckets is old.buckets:
            store.buckets[:] = -1
        rehash(store, memo)
    if store.facts[NUM_STATES] == len(store.states):
        room = 2 * len(store.states)
        if room > MAX_STATES:
            raise ArenaFull
        store = store._replace(states=_longer(store.states, room), rows=_longer(store.rows, room))
    return store


def _transfer(target: Store, source: Store, node: int, shared: int) -> int:
    return int(transfer(source, target, node, shared))


def _longer(array: Any, room: int) -> Any:
    longer = np.empty((room, *array.shape[1:]), array.dtype)
    longer[: len(array)] = array
    return longer
