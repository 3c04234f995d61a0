"""Configurations that differ only in what their object or array is within become one, on joined stacks.

A joined stack is only below others, never a configuration's own, and its members are stacks: a list in
descending order without repetition, so that equal ones are the same row, and of more than one. A text that is
captured is the same for all of them.
"""

from __future__ import annotations

import numpy as np

from treille.runtime.grammar.store import Int64s, inner, int64
from treille.runtime.schema.machine.memory import (
    Machine,
    nodes_of,
    recall,
    remember,
    row_of,
    troubled,
)
from treille.runtime.schema.machine.rows import (
    A_COLUMN,
    ARRAY,
    B_COLUMN,
    CONFIG,
    EMPTY_TEXT,
    HIGH_COLUMN,
    ITEMS,
    JOINED,
    LIKENESS,
    LOW_COLUMN,
    NONE,
    PUSHED,
    UNKNOWN,
)

_UNMARKED = -1  # under which is remembered what a stack is without marks


@inner
def _likeness(machine: Machine, config: int) -> int:  # pragma: no cover
    """What configurations must agree in to be joined; below 0 and its own for one that cannot be."""
    row = nodes_of(machine)[config]
    if row[B_COLUMN] == NONE:
        return int64(-1 - config)
    place, frame = int64(row[A_COLUMN]), int64(nodes_of(machine)[row[B_COLUMN], A_COLUMN])
    return row_of(machine, LIKENESS, place, frame, int64(row[LOW_COLUMN]), int64(row[HIGH_COLUMN]))


@inner
def joined(machine: Machine, configs: Int64s) -> int:  # pragma: no cover
    """Joins what can be joined of some configurations, in place; returns how many are left."""
    keys = np.empty(len(configs), np.int64)
    for index in range(len(configs)):
        keys[index] = _likeness(machine, int64(configs[index]))
    if troubled(machine):
        return int64(len(configs))
    order = np.argsort(keys)
    found = np.empty(len(configs), np.int64)
    count = 0
    first = 0
    while first < len(order):
        end = first + 1
        while end < len(order) and keys[order[end]] == keys[order[first]]:
            end += 1
        found[count] = configs[order[first]]
        for index in range(first + 1, end):
            if configs[order[index]] != found[count]:
                found[count] = _on_all(machine, configs, order[first:end])
                break
        count += 1
        first = end
    configs[:count] = found[:count]
    return int64(count)


@inner
def _on_all(machine: Machine, configs: Int64s, which: Int64s) -> int:  # pragma: no cover
    """The configuration on all the stacks that those of `configs` in the places `which` are on."""
    nodes = nodes_of(machine)
    num_below = 0
    for index in which:
        below = nodes[nodes[configs[index], B_COLUMN], B_COLUMN]
        while below != NONE and nodes[below, 0] == JOINED:
            num_below += 1
            below = nodes[below, B_COLUMN]
        num_below += below != NONE
    stacks = np.empty(num_below, np.int64)
    num_below = 0
    for index in which:
        below = nodes[nodes[configs[index], B_COLUMN], B_COLUMN]
        while below != NONE and nodes[below, 0] == JOINED:
            stacks[num_below] = nodes[below, A_COLUMN]
            num_below += 1
            below = nodes[below, B_COLUMN]
        if below != NONE:
            stacks[num_below] = below
            num_below += 1
    config = nodes[configs[which[0]]]
    place, frame = int64(config[A_COLUMN]), int64(nodes[config[B_COLUMN], A_COLUMN])
    stack = row_of(machine, PUSHED, frame, _listed(machine, stacks), NONE, NONE)
    return row_of(machine, CONFIG, place, stack, int64(config[LOW_COLUMN]), int64(config[HIGH_COLUMN]))


@inner
def _listed(machine: Machine, stacks: Int64s) -> int:  # pragma: no cover
    """Some stacks as one, which may be joined; sorts them."""
    stacks.sort()
    if len(stacks) == 0 or stacks[0] == stacks[-1]:
        return int64(stacks[0] if len(stacks) else NONE)
    all_of_them = int64(NONE)
    last = int64(-1)
    for stack in stacks:
        if stack != last:
            last = int64(stack)
            all_of_them = row_of(machine, JOINED, int64(stack), all_of_them, NONE, NONE)
    return all_of_them


@inner
def _frame_without_mark(machine: Machine, frame: int) -> int:  # pragma: no cover
    """A frame without where the captured text of an item begins."""
    nodes = nodes_of(machine)
    if nodes[frame, 0] != ARRAY or nodes[frame, B_COLUMN] == NONE:
        return int64(frame)
    items, row = nodes[nodes[frame, B_COLUMN]], nodes[frame]
    if items[LOW_COLUMN] <= EMPTY_TEXT:
        return int64(frame)
    unmarked = row_of(machine, ITEMS, int64(items[A_COLUMN]), NONE, UNKNOWN, int64(items[HIGH_COLUMN]))
    template, count, counts = int64(row[A_COLUMN]), int64(row[LOW_COLUMN]), int64(row[HIGH_COLUMN])
    return row_of(machine, ARRAY, template, unmarked, count, counts)


@inner
def without_marks(machine: Machine, stack: int) -> int:  # pragma: no cover
    """The stack without the places where captured texts begin, from the lowest frame up; what became of a
    stack is remembered."""
    nodes = nodes_of(machine)
    waiting = np.empty(64, np.int64)
    waiting[0] = stack
    count = 1
    while count and not troubled(machine):
        here = int64(waiting[count - 1])
        below = int64(nodes[here, B_COLUMN])
        num_below = 0
        num_known = 0
        one = below
        while one != NONE:
            member = int64(nodes[one, A_COLUMN] if nodes[one, 0] == JOINED else one)
            if recall(machine, _UNMARKED, member) < 0:
                if count == len(waiting):
                    longer = np.empty(2 * count, np.int64)
                    longer[:count] = waiting
                    waiting = longer
                waiting[count] = member
                count += 1
            else:
                num_known += 1
            num_below += 1
            one = int64(nodes[one, B_COLUMN] if nodes[one, 0] == JOINED else NONE)
        if num_known < num_below:
            continue
        stacks = np.empty(num_below, np.int64)
        one = below
        for index in range(num_below):
            is_joined = nodes[one, 0] == JOINED
            stacks[index] = recall(machine, _UNMARKED, int64(nodes[one, A_COLUMN] if is_joined else one))
            one = int64(nodes[one, B_COLUMN])
        frame = _frame_without_mark(machine, int64(nodes[here, A_COLUMN]))
        found = row_of(machine, PUSHED, frame, _listed(machine, stacks), NONE, NONE)
        if recall(machine, _UNMARKED, here) < 0:
            remember(machine, _UNMARKED, here, found)
        count -= 1
    return int64(stack) if troubled(machine) else recall(machine, _UNMARKED, stack)
