"""Derivatives: what may follow once a character has been read (Brzozowski 1964).

The derivative of an expression by a class of characters is the expression of the rests of those of its
texts that begin with one of the class. Look-behinds depend on the text before: each has a *tracker*, an
expression that is derived along from the start of the text and is nullable exactly where the look-behind
holds. `bits` says which hold at the place in question.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from treille.runtime.grammar.algebra import (
    both,
    concat,
    either,
    joined,
    length,
    look,
    negation,
    repeat,
    repeat_row,
    spread,
    united,
)
from treille.runtime.grammar.lalr_steps import token_start, within
from treille.runtime.grammar.store import (
    AND,
    BEHIND,
    BEHINDS,
    CHARS,
    CONCAT,
    COUNTED,
    EMPTY,
    ENOUGH,
    EPSILON,
    HIGH,
    KIND,
    KNOWN,
    LEXED,
    LOOK,
    LOW,
    MANY,
    NONE,
    NOT,
    NULLABLE,
    NUM_NODES,
    OR,
    PARSED,
    REPEAT,
    RULE,
    RULES,
    SEARCHED,
    STEPS,
    TERM,
    TOO_DEEP,
    TROUBLE,
    VECTOR,
    A,
    B,
    Store,
    grafted,
    inner,
    int64,
    intern,
    points,
    recall,
    remember,
)

_NULLABLE = 3 << 60  # in keys of the memo
_DEEPEST = 10_000  # expressions within expressions
MIN_SHORT = 16  # counts up to here are told apart in masks


@inner
def nullable(store: Store, node: int, bits: int) -> bool:  # pragma: no cover
    """Whether the expression has the empty text, where `bits` tells which look-behinds hold."""
    known = _nullable_known(store, node, bits)
    if known >= 0:
        return known == 1
    tasks = np.empty(_DEEPEST, np.int64)
    tasks[0] = node
    top = 1
    result = int64(0)
    while top > 0 and not store.facts[TROUBLE]:
        result = _nullable_once(store, tasks[top - 1], bits)
        if result < 2:
            remember(store, _NULLABLE | tasks[top - 1], bits, result)
            top -= 1
        elif top == _DEEPEST:
            store.facts[TROUBLE] = TOO_DEEP
        else:
            tasks[top] = result - 2
            top += 1
    return result == 1


@inner
def _nullable_known(store: Store, node: int, bits: int) -> int:  # pragma: no cover
    """Whether an expression is nullable: 0 or 1; -1 if it is not known."""
    row = store.nodes[node]
    if not row[KNOWN] & BEHINDS:
        return int64(row[KNOWN] & NULLABLE)
    if row[KIND] == BEHIND:
        return int64((bits >> row[A]) & 1 != row[B])
    return recall(store, _NULLABLE | node, bits)


@inner
def _nullable_once(store: Store, node: int, bits: int) -> int:  # pragma: no cover
    """Whether an expression is nullable: 0 or 1; or 2 and the part that must be known first."""
    row = store.nodes[node]
    kind = row[KIND]
    if kind == RULE or kind == LEXED:
        return int64(0)
    if kind == PARSED:
        return int64(row[KNOWN] & NULLABLE)
    if kind == REPEAT and row[LOW] == 0:
        return int64(1)
    while kind == OR or kind == AND or kind == CONCAT or kind == LOOK:
        first = _nullable_known(store, row[A], bits)
        if first < 0:
            return 2 + row[A]
        if first == (kind == OR):
            return first
        if store.nodes[row[B], KIND] != kind:
            break
        row = store.nodes[row[B]]
    last = row[B] if kind == OR or kind == AND or kind == CONCAT or kind == LOOK else row[A]
    if kind == BEHIND:
        return _nullable_known(store, node, bits)
    found = _nullable_known(store, last, bits)
    if found < 0:
        return 2 + last
    return 1 - found if kind == NOT else found


@inner
def derive(store: Store, node: int, symbol: int, bits: int) -> int:  # pragma: no cover
    """The derivative by class `symbol`. `EMPTY`, and trouble noted, where there is no room for it."""
    result = _derived(store, node, symbol, bits)
    if result >= 0:
        return result
    tasks = np.empty(_DEEPEST, np.int64)
    tasks[0] = node
    top = 1
    while top > 0 and not store.facts[TROUBLE]:
        task = tasks[top - 1]
        result, missing = _derive_once(store, task, symbol, bits)
        if missing < 0:
            remember(store, _key(store, task, symbol), _relevant(store, task, bits), result)
            top -= 1
        elif top == _DEEPEST:
            store.facts[TROUBLE] = TOO_DEEP
        else:
            tasks[top] = missing
            top += 1
    return result


@grafted
def _key(store: Store, node: int, symbol: int) -> int:  # pragma: no cover
    return int64(node * (store.members.shape[1] + 2) + symbol)


@grafted
def _relevant(store: Store, node: int, bits: int) -> int:  # pragma: no cover
    return int64(bits if store.nodes[node, KNOWN] & BEHINDS else 0)


@inner
def _derived(store: Store, node: int, symbol: int, bits: int) -> int:  # pragma: no cover
    """The derivative if it is known, or takes no work; else -1."""
    kind = store.nodes[node, KIND]
    if kind == CHARS:
        return int64(EPSILON if store.members[store.nodes[node, A], symbol] else EMPTY)
    if kind == EMPTY or kind == EPSILON or kind == BEHIND or kind == TERM:
        return int64(EMPTY)
    if kind == CONCAT and store.nodes[store.nodes[node, A], KIND] == CHARS:
        allowed = store.members[store.nodes[store.nodes[node, A], A], symbol]
        return int64(store.nodes[node, B] if allowed else EMPTY)
    return recall(store, _key(store, node, symbol), _relevant(store, node, bits))


@inner
def _derive_once(store: Store, node: int, symbol: int, bits: int) -> tuple[int, int]:  # pragma: no cover
    """The derivative and -1; or the part whose derivative must be known first."""
    row = store.nodes[node]
    kind = row[KIND]
    none = int64(-1)
    result = int64(EMPTY)
    if kind == CONCAT or kind == OR or kind == AND:
        parts = np.empty(length(store, node, kind), np.int64)
        found = parts[: spread(store, node, kind, parts)]
        store.facts[STEPS] -= len(found) >> 4
        rest = int64(node)
        for index in range(len(found)):
            part = _derived(store, found[index], symbol, bits)
            if part < 0:
                return result, found[index]
            if kind == CONCAT:
                if index == len(found) - 1:
                    return either(store, result, part), none
                rest = store.nodes[rest, B]
                result = either(store, result, concat(store, part, rest))
                if not nullable(store, found[index], bits):
                    return result, none
            elif kind == AND:
                result = both(store, result, part) if index else part
                if result == EMPTY:
                    return result, none
            else:
                found[index] = part
        return (united(store, found) if kind == OR else result), none
    if kind == NOT or kind == REPEAT or kind == LOOK or kind == RULE:
        inside = row[B] if kind == LOOK else (store.facts[RULES + row[A]] if kind == RULE else row[A])
        part = _derived(store, inside, symbol, bits)
        if part < 0:
            return result, inside
        if kind == NOT:
            return negation(store, part), none
        if kind == RULE or part == EMPTY:
            return part, none
        if kind == REPEAT:
            more = repeat(store, row[A], _one_less(row[LOW]), _one_less(row[HIGH]))
            return concat(store, part, more), none
        condition = _derived(store, row[A], symbol, bits)
        if condition < 0:
            return result, row[A]
        return look(store, condition, part), none
    if kind == LEXED or kind == PARSED:
        inside = row[A] if kind == LEXED else token_start(store, row[A])
        part = _derived(store, inside, symbol, bits)
        if part < 0:
            return result, inside
        return within(store, part, row[B] if kind == LEXED else row[A]), none
    return result, none


@inner
def _one_less(bound: int) -> int:  # pragma: no cover
    """A bound of a repetition after one turn."""
    return int64(bound if bound == 0 or bound >= ENOUGH else bound - 1)


@inner
def advance_trackers(store: Store, trackers: int, symbol: int, bits: int) -> int:  # pragma: no cover
    """The trackers' expressions after a character; `EMPTY` ends the list."""
    count = 0
    node = trackers
    while node != EMPTY:
        count += 1
        node = store.nodes[node, B]
    found = np.empty(count, np.int64)
    node = trackers
    for index in range(count):
        found[index] = derive(store, store.nodes[node, A], symbol, bits)
        node = store.nodes[node, B]
    result = int64(EMPTY)
    for index in range(count - 1, -1, -1):
        result = intern(store, VECTOR, found[index], result, NONE, NONE, NONE)
    return result


@inner
def held_by(store: Store, trackers: int) -> int:  # pragma: no cover
    """The bits of the look-behinds that hold: that of tracker k is bit k. Inner ones come first."""
    bits = int64(0)
    index = 0
    while trackers != EMPTY:
        if nullable(store, store.nodes[trackers, A], bits):
            bits |= int64(1) << index
        index += 1
        trackers = store.nodes[trackers, B]
    return bits


@grafted
def saturate(store: Store, node: int) -> int:  # pragma: no cover
    """The expression with every count above `MIN_SHORT` made endless, for looking a token's length ahead.

    Only counts at the top level of the expression and of its alternatives are changed, and none where
    emptiness must be searched for: there, counts may contradict each other. `shortest_count` tells how far
    ahead the two agree.
    """
    if not store.nodes[node, KNOWN] & COUNTED or store.nodes[node, KNOWN] & (SEARCHED | BEHINDS):
        return int64(node)
    members = np.empty(length(store, node, OR), np.int64)
    for index in range(spread(store, node, OR, members)):
        parts = np.empty(length(store, members[index], CONCAT), np.int64)
        count = spread(store, members[index], CONCAT, parts)
        result = int64(EPSILON)
        for at in range(count - 1, -1, -1):
            row = store.nodes[parts[at]]
            part = parts[at]
            if row[KIND] == REPEAT:
                low = ENOUGH if row[LOW] > MIN_SHORT else row[LOW]
                high = MANY if row[HIGH] > MIN_SHORT else row[HIGH]
                part = repeat_row(store, row[A], low, high)
            result = joined(store, part, result)
        members[index] = result
    return united(store, members)


@grafted
def shortest_count(store: Store, node: int) -> int:  # pragma: no cover
    """The least count that `saturate` made endless: so many characters ahead nothing differs."""
    least = int64(MANY)
    members = np.empty(length(store, node, OR), np.int64)
    for index in range(spread(store, node, OR, members)):
        rest = members[index]
        last = False
        while not last:
            last = store.nodes[rest, KIND] != CONCAT
            part = rest if last else store.nodes[rest, A]
            row = store.nodes[part]
            if row[KIND] == REPEAT and MIN_SHORT < row[LOW] < ENOUGH:
                least = min(least, row[LOW])
            if row[KIND] == REPEAT and MIN_SHORT < row[HIGH] < ENOUGH:
                least = min(least, row[HIGH])
            rest = store.nodes[rest, B]
    return least


@njit(cache=True, nogil=True)
def transfer(source: Store, target: Store, node: int, shared: int) -> int:  # pragma: no cover
    """The row in `target` of an expression of `source`; the first `shared` rows of both are the same."""
    places = np.full(source.facts[NUM_NODES], -1, np.int64)
    for index in range(shared):
        places[index] = index
    # A row only points to rows before it: those that are needed, in order.
    needed = np.zeros(node + 1, np.bool_)
    needed[node] = True
    for index in range(node, shared - 1, -1):
        if needed[index]:
            row = source.nodes[index]
            if points(row[KIND]) & 1:
                needed[row[A]] = True
            if points(row[KIND]) & 2:
                needed[row[B]] = True
    for index in range(shared, node + 1):
        if needed[index]:
            row = source.nodes[index]
            a = places[row[A]] if points(row[KIND]) & 1 else row[A]
            b = places[row[B]] if points(row[KIND]) & 2 else row[B]
            places[index] = intern(target, row[KIND], a, b, row[LOW], row[HIGH], row[KNOWN])
    return int64(places[node])
