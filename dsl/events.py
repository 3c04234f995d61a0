"""What `Program.stream` yields, in the order it happens.

`branch` is the path of the state that an event belongs to: `()` for the program's own, else `State.branch`
of the fork's branch. For each path the texts of its `TextEvent`s add up to `State.text()` (for a branch:
to what came after the fork).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from treille.dsl.protocol import Role, UsageCounts
from treille.dsl.schemas import JsonType

TextKind = Literal["given", "forced", "sampled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextEvent:
    """More text: `given` by the program, `forced` by a constraint, or `sampled` (a `select`'s too)."""

    text: str
    kind: TextKind
    role: Role | None
    variable: str | None
    branch: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialEvent:
    """More of a `gen(schema=...)` with a name and `n` of 1: comes after each of its `TextEvent`s.

    Nothing is computed unless it is asked for. `raw` is the text so far. `data` is the JSON data in it, None
    while there is none: a string that goes on is as long as it is so far, and a member whose value has not
    begun is not there. `value` is the same, but for a pydantic model an instance with the fields that came so
    far (see `dsl/partial.py`; those without a value or a default raise AttributeError).
    """

    name: str
    raw: str
    branch: tuple[int, ...] = ()
    type: JsonType = field(repr=False)

    @property
    def data(self) -> object:
        """The JSON data so far."""
        return self.type.partial(self.raw)

    @property
    def value(self) -> object:
        """The value so far."""
        return self.type.instance(self.raw)


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableEvent:
    """A variable has its value. With `n > 1` both `value` and `raw` are lists and no `TextEvent` came."""

    name: str
    value: object
    raw: str | list[str]
    branch: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedEvent:
    """The last event: the program is over; `ProgramStream.state` is its state. An error is raised instead."""

    usage: UsageCounts


ProgramEvent = TextEvent | PartialEvent | VariableEvent | FinishedEvent
