"""What schemas are made of: JSON text read exactly, Python values checked, numbers made int or Decimal."""

from __future__ import annotations

import json
import math
import operator
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn

from treille.runtime.errors import InvalidConstraint, UnsupportedConstraint
from treille.runtime.schema.decimals import MAX_DIGITS, number_of_text
from treille.runtime.schema.nodes import Node

MAX_DEPTH = 256
_MAX_VALUES = 10_000_000
_MAX_BITS = math.floor(MAX_DIGITS * math.log2(10))
_PLAIN = frozenset((str, bool, type(None)))


def read_text(text: str | bytes) -> Any:
    """The value of a JSON text. Fractions are Decimal.

    Raises `InvalidConstraint` if it is not JSON (RFC 8259), or if an object has a key twice.
    """
    try:
        return json.loads(text, parse_float=Decimal, parse_constant=_no_number, object_pairs_hook=_members)
    except InvalidConstraint:
        raise
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}"
        raise InvalidConstraint(f"the schema is not JSON: {error.msg} at {place}", field="schema") from None
    except RecursionError:
        raise InvalidConstraint("the schema is nested too deeply", field="schema") from None
    except UnicodeDecodeError as error:
        raise InvalidConstraint(f"the schema is not text: {error.reason}", field="schema") from None
    except (ValueError, InvalidOperation):  # Python's own bound on integers, and that of Decimal on exponents
        raise InvalidConstraint(
            f"a number of the schema has over {MAX_DIGITS} digits", field="schema"
        ) from None


def read_item(text: bytes) -> Any:
    """The value of a text that is known to be JSON, numbers as `number_of_text` has them; at any length."""
    return json.loads(text, parse_int=number_of_text, parse_float=number_of_text)


def _no_number(name: str) -> NoReturn:
    raise InvalidConstraint(f"the schema is not JSON: {name} is no number", field="schema")


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                message = f"the schema has the key {shown(name)} twice in one object"
                raise InvalidConstraint(message, field="schema")
            seen.add(name)
    return members


def shown(value: object) -> str:
    """A value as messages show it, briefly."""
    if isinstance(value, str):
        return repr(value if len(value) <= 60 else value[:57] + "...")
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "an array"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int) and value.bit_length() > 200:
        return "a large integer"
    if isinstance(value, (int, float, Decimal)):
        return str(value)[:60]
    return f"a Python {type(value).__name__}"


def exact_number(value: object, node: Node, key: str) -> int | Decimal | None:
    """A number without rounding: int, or Decimal (of a float: of its shortest spelling); None for anything
    else.

    Raises `UnsupportedConstraint` if it has more digits before or after the point than are followed exactly.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        return Decimal(repr(float(value))) if math.isfinite(value) else None
    if isinstance(value, int):
        if value.bit_length() <= _MAX_BITS:
            return int(value)
    elif isinstance(value, Decimal):
        if not value.is_finite():
            return None
        if int(value.as_tuple().exponent) >= -MAX_DIGITS and value.adjusted() < MAX_DIGITS:
            return value
    else:
        return None
    reason = f"a number with over {MAX_DIGITS} digits"
    raise UnsupportedConstraint(key, node.place(key), reason, field="schema")


def exact_value(value: Any, node: Node, key: str) -> Any:
    """The JSON value of a keyword with its numbers made exact; `value` itself where that changes nothing.

    Raises `InvalidConstraint` for what JSON has not, and for what contains itself or nests over 256 deep.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is list and set(map(type, value)) <= _PLAIN:
        return value
    if not isinstance(value, (list, dict)):
        return _exact_scalar(value, node, key)
    done: dict[int, Any] = {}
    for level in reversed(_levels(value, node, key)):
        for box in level:
            done[id(box)] = _exact_box(box, done, node, key)
    return done[id(value)]


def _levels(value: Any, node: Node, key: str) -> list[list[Any]]:
    """Its arrays and objects by depth.

    One that Python holds once and that stands in many places is listed once at each depth, so this is bounded
    even where the value written out would be endless.
    """
    levels: list[list[Any]] = []
    level: dict[int, tuple[Any, int]] = {id(value): (value, 1)}
    total = 0
    while level:
        if len(levels) >= MAX_DEPTH:
            raise node.malformed(key, f"the value nests over {MAX_DEPTH} deep or contains itself")
        below: dict[int, tuple[Any, int]] = {}
        for box, times in level.values():
            total += times * len(box)
            if total > _MAX_VALUES:
                reason = f"over {_MAX_VALUES} values"
                raise UnsupportedConstraint(key, node.place(key), reason, field="schema")
            for item in box.values() if isinstance(box, dict) else box:
                if isinstance(item, (dict, list)):
                    known = below.get(id(item))
                    below[id(item)] = (item, times if known is None else known[1] + times)
        levels.append([box for box, _ in level.values()])
        level = below
    return levels


def _exact_box(box: Any, done: dict[int, Any], node: Node, key: str) -> Any:
    if isinstance(box, list):
        items = [_exact_item(item, done, node, key) for item in box]
        same = type(box) is list and all(map(operator.is_, items, box))
        return box if same else items
    for name in box:
        if not isinstance(name, str):
            raise node.malformed(key, f"{shown(name)} is no key of a JSON object")
    members = {_text(name): _exact_item(item, done, node, key) for name, item in box.items()}
    same = type(box) is dict and all(map(operator.is_, members.values(), box.values()))
    return box if same else members


def _exact_item(item: Any, done: dict[int, Any], node: Node, key: str) -> Any:
    if type(item) in _PLAIN:
        return item
    if isinstance(item, (dict, list)):
        return done[id(item)]
    return _exact_scalar(item, node, key)


def _exact_scalar(value: Any, node: Node, key: str) -> Any:
    if isinstance(value, str):
        return _text(value)
    number = exact_number(value, node, key)
    if number is None:
        raise node.malformed(key, f"{shown(value)} is no JSON value")
    return number


def _text(value: str) -> str:
    return value if type(value) is str else str.__str__(value)  # of a member of an enum: its value
