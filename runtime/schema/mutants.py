"""Values that differ a little from another one: what breaks a schema where it can be broken."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction

from treille.runtime.schema.decimals import to_number
from treille.runtime.schema.json_text import Json
from treille.runtime.schema.values import canonical, to_exact

_TINY = Decimal("1e-9")
_ODD_KEYS = ("", "a", "x-new", "constructor", "$ref", "0", "Ω", "A key with spaces")
_ODD_CHARACTERS = "a Z0-_.:/@\\\"'\n\t\x7fé\u2028😀"
_OTHERS: tuple[Json, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    Decimal("0.5"),
    "",
    "a",
    "1",
    [],
    [None],
    {},
    {"a": 0},
)

Path = tuple[int | str, ...]


def mutants(value: Json, rng: random.Random, count: int) -> list[Json]:
    """`count` values, each some changes (mostly one) away from `value` and not equal to it.

    A change drops, adds, renames or swaps members, drops, adds, doubles or swaps items, moves a number a
    little or much, cuts, lengthens or alters a string, or puts something of another type in a value's place.
    """
    form = canonical(value)
    found: list[Json] = []
    while len(found) < count:
        mutant = value
        for _ in range(rng.choice((1, 1, 1, 1, 2, 3))):
            mutant = _changed(mutant, rng)
        if canonical(mutant) == form:
            mutant = rng.choice([one for one in _OTHERS if canonical(one) != form])
        found.append(mutant)
    return found


def paths(value: Json) -> list[Path]:
    """The paths of all values in a value, its own first."""
    found: list[Path] = []
    pending: list[tuple[Path, Json]] = [((), value)]
    while pending:
        path, one = pending.pop()
        found.append(path)
        if isinstance(one, dict | list):
            pending.extend(((*path, step), member) for step, member in _members(one))
    return found


def replaced(value: Json, path: Path, change: Callable[[Json], Json]) -> Json:
    """The value with what is at `path` changed; everything beside the path is shared with the old one."""
    line: list[Json] = [value]
    for step in path:
        line.append(line[-1][step])
    new = change(line.pop())
    for step in reversed(path):
        holder = line.pop()
        copy: Json = dict(holder) if isinstance(holder, dict) else list(holder)
        copy[step] = new
        new = copy
    return new


def _members(value: Json) -> Iterator[tuple[int | str, Json]]:
    yield from value.items() if isinstance(value, dict) else enumerate(value)


def _changed(value: Json, rng: random.Random) -> Json:
    path = rng.choice(paths(value))

    def change(one: Json) -> Json:
        if rng.random() < 0.15:
            return rng.choice(_OTHERS)
        if isinstance(one, dict):
            return _changed_object(one, rng)
        if isinstance(one, list):
            return _changed_array(one, rng)
        if isinstance(one, str):
            return _changed_string(one, rng)
        if one is None or isinstance(one, bool):
            return rng.choice([other for other in _OTHERS if other is not one])
        return _changed_number(to_exact(one), rng)

    return replaced(value, path, change)


def _changed_object(value: dict[str, Json], rng: random.Random) -> dict[str, Json]:
    keys = list(value)
    key = rng.choice(keys) if keys else None
    kind = rng.choice(("add", "drop", "drop", "rename", "swap", "keep one")) if keys else "add"
    new = dict(value)
    if kind == "add":
        new[_new_key(keys, rng)] = rng.choice([*_OTHERS, *value.values()])
    elif kind == "drop" and key is not None:
        del new[key]
    elif kind == "rename" and key is not None:
        other = _new_key(keys, rng)
        new = {other if one == key else one: member for one, member in value.items()}
    elif kind == "swap" and key is not None:
        other = rng.choice(keys)
        new[key], new[other] = value[other], value[key]
    elif key is not None:
        new = {key: value[key]}
    return new


def _new_key(keys: list[str], rng: random.Random) -> str:
    """A key that may be new: an odd one, or one that is nearly another."""
    if not keys or rng.random() < 0.4:
        return rng.choice(_ODD_KEYS)
    key = rng.choice(keys)
    return rng.choice((key + "s", key[:-1], key.upper(), key.capitalize(), " " + key, key + "\n"))


def _changed_array(value: list[Json], rng: random.Random) -> list[Json]:
    new = list(value)
    at, other = rng.randrange(len(new) + 1), rng.randrange(len(new) + 1)
    kind = rng.choice(("add", "double", "drop", "drop", "swap", "empty", "many")) if new else "add"
    if kind == "add":
        new.insert(at, rng.choice([*_OTHERS, *value[:20]]))
    elif kind == "double":
        new.insert(at, rng.choice(value))
    elif kind == "drop":
        del new[min(at, len(new) - 1)]
    elif kind == "swap":
        at, other = min(at, len(new) - 1), min(other, len(new) - 1)
        new[at], new[other] = new[other], new[at]
    elif kind == "many":
        new = new * rng.randint(2, 4) if len(new) < 1000 else new[: len(new) // 2]
    else:
        new = []
    return new


def _changed_string(value: str, rng: random.Random) -> Json:
    at = rng.randrange(len(value) + 1)
    odd = rng.choice(_ODD_CHARACTERS)
    return rng.choice(
        (
            "",
            value[:-1],
            value[1:],
            value[:at],
            value[:at] + odd + value[at:],
            value[:at] + odd + value[at + 1 :],
            value + odd,
            value + value,
            value + "x" * rng.choice((1, 10, 300)),
            value.upper(),
            value.swapcase(),
            value[::-1],
            [value],
            len(value),
        )
    )


def _changed_number(value: int | Decimal, rng: random.Random) -> Json:
    number = Decimal(value)
    if abs(number.adjusted()) > 1000:
        return rng.choice((0, -1, Decimal("0.5"), str(number)))
    whole = int(number)
    exponent = number.as_tuple().exponent
    step = Decimal((0, (1,), exponent)) if isinstance(exponent, int) else Decimal(1)
    return rng.choice(
        (
            _plus(number, Decimal(1)),
            _plus(number, Decimal(-1)),
            _plus(number, step),
            _plus(number, -step),
            _plus(number, step / 10),
            _plus(number, _TINY),
            _plus(number, -_TINY),
            _plus(number, Decimal("0.5")),
            -whole,
            whole * 10,
            whole * 10**20 + 1,
            0,
            str(number),
            [value],
        )
    )


def _plus(number: Decimal, step: Decimal) -> int | Decimal:
    """The exact sum, whatever the context's precision; an integer as int."""
    return to_number(Fraction(number) + Fraction(step))
