"""`gen(type=...)`: the constraint that a Python type puts on a text, and the way back from text to value.

- `str`: any text.
- `int`: `-?(0|[1-9][0-9]{0,18})`, at most 19 digits.
- `float`: a decimal such as `-12.5` or `3`, at most 16 digits before and 15 after the point, no exponent.
- `bool`: `true` or `false`.
- `Literal[...]` of strings, whole numbers and booleans: each as it is written (booleans as above).
- an `Enum`: the members' values if all of them are strings, otherwise the members' names.
"""

from __future__ import annotations

import re
import typing
from dataclasses import dataclass
from enum import Enum

INT_PATTERN = r"-?(0|[1-9][0-9]{0,18})"
FLOAT_PATTERN = r"-?(0|[1-9][0-9]{0,15})(\.[0-9]{1,15})?"

Kind = typing.Literal["str", "int", "float", "table"]


@dataclass(frozen=True, slots=True)
class ValueType:
    """How a text becomes a value. `table` lists (text, value) for the types with finitely many values."""

    name: str
    kind: Kind
    table: tuple[tuple[str, object], ...] = ()

    @property
    def title(self) -> str:
        """What errors call it."""
        return f"type {self.name}"

    @property
    def regex(self) -> str | None:
        """The pattern of the texts, for numbers."""
        return {"int": INT_PATTERN, "float": FLOAT_PATTERN}.get(self.kind)

    @property
    def choices(self) -> tuple[str, ...] | None:
        """The texts, for finite types."""
        return tuple(text for text, _ in self.table) if self.kind == "table" else None

    def parse(self, text: str) -> object:
        """The value that the text stands for. Raises ValueError if it stands for none."""
        if self.kind == "str":
            return text
        if self.regex is not None:
            if re.fullmatch(self.regex, text) is None:
                raise ValueError(f"{text!r} does not match {self.regex}")
            return int(text) if self.kind == "int" else float(text)
        for candidate, value in self.table:
            if candidate == text:
                return value
        raise ValueError(f"{text!r} is none of {list(self.choices or ())}")


TEXT = ValueType("str", "str")
_PLAIN: dict[object, ValueType] = {
    str: TEXT,
    int: ValueType("int", "int"),
    float: ValueType("float", "float"),
    bool: ValueType("bool", "table", (("true", True), ("false", False))),
}


def value_type(annotation: object) -> ValueType:
    """Read a `type=`. Raises ValueError for a type that cannot be generated."""
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _enum_type(annotation)
    if typing.get_origin(annotation) is typing.Literal:
        return _literal_type(annotation)
    try:
        return _PLAIN[annotation]
    except (KeyError, TypeError):
        raise ValueError(
            f"type must be int, float, bool, str, a Literal or an Enum, not {annotation!r}: "
            "schema=... takes other types, and writes them as JSON"
        ) from None


def choices_type(choices: tuple[str, ...]) -> ValueType:
    """The type of `gen(choices=...)`: each choice stands for itself."""
    return ValueType("choices", "table", tuple((choice, choice) for choice in choices))


def _enum_type(enum: type[Enum]) -> ValueType:
    members = list(enum)
    if not members:
        raise ValueError(f"the enum {enum.__name__} has no members")
    by_value = all(isinstance(member.value, str) for member in members)
    table = tuple((str(member.value) if by_value else member.name, member) for member in members)
    return ValueType(enum.__name__, "table", table)


def _literal_type(annotation: object) -> ValueType:
    table: list[tuple[str, object]] = []
    for value in typing.get_args(annotation):
        if isinstance(value, Enum) or not isinstance(value, (str, int)):
            raise ValueError(f"a Literal may hold strings, whole numbers and booleans, not {value!r}")
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if any(text == other for other, _ in table):
            raise ValueError(f"two values of {annotation} are both written {text!r}")
        table.append((text, value))
    return ValueType(str(annotation).removeprefix("typing."), "table", tuple(table))
