"""The walk of a token trie along an automaton: which tokens may come next.

The trie's nodes lie in one row, depth first: after a byte that the automaton allows comes its first
child, after one that it does not comes the next node outside of the subtree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from treille.runtime.grammar.states import after_byte, after_bytes, live_after
from treille.runtime.grammar.store import (
    BEHINDS,
    CHARS,
    CONCAT,
    HIGH,
    KIND,
    KNOWN,
    MANY,
    MIDDLE,
    NODE,
    OR,
    REPEAT,
    SEARCHED,
    TROUBLE,
    UNKNOWN,
    A,
    B,
    Bytes,
    Flags,
    Int32s,
    Int64s,
    Store,
    grafted,
    inner,
    int64,
)

Words = NDArray[np.uint32]


ALL_SPELLABLE = np.zeros(0, np.bool_)  # of a vocabulary with a token for every byte
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
    set if every token at or below the node is in slice k (see `slices.py`). The bytes of token t are
    `data[ends[t]:ends[t + 1]]`; `by_length`: the ids of tokens with bytes, the shorter first.
    """

    byte: Bytes
    depth: Int32s
    skip: Int32s
    token_start: Int32s
    token_ids: Int32s
    covered: NDArray[np.uint32]
    max_depth: np.int64
    data: Bytes
    ends: Int64s
    by_length: Int64s

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


def build_trie(spellings: Sequence[bytes | None]) -> Trie:
    """The trie of a vocabulary: by token id its bytes, or None."""
    tokens = sorted((spelling, token_id) for token_id, spelling in enumerate(spellings) if spelling)
    lengths = np.array([len(spelling) for spelling, _ in tokens], np.int64)
    ids = np.array([token_id for _, token_id in tokens], np.int64)
    room = int(lengths.sum())
    data = np.frombuffer(b"".join(spelling for spelling, _ in tokens), np.uint8)
    byte, depth, skip = np.empty(room, np.uint8), np.empty(room, np.int32), np.empty(room, np.int32)
    token_start = np.empty(room + 1, np.int32)
    max_depth = int(lengths.max(initial=0))
    path = np.empty(max_depth + 1, np.int32)
    count = _lay_out(data, np.cumsum(lengths), byte, depth, skip, token_start, path)
    token_start[count] = len(tokens)
    by_id = [spelling or b"" for spelling in spellings]
    return Trie(
        byte=byte[:count].copy(),
        depth=depth[:count].copy(),
        skip=skip[:count].copy(),
        token_start=token_start[: count + 1].copy(),
        token_ids=ids.astype(np.int32),
        covered=np.zeros(count, np.uint32),
        max_depth=np.int64(max_depth),
        # A copy can be written to, which to compiled code is another type than one that cannot.
        data=np.frombuffer(b"".join(by_id), np.uint8).copy(),
        ends=np.cumsum([0, *map(len, by_id)]),
        by_length=ids[np.argsort(lengths, kind="stable")],
    )


@njit(cache=True, nogil=True)
def cover(trie: Trie, slices_of: NDArray[np.uint32]) -> None:  # pragma: no cover
    """Fills `covered`, given the slices of every token as bits: from the last node to the first."""
    for node in range(len(trie.byte) - 1, -1, -1):
        bits = np.uint32(0xFFFFFFFF)
        for index in range(trie.token_start[node], trie.token_start[node + 1]):
            bits &= slices_of[trie.token_ids[index]]
        child = node + 1
        while child < trie.skip[node]:
            bits &= trie.covered[child]
            child = int64(trie.skip[child])
        trie.covered[node] = bits


@inner
def _loops_over(store: Store, node: int, symbols: Flags) -> bool:  # pragma: no cover
    """Whether one of the alternatives begins with a loop without end over all characters of a slice."""
    if store.nodes[node, KNOWN] & (SEARCHED | BEHINDS):
        return False
    last = False
    while not last:
        last = store.nodes[node, KIND] != OR
        member = node if last else store.nodes[node, A]
        head = store.nodes[member, A] if store.nodes[member, KIND] == CONCAT else member
        body = store.nodes[head, A]
        if (
            store.nodes[head, KIND] == REPEAT
            and store.nodes[head, HIGH] == MANY
            and store.nodes[body, KIND] == CHARS
        ):
            covers = True
            for symbol in range(symbols.shape[1]):
                outside = not store.members[store.nodes[body, A], symbol]
                covers = covers and not (outside and (symbols[0, symbol] or symbols[1, symbol]))
            if covers:
                return True
        node = store.nodes[node, B]
    return False


@grafted
def allows_slice(store: Store, state: int, symbols: Flags) -> bool:  # pragma: no cover
    """Whether every text of a slice may follow a state, at any length: whether its body's classes lead from
    there, but first those of its first character, to few states, all live, and from those to no others."""
    if _loops_over(store, store.states[state, NODE], symbols):
        return True
    found = np.empty(_MAX_CLOSED, np.int64)
    count, at = 0, -1
    while at < count:
        here = state if at < 0 else found[at]
        for symbol in range(symbols.shape[1]):
            if not symbols[1 if at < 0 else 0, symbol]:
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


@grafted
def _correct_long(store: Store, trie: Trie, state: int, reach: int, row: Words) -> None:  # pragma: no cover
    """Makes the bits of tokens longer than `reach` bytes right for `state`."""
    for index in range(len(trie.by_length) - 1, -1, -1):
        token_id = trie.by_length[index]
        first, end = trie.ends[token_id], trie.ends[token_id + 1]
        if end - first <= reach or store.facts[TROUBLE]:
            break
        bit = np.uint32(1) << np.uint32(token_id & 31)
        if after_bytes(store, state, trie.data, first, end) < 0:
            row[token_id >> 5] &= ~bit
        else:
            row[token_id >> 5] |= bit


@njit(cache=True, nogil=True)
def fill_tokens(
    store: Store,
    trie: Trie,
    slices: Slices,
    symbols: Flags,
    state: int,
    reach: int,
    spellable: Flags,
    stack: Int32s,
    row: Words,
) -> int:  # pragma: no cover
    """Sets the bits of the tokens that lead from `state` to a live state; returns how many bytes ahead it
    looked. With `reach` at 0 or more, `row` is right already for tokens of so many bytes, and only those of
    longer ones are looked at. Where `spellable`, bool [num_states], is not empty, only tokens that lead to
    a state in it are allowed.

    `symbols`: bool [num_slices, 2, num_classes], see `slices.py`; `stack`: int32 [max_depth + 1]; `row`:
    uint32 [ceil(vocab_size / 32)], bits added to what is there.
    """
    if reach >= 0:
        _correct_long(store, trie, state, reach, row)
        return int64(0)
    deepest = int64(0)
    bit = np.uint32(0)
    if store.states[state, MIDDLE] < 0:
        for index in range(len(symbols)):
            if allows_slice(store, state, symbols[index]):
                row |= slices.words[index]
                deepest = slices.longest[index]
                bit = np.uint32(1 << index)
                break
            if store.facts[TROUBLE]:
                return deepest
    rows = store.rows
    num_nodes = len(trie.byte)
    stack[0] = state
    node = int64(0)
    while node < num_nodes:
        if trie.covered[node] & bit:
            node = int64(trie.skip[node])
            continue
        depth = trie.depth[node]
        following = int64(rows[stack[depth - 1], trie.byte[node]])
        if following == UNKNOWN:
            following = after_byte(store, int64(stack[depth - 1]), int64(trie.byte[node]))
            if store.facts[TROUBLE]:
                return deepest
        # A byte that is not allowed was looked at too: where counts are endless it may be the one that
        # follows a count.
        deepest = max(deepest, int64(depth))
        if following < 0:
            node = int64(trie.skip[node])
            continue
        stack[depth] = following
        if len(spellable) == 0 or spellable[following]:
            for index in range(trie.token_start[node], trie.token_start[node + 1]):
                token_id = trie.token_ids[index]
                row[token_id >> 5] |= np.uint32(1) << np.uint32(token_id & 31)
        node += 1
    return deepest


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
