"""Values for places that must all differ, from few values: a matching of places and values."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence


def matching(places: Sequence[int], values: Sequence[Sequence[int]]) -> list[int] | None:
    """A value for each place, no two alike, or None if there is no way. `places`: for each place, which list
    of `values` it takes its value from; earlier ones are taken first. Kuhn's algorithm, one search a list."""
    owner: dict[int, int] = {}
    taken: list[int | None] = [None] * len(places)
    begin = [0] * len(values)
    for place, kind in enumerate(places):
        row = values[kind]
        while begin[kind] < len(row) and row[begin[kind]] in owner:
            begin[kind] += 1
        if begin[kind] < len(row):
            owner[row[begin[kind]]] = place
            taken[place] = row[begin[kind]]
    for place, value in enumerate(taken):
        if value is None and not _augment(place, places, values, owner, taken):
            return None
    return [value for value in taken if value is not None]


def indispensable(places: Sequence[int], values: Sequence[Sequence[int]]) -> list[int]:
    """The values without any one of which there is no matching, though there is one with all of them."""
    found = matching(places, values)
    if found is None:
        return []
    owner = {value: place for place, value in enumerate(found)}
    needed = []
    for value, place in list(owner.items()):
        fewer = [[one for one in row if one != value] if value in row else row for row in values]
        trial, taken = {one: at for one, at in owner.items() if one != value}, list[int | None](found)
        taken[place] = None
        if not _augment(place, places, fewer, trial, taken):
            needed.append(value)
    return needed


def _augment(
    start: int,
    places: Sequence[int],
    values: Sequence[Sequence[int]],
    owner: dict[int, int],
    taken: list[int | None],
) -> bool:
    """Gives a place a value, and others another where need be; False, with no change, if that cannot be."""
    queue = deque([start])
    seen = {places[start]}
    came: dict[int, int] = {}  # by value: the place that would have it
    while queue:
        place = queue.popleft()
        for value in values[places[place]]:
            if value in came:
                continue
            came[value] = place
            holder = owner.get(value)
            if holder is None:
                _shift(value, came, owner, taken)
                return True
            if places[holder] not in seen:
                seen.add(places[holder])
                queue.append(holder)
    return False


def _shift(free: int, came: dict[int, int], owner: dict[int, int], taken: list[int | None]) -> None:
    """Gives a free value to the place that would have it, its old one to the one before, and so on."""
    given: int | None = free
    while given is not None:
        place = came[given]
        old = taken[place]
        taken[place] = given
        owner[given] = place
        given = old
