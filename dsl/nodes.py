"""Expressions and operations: what a program says, as frozen data.

An *expression* is what a program adds to its state: text, `gen`, `select`, a role's turn, and their
concatenation. `lower` turns one into *operations*, the flat steps that the interpreter executes in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from treille.dsl.choosing import Method
from treille.dsl.errors import InvalidExpression, ProgramError
from treille.dsl.location import Location
from treille.dsl.protocol import GenOptions, Role
from treille.dsl.schemas import JsonType
from treille.dsl.values import ValueType


class Expression:
    """Something that can be added to a state, and to text and other expressions by `+`."""

    __slots__ = ()

    def __add__(self, other: object) -> Expression:
        return _concatenate(self, other) if isinstance(other, (str, Expression)) else NotImplemented

    def __radd__(self, other: object) -> Expression:
        return _concatenate(other, self) if isinstance(other, str) else NotImplemented

    def __str__(self) -> str:
        raise TypeError("an expression has no text yet: join it by +, not by an f-string or str()")

    def __format__(self, spec: str) -> str:
        return str(self)


@dataclass(frozen=True, slots=True)
class Literal(Expression):
    """Given text."""

    text: str


@dataclass(frozen=True, slots=True)
class Generate(Expression):
    """Text that the model writes. `type` makes the value of the text."""

    name: str | None
    options: GenOptions
    type: ValueType | JsonType


@dataclass(frozen=True, slots=True)
class Select(Expression):
    """One of several texts, taken by what the model thinks of them."""

    name: str | None
    choices: tuple[str, ...]
    method: Method


@dataclass(frozen=True, slots=True)
class Turn(Expression):
    """One role's whole turn."""

    role: Role
    body: Expression


@dataclass(frozen=True, slots=True)
class Concat(Expression):
    """Several expressions, one after the other."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class OpenTurn:
    """A role's turn begins."""

    role: Role


@dataclass(frozen=True, slots=True)
class CloseTurn:
    """The open turn ends."""


@dataclass(frozen=True, slots=True)
class OpenCapture:
    """A named stretch of text begins."""

    name: str


@dataclass(frozen=True, slots=True)
class CloseCapture:
    """A named stretch of text ends."""

    name: str


@dataclass(frozen=True, slots=True)
class Fork:
    """The state splits into `n` branches that go on from here."""

    n: int


@dataclass(frozen=True, slots=True)
class Cache:
    """What the text is up to here stays in the backend's cache while the run lasts."""


@dataclass(frozen=True, slots=True)
class Sync:
    """Everything before this has been executed."""


Operation = (
    Literal | Generate | Select | OpenTurn | CloseTurn | OpenCapture | CloseCapture | Fork | Cache | Sync
)


def as_expression(value: object, where: Location) -> Expression:
    """Text or an expression, as an expression. Raises `InvalidExpression` for anything else."""
    if isinstance(value, Expression):
        return value
    if isinstance(value, str):
        return Literal(str.__str__(value))
    hint = ""
    if isinstance(value, list):
        hint = ": a variable generated with n > 1 is a list; take one of its values"
    elif isinstance(value, (bool, int, float)):
        hint = ": turn it into text by str()"
    raise InvalidExpression(f"text or an expression is needed here, not {value!r}{hint}", where=where)


def lower(expression: Expression, role: Role | None, where: Location) -> Iterator[Operation]:
    """The operations of an expression that is added while `role`'s turn is open.

    Raises `ProgramError` for a turn within a turn, and for generation in a turn that is not the model's.
    """
    if isinstance(expression, Concat):
        for part in expression.parts:
            yield from lower(part, role, where)
    elif isinstance(expression, Turn):
        check_no_turn(expression.role, role, where)
        yield OpenTurn(expression.role)
        yield from lower(expression.body, expression.role, where)
        yield CloseTurn()
    elif isinstance(expression, Literal):
        yield expression
    elif isinstance(expression, (Generate, Select)):
        if role in ("system", "user"):
            word = "gen" if isinstance(expression, Generate) else "select"
            raise ProgramError(
                f"{word} belongs in the assistant's turn or outside roles, not in the {role}'s turn",
                where=where,
            )
        yield expression
    else:
        raise ProgramError(f"{type(expression).__name__} is not an expression of this language", where=where)


def check_no_turn(role: Role, open_role: Role | None, where: Location) -> None:
    """Raises `ProgramError` if a turn is open in which `role`'s would begin."""
    if open_role is not None:
        raise ProgramError(
            f"the {role}'s turn cannot begin within the {open_role}'s turn: turns do not nest", where=where
        )


def _concatenate(left: str | Expression, right: str | Expression) -> Expression:
    parts: list[Expression] = []
    for side in (left, right):
        if isinstance(side, Concat):
            parts.extend(side.parts)
        elif isinstance(side, Expression):
            parts.append(side)
        elif side:
            parts.append(Literal(side))
    return Concat(tuple(parts))
