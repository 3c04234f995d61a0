"""Which tokens may come next: walks of the token trie along the machine's states.

In a free string every token of plain text may come, and of the others only what follows their text matters: they
are walked by that, all tokens with the same rest at once. Where a string is nearly free (a key that must not be one of
some others) only the ways on which it differs from a free one are walked.
"""

from __future__ import annotations

import numpy as np

from treille.runtime.grammar.masks import Trie, Words
from treille.runtime.grammar.slices import TEXT_SLICE
from treille.runtime.grammar.store import MIDDLE, NODE, Int32s, inner, int64
from treille.runtime.schema.machine.languages import slice_allowed
from treille.runtime.schema.machine.memory import (
    Machine,
    nodes_of,
    rests_of,
    row_to_fill,
    rows_of,
    slices_of,
    stack_of,
    states_of,
    suspects_of,
    text_states_of,
    trie_of,
    troubled,
)
from treille.runtime.schema.machine.rows import (
    A_COLUMN,
    B_COLUMN,
    HIGH_COLUMN,
    LOW_COLUMN,
    NONE,
    NOT_ASKED,
    REGION_AT,
    SUSPECT,
)
from treille.runtime.schema.machine.states import twin_of
from treille.runtime.schema.machine.walking import after_bytes, stepped

# What `fill` is to do.
WALK, FREE, DIFFERENCE, LONG, SUSPECTS = range(5)
TEXT = int(TEXT_SLICE)


@inner
def _step(machine: Machine, state: int, byte: int) -> int:  # pragma: no cover
    """The state after a byte, without captured texts."""
    following = stepped(machine, state, byte)
    if following < 0:
        return following
    return twin_of(machine, following)


@inner
def _set(trie: Trie, row: Words, first: int, end: int) -> None:  # pragma: no cover
    for index in range(first, end):
        token_id = trie.token_ids[index]
        row[token_id >> 5] |= np.uint32(1) << np.uint32(token_id & 31)


@inner
def _clear(trie: Trie, row: Words, first: int, end: int) -> None:  # pragma: no cover
    for index in range(first, end):
        token_id = trie.token_ids[index]
        row[token_id >> 5] &= ~(np.uint32(1) << np.uint32(token_id & 31))


@inner
def _suspected(machine: Machine, trie: Trie, node: int) -> None:  # pragma: no cover
    """Notes the tokens at and below a node: [count, first and end in `token_ids`, ...], where those of `rests` come
    after those of the trie itself. Past the room for them, all are noted as one."""
    suspects, whole = suspects_of(machine), trie_of(machine)
    count = suspects[0]
    if 2 * count + 2 < len(suspects):
        shift = 0 if len(trie.byte) == len(whole.byte) else len(whole.token_ids)
        suspects[2 * count + 1] = trie.token_start[node] + shift
        suspects[2 * count + 2] = trie.token_start[trie.skip[node]] + shift
        suspects[0] = count + 1
    else:
        suspects[0], suspects[1], suspects[2] = 1, 0, len(whole.token_ids)


@inner
def _walk(
    machine: Machine, trie: Trie, state: int, skipped: int, stack: Int32s, row: Words
) -> int:  # pragma: no cover
    """Sets the bits of the tokens that may come; but for those below nodes that a slice of `skipped` covers. Returns
    how many bytes ahead it looked."""
    rows = rows_of(machine)
    states = states_of(machine)
    bit = np.uint32(skipped)
    deepest = int64(0)
    stack[0] = state
    node = int64(0)
    num_nodes = len(trie.byte)
    while node < num_nodes:
        if trie.covered[node] & bit:
            node = int64(trie.skip[node])
            continue
        depth = trie.depth[node]
        above = int64(stack[depth - 1])
        following = int64(rows[above, trie.byte[node]])
        if following == NOT_ASKED or (following >= 0 and states[following, 1] != following):
            following = _step(machine, above, int64(trie.byte[node]))
            if troubled(machine):
                return deepest
        deepest = max(deepest, int64(depth))
        if following < 0:
            if following == SUSPECT:
                _suspected(machine, trie, node)
            node = int64(trie.skip[node])
            continue
        stack[depth] = following
        _set(trie, row, trie.token_start[node], trie.token_start[node + 1])
        node += 1
    return deepest


@inner
def _walk_difference(
    machine: Machine,
    trie: Trie,
    state: int,
    base: int,
    stack: Int32s,
    base_stack: Int32s,
    row: Words,
) -> None:  # pragma: no cover
    """Makes a mask of `base` one of `state`: only where the two do not come to be the same is anything changed."""
    stack[0], base_stack[0] = state, base
    node = int64(0)
    while node < len(trie.byte):
        depth, byte = trie.depth[node], int64(trie.byte[node])
        following = _step(machine, int64(stack[depth - 1]), byte)
        other = int64(base_stack[depth - 1])
        if other >= 0:
            other = _step(machine, other, byte)
        if troubled(machine):
            return
        if following < 0 or following == other:
            if following == SUSPECT:
                _suspected(machine, trie, node)
            if following != other and other >= 0:
                _clear(trie, row, trie.token_start[node], trie.token_start[trie.skip[node]])
            node = int64(trie.skip[node])
            continue
        _set(trie, row, trie.token_start[node], trie.token_start[node + 1])
        stack[depth], base_stack[depth] = following, other
        node += 1


@inner
def _slice_of(machine: Machine, state: int) -> int:  # pragma: no cover
    """The first slice of tokens that may all come within a string, or -1."""
    nodes = nodes_of(machine)
    node = states_of(machine)[state, NODE]
    while node != NONE:
        config = nodes[node, A_COLUMN]
        place = nodes[nodes[config, A_COLUMN]]
        if place[0] == REGION_AT and nodes[config, HIGH_COLUMN] == 0 and place[HIGH_COLUMN] == NONE:
            text = int64(place[LOW_COLUMN])
            if text_states_of(machine)[text, MIDDLE] < 0:
                found = slice_allowed(machine, text)
                if found >= 0:
                    return found
        node = nodes[node, B_COLUMN]
    return int64(-1)


@inner
def _correct_long(
    machine: Machine, trie: Trie, state: int, reach: int, row: Words
) -> None:  # pragma: no cover
    """Makes the bits of tokens longer than `reach` bytes right for `state`."""
    for index in range(len(trie.by_length) - 1, -1, -1):
        token_id = trie.by_length[index]
        first, end = trie.ends[token_id], trie.ends[token_id + 1]
        if end - first <= reach or troubled(machine):
            break
        _correct(machine, trie, state, int64(token_id), row)


@inner
def _correct(machine: Machine, trie: Trie, state: int, token_id: int, row: Words) -> None:  # pragma: no cover
    bit = np.uint32(1) << np.uint32(token_id & 31)
    if after_bytes(machine, state, trie.data, int64(trie.ends[token_id]), int64(trie.ends[token_id + 1])) < 0:
        row[token_id >> 5] &= ~bit
    else:
        row[token_id >> 5] |= bit


@inner
def fill(machine: Machine, what: int, state: int, x: int) -> int:  # pragma: no cover
    """Sets bits of the row to be filled for the tokens that may follow `state`; returns how many bytes ahead it
    looked.

    WALK: any state. FREE: a free one. DIFFERENCE: the row is the mask of state x, from which little differs. LONG: the
    row is right for tokens of up to x bytes. SUSPECTS: it is right but for the tokens that are suspected.
    """
    trie, row, suspects = trie_of(machine), row_to_fill(machine), suspects_of(machine)
    if what == LONG:
        _correct_long(machine, trie, state, x, row)
        return int64(0)
    if what == SUSPECTS:
        for index in range(suspects[0]):
            for place in range(suspects[2 * index + 1], suspects[2 * index + 2]):
                shift = len(trie.token_ids)
                ids = trie.token_ids if place < shift else rests_of(machine).token_ids
                _correct(machine, trie, state, int64(ids[place if place < shift else place - shift]), row)
        return int64(0)
    suspects[0] = 0
    slices, stack = slices_of(machine), stack_of(machine, int64(0))
    if what == DIFFERENCE:
        _walk_difference(machine, trie, state, x, stack, stack_of(machine, int64(1)), row)
        return int64(len(stack))
    if what == FREE:
        row |= slices.words[TEXT]
        _walk(machine, rests_of(machine), state, int64(0), stack, row)
        return int64(len(stack))
    chosen = _slice_of(machine, state)
    if troubled(machine):
        return int64(0)
    if chosen < 0:
        return _walk(machine, trie, state, int64(0), stack, row)
    row |= slices.words[chosen]
    looked = _walk(machine, trie, state, int64(1) << chosen, stack, row)
    return max(looked, int64(slices.longest[chosen]))
