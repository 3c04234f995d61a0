"""How expressions are put together: in a normal form, so that equal languages mostly are equal rows.

An `OR` is a sorted list of members with different heads, where the head of a concatenation is its first
part: members with the same head are one, their tails or-ed together. This is what keeps the stacks of an
ambiguous grammar in one structure, as a graph-structured stack would. Counted repetitions of the same
body with the same tail become one whose range covers both.
"""

from __future__ import annotations

import numpy as np

from treille.runtime.grammar.store import (
    AND,
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
    LOOK,
    LOOKS,
    LOW,
    MANY,
    NONE,
    NOT,
    NULLABLE,
    ONE,
    OR,
    REPEAT,
    SEARCHED,
    STEPS,
    TOO_DEEP,
    TROUBLE,
    WHOLE,
    A,
    B,
    Int64s,
    Store,
    grafted,
    inner,
    int64,
    intern,
    recall,
    remember,
)

_EITHER, _CONCAT = 1 << 60, 1 << 61  # in keys of the memo
_DEEPEST = 1000  # heads that alternatives may share before they are left as they are
_FEW = 48  # members among which repetitions are sought that can be one

_INHERITED = LOOKS | BEHINDS | SEARCHED | COUNTED


@inner
def length(store: Store, node: int, kind: int) -> int:  # pragma: no cover
    """Members of a list of a kind; 1 for anything else."""
    count = 1
    while store.nodes[node, KIND] == kind:
        count += 1
        node = store.nodes[node, B]
    return count


@inner
def spread(store: Store, node: int, kind: int, out: Int64s) -> int:  # pragma: no cover
    """Writes a list's members; returns how many."""
    count = 0
    while store.nodes[node, KIND] == kind:
        out[count] = store.nodes[node, A]
        count += 1
        node = store.nodes[node, B]
    out[count] = node
    return count + 1


@grafted
def _head(store: Store, node: int) -> int:  # pragma: no cover
    return int64(store.nodes[node, A]) if store.nodes[node, KIND] == CONCAT else int64(node)


@grafted
def _tail(store: Store, node: int) -> int:  # pragma: no cover
    return int64(store.nodes[node, B]) if store.nodes[node, KIND] == CONCAT else int64(EPSILON)


@grafted
def everything(store: Store) -> int:  # pragma: no cover
    """Any text."""
    return store.facts[WHOLE]


@inner
def joined(store: Store, head: int, tail: int) -> int:  # pragma: no cover
    """`head` and then `tail`, as one row: head is no concatenation, and nothing is to be simplified."""
    if tail == EPSILON:
        return int64(head)
    if head == EPSILON:
        return int64(tail)
    first, second = store.nodes[head, KNOWN], store.nodes[tail, KNOWN]
    known = (first & second & NULLABLE) | ((first | second) & _INHERITED)
    return intern(store, CONCAT, head, tail, NONE, NONE, known)


@inner
def _listed(store: Store, members: Int64s, count: int, kind: int) -> int:  # pragma: no cover
    """The list of members that are in order."""
    node = int64(members[count - 1])
    for index in range(count - 2, -1, -1):
        first, rest = store.nodes[members[index], KNOWN], store.nodes[node, KNOWN]
        known = (first | rest) & _INHERITED
        known |= (first | rest if kind == OR else first & rest) & NULLABLE
        if kind == AND:
            known = (known & ~LOOKS) | SEARCHED
        node = intern(store, kind, members[index], node, NONE, NONE, known)
    return node


@inner
def either(store: Store, one: int, other: int) -> int:  # pragma: no cover
    """The texts of both."""
    result = _either_known(store, one, other)
    if result >= 0:
        return result
    result, left, right = _merged(store, one, other, _DEEPEST)
    if left < 0:
        remember(store, _EITHER | min(one, other), max(one, other), result)
        return result
    # Tails under the same head come first: tasks upon tasks, down to ones whose parts are known.
    tasks = np.empty((_DEEPEST, 2), np.int64)
    tasks[0, 0], tasks[0, 1], tasks[1, 0], tasks[1, 1] = one, other, left, right
    top = 2
    while top > 0 and not store.facts[TROUBLE]:
        one, other = tasks[top - 1, 0], tasks[top - 1, 1]
        result, left, right = _merged(store, one, other, _DEEPEST - top)
        if left >= 0:
            tasks[top, 0], tasks[top, 1] = left, right
            top += 1
        else:
            remember(store, _EITHER | min(one, other), max(one, other), result)
            top -= 1
    return result


@inner
def _either_known(store: Store, one: int, other: int) -> int:  # pragma: no cover
    """The texts of both, if that takes no work; else -1."""
    if one == other or other == EMPTY:
        return int64(one)
    if one == EMPTY:
        return int64(other)
    return recall(store, _EITHER | min(one, other), max(one, other))


@inner
def _merged(store: Store, one: int, other: int, room: int) -> tuple[int, int, int]:  # pragma: no cover
    """The texts of both, and -1 twice; or two tails that must be or-ed first, if there is `room` for
    more tasks."""
    size = length(store, one, OR) + length(store, other, OR)
    store.facts[STEPS] -= size
    left, right = np.empty(size, np.int64), np.empty(size, np.int64)
    num_left, num_right = spread(store, one, OR, left), spread(store, other, OR, right)
    merged = np.empty(size, np.int64)
    count, i, j = 0, 0, 0
    while i < num_left or j < num_right:
        head = _head(store, left[i]) if i < num_left else int64(MANY)
        second = _head(store, right[j]) if j < num_right else int64(MANY)
        if head < second:
            merged[count] = left[i]
            i += 1
        elif second < head:
            merged[count] = right[j]
            j += 1
        else:
            first, last = _tail(store, left[i]), _tail(store, right[j])
            tail = _either_known(store, first, last)
            if tail >= 0:
                merged[count] = joined(store, head, tail)
                j += 1
            elif room > 0:
                return int64(EMPTY), first, last
            else:
                merged[count] = left[i]
            i += 1
        count += 1
    return _tidied(store, merged, count), int64(-1), int64(-1)


@inner
def _tidied(store: Store, members: Int64s, count: int) -> int:  # pragma: no cover
    """The list of sorted members, without what others cover."""
    nodes = store.nodes
    num_repeats, has_look, has_empty, others = 0, False, False, 0
    for index in range(count):
        node = members[index]
        kind = nodes[_head(store, node), KIND]
        num_repeats += kind == REPEAT
        has_look |= kind == LOOK
        has_empty |= node == EPSILON
        if node != EPSILON and not nodes[node, KNOWN] & (BEHINDS | LOOKS):
            others |= nodes[node, KNOWN] & NULLABLE
    if num_repeats > 1 and count <= _FEW:
        count = _with_ranges_joined(store, members, count)
    if has_look:
        count = _without_covered_looks(store, members, count)
    if has_empty and others and count > 1:
        kept = 0
        for index in range(count):
            if members[index] != EPSILON:
                members[kept] = members[index]
                kept += 1
        count = kept
    return _listed(store, members, count, OR)


@inner
def _with_ranges_joined(store: Store, members: Int64s, count: int) -> int:  # pragma: no cover
    """Makes one of repetitions with the same body and tail, where their ranges meet."""
    nodes = store.nodes
    changed = False
    for i in range(count):
        first = _head(store, members[i])
        if members[i] == EMPTY or nodes[first, KIND] != REPEAT:
            continue
        for j in range(count):
            second = _head(store, members[j])
            if i == j or members[j] == EMPTY or nodes[second, KIND] != REPEAT:
                continue
            if nodes[first, A] != nodes[second, A] or _tail(store, members[i]) != _tail(store, members[j]):
                continue
            low, high = nodes[first, LOW], nodes[first, HIGH]
            other_low, other_high = nodes[second, LOW], nodes[second, HIGH]
            if max(low, other_low) > min(high, other_high) + 1 or low == ENOUGH or other_low == ENOUGH:
                continue
            first = repeat(store, nodes[first, A], min(low, other_low), max(high, other_high))
            members[i] = joined(store, first, _tail(store, members[j]))
            members[j] = EMPTY
            changed = True
    if not changed:
        return count
    kept = 0
    for index in range(count):
        if members[index] != EMPTY:
            members[kept] = members[index]
            kept += 1
    # The new rows come later than where they stand; few, so by insertion.
    for index in range(1, kept):
        node, place = members[index], index
        while place and _head(store, members[place - 1]) > _head(store, node):
            members[place] = members[place - 1]
            place -= 1
        members[place] = node
    return kept


@inner
def _without_covered_looks(store: Store, members: Int64s, count: int) -> int:  # pragma: no cover
    """Drops a LOOK(c, x) where x itself is a member."""
    kept = 0
    for index in range(count):
        node = members[index]
        covered = False
        if store.nodes[node, KIND] == LOOK:
            inner = store.nodes[node, B]
            for other in members[:count]:
                covered |= other == inner
        if not covered:
            members[kept] = node
            kept += 1
    return kept


@inner
def both(store: Store, one: int, other: int) -> int:  # pragma: no cover
    """The texts that are in the one and in the other. They must be closed: no LOOK asks beyond their end."""
    if one == other:
        return int64(one)
    if one == EMPTY or other == EMPTY:
        return int64(EMPTY)
    whole = everything(store)
    if one == whole:
        return int64(other)
    if other == whole:
        return int64(one)
    if one == EPSILON and not store.nodes[other, KNOWN] & BEHINDS:
        return int64(EPSILON if store.nodes[other, KNOWN] & NULLABLE else EMPTY)
    if other == EPSILON and not store.nodes[one, KNOWN] & BEHINDS:
        return int64(EPSILON if store.nodes[one, KNOWN] & NULLABLE else EMPTY)
    size = length(store, one, AND) + length(store, other, AND)
    left, right = np.empty(size, np.int64), np.empty(size, np.int64)
    num_left, num_right = spread(store, one, AND, left), spread(store, other, AND, right)
    merged = np.empty(size, np.int64)
    count, i, j = 0, 0, 0
    while i < num_left or j < num_right:
        if j == num_right or (i < num_left and left[i] < right[j]):
            merged[count] = left[i]
            i += 1
        else:
            merged[count] = right[j]
            i += i < num_left and left[i] == right[j]
            j += 1
        count += 1
    return _listed(store, merged, count, AND)


@inner
def negation(store: Store, node: int) -> int:  # pragma: no cover
    """Every text that is not in the other, which must be closed."""
    if store.nodes[node, KIND] == NOT:
        return int64(store.nodes[node, A])
    if node == EMPTY:
        return everything(store)
    if node == everything(store):
        return int64(EMPTY)
    known = store.nodes[node, KNOWN]
    known = (known & (BEHINDS | COUNTED)) | SEARCHED | (NULLABLE & ~known)
    return intern(store, NOT, node, NONE, NONE, NONE, known)


@inner
def look(store: Store, condition: int, node: int) -> int:  # pragma: no cover
    """The texts of `node` where, besides, all that follows is in `condition`, which is closed."""
    if node == EMPTY or condition == EMPTY:
        return int64(EMPTY)
    if condition == everything(store):
        return int64(node)
    if store.nodes[node, KIND] == LOOK:
        condition = both(store, condition, store.nodes[node, A])
        node = store.nodes[node, B]
        if condition == EMPTY:
            return int64(EMPTY)
    known = store.nodes[condition, KNOWN] & store.nodes[node, KNOWN] & NULLABLE
    known |= (store.nodes[condition, KNOWN] | store.nodes[node, KNOWN]) & _INHERITED
    return intern(store, LOOK, condition, node, NONE, NONE, known | LOOKS | SEARCHED)


@inner
def repeat(store: Store, body: int, low: int, high: int) -> int:  # pragma: no cover
    """`body` from `low` to `high` times."""
    if high == 0 or body == EPSILON:
        return int64(EPSILON)
    if body == EMPTY:
        return int64(EMPTY if low else EPSILON)
    if low == 1 and high == 1:
        return int64(body)
    row = store.nodes[body]
    if row[KNOWN] & NULLABLE and not row[KNOWN] & (BEHINDS | LOOKS):
        low = 0
    if row[KIND] == REPEAT and row[HIGH] == MANY and row[LOW] <= 1 and low <= 1 and high == MANY:
        return repeat_row(store, row[A], min(low, row[LOW]), MANY)
    return repeat_row(store, body, low, high)


@inner
def repeat_row(store: Store, body: int, low: int, high: int) -> int:  # pragma: no cover
    """The row of a repetition as it is given."""
    known = store.nodes[body, KNOWN] & _INHERITED
    if low == 0 or store.nodes[body, KNOWN] & NULLABLE:
        known |= NULLABLE
    if low > 1 or high != MANY:
        known |= COUNTED
    return intern(store, REPEAT, body, NONE, low, high, known)


@grafted
def _more(one: int, other: int) -> int:  # pragma: no cover
    """The sum of two counts, where a count may be without bound."""
    if one >= ENOUGH or other >= ENOUGH:
        return max(one, other)
    return min(one + other, ENOUGH - 1)


@inner
def _prepended(store: Store, head: int, rest: int) -> int:  # pragma: no cover
    """`head`, which is no concatenation and has no LOOK to push, and then `rest`."""
    nodes = store.nodes
    if rest == EPSILON:
        return int64(head)
    follower = _head(store, rest)
    if nodes[head, KIND] == REPEAT and nodes[head, A] == follower:
        low, high = int64(nodes[head, LOW]), int64(nodes[head, HIGH])
        total = repeat_row(store, follower, _more(low, ONE), _more(high, ONE))
        return joined(store, total, _tail(store, rest))
    if nodes[follower, KIND] == REPEAT:
        body = nodes[follower, A]
        low, high = int64(nodes[follower, LOW]), int64(nodes[follower, HIGH])
        more_low, more_high = int64(-1), int64(-1)
        if nodes[head, KIND] == REPEAT and nodes[head, A] == body:
            more_low, more_high = int64(nodes[head, LOW]), int64(nodes[head, HIGH])
        elif head == body and nodes[head, KIND] == CHARS:
            more_low, more_high = int64(1), int64(1)
        if more_high >= 0:
            # Ranges a..b and c..d add up to all of a+c..b+d.
            total = repeat_row(store, body, _more(low, more_low), _more(high, more_high))
            return joined(store, total, _tail(store, rest))
    return joined(store, head, rest)


@inner
def concat(store: Store, node: int, rest: int) -> int:  # pragma: no cover
    """`node` and then `rest`, to which the conditions of every LOOK at the end of `node` extend."""
    result, missing, follower = _appended(store, node, rest)
    if missing < 0:
        return result
    tasks = np.empty((_DEEPEST, 2), np.int64)
    tasks[0, 0], tasks[0, 1], tasks[1, 0], tasks[1, 1] = node, rest, missing, follower
    top = 2
    while top > 0 and not store.facts[TROUBLE]:
        result, missing, follower = _appended(store, tasks[top - 1, 0], tasks[top - 1, 1])
        if missing < 0:
            top -= 1
            remember(store, _CONCAT | tasks[top, 0], tasks[top, 1], result)
        elif top == _DEEPEST:
            store.facts[TROUBLE] = TOO_DEEP
        else:
            tasks[top, 0], tasks[top, 1] = missing, follower
            top += 1
    return result


@inner
def _appended(store: Store, node: int, rest: int) -> tuple[int, int, int]:  # pragma: no cover
    """`node` and then `rest`, and -1 twice; or a node and a rest that must be put together first."""
    if node == EMPTY or rest == EMPTY:
        return int64(EMPTY), int64(-1), int64(-1)
    if rest == EPSILON:
        return int64(node), int64(-1), int64(-1)
    parts = np.empty(length(store, node, CONCAT), np.int64)
    result = int64(rest)
    for index in range(spread(store, node, CONCAT, parts) - 1, -1, -1):
        part = parts[index]
        row = store.nodes[part]
        if part == EPSILON:
            continue
        if row[KIND] == LOOK:
            inside = _put_together(store, row[B], result)
            if inside < 0:
                return result, row[B], result
            result = look(store, row[A], inside)
        elif row[KIND] == OR and row[KNOWN] & LOOKS:
            members = np.empty(length(store, part, OR), np.int64)
            for at in range(spread(store, part, OR, members)):
                inside = _put_together(store, members[at], result)
                if inside < 0:
                    return result, members[at], result
                members[at] = inside
            result = united(store, members)
        else:
            result = _prepended(store, part, result)
        if result == EMPTY:
            break
    return result, int64(-1), int64(-1)


@inner
def _put_together(store: Store, node: int, rest: int) -> int:  # pragma: no cover
    """`node` and then `rest` if that is known or takes no work; else -1."""
    if node == EPSILON:
        return int64(rest)
    row = store.nodes[node]
    if row[KIND] != CONCAT and row[KIND] != LOOK and not (row[KIND] == OR and row[KNOWN] & LOOKS):
        return _prepended(store, node, rest)
    return recall(store, _CONCAT | node, rest)


@inner
def united(store: Store, nodes: Int64s) -> int:  # pragma: no cover
    """The texts of all; overwrites `nodes`."""
    if len(nodes) == 0:
        return int64(EMPTY)
    step = 1
    while step < len(nodes):
        for index in range(0, len(nodes) - step, 2 * step):
            nodes[index] = either(store, nodes[index], nodes[index + step])
        step *= 2
    return int64(nodes[0])
