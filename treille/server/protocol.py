"""The bodies that clients send: OpenAI's fields, ours, and a clear no to every other.

A field is either honoured, or named in a 400. Two kinds are accepted without an effect on the text,
because none is asked of them: labels for the operator (`user`, `metadata`, `safety_identifier`) and
`prompt_cache_key`, a hint for a cache that here is shared by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)

from treille.runtime.errors import InvalidRequest
from treille.runtime.params import (
    MAX_BIASES,
    MAX_CHOICES,
    MAX_SAMPLES,
    MAX_STOP_TOKENS,
    MAX_STOPS,
    MAX_TOP_LOGPROBS,
    SamplingParams,
)
from treille.runtime.types import MAX_SALT
from treille.server.response_format import (
    Escapes,
    Formats,
    NumberStyle,
    PropertyOrder,
    ResponseFormat,
    Schema,
    Whitespace,
)

MAX_PROMPTS = 1024
MAX_MESSAGES = 4096
MAX_PARTS = 1024
MAX_METADATA = 64
MAX_FIELDS = 256
DEFAULT_COMPLETION_TOKENS = 16

# Known fields that are not implemented, with the values that ask for nothing.
UNSUPPORTED_EVERYWHERE: Mapping[str, tuple[object, ...]] = {"store": (False,)}
UNSUPPORTED_COMPLETION: Mapping[str, tuple[object, ...]] = {
    **UNSUPPORTED_EVERYWHERE,
    "suffix": ("",),
}
UNSUPPORTED_CHAT: Mapping[str, tuple[object, ...]] = {
    **UNSUPPORTED_EVERYWHERE,
    "audio": (),
    "function_call": ("none",),
    "functions": ([],),
    "modalities": (["text"],),
    "moderation": (),
    "parallel_tool_calls": (True,),
    "prediction": (),
    "prompt_cache_options": (),
    "prompt_cache_retention": (),
    "reasoning_effort": ("none",),
    "service_tier": ("auto", "default"),
    "tool_choice": ("none",),
    "tools": ([],),
    "verbosity": ("medium",),
    "web_search_options": (),
}
# What a message of an earlier answer carries when a client sends it back as it came.
UNSUPPORTED_MESSAGE: Mapping[str, tuple[object, ...]] = {
    "annotations": ([],),
    "audio": (),
    "function_call": (),
    "name": (),
    "refusal": (),
    "tool_calls": ([],),
}


def _whole_characters(text: str) -> str:
    """JSON can spell half of a surrogate pair; no text holds one."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"half a surrogate pair at character {error.start}") from error
    return text


Text = Annotated[str, AfterValidator(_whole_characters)]
TokenIdText = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,10}$")]


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


# One string stands for a list of one.
Stops = Annotated[
    list[Text],
    Field(max_length=MAX_STOPS),
    BeforeValidator(_listed),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]


def _at_most(count: int) -> BeforeValidator:
    """Refuses a larger object before its entries are looked at: a report on each can take seconds."""

    def check(value: object) -> object:
        if isinstance(value, dict) and len(value) > count:
            raise InvalidRequest(f"an object of at most {count} entries, not {len(value)}")
        return value

    return BeforeValidator(check)


class _Strict(BaseModel):
    """Neither unknown fields nor numbers as strings nor NaN."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _few(cls, raw: Any) -> Any:
        if isinstance(raw, dict) and len(raw) > MAX_FIELDS:
            raise InvalidRequest(f"{len(raw)} fields are far more than there are")
        return raw


class StreamOptions(_Strict):
    """`include_usage`: one more chunk at the end, without choices, that holds the token counts."""

    include_usage: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _refuse(cls, raw: Any) -> Any:
        return _without_unsupported(raw, {"include_obfuscation": (False,)})


class GenerationBody(_Strict):
    """What both kinds of request share. A field that is null counts as absent."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=MAX_SAMPLES)] | None = None
    temperature: float | None = None
    top_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    logit_bias: Annotated[dict[TokenIdText, float], _at_most(MAX_BIASES)] | None = None
    seed: int | None = None
    stop: Stops | None = None
    user: str | None = None
    metadata: Annotated[dict[str, str], _at_most(MAX_METADATA)] | None = None

    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = None
    stop_token_ids: Annotated[list[int], Field(max_length=MAX_STOP_TOKENS)] | None = None
    stop_regex: Text | None = None
    regex: Text | None = None
    choices: Annotated[list[Text], Field(max_length=MAX_CHOICES)] | None = None
    response_format: ResponseFormat | None = None
    json_schema: Schema | None = Field(None, alias="schema")
    whitespace: Whitespace | None = None
    property_order: PropertyOrder | None = None
    number_style: NumberStyle | None = None
    formats: Formats | None = None
    escapes: Escapes | None = None
    grammar: Text | None = None
    heal: bool | None = None
    cache_salt: Annotated[Text, Field(min_length=1, max_length=MAX_SALT)] | None = None

    @model_validator(mode="after")
    def _check_stream(self) -> GenerationBody:
        if self.stream_options is not None and not self.stream:
            raise InvalidRequest("stream_options needs stream to be true", field="stream_options")
        return self

    @model_validator(mode="after")
    def _check_schema(self) -> GenerationBody:
        if self.json_schema is not None and self._wanted is not None:
            raise InvalidRequest(
                "response_format and schema exclude each other: give one of them", field="response_format"
            )
        return self

    @property
    def _wanted(self) -> Any:
        return None if self.response_format is None else self.response_format.wanted

    @property
    def field_names(self) -> Mapping[str, str]:
        """Fields of the engine's parameters that the client knows by another name."""
        form = self.response_format
        return {} if form is None or form.wanted is None else {"schema": form.place}

    @property
    def samples(self) -> int:
        """Samples of each prompt."""
        return 1 if self.n is None else self.n

    @property
    def include_usage(self) -> bool:
        """Whether the stream ends with a chunk of token counts."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    def sampling(
        self, *, max_tokens: int, logprobs: int | None, prompt_logprobs: int | None = None
    ) -> SamplingParams:
        """The engine's parameters. Raises `InvalidRequest` for a value out of range."""
        passed = (
            "min_tokens",
            "stop",
            "stop_regex",
            "stop_token_ids",
            "temperature",
            "top_p",
            "top_k",
            "min_p",
            "frequency_penalty",
            "presence_penalty",
            "repetition_penalty",
            "seed",
            "n",
            "ignore_eos",
            "regex",
            "choices",
            "whitespace",
            "property_order",
            "number_style",
            "formats",
            "escapes",
            "grammar",
            "heal",
        )
        given: dict[str, Any] = {name: value for name in passed if (value := getattr(self, name)) is not None}
        if self.logit_bias is not None:
            given["logit_bias"] = {int(token_id): bias for token_id, bias in self.logit_bias.items()}
        schema = self._wanted if self.json_schema is None else self.json_schema
        if schema is not None:
            given["schema"] = schema
        return SamplingParams(
            max_tokens=max_tokens, logprobs=logprobs, prompt_logprobs=prompt_logprobs, **given
        )


Prompt = str | tuple[int, ...]
PROMPT_FORMS = {
    "anyOf": [
        {"type": "string"},
        {"type": "array", "items": {"type": "string"}},
        {"type": "array", "items": {"type": "integer"}},
        {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
    ]
}


def _prompts(value: object) -> list[Prompt]:
    """The prompts one by one, whichever form they came in."""
    if isinstance(value, str):
        return [_whole_characters(value)]
    if isinstance(value, list) and value:
        kinds = {type(item) for item in value}
        if kinds == {str}:
            return [_whole_characters(item) for item in value]
        if kinds == {int}:
            return [tuple(value)]
        if kinds == {list} and all({type(token_id) for token_id in item} == {int} for item in value):
            return [tuple(item) for item in value]
    raise InvalidRequest(
        "give a string, a list of strings, a list of token ids or a list of lists of token ids, "
        "and no list empty"
    )


class CompletionRequest(GenerationBody):
    """`POST /v1/completions`.

    Text prompts are tokenised with special tokens recognised and with the model's BOS, if it has
    one; prompts of token ids go to the model as they are. `echo` begins each choice with its prompt, and
    beside `logprobs` also with the log-probabilities of the prompt's tokens: `max_tokens: 0` scores a text.
    """

    prompt: Annotated[list[Prompt], PlainValidator(_prompts), WithJsonSchema(PROMPT_FORMS)]
    max_tokens: int | None = None
    logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    echo: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _refuse(cls, raw: Any) -> Any:
        raw = _without_unsupported(raw, UNSUPPORTED_COMPLETION)
        if isinstance(raw, dict) and "best_of" in raw:
            raw = dict(raw)
            # As many as are returned is what happens anyway; more would have to be ranked.
            best_of = raw.pop("best_of")
            if best_of is not None and (isinstance(best_of, bool) or best_of != (raw.get("n") or 1)):
                raise InvalidRequest("best_of is not supported: leave it out or set it to n", field="best_of")
        return raw

    @property
    def field_names(self) -> Mapping[str, str]:
        return {**super().field_names, "prompt_logprobs": "echo"}

    @model_validator(mode="after")
    def _check_count(self) -> CompletionRequest:
        if len(self.prompt) * self.samples > MAX_PROMPTS:
            raise InvalidRequest(f"prompts times n may be at most {MAX_PROMPTS}", field="prompt")
        return self


CONTENT_FORMS = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}]}


class TextPart(_Strict):
    """A piece of a message's text."""

    type: Literal["text"]
    text: Text


def _parts(value: object) -> object:
    """A list of parts, also of a plain string, so that what is wrong has one place and not two."""
    if isinstance(value, str):
        return [{"type": "text", "text": value}]
    if not isinstance(value, list):
        raise InvalidRequest("give a string or a list of text parts")
    for part in value:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind != "text":
            raise InvalidRequest("a part must have type text: other kinds are not supported")
    return value


class ChatMessage(_Strict):
    """One turn. `developer` is OpenAI's newer word for `system`. Parts are joined as they are."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[
        list[TextPart],
        Field(max_length=MAX_PARTS, fail_fast=True),
        BeforeValidator(_parts),
        WithJsonSchema(CONTENT_FORMS),
    ]

    @model_validator(mode="before")
    @classmethod
    def _refuse(cls, raw: Any) -> Any:
        if isinstance(raw, dict) and raw.get("role") in ("tool", "function"):
            raise InvalidRequest("tool messages are not supported", field="role")
        return _without_unsupported(raw, UNSUPPORTED_MESSAGE)

    def plain(self) -> dict[str, str]:
        """The message as the chat template wants it."""
        role = "system" if self.role == "developer" else self.role
        return {"role": role, "content": "".join(part.text for part in self.content)}


class ChatRequest(GenerationBody):
    """`POST /v1/chat/completions`. Text of special tokens inside a message stays text."""

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)]
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _refuse(cls, raw: Any) -> Any:
        return _without_unsupported(raw, UNSUPPORTED_CHAT)

    @model_validator(mode="after")
    def _check_pairs(self) -> ChatRequest:
        if self.top_logprobs is not None and not self.logprobs:
            raise InvalidRequest("top_logprobs needs logprobs to be true", field="top_logprobs")
        limits = {self.max_tokens, self.max_completion_tokens} - {None}
        if len(limits) > 1:
            raise InvalidRequest(
                "max_tokens and max_completion_tokens differ: give max_completion_tokens alone",
                field="max_tokens",
            )
        return self

    @property
    def limit(self) -> int | None:
        """The most tokens to generate; None for whatever the context has room for."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens


def _without_unsupported(raw: Any, fields: Mapping[str, tuple[object, ...]]) -> Any:
    """`raw` without the known fields that ask for nothing. Raises `InvalidRequest` for one that asks."""
    if not isinstance(raw, dict):
        return raw
    for name in fields.keys() & raw.keys():
        value = raw[name]
        # 0 == False in Python, not in JSON.
        if value is not None and not any(value == n and type(value) is type(n) for n in fields[name]):
            raise InvalidRequest(f"{name} is not supported by this server: leave it out", field=name)
    return {name: value for name, value in raw.items() if name not in fields}
