"""Expressions as rows of numbers: one store, in which equal expressions are the same row.

A state of a text is an expression for what may still follow. Everything that makes or follows
expressions is compiled code that works on one `Store`; when an array is full, or the steps that were
granted are used up, it says so in `facts` and the caller gives more room and asks again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
Flags = NDArray[np.bool_]
Bytes = NDArray[np.uint8]

# For code that only other compiled code calls: without the wrappers that Python would need, and in no cache
# of its own, since it is part of what calls it. None of it may call itself: numba cannot load that from the
# cache. Where the work is recursive, a stack of tasks and the memo take the place of calls.
inner = njit(  # type: ignore[call-overload]  # numba's stubs do not know all of its options
    nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True
)
# The same, and written out where it is called: compiled with its caller and not before, which is quicker
# where there are few callers.
grafted = njit(nogil=True, inline="always")


# numpy's, but to the type checker a plain number: that is what compiled code makes of it.
int64 = cast(Callable[[Any], int], np.int64)


def fixed(value: int) -> int:
    """A constant that is to compiled code any int64: a plain one would be a type of its own, and what is
    called with it be compiled for that value again."""
    return int64(value)


# Kinds of expressions, and what the columns a, b, low, high of a row mean for each.
EMPTY = fixed(0)  # no text at all; always row 0
EPSILON = fixed(1)  # the empty text; always row 1
CHARS = fixed(2)  # one character of set a
CONCAT = fixed(3)  # a, no concatenation itself, and then b
OR = fixed(4)  # a list: a, and then b, which is the rest of the list or the last member
AND = fixed(5)  # a list too
NOT = fixed(6)  # every text but those of a
REPEAT = fixed(7)  # a, from `low` to `high` times
LOOK = fixed(8)  # b, and the whole of what follows is a text of a as well
BEHIND = fixed(9)  # nothing; what stands before must (b = 0) or must not (b = 1) be as tracker a has it
RULE = fixed(10)  # rule a of a grammar
VECTOR = fixed(11)  # a list of the trackers' expressions: no expression itself
STATE = fixed(12)  # the key of a state: a node, a vector, a place within a character
TERM = fixed(13)  # nothing; a token of kind a ends here
LEXED = fixed(15)  # a is the rest of a token, and where that ends, the stack b of an LR parser takes it
PARSED = fixed(16)  # the stack a of an LR parser, between two tokens
STACK = fixed(17)  # an LR state a on top of stack b: no expression itself

NONE = fixed(0)  # in a column that says nothing
ONE = fixed(1)

# What is known of an expression.
NULLABLE = fixed(1)  # it has the empty text (exact where BEHINDS is not set)
LOOKS = 2  # there is a LOOK in it
BEHINDS = fixed(4)  # there is a BEHIND in it
SEARCHED = 8  # whether it has any text must be found by a search
COUNTED = 16  # there is a finite count in it

MANY = fixed(1 << 30)  # as `high`: any number
ENOUGH = fixed((1 << 30) - 1)  # as `low`: more than any token could bring

# Columns of a node, and of a state.
KIND, A, B, LOW, HIGH, KNOWN, STATE_AT = range(7)
NODE, TRACKERS, MIDDLE, STATUS, BITS, SEEN = range(6)
ACCEPTS, LIVE, DEAD = 1, 2, 4  # bits of STATUS

# Places in `facts`: counters, what first bytes lead to, expressions of rules.
NUM_NODES, NUM_STATES, NUM_MEMOS, TROUBLE, STEPS, SEARCHES, WHOLE, AGREES = range(8)
LEAD = 16
RULES = LEAD + 256
# Values of TROUBLE.
FULL, SPENT, TOO_DEEP = 1, 2, 3

UNKNOWN, NOWHERE = fixed(-2), fixed(-1)  # in `rows`; NOWHERE also as a place: between two characters


class Store(NamedTuple):
    """What compiled code works on. All numbers are int64, but for `rows`, the largest.

    `nodes` [n, 7]: an expression a row; its last column is the state that it is the key of, or -1.
    `buckets`: the hash table that finds them. `memo` [m, 3]: derivatives known, as key, bits and value.
    `members`: bool [num_sets, num_classes]. `states` [s, 6]: node, trackers, place within a character (-1:
    between two), status, look-behinds that hold there, and the last search that saw it. `rows`: int32
    [s, 256], the state after each byte. `facts`: counters; by first byte of a character, its class (ASCII)
    or node of the lattice; by rule, its expression. `lattice` [l, 65]: by continuation byte - 0x80 the
    class (last column 1) or node below; `below`: bool [l + 1, num_classes], which classes lie below,
    and in the last row which there are at all. `lexer`:
    the lexers and parser of a grammar, empty for a regular expression.
    """

    nodes: Int64s
    buckets: Int64s
    memo: Int64s
    members: Flags
    states: Int64s
    rows: Int32s
    facts: Int64s
    lattice: Int64s
    below: Flags
    lexer: Int64s


@inner
def mixed(x: int, y: int) -> int:  # pragma: no cover
    """A hash of two numbers."""
    result = (np.uint64(x) + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
    result ^= result >> np.uint64(29)
    result = (result + np.uint64(y)) * np.uint64(0x94D049BB133111EB)
    return int64((result ^ (result >> np.uint64(32))) & np.uint64(0x7FFFFFFFFFFFFFFF))


@inner
def hash_of(kind: int, a: int, b: int, low: int, high: int) -> int:  # pragma: no cover
    """The hash of a node's columns."""
    return mixed(mixed(a, b) ^ kind, low ^ (high << 31))


@inner
def intern(
    store: Store, kind: int, a: int, b: int, low: int, high: int, known: int
) -> int:  # pragma: no cover
    """The row of this expression, made if it is new. `EMPTY`, and trouble noted, if there is no room."""
    counters, nodes, buckets = store.facts, store.nodes, store.buckets
    counters[STEPS] -= 1
    if counters[STEPS] < 0:
        counters[TROUBLE] = SPENT
    if counters[TROUBLE]:
        return int64(EMPTY)
    last = len(buckets) - 1
    slot = hash_of(kind, a, b, low, high) & last
    while buckets[slot] >= 0:
        node = buckets[slot]
        row = nodes[node]
        if row[KIND] == kind and row[A] == a and row[B] == b and row[LOW] == low and row[HIGH] == high:
            return node
        slot = (slot + 1) & last
    made = counters[NUM_NODES]
    if made == len(nodes):
        counters[TROUBLE] = FULL
        return int64(EMPTY)
    counters[NUM_NODES] = made + 1
    row = nodes[made]
    row[KIND], row[A], row[B], row[LOW], row[HIGH], row[KNOWN] = kind, a, b, low, high, known
    row[STATE_AT] = -1
    buckets[slot] = made
    return made


@njit(cache=True, nogil=True)
def rehash(store: Store, memo: Int64s) -> None:  # pragma: no cover
    """Fills the empty `buckets`, and the empty memo with what an older one, if it is another, holds."""
    last = len(store.buckets) - 1
    for node in range(store.facts[NUM_NODES]):
        row = store.nodes[node]
        slot = hash_of(row[KIND], row[A], row[B], row[LOW], row[HIGH]) & last
        while store.buckets[slot] >= 0:
            slot = (slot + 1) & last
        store.buckets[slot] = node
    if len(memo) < len(store.memo):
        for row in memo:
            if row[2] >= 0:
                slot = mixed(row[0], row[1]) & (len(store.memo) - 1)
                while store.memo[slot, 2] >= 0:
                    slot = (slot + 1) & (len(store.memo) - 1)
                store.memo[slot] = row


@inner
def recall(store: Store, key: int, bits: int) -> int:  # pragma: no cover
    """What was remembered under a key, or -1."""
    memo = store.memo
    last = len(memo) - 1
    slot = mixed(key, bits) & last
    while memo[slot, 2] >= 0:
        if memo[slot, 0] == key and memo[slot, 1] == bits:
            return memo[slot, 2]
        slot = (slot + 1) & last
    return int64(-1)


@inner
def remember(store: Store, key: int, bits: int, value: int) -> None:  # pragma: no cover
    """Remembers a value, unless it came out of trouble; notes trouble if there is no room."""
    counters, memo = store.facts, store.memo
    size = len(memo)
    if 2 * counters[NUM_MEMOS] > size and not counters[TROUBLE]:
        counters[TROUBLE] = FULL
    if counters[TROUBLE]:
        return
    slot = mixed(key, bits) & (size - 1)
    while memo[slot, 2] >= 0:
        slot = (slot + 1) & (size - 1)
    memo[slot, 0], memo[slot, 1], memo[slot, 2] = key, bits, value
    counters[NUM_MEMOS] += 1


@inner
def points(kind: int) -> int:  # pragma: no cover
    """Which columns of a kind of row are other rows: bit 0 for a, bit 1 for b."""
    if kind in (CONCAT, OR, AND, LOOK, VECTOR, STATE, LEXED):
        return 3
    if kind in (NOT, REPEAT, PARSED):
        return 1
    return 2 if kind in (LEXED, STACK) else 0
