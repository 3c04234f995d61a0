"""What a variable holds besides its value."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field

from treille.dsl.choosing import Method
from treille.dsl.protocol import ChoiceScore, TokenLogprob


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """How one text of a `gen` came about."""

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str
    stop_reason: str | int | None
    logprobs: tuple[TokenLogprob, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """How a `select` was decided. `unconditional` is empty unless the method needs it."""

    method: Method
    choices: tuple[str, ...]
    scores: tuple[ChoiceScore, ...]
    unconditional: tuple[ChoiceScore, ...]


Meta = Generation | tuple[Generation, ...] | Selection | None


@dataclass(frozen=True, slots=True)
class Result:
    """A variable's value, its text, and how it came about (None for a capture)."""

    value: object
    raw: str | list[str]
    meta: Meta


@dataclass(frozen=True, slots=True)
class Variable:
    """A name and the result that will be there once the generation is over."""

    name: str
    future: Future[Result] = field(default_factory=Future)
