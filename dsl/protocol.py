"""What a backend is given and what it gives back: the seam between the language and whatever runs models.

All values are frozen. Nothing here knows the runtime: a remote server or a script in a test is a backend
just as the engine in this process is.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, fields, replace
from typing import Literal, Protocol, runtime_checkable

Role = Literal["system", "user", "assistant"]
ROLES: tuple[Role, ...] = ("system", "user", "assistant")


@dataclass(frozen=True, slots=True)
class Text:
    """Text outside all roles, taken as it is: special tokens spelled in it count as such."""

    text: str


@dataclass(frozen=True, slots=True)
class Message:
    """One role's turn. `open`: the turn is not over; only the last part of a prompt may be open."""

    role: Role
    content: str
    open: bool = False


@dataclass(frozen=True, slots=True)
class Prompt:
    """Everything before the place where the model goes on.

    Generation and scoring only ever happen outside roles or in an open assistant turn. `prime` may also
    be given a prompt that ends in an open turn of another role.
    """

    parts: tuple[Text | Message, ...] = ()

    @property
    def text(self) -> str:
        """The contents of all parts joined, with nothing of a chat template added."""
        return "".join(part.text if isinstance(part, Text) else part.content for part in self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenOptions:
    """How to sample; None means that the backend's default holds. At most one of `regex`, `choices`,
    `schema` (the JSON text of a JSON Schema), `grammar` (a Lark grammar).

    `whitespace`, `property_order`, `number_style`, `formats`, `escapes` say how a schema's value is written
    and stand only beside one. `whitespace` is a name or the pairs of an object with `separators` and
    `indent`.
    """

    max_tokens: int | None = None
    min_tokens: int | None = None
    stop: tuple[str, ...] | None = None
    stop_regex: str | None = None
    stop_token_ids: tuple[int, ...] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: tuple[tuple[int, float], ...] | None = None
    seed: int | None = None
    n: int | None = None
    logprobs: int | None = None
    ignore_eos: bool | None = None
    regex: str | None = None
    choices: tuple[str, ...] | None = None
    schema: str | None = None
    whitespace: str | tuple[tuple[str, object], ...] | None = None
    property_order: str | None = None
    number_style: str | None = None
    formats: str | None = None
    escapes: str | None = None
    grammar: str | None = None
    heal: bool | None = None

    @property
    def num_samples(self) -> int:
        """How many texts are asked for."""
        return 1 if self.n is None else self.n

    def given(self) -> dict[str, object]:
        """The fields that are not None."""
        pairs = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: value for name, value in pairs if value is not None}

    def over(self, defaults: GenOptions) -> GenOptions:
        """These options, with `defaults` where they say nothing."""
        missing = {name: value for name, value in defaults.given().items() if getattr(self, name) is None}
        return replace(self, **missing)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageCounts:
    """Token counts, summed over requests."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    num_requests: int = 0

    def __add__(self, other: UsageCounts) -> UsageCounts:
        return UsageCounts(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            num_requests=self.num_requests + other.num_requests,
        )


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One token's log-probability, and the likeliest alternatives as (id, log-probability), best first."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GenEvent:
    """Progress of sample `index`. The texts of a sample's events add up to its text.

    `token_ids` replace the sample's last `num_replaced` tokens. The last event of a sample has its
    `finish_reason` ("stop", "length" or "abort"); the last event of
    the request has its `usage`.
    """

    index: int = 0
    text: str = ""
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] | None = None
    forced: bool = False
    num_replaced: int = 0
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    usage: UsageCounts | None = None


@dataclass(frozen=True, slots=True)
class ChoiceScore:
    """One choice's tokens after the prompt, and each one's log-probability. Never empty."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class ScoreResult:
    """One score a choice, in the order of the choices."""

    scores: tuple[ChoiceScore, ...]
    usage: UsageCounts


@dataclass(frozen=True, slots=True)
class Pinned:
    """A prompt that is computed and kept. `release` lets it go: from any thread, harmless if called twice."""

    usage: UsageCounts
    release: Callable[[], None]


@runtime_checkable
class Backend(Protocol):
    """Runs requests. Its methods are called on an event loop that the backend does not own."""

    def generate(self, prompt: Prompt, options: GenOptions) -> AsyncGenerator[GenEvent, None]:
        """Sample `options.num_samples` continuations. Closing the generator early aborts the request."""
        ...

    async def score(self, prompt: Prompt, choices: tuple[str, ...]) -> ScoreResult:
        """Log-probabilities of each choice as the prompt's continuation. The empty prompt means the start."""
        ...

    async def prime(self, prompt: Prompt) -> UsageCounts:
        """Compute the prompt into the cache, so that requests which start with it need not."""
        ...


@runtime_checkable
class PinningBackend(Protocol):
    """A backend whose cache can be told what to keep. Others need not have this: a pin changes no text."""

    async def pin(self, prompt: Prompt) -> Pinned:
        """Compute the prompt and keep it until it is released; where there is no room to keep it, only
        compute it. Cancelled, it keeps nothing."""
        ...
