"""The walk of a token trie along an automaton: which tokens may come next.

The trie's nodes lie in one row, depth first: after a byte that the automaton allows comes its first
child, after one that it does not comes the next node outside of the subtree.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from treille.runtime.grammar.states import after_byte, live_after
from treille.runtime.grammar.store import MIDDLE, TROUBLE, UNKNOWN, Flags, Store, grafted

Int32s = NDArray[np.int32]
Bytes = NDArray[np.uint8]
Words = NDArray[np.uint32]


_MAX_CLOSED = 24  # states among which a slice's characters may lead about


class Slices(NamedTuple):
    """Sets of tokens that are made of certain characters only: `words` uint32 [num_slices, num_words], the
    mask of each; `longest` int64 [num_slices], the bytes of its longest token."""

    words: Words
    longest: NDArray[np.int64]


class Trie(NamedTuple):
    """The tokens of a vocabulary, by their bytes. Arrays are indexed by node, except `token_ids`.

    `byte`: uint8, the byte that leads to a node; `depth`: int32, bytes from the root, at least 1;
    `skip`: int32, the first node behind the subtree; the tokens that end at node i are
    `token_ids[token_start[i]:token_start[i + 1]]`, several if their bytes are the same. `covered`: bit k is
    set if every token at or below the node is in slice k (see `slices.py`).
    """

    byte: Bytes
    depth: Int32s
    skip: Int32s
    token_start: Int32s
    token_ids: Int32s
    covered: NDArray[np.uint16]
    max_depth: np.int64

    @property
    def nbytes(self) -> int:
        """Memory of the arrays."""
        return sum(
            array.nbytes
            for array in (self.byte, self.depth, self.skip, self.token_start, self.token_ids, self.covered)
        )


@njit(cache=True, nogil=True)
def _lay_out(
    data: Bytes,
    ends: NDArray[np.int64],
    byte: Bytes,
    depth: Int32s,
    skip: Int32s,
    token_start: Int32s,
    path: Int32s,
) -> int:  # pragma: no cover
    """Fills a trie's arrays from sorted, joined tokens; returns the number of nodes.

    `path[d]` is the open node at depth d + 1.
    """
    count = 0
    open_nodes = 0
    previous = 0
    start = 0
    for token in range(len(ends)):
        end = ends[token]
        shared = 0
        limit = min(end - start, start - previous)
        while shared < limit and data[start + shared] == data[previous + shared]:
            shared += 1
        while open_nodes > shared:
            open_nodes -= 1
            skip[path[open_nodes]] = count
        while open_nodes < end - start:
            byte[count] = data[start + open_nodes]
            path[open_nodes] = count
            open_nodes += 1
            depth[count] = open_nodes
            token_start[count] = token
            count += 1
        previous = start
        start = end
    while open_nodes > 0:
        open_nodes -= 1
        skip[path[open_nodes]] = count
    return count


def build_trie(tokens: list[tuple[bytes, int]]) -> Trie:
    """The trie of (bytes, token id) pairs, no bytes empty."""
    tokens = sorted(tokens)
    lengths = np.array([len(spelling) for spelling, _ in tokens], np.int64)
    ends = np.cumsum(lengths)
    room = int(lengths.sum())
    data = np.frombuffer(b"".join(spelling for spelling, _ in tokens), np.uint8)
    byte, depth, skip = np.empty(room, np.uint8), np.empty(room, np.int32), np.empty(room, np.int32)
    token_start = np.empty(room + 1, np.int32)
    max_depth = int(lengths.max(initial=0))
    count = _lay_out(data, ends, byte, depth, skip, token_start, np.empty(max_depth + 1, np.int32))
    token_start[count] = len(tokens)
    return Trie(
        byte=byte[:count].copy(),
        depth=depth[:count].copy(),
        skip=skip[:count].copy(),
        token_start=token_start[: count + 1].copy(),
        token_ids=np.array([token_id for _, token_id in tokens], np.int32),
        covered=np.zeros(count, np.uint16),
        max_depth=np.int64(max_depth),
    )


@njit(cache=True, nogil=True)
def cover(trie: Trie, slices_of: NDArray[np.uint16]) -> None:  # pragma: no cover
    """Fills `covered`, given the slices of every token as bits: from the last node to the first."""
    for node in range(len(trie.byte) - 1, -1, -1):
        bits = np.uint16(0xFFFF)
        for index in range(trie.token_start[node], trie.token_start[node + 1]):
            bits &= slices_of[trie.token_ids[index]]
        child = node + 1
        while child < trie.skip[node]:
            bits &= trie.covered[child]
            child = np.int64(trie.skip[child])
        trie.covered[node] = bits


@grafted
def _allows_slice(store: Store, state: int, symbols: Flags) -> bool:  # pragma: no cover
    """Whether every text of a slice may follow a state, at any length: whether its body's classes lead from
    there, and its lead's at the very start, to few states, all live, and from those to no others."""
    found = np.empty(_MAX_CLOSED, np.int64)
    count, at = 0, -1
    while at < count:
        here = state if at < 0 else found[at]
        for symbol in range(symbols.shape[1]):
            if not symbols[0, symbol] and not (at < 0 and symbols[1, symbol]):
                continue
            following = live_after(store, here, symbol)
            if following < 0:
                return False
            known = False
            for other in found[:count]:
                known = known or other == following
            if not known:
                if count == _MAX_CLOSED:
                    return False
                found[count] = following
                count += 1
        at += 1
    return True


@njit(cache=True, nogil=True)
def fill_tokens(
    store: Store, trie: Trie, slices: Slices, symbols: Flags, state: int, stack: Int32s, row: Words
) -> int:  # pragma: no cover
    """Sets the bits of the tokens that lead from `state` to a live state; returns how many bytes ahead it
    looked.

    `symbols`: bool [num_slices, 2, num_classes], see `slices.py`; `stack`: int32 [max_depth + 1]; `row`:
    uint32 [ceil(vocab_size / 32)], bits added to what is there.
    """
    deepest = np.int64(0)
    bit = np.uint16(0)
    if store.states[state, MIDDLE] < 0:
        for index in range(len(symbols)):
            if _allows_slice(store, state, symbols[index]):
                row |= slices.words[index]
                deepest = slices.longest[index]
                bit = np.uint16(1 << index)
                break
            if store.facts[TROUBLE]:
                return deepest
    rows = store.rows
    num_nodes = len(trie.byte)
    stack[0] = state
    node = np.int64(0)
    while node < num_nodes:
        if trie.covered[node] & bit:
            node = np.int64(trie.skip[node])
            continue
        depth = trie.depth[node]
        following = np.int64(rows[stack[depth - 1], trie.byte[node]])
        if following == UNKNOWN:
            following = after_byte(store, np.int64(stack[depth - 1]), np.int64(trie.byte[node]))
            if store.facts[TROUBLE]:
                return deepest
        if following < 0:
            node = np.int64(trie.skip[node])
            continue
        stack[depth] = following
        deepest = max(deepest, np.int64(depth))
        for index in range(trie.token_start[node], trie.token_start[node + 1]):
            token_id = trie.token_ids[index]
            row[token_id >> 5] |= np.uint32(1) << np.uint32(token_id & 31)
        node += 1
    return deepest


@njit(cache=True, nogil=True)
def fill_spellable(
    trie: Trie, rows: Int32s, live: Flags, state: int, stack: Int32s, row: Words
) -> None:  # pragma: no cover
    """As `fill_tokens` along complete rows, but only for tokens that lead to a state in `live`."""
    stack[0] = state
    node = 0
    while node < len(trie.byte):
        depth = trie.depth[node]
        following = rows[stack[depth - 1], trie.byte[node]]
        if following < 0:
            node = trie.skip[node]
            continue
        stack[depth] = following
        if live[following]:
            for index in range(trie.token_start[node], trie.token_start[node + 1]):
                token_id = trie.token_ids[index]
                row[token_id >> 5] |= np.uint32(1) << np.uint32(token_id & 31)
        node += 1


@njit(cache=True, nogil=True)
def _reaches(
    trie: Trie, transitions: Int32s, live: Flags, state: int, stack: Int32s
) -> bool:  # pragma: no cover
    """Whether one token leads from `state` to a live state."""
    stack[0] = state
    node = 0
    while node < len(trie.byte):
        depth = trie.depth[node]
        following = transitions[stack[depth - 1], trie.byte[node]]
        if following < 0:
            node = trie.skip[node]
            continue
        stack[depth] = following
        if live[following] and trie.token_start[node] < trie.token_start[node + 1]:
            return True
        node += 1
    return False


@njit(cache=True, nogil=True)
def spread_live(
    trie: Trie, transitions: Int32s, live: Flags, stack: Int32s, first: int, last: int
) -> int:  # pragma: no cover
    """One pass, from state `last - 1` down to `first`, that marks what reaches a live state by a token.

    Returns how many were marked. To be repeated until it is none.
    """
    changed = 0
    for state in range(last - 1, first - 1, -1):
        if not live[state] and _reaches(trie, transitions, live, state, stack):
            live[state] = True
            changed += 1
    return changed
