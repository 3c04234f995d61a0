"""JSON values and when they are equal: 1 and 1.0 are, 1 and true are not, the order of keys is no matter."""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from decimal import Decimal

from treille.runtime.schema.decimals import Far

_PLAIN = 400
"""Digits up to which an integer stands for itself; longer numbers may be as long as 1e1000000."""

NULL, BOOLEAN, WHOLE, ROUND, FRACTION, STRING, ARRAY, OBJECT = (1 << place for place in range(8))
"""Kinds of values, as bits. An integer is any number without a fraction: `WHOLE` is spelled as such (1),
`ROUND` with a point or an exponent (1.0, 1e2). All other numbers are `FRACTION`."""

_SURROGATE = re.compile("[\ud800-\udfff]")


INTEGER = WHOLE | ROUND
NUMBER = INTEGER | FRACTION
ANY_KIND = (1 << 8) - 1
INTEGER_OF_4 = "integer of draft 4"
"""The type that draft 4 calls integer: a number without fraction and exponent part."""
KINDS: Mapping[str, int] = {
    "null": NULL,
    "boolean": BOOLEAN,
    "integer": INTEGER,
    INTEGER_OF_4: WHOLE,
    "number": NUMBER,
    "string": STRING,
    "array": ARRAY,
    "object": OBJECT,
}


def canonical(value: object) -> Hashable:
    """Something that two JSON values have in common exactly if they are equal. Depth is no problem.

    Strings and integers stand for themselves. Raises TypeError for what is no JSON value.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, (Mapping, list, tuple)):
        return _compound(value)
    return _scalar(value)


def kind_of(value: object) -> int:
    """The kind of a JSON value; of an integer both, since equal ones may be spelled either way. Raises
    TypeError for what is none."""
    if value is None:
        return NULL
    if isinstance(value, bool):
        return BOOLEAN
    if isinstance(value, str):
        return STRING
    if isinstance(value, (int, float, Decimal, Far)):
        return INTEGER if isinstance(canonical(value), int) or _is_long_integer(value) else FRACTION
    if isinstance(value, Mapping):
        return OBJECT
    if isinstance(value, (list, tuple)):
        return ARRAY
    raise TypeError(f"not a JSON value: {type(value).__name__}")


def to_exact(value: int | float | Decimal) -> int | Decimal:
    """A number without binary rounding: a float is the shortest decimal that reads as it."""
    return Decimal(repr(value)) if isinstance(value, float) else value


def mask_of(types: str | Iterable[str]) -> int:
    """The kinds that a `type` lets through."""
    if isinstance(types, str):
        return KINDS[types]
    mask = 0
    for name in types:
        mask |= KINDS[name]
    return mask


def kind_of_canonical(form: Hashable) -> int:
    """The kind of a value of which this is the canonical form; see `kind_of`."""
    if isinstance(form, tuple):
        if form[0] == "?":
            return KINDS["boolean"]
        if form[0] == ".":
            return KINDS["integer"] if form[3] >= 0 else KINDS["number"] & ~KINDS["integer"]
        return ARRAY if form[0] == "[" else OBJECT
    if form is None:
        return KINDS["null"]
    return STRING if isinstance(form, str) else KINDS["integer"]


def spellable(texts: Collection[str]) -> frozenset[str]:
    """The texts without a lone surrogate, which UTF-8 cannot spell."""
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        return frozenset(text for text in texts if not _SURROGATE.search(text))
    return frozenset(texts)


def is_spellable(value: object) -> bool:
    """Whether there is neither a lone surrogate nor a `Far` number anywhere in a JSON value."""
    waiting = [value]
    while waiting:
        here = waiting.pop()
        if isinstance(here, str):
            if _SURROGATE.search(here):
                return False
        elif isinstance(here, Far):
            return False
        elif isinstance(here, Mapping):
            waiting.extend(here)
            waiting.extend(here.values())
        elif isinstance(here, (list, tuple)):
            waiting.extend(here)
    return True


def _scalar(value: object) -> Hashable:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return ("?", value)
    if isinstance(value, int) and value.bit_length() <= 3 * _PLAIN:
        return value
    if isinstance(value, (int, float, Decimal)):
        return _number(Decimal(to_exact(value)))
    if isinstance(value, Far):
        return (".", int(value.negative), value.digits, value.exponent)
    raise TypeError(f"not a JSON value: {type(value).__name__}")


def _number(value: Decimal) -> Hashable:
    """An integer if it is a short one, else (".", sign, digits, exponent) without zeros at the end."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise TypeError(f"not a JSON value: {value}")
    size = len(digits)
    while size > 1 and digits[size - 1] == 0:
        size -= 1
    if not any(digits[:size]):
        return 0
    exponent += len(digits) - size
    if exponent >= 0 and exponent + size <= _PLAIN:
        whole = int(Decimal((sign, digits[:size], exponent)))
        if whole.bit_length() <= 3 * _PLAIN:
            return whole
    return (".", sign, digits[:size], exponent)


def _is_long_integer(value: int | float | Decimal | Far) -> bool:
    form = canonical(value)
    return isinstance(form, tuple) and isinstance(form[3], int) and form[3] >= 0


def _compound(value: Mapping[str, object] | Sequence[object]) -> Hashable:
    """`canonical` of an object or array: members are worked out before what holds them."""
    done: dict[int, Hashable] = {}
    pending: list[object] = [value]
    while pending:
        here = pending[-1]
        if id(here) in done:
            pending.pop()
            continue
        members = list(here.values()) if isinstance(here, Mapping) else here
        if not isinstance(members, (list, tuple)):
            raise TypeError(f"not a JSON value: {type(here).__name__}")
        waiting = [
            member
            for member in members
            if isinstance(member, (Mapping, list, tuple)) and id(member) not in done
        ]
        if waiting:
            pending.extend(waiting)
            continue
        pending.pop()
        parts = tuple(done[id(m)] if id(m) in done else _scalar(m) for m in members)
        done[id(here)] = (
            ("{", frozenset(zip(here, parts, strict=True))) if isinstance(here, Mapping) else ("[", *parts)
        )
    return done[id(value)]
