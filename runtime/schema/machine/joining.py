"""Configurations that differ only in what their object or array is within become one, on joined stacks.

A joined stack is only below others, never a configuration's own, and its members are stacks: a list in
descending order without repetition, so that equal ones are the same row. A text that is captured lies in
frames further down too: those configurations stay apart.
"""

from __future__ import annotations

import numpy as np

from treille.runtime.grammar.store import Int64s, inner, int64
from treille.runtime.schema.machine.memory import (
    Machine,
    nodes_of,
    row_of,
)
from treille.runtime.schema.machine.rows import (
    A_COLUMN,
    B_COLUMN,
    CONFIG,
    HIGH_COLUMN,
    JOINED,
    LOW_COLUMN,
    NONE,
    PUSHED,
)

_FRAME_BITS = 31  # rows are numbered below 2**31


@inner
def _likeness(machine: Machine, config: int) -> int:  # pragma: no cover
    """What configurations must agree in to be joined; below 0 and its own for one that cannot be."""
    row = nodes_of(machine)[config]
    if row[B_COLUMN] == NONE or row[LOW_COLUMN] != NONE or row[HIGH_COLUMN] != NONE:
        return int64(-1 - config)
    return int64((int64(row[A_COLUMN]) << _FRAME_BITS) | nodes_of(machine)[row[B_COLUMN], A_COLUMN])


@inner
def joined(machine: Machine, configs: Int64s) -> int:  # pragma: no cover
    """Joins what can be joined of some configurations, in place; returns how many are left."""
    keys = np.empty(len(configs), np.int64)
    for index in range(len(configs)):
        keys[index] = _likeness(machine, int64(configs[index]))
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
    stacks.sort()
    all_of_them = int64(NONE)
    last = int64(-1)
    for stack in stacks:
        if stack != last:
            last = int64(stack)
            all_of_them = row_of(machine, JOINED, int64(stack), all_of_them, NONE, NONE)
    config = nodes[configs[which[0]]]
    place, frame = int64(config[A_COLUMN]), int64(nodes[config[B_COLUMN], A_COLUMN])
    return row_of(machine, CONFIG, place, row_of(machine, PUSHED, frame, all_of_them, NONE, NONE), NONE, NONE)
