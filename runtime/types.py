"""What goes into the engine and what comes out: frozen values, complete when made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from treille.runtime.params import SamplingParams

FinishReason = Literal["stop", "length", "abort"]
MAX_SALT = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """What tells apart prefixes of equal tokens: each is found only by requests of its own namespace.

    `adapter` is the number of a load of an adapter, new each time that files are read (there are none yet);
    `salt` is the request's `cache_salt`. Fields are compared one by one: no salt equals a name of ours.
    """

    model: str
    adapter: int | None = None
    salt: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Sample `params.n` continuations of a prompt. `max_tokens=0` only fills the prefix cache, or gives empty
    samples with the prompt's log-probabilities where `prompt_logprobs` asks for them.

    `request_id` must be new to the engine; None lets the engine name it. Requests share cached prefixes
    with those of the same `cache_salt` only (1 to MAX_SALT characters, or None), so that tenants with
    salts of their own cannot find out what others asked. Where pages are short, requests of lower `priority`
    give theirs up first; `schedule_policy="priority"` also admits the higher ones first, and
    `eviction="priority"` keeps their prefixes longer.
    """

    prompt_ids: tuple[int, ...]
    params: SamplingParams
    request_id: str | None = None
    cache_salt: str | None = None
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRequest:
    """Log-probabilities of each of several continuations of one prompt, in one extend.

    `prompt_ids` holds at least one token; each continuation at least one. `cache_salt` and `priority` are
    a Request's.
    """

    prompt_ids: tuple[int, ...]
    continuations: tuple[tuple[int, ...], ...]
    request_id: str | None = None
    cache_salt: str | None = None
    priority: int = 0


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One token's log-probability under the model, and the likeliest alternatives, best first."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


PromptLogprobs = tuple[TokenLogprob | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts of one request: the prompt counts once however many samples were asked for."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One finished sample. `stop_reason` is the stop string, pattern or token id that ended it, if any.
    `prompt_logprobs` has an entry a token of the prompt, None for the first.
    """

    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    usage: Usage
    logprobs: tuple[TokenLogprob, ...] | None = None
    prompt_logprobs: PromptLogprobs | None = None
    stop_reason: str | int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEvent:
    """Progress of sample `index`: text that is now certain, and the tokens that were added.

    `text` may be empty while it could still be part of a character or of a stop string; the texts of
    all events of a sample add up to its completion's text. `forced` says that the constraint left no
    other way to go on; an event has several tokens only if they were forced. `token_ids` replace the
    sample's last `num_replaced` tokens: the tokenizer spells their text otherwise with the forced text
    behind it. The first event of a sample carries the `prompt_logprobs`, if they were asked for, and the last
    one its `finish_reason`.
    """

    request_id: str
    index: int
    text: str
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] | None = None
    prompt_logprobs: PromptLogprobs | None = None
    forced: bool = False
    num_replaced: int = 0
    finish_reason: FinishReason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The request is done: one completion a sample, in order of their index."""

    request_id: str
    completions: tuple[Completion, ...]
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """The score request is done: for each continuation, the log-probability of each of its tokens."""

    request_id: str
    logprobs: tuple[tuple[float, ...], ...]
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The request ended by its own fault or the engine's; `error` says which."""

    request_id: str
    error: Exception


Event = TokenEvent | Finished | Scored | Failed
Stats = Mapping[str, float]
