"""What `Program.stream` yields, in the order it happens.

`branch` is the path of the state that an event belongs to: `()` for the program's own, else `State.branch`
of the fork's branch. For each path the texts of its `TextEvent`s add up to `State.text()` (for a branch:
to what came after the fork).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from treille.dsl.protocol import Role, UsageCounts

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


ProgramEvent = TextEvent | VariableEvent | FinishedEvent
