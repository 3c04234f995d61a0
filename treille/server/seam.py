"""What the server asks of an engine: the seam at which tests put a fake one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from treille.runtime.types import Event, Request


class ServingTokenizer(Protocol):
    """The tokenizer's part of the seam. Implementations must be safe to call from several threads."""

    @property
    def token_bytes(self) -> Sequence[bytes | None]:
        """The bytes of each ordinary token; None for special, control and unused ids."""

    def spelling(self, token_id: int) -> str:
        """What spells a special token in a text; empty for unused ids."""

    def encode_chat(
        self, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool, continuation: str = ""
    ) -> list[int]:
        """Raises `InvalidRequest` when there is no chat template, or it refuses the messages."""


class ServingStream(Protocol):
    """The events of one accepted request; the last one is `Finished` or `Failed`."""

    def __aiter__(self) -> AsyncIterator[Event]: ...

    def abort(self) -> None:
        """Stop the request and free what it holds; harmless when it is over already."""


class ServingEngine(Protocol):
    """The engine's part of the seam."""

    @property
    def model_name(self) -> str: ...

    @property
    def max_seq_len(self) -> int:
        """Tokens of prompt and output together that one sequence may have."""

    @property
    def tokenizer(self) -> ServingTokenizer: ...

    @property
    def is_alive(self) -> bool:
        """Whether the engine's loop made progress of late; must answer at once."""

    def encode(self, text: str) -> tuple[int, ...]:
        """A text prompt's ids, spellings of special tokens taken for those tokens. Any thread."""

    def submit(self, request: Request) -> ServingStream:
        """Raises `InvalidRequest`, `EngineOverloaded` or `EngineClosed` at once, without waiting."""


@dataclass(frozen=True, slots=True)
class Service:
    """One engine under the name it is served as; `created` is when, in seconds since the epoch."""

    engine: ServingEngine
    model_name: str
    created: int
