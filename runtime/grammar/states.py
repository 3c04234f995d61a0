"""States: an expression, its trackers and a place within a character; made when they are first reached.

A state's row has, by byte, the state that follows: -1 where no accepted text goes on like this, -2 where
nobody has asked yet. Between two characters the next class of characters decides; within one, a node of
the lattice of UTF-8 says which classes its next byte leaves, so a way never leaves well-formed UTF-8.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from treille.runtime.grammar.derive import (
    advance_trackers,
    derive,
    held_by,
    nullable,
    saturate,
    shortest_count,
)
from treille.runtime.grammar.store import (
    ACCEPTS,
    AGREES,
    BEHINDS,
    BITS,
    COUNTED,
    DEAD,
    EMPTY,
    FULL,
    KIND,
    KNOWN,
    LEAD,
    LIVE,
    MANY,
    MIDDLE,
    NODE,
    NONE,
    NOWHERE,
    NUM_STATES,
    OR,
    SEARCHED,
    SEARCHES,
    SEEN,
    STATE,
    STATE_AT,
    STATUS,
    STEPS,
    TRACKERS,
    TROUBLE,
    UNKNOWN,
    A,
    B,
    Bytes,
    Int32s,
    Store,
    grafted,
    inner,
    int64,
    intern,
)


@grafted
def _is_plain(store: Store, node: int) -> bool:  # pragma: no cover
    """Whether an expression, or an alternative of it, has a text for sure."""
    while store.nodes[node, KIND] == OR and store.nodes[store.nodes[node, A], KNOWN] & SEARCHED:
        node = store.nodes[node, B]
    first = store.nodes[node, A] if store.nodes[node, KIND] == OR else node
    return not store.nodes[first, KNOWN] & SEARCHED


@inner
def state_of(store: Store, node: int, trackers: int, middle: int) -> int:  # pragma: no cover
    """The state of an expression, made if it is new; `NOWHERE`, and trouble noted, if there is no room."""
    counters = store.facts
    if not store.nodes[node, KNOWN] & BEHINDS:
        trackers = int64(EMPTY)
    key = intern(store, STATE, node, trackers, middle, NONE, NONE)
    if counters[TROUBLE]:
        return int64(NOWHERE)
    state = store.nodes[key, STATE_AT]
    if state >= 0:
        return state
    state = int64(counters[NUM_STATES])
    if state == len(store.states):
        counters[TROUBLE] = FULL
        return int64(NOWHERE)
    counters[NUM_STATES] = state + 1
    bits = held_by(store, trackers)
    status = 0
    if node == EMPTY:
        status = DEAD
    elif middle < 0 and nullable(store, node, bits):
        status = ACCEPTS | LIVE
    elif _is_plain(store, node):
        status = LIVE
    row = store.states[state]
    row[NODE], row[TRACKERS], row[MIDDLE], row[STATUS] = node, trackers, middle, status
    row[BITS], row[SEEN] = bits, 0
    store.rows[state] = UNKNOWN
    store.nodes[key, STATE_AT] = state
    return state


@inner
def after_class(store: Store, state: int, symbol: int) -> int:  # pragma: no cover
    """The state after one character of a class, dead or not; `NOWHERE` where there is none."""
    row = store.states[state]
    bits = row[BITS]
    node = derive(store, row[NODE], symbol, bits)
    if node == EMPTY:
        return int64(NOWHERE)
    trackers = int64(EMPTY)
    if store.nodes[node, KNOWN] & BEHINDS:
        trackers = advance_trackers(store, row[TRACKERS], symbol, bits)
    return state_of(store, node, trackers, NOWHERE)


@inner
def is_live(store: Store, state: int) -> bool:  # pragma: no cover
    """Whether any text leads from here, between two characters, to acceptance. Found by a search, if it
    must be: breadth first until a state is reached that is known to be live. The way there is then live;
    if the search ends without one, all that it saw is dead."""
    status = store.states[state, STATUS]
    if status & (LIVE | DEAD):
        return (status & LIVE) != 0
    counters, states = store.facts, store.states
    counters[SEARCHES] += 1
    search = counters[SEARCHES]
    queue = np.empty(len(states), np.int64)
    came_from = np.empty(len(states), np.int64)
    queue[0], came_from[0] = state, -1
    states[state, SEEN] = search
    count, at = 1, 0
    while at < count:
        for symbol in range(store.members.shape[1]):
            counters[STEPS] -= 1
            if not store.below[len(store.below) - 1, symbol]:
                continue
            following = after_class(store, queue[at], symbol)
            if counters[TROUBLE]:
                return False
            if following < 0 or states[following, SEEN] == search:
                continue
            states[following, SEEN] = search
            status = states[following, STATUS]
            if status & LIVE:
                place = at
                while place >= 0:
                    states[queue[place], STATUS] |= LIVE
                    place = came_from[place]
                return True
            if not status & DEAD:
                queue[count], came_from[count] = following, at
                count += 1
        at += 1
    for index in range(count):
        states[queue[index], STATUS] |= DEAD
    return False


@inner
def live_after(store: Store, state: int, symbol: int) -> int:  # pragma: no cover
    """The live state after one character of a class, or `NOWHERE`."""
    following = after_class(store, state, symbol)
    if following >= 0 and not is_live(store, following):
        return int64(NOWHERE)
    return following


@grafted
def _within(store: Store, state: int, lattice_node: int) -> int:  # pragma: no cover
    """The state within a character that any class below `lattice_node` may complete, or `NOWHERE`."""
    for symbol in range(store.members.shape[1]):
        if store.below[lattice_node, symbol] and live_after(store, state, symbol) >= 0:
            row = store.states[state]
            middle = state_of(store, row[NODE], row[TRACKERS], lattice_node)
            if middle >= 0:
                store.states[middle, STATUS] |= LIVE
            return middle
    return int64(NOWHERE)


@inner
def after_byte(store: Store, state: int, byte: int) -> int:  # pragma: no cover
    """The live state after one more byte, or `NOWHERE`; noted in the state's row, if there was no trouble."""
    known = store.rows[state, byte]
    if known != UNKNOWN:
        return int64(known)
    middle = store.states[state, MIDDLE]
    following = int64(NOWHERE)
    if middle >= 0:
        child = int64(store.lattice[middle, byte - 0x80] if 0x80 <= byte < 0xC0 else NOWHERE)
        last = store.lattice[middle, 64] == 1
    else:
        child = store.facts[LEAD + byte]
        last = byte < 0x80
    if child >= 0 and last:
        following = live_after(store, state, child)
    elif child >= 0:
        following = _within(store, state, child)
    if store.facts[TROUBLE]:
        return int64(NOWHERE)
    # All bytes that lead the same way are filled at once.
    if middle >= 0:
        for other in range(64):
            if store.lattice[middle, other] == child:
                store.rows[state, 0x80 + other] = following
    else:
        for other in range(0 if last else 0x80, 0x80 if last else 256):
            if store.facts[LEAD + other] == child:
                store.rows[state, other] = following
    store.rows[state, byte] = following
    return following


@grafted
def after_bytes(store: Store, state: int, data: Bytes, first: int, end: int) -> int:  # pragma: no cover
    """The live state after `data[first:end]`, uint8, or `NOWHERE`."""
    for index in range(first, end):
        following = int64(store.rows[state, data[index]])
        if following == UNKNOWN:
            following = after_byte(store, state, int64(data[index]))
        if following < 0:
            return following
        state = following
    return int64(state)


@grafted
def only_byte(store: Store, state: int) -> int:  # pragma: no cover
    """The one byte that may follow; -1 if none may, -2 if there is a choice, of which stopping is one."""
    if store.states[state, STATUS] & ACCEPTS:
        for byte in range(256):
            if after_byte(store, state, byte) >= 0:
                return int64(-2)
        return int64(-1)
    only = int64(-1)
    for byte in range(256):
        if after_byte(store, state, byte) >= 0:
            if only >= 0:
                return int64(-2)
            only = int64(byte)
    return only


@grafted
def forced(store: Store, state: int, out: Bytes) -> int:  # pragma: no cover
    """Writes the bytes that must follow into `out`, uint8, at most its length; returns how many."""
    count = 0
    while count < len(out):
        byte = only_byte(store, state)
        if byte < 0 or store.facts[TROUBLE]:
            break
        out[count] = byte
        count += 1
        state = after_byte(store, state, byte)
    return int64(count)


@grafted
def widened(store: Store, state: int) -> int:  # pragma: no cover
    """The state in which long counts are endless; notes how many characters ahead it agrees with this one."""
    row = store.states[state]
    store.facts[AGREES] = MANY
    if not store.nodes[row[NODE], KNOWN] & COUNTED:
        return int64(state)
    node = saturate(store, row[NODE])
    if node == row[NODE]:
        return int64(state)
    store.facts[AGREES] = shortest_count(store, row[NODE])
    return state_of(store, node, row[TRACKERS], row[MIDDLE])


@njit(cache=True, nogil=True)
def along(rows: Int32s, state: int, data: Bytes, first: int, end: int) -> int:  # pragma: no cover
    """As `after_bytes`, but `UNKNOWN` where a row has to be asked for first."""
    following = int64(state)
    for index in range(first, end):
        following = int64(rows[following, data[index]])
        if following < 0:
            break
    return following


@grafted
def explore(store: Store, limit: int) -> int:  # pragma: no cover
    """Fills the rows of all states; returns how many are done: fewer than there are past `limit` states or
    where there was trouble."""
    done = int64(0)
    while done < store.facts[NUM_STATES] and done < limit:
        for byte in range(256):
            after_byte(store, done, byte)
            if store.facts[TROUBLE]:
                return int64(done)
        done += 1
    return int64(done)


# What `ask` can be asked. One door for all: what lies behind it is compiled into it once.
START, AFTER, FORCED, ONLY, WIDENED, IS_LIVE, EXPLORE = range(7)


@njit(cache=True, nogil=True)
def ask(store: Store, what: int, x: int, y: int, z: int, data: Bytes) -> int:  # pragma: no cover
    """START: the state of expression x with trackers y, at place z of a character. AFTER: the live state
    after `data[y:z]` from state x, or `NOWHERE`. FORCED: how many bytes must follow state x, written to
    `data`. ONLY: see `only_byte`. WIDENED: see `widened`. IS_LIVE: 1 if any text leads from state x to
    acceptance. EXPLORE: see `explore`, with limit x."""
    if what == AFTER:
        return after_bytes(store, x, data, y, z)
    if what == START:
        return state_of(store, x, y, z)
    if what == FORCED:
        return forced(store, x, data)
    if what == ONLY:
        return only_byte(store, x)
    if what == WIDENED:
        return widened(store, x)
    if what == IS_LIVE:
        return int64(1 if is_live(store, x) else 0)
    return explore(store, x)
