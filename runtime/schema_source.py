"""A JSON Schema as part of a request: an exact, immutable text, and how its values are to be written.

Nothing here knows what a schema means, and nothing slow is imported: requests are made and checked with it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from treille.runtime.errors import InvalidRequest

MAX_SCHEMA = 4_000_000  # characters of a schema's text
MAX_INDENT = 16

WHITESPACE = ("flexible", "compact", "any")
PROPERTY_ORDERS = ("schema", "any")
NUMBER_STYLES = ("json", "plain")
FORMATS = ("assert", "annotation")
ESCAPES = ("minimal", "any")
DEFAULTS = {
    "whitespace": "flexible",
    "property_order": "schema",
    "number_style": "json",
    "formats": "assert",
    "escapes": None,
}
CHOICES = {
    "property_order": PROPERTY_ORDERS,
    "number_style": NUMBER_STYLES,
    "formats": FORMATS,
    "escapes": ESCAPES,
}


@dataclass(frozen=True, slots=True)
class Spacing:
    """Whitespace as `json.dumps` writes it with these separators and so many spaces for each level of
    indentation (None: all in one line)."""

    indent: int | None = None
    item_separator: str = ", "
    key_separator: str = ": "


@dataclass(frozen=True, slots=True)
class SchemaSource:
    """A schema's JSON text, without whitespace and with its numbers as they were spelled, and its options.
    Hashable: what is compiled is shared under it."""

    text: str
    whitespace: str | Spacing = "flexible"
    property_order: str = "schema"
    number_style: str = "json"
    formats: str = "assert"
    escapes: str | None = None  # "any" beside whitespace "any", else "minimal"

    def __len__(self) -> int:
        return len(self.text)


class Number(float):
    """A number of a JSON text that keeps its spelling: `json.loads(text, parse_float=Number)`."""

    __slots__ = ("spelling",)

    def __new__(cls, spelling: str) -> Number:
        """From the JSON number `spelling`."""
        number = super().__new__(cls, spelling)
        number.spelling = spelling
        return number

    spelling: str

    def __reduce__(self) -> tuple[type[Number], tuple[str]]:
        return Number, (self.spelling,)


def schema_text(schema: object, *, field: str = "schema") -> str:
    """The exact JSON text of a schema: a mapping, a boolean, or a string that holds JSON.

    Floats count as the shortest decimal that stands for them, as `repr` writes it. Raises `InvalidRequest`,
    with the JSON Pointer of the place, for what is not JSON.
    """
    if isinstance(schema, str):
        schema = _parsed(schema, field)
    if not isinstance(schema, (Mapping, bool)):
        raise InvalidRequest(
            f"{field} must be a JSON object, true or false, not {_shown(schema)}", field=field
        )
    pieces: list[str] = []
    size = 0
    for piece in _pieces(schema, field):
        size += len(piece)
        if size > MAX_SCHEMA:
            raise InvalidRequest(f"{field} may be at most {MAX_SCHEMA} characters long", field=field)
        pieces.append(piece)
    return "".join(pieces)


def read_whitespace(value: object, *, field: str = "whitespace") -> str | Spacing:
    """How whitespace is written: a name, or by json.dumps' words, as in
    `{"separators": [",", ": "], "indent": 2}`. Raises `InvalidRequest`."""
    if isinstance(value, Spacing) or (isinstance(value, str) and value in WHITESPACE):
        return value
    if not isinstance(value, Mapping) or not value.keys() <= {"separators", "indent"}:
        raise InvalidRequest(
            f'{field} must be {", ".join(WHITESPACE)}, or an object with "separators" and "indent", '
            f"not {_shown(value)}",
            field=field,
        )
    indent, separators = value.get("indent"), value.get("separators")
    if indent is not None and not (type(indent) is int and 0 <= indent <= MAX_INDENT):
        raise InvalidRequest(
            f"{field}: indent must be a number from 0 to {MAX_INDENT}, not {_shown(indent)}", field=field
        )
    item, key = (", " if indent is None else ",", ": ") if separators is None else _pair(separators, field)
    return Spacing(indent, item, key)


def read_choice(name: str, value: object) -> str:
    """One of the words that option `name` may be. Raises `InvalidRequest`."""
    if isinstance(value, str) and value in CHOICES[name]:
        return value
    raise InvalidRequest(f"{name} must be {' or '.join(CHOICES[name])}, not {_shown(value)}", field=name)


def _pair(value: object, field: str) -> tuple[str, str]:
    if isinstance(value, (list, tuple)) and len(value) == 2:
        item, key = value
        if _begins(",", item) and _begins(":", key):
            return item, key
    raise InvalidRequest(
        f'{field}: separators must be two strings, as in [", ", ": "]: a comma and a colon, with up to '
        f"{MAX_INDENT - 1} characters of whitespace after each, not {_shown(value)}",
        field=field,
    )


def _begins(mark: str, value: object) -> bool:
    fits = isinstance(value, str) and re.fullmatch(f"{mark}[ \\t\\n\\r]*", value) is not None
    return fits and len(str(value)) <= MAX_INDENT


class _Integer(str):
    """The spelling of a whole number."""

    __slots__ = ()


def _parsed(text: str, field: str) -> object:
    if len(text) > MAX_SCHEMA:
        raise InvalidRequest(f"{field} may be at most {MAX_SCHEMA} characters long", field=field)

    def constant(word: str) -> object:
        raise InvalidRequest(f"{field} is not JSON: it has no {word}", field=field)

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for at, name in enumerate(names) if name in names[:at])
            raise InvalidRequest(f"{field}: an object has the key {_shown(twice)} twice", field=field)
        return found

    try:
        return json.loads(
            text, parse_float=Number, parse_int=_Integer, parse_constant=constant, object_pairs_hook=members
        )
    except json.JSONDecodeError as error:
        raise InvalidRequest(
            f"{field} is not JSON: {error.msg} at line {error.lineno} column {error.colno}", field=field
        ) from None
    except RecursionError:
        raise InvalidRequest(f"{field} is nested too deeply", field=field) from None


def _pieces(value: object, field: str) -> Iterator[str]:
    """The pieces of a value's text. A loop, since a value may be nested as deeply as it likes."""
    path: list[str] = []
    open_ones: list[tuple[Iterator[tuple[str, object]], str]] = []
    prefix = ""
    while True:
        if isinstance(value, Mapping):
            yield prefix + "{"
            open_ones.append((_members(value, path, field), "}"))
            path.append("")
        elif isinstance(value, (list, tuple)):
            yield prefix + "["
            open_ones.append(((("", item) for item in value), "]"))
            path.append("-1")
        else:
            yield prefix + _scalar(value, path, field)
        is_first = isinstance(value, (Mapping, list, tuple))
        while open_ones:
            members, closing = open_ones[-1]
            found = next(members, None)
            if found is not None:
                break
            yield closing
            open_ones.pop()
            path.pop()
            is_first = False
        else:
            return
        name, value = found
        path[-1] = name if closing == "}" else str(int(path[-1]) + 1)
        prefix = ("" if is_first else ",") + (f"{json.dumps(name)}:" if closing == "}" else "")


def _members(value: Mapping[Any, object], path: list[str], field: str) -> Iterator[tuple[str, object]]:
    for name, member in value.items():
        if not isinstance(name, str):
            place = _pointer(path[:-1])
            raise InvalidRequest(f"{field} is not JSON: the key {_shown(name)} at {place}", field=field)
        yield name, member


def _scalar(value: object, path: list[str], field: str) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, Number):
        return value.spelling
    if isinstance(value, _Integer):
        return str(value)
    if isinstance(value, str):
        return json.dumps(str.__str__(value))
    if isinstance(value, int):
        return _whole(int(value))
    if isinstance(value, float) and math.isfinite(value):
        return float.__repr__(value)
    if isinstance(value, Decimal) and value.is_finite():
        return str(value)
    raise InvalidRequest(f"{field} is not JSON: {_shown(value)} at {_pointer(path)}", field=field)


def _whole(value: int) -> str:
    """The digits, of which `str` refuses more than a few thousand."""
    try:
        return str(value)
    except ValueError:
        return str(Decimal(value))


def _pointer(path: list[str]) -> str:
    return "".join(["#", *(f"/{name.replace('~', '~0').replace('/', '~1')}" for name in path)])


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
