"""Arrays and objects that equal none of some values, as shapes that have nothing in common.

The values part at a key, or an item, at a time: those that agree so far go on together, as in a tree. So
there are about as many shapes as the values have keys in all, where the meets of what each value alone rules
out would be as many as the product of those.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from treille.runtime.schema.bases import EVERYTHING, NOTHING
from treille.runtime.schema.shapes import ArrayShape, Exists, ObjectShape
from treille.runtime.schema.strings import Strings
from treille.runtime.schema.values import canonical

Constant = Callable[[object], int]
NoneOf = Callable[[Sequence[object]], int]


@dataclass(frozen=True, slots=True)
class _Same:
    """Objects that agree so far: what they have at `keys` (`NOTHING`: the key is not there)."""

    objects: tuple[Mapping[str, object], ...]
    keys: Mapping[str, int]


def objects_unlike(
    values: Sequence[Mapping[str, object]], constant: Constant, none_of: NoneOf
) -> Iterator[ObjectShape]:
    """The objects that are none of these. `constant`: the set of a value alone, `NOTHING` where it cannot be
    written (what has such a part like one of these is left out); `none_of`: the set of all but some values.
    """
    waiting = [_Same(_different(values), {})]
    while waiting:
        here = waiting.pop()
        required = frozenset(name for name, value in here.keys.items() if value != NOTHING)
        name = _telling_key(here)
        if name is None:
            more = Exists((Strings(excluded=frozenset(here.keys)),), EVERYTHING)
            yield ObjectShape(here.keys, required=required, exists=(more,), unordered=frozenset(here.keys))
            continue
        groups: dict[Hashable, list[Mapping[str, object]]] = {}
        lacking = []
        for one in here.objects:
            if name in one:
                groups.setdefault(canonical(one[name]), []).append(one)
            else:
                lacking.append(one)
        others = none_of([group[0][name] for group in groups.values()])
        needed = required | {name} if lacking else required
        names = {**here.keys, name: others}
        yield ObjectShape(names, required=needed, unordered=frozenset(names))
        if lacking:
            waiting.append(_Same(tuple(lacking), {**here.keys, name: NOTHING}))
        for group in groups.values():
            same = constant(group[0][name])
            if same != NOTHING:
                waiting.append(_Same(tuple(group), {**here.keys, name: same}))


def _different(values: Sequence[Mapping[str, object]]) -> tuple[Mapping[str, object], ...]:
    return tuple({canonical(value): value for value in values}.values())


def _telling_key(here: _Same) -> str | None:
    """The key that parts the objects into the most groups, first by name of those; None if they have no
    other keys."""
    if len(here.objects) == 1:
        return min((name for name in here.objects[0] if name not in here.keys), default=None)
    kinds: dict[str, set[Hashable]] = {}
    for one in here.objects:
        for name, value in one.items():
            if name not in here.keys:
                kinds.setdefault(name, set()).add(canonical(value))
    return max(sorted(kinds), key=lambda name: len(kinds[name]), default=None)


def arrays_unlike(
    values: Sequence[list[object]], constant: Constant, none_of: NoneOf
) -> Iterator[ArrayShape]:
    """The arrays that are none of these; `constant` and `none_of` as above."""
    by_size: dict[int, list[list[object]]] = {}
    for value in values:
        by_size.setdefault(len(value), []).append(value)
    low = 0
    for size in sorted(by_size):
        if size > low:
            yield ArrayShape(low=low, high=size - 1)
        low = size + 1
        waiting: list[tuple[list[list[object]], tuple[int, ...]]] = [(by_size[size], ())]
        while waiting:
            same, prefix = waiting.pop()
            if len(prefix) == size:
                continue
            groups: dict[Hashable, list[list[object]]] = {}
            for value in same:
                groups.setdefault(canonical(value[len(prefix)]), []).append(value)
            items = [group[0][len(prefix)] for group in groups.values()]
            yield ArrayShape((*prefix, none_of(items)), low=size, high=size)
            for item, group in zip(items, groups.values(), strict=True):
                same_item = constant(item)
                if same_item != NOTHING:
                    waiting.append((group, (*prefix, same_item)))
    yield ArrayShape(low=low)
