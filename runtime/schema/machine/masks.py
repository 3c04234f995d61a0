"""Which tokens may come next: walks of the token trie along the machine's states.

In a free string every token of plain text may come, and of the others only what follows their text matters:
they are walked by that, all tokens with the same rest at once. Where a string is nearly free (a key that
must not be one of some others) only the ways on which it differs from a free one are walked.
"""

from __future__ import annotations

import numpy as np

from treille.runtime.grammar.masks import Trie, Words
from treille.runtime.grammar.store import MIDDLE, NODE, inner, int64
from treille.runtime.schema.machine.gaps import gap_after
from treille.runtime.schema.machine.languages import slice_allowed
from treille.runtime.schema.machine.memory import (
    Machine,
    mixed_of,
    nodes_of,
    rests_of,
    row_to_fill,
    rows_of,
    slices_of,
    stack_of,
    states_of,
    suspects_of,
    text_states_of,
    texts_of,
    trie_of,
    troubled,
)
from treille.runtime.schema.machine.rows import (
    A_COLUMN,
    B_COLUMN,
    EMPTY_TEXT,
    HIGH_COLUMN,
    LOW_COLUMN,
    NONE,
    NOT_ASKED,
    NOWHERE,
    REGION_AT,
    SUSPECT,
)
from treille.runtime.schema.machine.states import GAP, TWIN, twin_of
from treille.runtime.schema.machine.texts import byte_of
from treille.runtime.schema.machine.walking import after_bytes, base_of, stepped

# What `fill` is to do.
WALK, FREE, DIFFERENCE, LONG, SUSPECTS = range(5)
_QUOTE = 0x22


@inner
def _step(machine: Machine, state: int, byte: int) -> int:  # pragma: no cover
    """The state after a byte, without captured texts."""
    following = stepped(machine, state, byte)
    if following < 0:
        return following
    following = twin_of(machine, following)
    if not troubled(machine) and rows_of(machine)[following, 0x7E] == NOT_ASKED:
        # Within a string that is nearly free: most bytes are answered at once.
        base_of(machine, following)
    return following


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
    """Notes the tokens at and below a node: [count, first and end in `token_ids`, ...], where those of
    `rests` come after those of the trie itself. Past the room for them, all are noted as one."""
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
    machine: Machine, trie: Trie, first: int, end: int, state: int, skipped: int, row: Words
) -> int:  # pragma: no cover
    """Makes the bits right of the tokens at the nodes from `first` to `end`, where `state` is that of the
    node that they lie below; but for those below nodes that a slice of `skipped` covers. Returns how many
    bytes ahead it looked.

    White space between two tokens of a JSON text makes no states of its own here: only how much of it there
    was is followed, since what may come behind it is the same.
    """
    rows, states = rows_of(machine), states_of(machine)
    stack, spaces = stack_of(machine, int64(0)), stack_of(machine, int64(1))
    bit = np.uint32(skipped)
    deepest = int64(0)
    node = int64(first)
    above = int64(trie.depth[node] - 1) if first < end else int64(0)
    stack[above], spaces[above] = state, states[state, GAP]
    while node < end:
        if trie.covered[node] & bit:
            node = int64(trie.skip[node])
            continue
        depth, byte = trie.depth[node], int64(trie.byte[node])
        above = int64(stack[depth - 1])
        deepest = max(deepest, int64(depth))
        space = int64(spaces[depth - 1])
        if space and (byte == 0x20 or byte == 0x0A or byte == 0x0D or byte == 0x09):
            space = gap_after(machine, space, int64(0), byte)
            following = above if space > 0 else int64(NOWHERE)
        else:
            following = int64(rows[above, byte])
            if following == NOT_ASKED or (following >= 0 and states[following, TWIN] != following):
                following = _step(machine, above, byte)
                if troubled(machine):
                    return deepest
            space = int64(states[following, GAP]) if following >= 0 else int64(0)
        if following < 0:
            if following == SUSPECT:
                _suspected(machine, trie, node)
            node = int64(trie.skip[node])
            continue
        stack[depth], spaces[depth] = following, space
        _set(trie, row, trie.token_start[node], trie.token_start[node + 1])
        node += 1
    return deepest


@inner
def _child(trie: Trie, node: int, byte: int) -> int:  # pragma: no cover
    """The child of a node (-1: the root) by a byte, or -1."""
    child = node + 1
    end = int64(trie.skip[node]) if node >= 0 else int64(len(trie.byte))
    while child < end and trie.byte[child] != byte:
        child = int64(trie.skip[child])
    return int64(child if child < end else -1)


@inner
# pragma: no cover
def _walk_endings(machine: Machine, trie: Trie, state: int, node: int, row: Words) -> None:
    """Makes the bits right of the tokens that end a string at a node (-1: at once), where it is in
    `state`."""
    ending = _child(trie, node, int64(_QUOTE))
    if ending < 0:
        return
    _clear(trie, row, trie.token_start[ending], trie.token_start[trie.skip[ending]])
    _walk(machine, trie, ending, int64(trie.skip[ending]), state, int64(0), row)


@inner
def _walk_differences(machine: Machine, trie: Trie, state: int, row: Words) -> None:  # pragma: no cover
    """Makes a mask of the free state that `state` differs little from one of it. They differ only where a
    string ends that is one of the literals, or of the keys that were seen: tokens that go up to such an end
    are walked. One that cannot be written as it is (it has a quote, say) needs no walk: a token that spells
    it has a backslash, and is looked at by itself."""
    nodes = nodes_of(machine)
    node = states_of(machine)[state, NODE]
    low, high, depth, table, others = int64(0), int64(0), int64(0), int64(0), int64(NONE)
    while node != NONE:
        place = nodes[nodes[nodes[node, A_COLUMN], A_COLUMN]]
        literals = int64(nodes[nodes[node, A_COLUMN], A_COLUMN])
        if place[0] == REGION_AT:
            literals = int64(NONE)
            if place[HIGH_COLUMN] != NONE:
                literals, others = (
                    int64(nodes[place[HIGH_COLUMN], A_COLUMN]),
                    int64(nodes[place[HIGH_COLUMN], B_COLUMN]),
                )
        if literals != NONE:
            place = nodes[literals]
            table, low, high, depth = place[A_COLUMN], place[B_COLUMN], place[LOW_COLUMN], place[HIGH_COLUMN]
        node = nodes[node, B_COLUMN]
    for literal in range(low, high):
        at, here, index = int64(-1), int64(state), depth
        byte = byte_of(machine, table, int64(literal), index)
        while byte >= 0 and (index == depth or at >= 0):
            at = _child(trie, at, byte)
            index += 1
            byte = byte_of(machine, table, int64(literal), index)
        if index == depth or (at >= 0 and _child(trie, at, int64(_QUOTE)) >= 0):
            step = int64(depth)
            while step < index and here >= 0:
                here = _step(machine, here, byte_of(machine, table, int64(literal), step))
                step += 1
            if troubled(machine):
                return
            if here >= 0:
                _walk_endings(machine, trie, here, at, row)
    while others != NONE:
        text = int64(nodes[others, A_COLUMN])
        at, here, begun = int64(-1), int64(state), False
        while text > EMPTY_TEXT and (at >= 0 or not begun) and here >= 0:
            at, begun = _child(trie, at, int64(nodes[text, A_COLUMN])), True
            if at >= 0:
                here = _step(machine, here, int64(nodes[text, A_COLUMN]))
            text = int64(nodes[text, B_COLUMN])
        if troubled(machine):
            return
        if here >= 0 and text <= EMPTY_TEXT and (at >= 0 or not begun):
            _walk_endings(machine, trie, here, at, row)
        others = nodes[others, B_COLUMN]


@inner
def _slice_of(machine: Machine, state: int) -> int:  # pragma: no cover
    """The first slice of tokens that may all come within a string, or -1."""
    nodes = nodes_of(machine)
    node = states_of(machine)[state, NODE]
    while node != NONE:
        config = nodes[node, A_COLUMN]
        place = nodes[nodes[config, A_COLUMN]]
        # That it must not be one of some texts matters only where it ends: a slice goes on for ever.
        if place[0] == REGION_AT and nodes[config, HIGH_COLUMN] == 0:
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
    """Sets bits of the row to be filled for the tokens that may follow `state`; returns how many bytes ahead
    it looked.

    WALK: any state. FREE: a free one. DIFFERENCE: the row is the mask of state x, from which little differs.
    LONG: the row is right for tokens of up to x bytes. SUSPECTS: it is right but for the tokens that are
    suspected.
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
    slices = slices_of(machine)
    if what == DIFFERENCE:
        _walk_differences(machine, trie, state, row)
        mixed = mixed_of(machine)
        for index in range(len(mixed)):
            _correct(machine, trie, state, int64(mixed[index]), row)
        return int64(len(trie.byte))
    if what == FREE:
        row |= texts_of(machine)
        rests = rests_of(machine)
        _walk(machine, rests, int64(0), int64(len(rests.byte)), state, int64(0), row)
        return int64(len(trie.byte))
    size = int64(len(trie.byte))
    chosen = _slice_of(machine, state)
    if troubled(machine):
        return int64(0)
    if chosen < 0:
        return _walk(machine, trie, int64(0), size, state, int64(0), row)
    row |= slices.words[chosen]
    looked = _walk(machine, trie, int64(0), size, state, int64(1) << chosen, row)
    return max(looked, int64(slices.longest[chosen]))
