"""From full stores to fresh ones: only what one state is made of is taken along."""

from __future__ import annotations

import numpy as np

from treille.runtime.grammar.store import NODE, NUM_NODES, Int64s, inner, int64
from treille.runtime.schema.machine.languages import text_moved
from treille.runtime.schema.machine.memory import (
    Machine,
    facts_of,
    nodes_of,
    row_of,
    states_of,
    troubled,
)
from treille.runtime.schema.machine.rows import (
    A_COLUMN,
    ARRAY,
    B_COLUMN,
    BYTE,
    CONFIG,
    EMPTY_TEXT,
    EXTRA,
    HIGH_COLUMN,
    ITEMS,
    JOINED,
    LIST,
    LOW_COLUMN,
    MORE,
    NONE,
    NOWHERE,
    OBJECT,
    PUSHED,
    REGION_AT,
    WORDS,
)
from treille.runtime.schema.machine.states import state_of_configs

_A, _B, _LOW, _HIGH = 1, 2, 4, 8


@inner
def _points(kind: int) -> int:  # pragma: no cover
    """Which columns of a kind of row are other rows of the same store."""
    if kind == CONFIG or kind == EXTRA:
        return int64(_A | _B | _LOW)
    if kind == PUSHED or kind == LIST or kind == JOINED:
        return int64(_A | _B)
    if kind == OBJECT:
        return int64(_B | _HIGH)
    if kind == ARRAY or kind == BYTE or kind == WORDS:
        return int64(_B)
    if kind == REGION_AT:
        return int64(_HIGH)
    if kind == MORE:
        return int64(_A)
    return int64(_LOW if kind == ITEMS else NONE)


@inner
def transfer(source: Machine, target: Machine, state: int) -> int:  # pragma: no cover
    """The state of `target` that is the same as a state of `source`; the two have the same tables,
    and string languages of their own."""
    nodes = nodes_of(source)
    top = states_of(source)[state, NODE]
    needed = np.zeros(facts_of(source)[NUM_NODES], np.bool_)
    needed[top] = True
    for index in range(top, EMPTY_TEXT, -1):
        if needed[index]:
            columns = _points(nodes[index, 0])
            for column in range(A_COLUMN, HIGH_COLUMN + 1):
                if (columns >> (column - 1)) & 1 and nodes[index, column] > EMPTY_TEXT:
                    needed[nodes[index, column]] = True
    places = np.zeros(len(needed), np.int64)
    row = np.empty(HIGH_COLUMN + 1, np.int64)
    for index in range(EMPTY_TEXT + 1, top + 1):
        if needed[index]:
            columns = _points(nodes[index, 0])
            for column in range(HIGH_COLUMN + 1):
                row[column] = nodes[index, column]
                if column and (columns >> (column - 1)) & 1 and row[column] > EMPTY_TEXT:
                    row[column] = places[row[column]]
            if row[0] == REGION_AT:
                row[LOW_COLUMN] = text_moved(target, source, row[LOW_COLUMN])
                if troubled(target):
                    return int64(NOWHERE)
            places[index] = row_of(
                target, row[0], row[A_COLUMN], row[B_COLUMN], row[LOW_COLUMN], row[HIGH_COLUMN]
            )
    return state_of_configs(target, _configs(target, places[top]))


@inner
def _configs(machine: Machine, node: int) -> Int64s:  # pragma: no cover
    """The members of a list."""
    count = 0
    one = node
    while one != NONE:
        count += 1
        one = nodes_of(machine)[one, B_COLUMN]
    found = np.empty(count, np.int64)
    for index in range(count):
        found[index] = nodes_of(machine)[node, A_COLUMN]
        node = nodes_of(machine)[node, B_COLUMN]
    return found
