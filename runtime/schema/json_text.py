"""The text of JSON values: exact numbers, any depth, every spelling."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

from treille.runtime.schema.values import to_exact

# None, bool, int, Decimal (float where a caller has one), str, list or dict with keys of str.
Json: TypeAlias = Any

_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ESCAPED_AS_WELL = {"/": "\\/"}
_MAX_PLAIN = 400  # digits of a number that is written without an exponent
_SPACES = ("", "", " ", "\n", "\t", "\r", "\n  ")


@dataclass(frozen=True, slots=True)
class Spelling:
    """How a value is written. With `rng`, what is asked for varies: `escapes` that nobody needs (\\u0041),
    `numbers` with zeros at the end (1.0 for 1, which is no integer of draft 4), `whitespace`, the `order` of
    keys. `spaced`: a space after each comma and colon, as Python's json has it."""

    rng: random.Random | None = None
    escapes: bool = False
    numbers: bool = False
    whitespace: bool = False
    order: bool = False
    spaced: bool = False


def dumps(
    value: Json,
    rng: random.Random | None = None,
    *,
    escapes: bool = False,
    numbers: bool = False,
    whitespace: bool = False,
    order: bool = False,
    spaced: bool = False,
) -> str:
    """The value as JSON text that loses no digit; at any depth. An int is spelled as a whole number, and no
    Decimal is. Fields: see `Spelling`.

    Raises `ValueError` for a variation without `rng`, and `TypeError` for what is no JSON value.
    """
    if rng is None and (escapes or numbers or whitespace or order):
        raise ValueError("spellings that vary need a random generator")
    spelling = Spelling(rng, escapes, numbers, whitespace, order, spaced)

    def members(value: Mapping[str, Json]) -> list[tuple[str, Json]]:
        pairs = list(value.items())
        if order and rng is not None:
            rng.shuffle(pairs)
        return pairs

    def scalar(value: Json) -> str:
        return quoted(value, spelling) if isinstance(value, str) else _plain(value, spelling)

    return _written(value, scalar, members, spelling)


def quoted(text: str, spelling: Spelling | None = None) -> str:
    """A string's text."""
    rng = spelling.rng if spelling and spelling.escapes else None
    if rng is None and text.isalnum():
        return f'"{text}"'
    return '"' + "".join(_character(one, rng) for one in text) + '"'


def _character(one: str, rng: random.Random | None) -> str:
    if rng is not None and rng.random() < 0.2:
        if one in _ESCAPED_AS_WELL and rng.random() < 0.5:
            return _ESCAPED_AS_WELL[one]
        units = one.encode("utf-16-be", "surrogatepass").hex()
        pieces = ["\\u" + units[at : at + 4] for at in range(0, len(units), 4)]
        return "".join(f"\\u{piece[2:].upper()}" if rng.random() < 0.5 else piece for piece in pieces)
    if one in _SHORT:
        return _SHORT[one]
    return f"\\u{ord(one):04x}" if one < " " or "\ud800" <= one <= "\udfff" else one


def _plain(value: Json, spelling: Spelling | None = None) -> str:
    """What is neither a string nor a container."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, int | Decimal | float):
        raise TypeError(f"{type(value).__name__} is no JSON value")
    number = Decimal(to_exact(value))
    if not number.is_finite():
        raise TypeError(f"{number} is no JSON number")
    if spelling is None or spelling.rng is None or not spelling.numbers:
        text = str(number)
        return text + ".0" if not isinstance(value, int) and text.lstrip("-").isdigit() else text
    return _other_number(number, spelling.rng)


def _other_number(number: Decimal, rng: random.Random) -> str:
    """The number without an exponent, if it is not too long, and now and then with zeros at the end."""
    sign, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int) or abs(number.adjusted()) > _MAX_PLAIN:
        return str(number)
    text = "".join(map(str, digits)) + "0" * max(0, exponent)
    places = max(0, -exponent)
    text = text.rjust(places + 1, "0")
    whole, fraction = text[: len(text) - places].lstrip("0") or "0", text[len(text) - places :]
    fraction += "0" * rng.choice((0, 0, 1, 2))
    return "-" * sign + whole + ("." + fraction if fraction else "")


Members = Callable[[Mapping[str, Json]], Sequence[tuple[str, Json]]]


def _written(value: Json, scalar: Callable[[Json], str], members: Members, spelling: Spelling) -> str:
    """The text of a value. A stack of what is still to come takes the place of calls: depth is no matter."""
    out: list[str] = []
    stack: list[Iterator[tuple[str, Json]]] = [iter([("", value)])]
    closers = [""]
    while stack:
        step = next(stack[-1], None)
        if step is None:
            stack.pop()
            out.append(closers.pop())
            continue
        before, one = step
        out.append(before)
        if isinstance(one, dict):
            out.append("{")
            closers.append(_space(spelling) + "}")
            stack.append(_object_steps(members(one), spelling))
        elif isinstance(one, list):
            out.append("[")
            closers.append(_space(spelling) + "]")
            stack.append(_array_steps(one, spelling))
        else:
            out.append(scalar(one))
    return "".join(out)


def _object_steps(pairs: Sequence[tuple[str, Json]], spelling: Spelling) -> Iterator[tuple[str, Json]]:
    comma, colon = (", ", ": ") if spelling.spaced else (",", ":")
    for at, (key, value) in enumerate(pairs):
        start = (_space(spelling) + comma if at else "") + _space(spelling)
        yield start + quoted(key, spelling) + _space(spelling) + colon + _space(spelling), value


def _array_steps(items: Sequence[Json], spelling: Spelling) -> Iterator[tuple[str, Json]]:
    comma = ", " if spelling.spaced else ","
    for at, value in enumerate(items):
        yield (_space(spelling) + comma if at else "") + _space(spelling), value


def _space(spelling: Spelling) -> str:
    return spelling.rng.choice(_SPACES) if spelling.rng is not None and spelling.whitespace else ""
