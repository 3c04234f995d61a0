"""Classes of characters that an expression does not tell apart, and the lattice of UTF-8 that spells them.

Class 0 and the classes after it cover every Unicode scalar value. The lattice leads from the first byte of
a character down to its class; there is no way through it for overlong forms, surrogates or anything past
U+10FFFF (Unicode 16, table 3-7).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from treille.runtime.errors import UnsupportedConstraint
from treille.runtime.grammar.charset import Ranges
from treille.runtime.grammar.store import Flags, Int64s, inner, int64

MAX_SETS = 4096
MAX_CLASSES = 4096
_MAX_CELLS = 1 << 24  # of a table of sets and classes


class Classes(NamedTuple):
    """`starts`, `numbers`: int32, the class of the code points from each start on (-1: surrogates).
    `members`: bool [num_sets, num_classes]. `lead` [256], `lattice` [n, 65], `below`
    [n + 1, num_classes]: see `Store`."""

    starts: Int64s
    numbers: Int64s
    members: Flags
    lead: Int64s
    lattice: Int64s
    below: Flags


@lru_cache(maxsize=512)
def _as_points(ranges: Ranges) -> NDArray[np.int64]:
    """Where a set begins and ends, by turns, shifted left: there is room for a number below."""
    points = np.array(ranges, np.int64).reshape(-1, 2)
    points[:, 1] += 1
    return points.ravel() << 16


# The surrogates are a set of their own and never a class; every text has a place 0, toggled twice.
_SURROGATES = np.array([0, 0xD800, 0xE000], np.int64) << 16


def classes_of(sets: Sequence[Ranges]) -> Classes:
    """The coarsest classes that every set is a union of.

    Raises `UnsupportedConstraint` if there are too many sets or classes.
    """
    if len(sets) > MAX_SETS:
        raise too_many()
    # Place and set in one number, so that one sort orders both; beginnings and ends just toggle.
    points = np.concatenate([_SURROGATES | len(sets)] + [_as_points(one) | at for at, one in enumerate(sets)])
    points.sort()
    limit = min(MAX_CLASSES, _MAX_CELLS // max(1, len(sets)))
    starts, numbers, members = _partition(points, len(sets), limit)
    if members.shape[1] > limit:
        raise too_many()
    lead, lattice, below = _lattice(starts, numbers, members.shape[1])
    return Classes(starts, numbers, members, lead, lattice, below)


def too_many() -> UnsupportedConstraint:
    """The refusal of a pattern with too many kinds of characters."""
    return UnsupportedConstraint("pattern", "offset 0", "it tells too many kinds of characters apart")


@njit(cache=True, nogil=True)
def _partition(points: Int64s, num_sets: int, limit: int) -> tuple[Int64s, Int64s, Flags]:  # pragma: no cover
    """A sweep over the sorted places where a set begins or ends. Gives up past `limit` classes."""
    words = (num_sets + 64) // 64
    now = np.zeros(words, np.uint64)
    signatures = np.zeros((min(limit, len(points)) + 1, words), np.uint64)
    size = 64
    while size < 4 * len(points):
        size *= 2
    buckets = np.full(size, -1, np.int64)
    starts, numbers = np.empty(len(points), np.int64), np.empty(len(points), np.int64)
    num_classes, num_starts, at = 0, 0, 0
    surrogate = True  # the toggle at place 0 makes it false
    while at < len(points) and num_classes <= limit:
        place = points[at] >> 16
        while at < len(points) and points[at] >> 16 == place:
            owner = points[at] & 0xFFFF
            if owner == num_sets:
                surrogate = not surrogate
            else:
                now[owner >> 6] ^= np.uint64(1) << np.uint64(owner & 63)
            at += 1
        if place > 0x10FFFF:
            break
        starts[num_starts], numbers[num_starts] = place, -1
        if not surrogate:
            mixed = np.uint64(0)
            for word in now:
                mixed = (mixed ^ word) * np.uint64(0x9E3779B97F4A7C15)
                mixed ^= mixed >> np.uint64(32)
            slot = int64(mixed & np.uint64(size - 1))
            while buckets[slot] >= 0 and not _same(signatures[buckets[slot]], now):
                slot = (slot + 1) & (size - 1)
            if buckets[slot] < 0:
                buckets[slot] = num_classes
                signatures[num_classes] = now
                num_classes += 1
            numbers[num_starts] = buckets[slot]
        num_starts += 1
    members = np.zeros((num_sets, num_classes), np.bool_)
    for owner in range(num_sets):
        for number in range(num_classes):
            word = signatures[number, owner >> 6]
            members[owner, number] = (word >> np.uint64(owner & 63)) & np.uint64(1) != 0
    return starts[:num_starts], numbers[:num_starts], members


@inner
def _same(one: NDArray[np.uint64], other: NDArray[np.uint64]) -> bool:  # pragma: no cover
    for index in range(len(one)):
        if one[index] != other[index]:
            return False
    return True


@njit(cache=True, nogil=True)
def _lattice(
    starts: Int64s, numbers: Int64s, num_classes: int
) -> tuple[Int64s, Int64s, Flags]:  # pragma: no cover
    """Nodes from the last byte up: those of one class first, then those that a boundary runs through."""
    lattice = np.full((num_classes + len(starts) + 300, 65), -1, np.int64)
    count = num_classes
    for number in range(num_classes):
        lattice[number] = number
        lattice[number, 64] = 1
    # By code point // 64: the node from which one more byte tells the class.
    last = np.full(17408, -1, np.int64)
    for index in range(len(starts)):
        number = numbers[index]
        end = starts[index + 1] if index + 1 < len(starts) else 0x110000
        point = starts[index]
        while point < end:
            block = point >> 6
            if point & 63 == 0 and point + 64 <= end:
                last[block] = number
                point += 64
                continue
            if point & 63 == 0:
                lattice[count, 64] = 1
                last[block] = count
                count += 1
            stop = min(end, (block + 1) << 6)
            for offset in range(point & 63, stop - (block << 6)):
                lattice[last[block], offset] = number
            point = stop
    lead = np.full(256, -1, np.int64)
    for byte in range(0x80):
        lead[byte] = lattice[last[byte >> 6], byte & 63]
    for byte in range(0xC2, 0xE0):
        lead[byte] = last[byte & 0x1F]
    known = np.full(num_classes + 1, -1, np.int64)  # nodes over one class alone
    pages = np.full(0x110, -1, np.int64)  # by code point // 4096
    for page in range(0x110):
        shortest = 0x800 >> 6 if page == 0 else 0
        pages[page], count = _above(
            lattice, count, last[page * 64 : page * 64 + 64], shortest, known, num_classes
        )
    for byte in range(0xE0, 0xF0):
        lead[byte] = pages[byte & 0xF]
    known = np.full(len(lattice), -1, np.int64)
    for byte in range(0xF0, 0xF5):
        first = (byte & 7) * 64
        children = np.full(64, -1, np.int64)
        children[: min(64, 0x110 - first)] = pages[first : min(first + 64, 0x110)]
        shortest = 16 if byte == 0xF0 else 0
        lead[byte], count = _above(lattice, count, children, shortest, known, len(lattice))
    below = np.zeros((count + 1, num_classes), np.bool_)
    below[count] = True
    for node in range(count):
        for child in lattice[node, :64]:
            if child >= 0 and lattice[node, 64] == 1:
                below[node, child] = True
            elif child >= 0:
                below[node] |= below[child]
    return lead, lattice[:count].copy(), below


@inner
def _above(
    lattice: Int64s, count: int, children: Int64s, shortest: int, known: Int64s, num_known: int
) -> tuple[int, int]:  # pragma: no cover
    """The node over 64 others, of which those before `shortest` would be overlong; made if it is new."""
    first = children[shortest]
    same = shortest == 0
    empty = True
    for child in children[shortest:]:
        same = same and child == first
        empty = empty and child < 0
    if empty:
        return int64(-1), int64(count)
    if same and first < num_known and known[first] >= 0:
        return int64(known[first]), int64(count)
    lattice[count] = -1
    lattice[count, shortest:64] = children[shortest:]
    lattice[count, 64] = 0
    if same and first < num_known:
        known[first] = count
    return int64(count), int64(count + 1)
