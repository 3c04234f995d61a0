"""Open arrays: which items may still come, so that how many there may be, and count, can be met."""

from __future__ import annotations

from treille.runtime.grammar.store import inner, int64
from treille.runtime.schema.machine.memory import (
    Machine,
    nodes_of,
    row_of,
    tables_of,
)
from treille.runtime.schema.machine.rows import (
    A_COLUMN,
    A_CONTAINS,
    A_HIGH,
    A_LOW,
    A_NUM_CONTAINS,
    A_NUM_PREFIX,
    A_PREFIX,
    A_REST,
    A_UNIQUE,
    ARRAY,
    B_COLUMN,
    HIGH_COLUMN,
    I_OPTIONS,
    ITEMS,
    LOW_COLUMN,
    NO_END,
    NONE,
    UNKNOWN,
)

COUNT_BITS = 31  # of a column, for each `contains`
MOST = (1 << 31) - 1


@inner
def opened_array(machine: Machine, template: int) -> int:  # pragma: no cover
    """The frame of an array without items."""
    return row_of(machine, ARRAY, template, NONE, NONE, NONE)


@inner
def _static_options(machine: Machine, template: int, index: int) -> int:  # pragma: no cover
    """Where the options of item `index` stand."""
    tables = tables_of(machine)
    if index < tables[template + A_NUM_PREFIX]:
        return int64(tables[tables[template + A_PREFIX] + index])
    return int64(tables[template + A_REST])


@inner
def options_of_item(machine: Machine, frame: int) -> int:  # pragma: no cover
    """Where the options of the next item stand."""
    row = nodes_of(machine)[frame]
    if row[B_COLUMN] != NONE:
        seen = nodes_of(machine)[row[B_COLUMN], A_COLUMN]
        if seen > 0:
            return int64(tables_of(machine)[seen + I_OPTIONS])
    return _static_options(machine, row[A_COLUMN], row[LOW_COLUMN])


@inner
def _counted(machine: Machine, frame: int, which: int) -> int:  # pragma: no cover
    return int64((nodes_of(machine)[frame, HIGH_COLUMN] >> (COUNT_BITS * which)) & MOST)


@inner
def _least_most(
    machine: Machine, template: int, index: int, which: int
) -> tuple[int, int]:  # pragma: no cover
    """How many of item `index` count for a `contains`, at least and at most: (1, 0) if there is no such
    item."""
    tables = tables_of(machine)
    at = _static_options(machine, template, index)
    least, most = int64(1), int64(0)
    for option in range(tables[at]):
        marked = (tables[at + 2 + 2 * option] >> which) & 1
        least, most = min(least, marked), max(most, marked)
    return least, most


@inner
def _can_be_met(
    machine: Machine, template: int, count: int, which: int, counted: int
) -> bool:  # pragma: no cover
    """Whether, with `count` items of which `counted` count, the bounds of the array and a `contains` can be
    met."""
    tables = tables_of(machine)
    low, high = int64(tables[template + A_LOW]), int64(tables[template + A_HIGH])
    fewest = int64(tables[tables[template + A_CONTAINS] + 2 * which])
    most = int64(tables[tables[template + A_CONTAINS] + 2 * which + 1])
    num_prefix = tables[template + A_NUM_PREFIX]
    least_so_far, most_so_far = int64(counted), int64(counted)
    index = int64(count)
    while True:
        enough = index >= low and most_so_far >= fewest
        if enough and (most == NO_END or least_so_far <= most):
            return True
        if high != NO_END and index >= high:
            return False
        least, best = _least_most(machine, template, index, which)
        if least > best or (most != NO_END and least_so_far > most):
            return False
        if index >= num_prefix:
            # The rest is all alike: as many as are needed at least, and no more.
            more = max(low - index, int64(1))
            if best:
                more = max(more, fewest - most_so_far)
            elif most_so_far < fewest:
                return False
            index += more
            if high != NO_END and index > high:
                return False
            return most == NO_END or least_so_far + more * least <= most
        least_so_far += least
        most_so_far += best
        index += 1


@inner
def after_item(machine: Machine, frame: int, marks: int) -> int:  # pragma: no cover
    """The frame with one more item, which counts for `marks`; -1 where that may not be."""
    tables = tables_of(machine)
    row = nodes_of(machine)[frame]
    template, items, count = row[A_COLUMN], row[B_COLUMN], row[LOW_COLUMN] + 1
    high = tables[template + A_HIGH]
    if high != NO_END and count > high:
        return int64(-1)
    num_contains = tables[template + A_NUM_CONTAINS]
    counts = int64(0)
    for which in range(num_contains):
        at = tables[template + A_CONTAINS] + 2 * which
        counted = _counted(machine, frame, which) + ((marks >> which) & 1)
        if tables[at + 1] != NO_END and counted > tables[at + 1]:
            return int64(-1)
        if not _can_be_met(machine, template, count, which, counted):
            return int64(-1)
        if tables[at + 1] == NO_END:
            counted = min(counted, int64(tables[at]))
        counts |= counted << (COUNT_BITS * which)
    if high == NO_END:
        # Past the last place that differs, the number of items does not matter any more.
        count = min(count, max(int64(tables[template + A_LOW]), int64(tables[template + A_NUM_PREFIX])))
    return row_of(machine, ARRAY, template, items, count, counts)


@inner
def may_close(machine: Machine, frame: int) -> bool:  # pragma: no cover
    """Whether the array may end."""
    tables = tables_of(machine)
    row = nodes_of(machine)[frame]
    template = row[A_COLUMN]
    if row[LOW_COLUMN] < tables[template + A_LOW]:
        return False
    for which in range(tables[template + A_NUM_CONTAINS]):
        if _counted(machine, frame, which) < tables[tables[template + A_CONTAINS] + 2 * which]:
            return False
    return True


@inner
def may_go_on(machine: Machine, frame: int) -> bool:  # pragma: no cover
    """Whether another item may come."""
    at = options_of_item(machine, frame)
    for option in range(tables_of(machine)[at]):
        if after_item(machine, frame, int64(tables_of(machine)[at + 2 + 2 * option])) >= 0:
            return True
    return False


@inner
def is_unique(machine: Machine, frame: int) -> bool:  # pragma: no cover
    """Whether the items of an array must differ."""
    return tables_of(machine)[nodes_of(machine)[frame, A_COLUMN] + A_UNIQUE] != 0


@inner
def with_items(machine: Machine, frame: int, seen: int, mark: int, first: int) -> int:  # pragma: no cover
    """The frame of an array with unique items: `seen` tells which there are (0: none), `mark` where the
    captured text of the one to come begins; `first`: 1 if nothing was captured before."""
    row = nodes_of(machine)[frame]
    template, count, counts = row[A_COLUMN], row[LOW_COLUMN], row[HIGH_COLUMN]
    items = row_of(machine, ITEMS, seen, NONE, mark, first)
    return row_of(machine, ARRAY, template, items, count, counts)


@inner
def seen_items(machine: Machine, frame: int) -> int:  # pragma: no cover
    """The row of `tables` that says which items were seen, 0 for none, or `UNKNOWN`."""
    items = nodes_of(machine)[frame, B_COLUMN]
    return int64(0 if items == NONE else nodes_of(machine)[items, A_COLUMN])


@inner
def captures_first(machine: Machine, frame: int) -> bool:  # pragma: no cover
    """Whether nothing was captured before the item that is being read, so that nothing is behind it."""
    return nodes_of(machine)[nodes_of(machine)[frame, B_COLUMN], HIGH_COLUMN] != 0


@inner
def left_out(machine: Machine, frame: int) -> bool:  # pragma: no cover
    """Whether what was seen was left out."""
    return seen_items(machine, frame) == UNKNOWN
