"""`SamplingParams`: how one request is sampled, checked once and then frozen."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from treille.runtime.errors import InvalidRequest
from treille.runtime.schema_source import (
    CHOICES,
    DEFAULTS,
    SchemaSource,
    Spacing,
    read_choice,
    read_whitespace,
    schema_text,
)

MAX_TOKENS = 1_000_000
MAX_SAMPLES = 128
MAX_TOP_LOGPROBS = 20
MAX_STOPS = 64
MAX_STOP_LENGTH = 1024
MAX_STOP_TOKENS = 1024
MAX_BIASES = 4096
MAX_CHOICES = 4096
MAX_PATTERN = 65_536

ConstraintKind = Literal["regex", "choices", "schema", "grammar"]
CONSTRAINTS: tuple[ConstraintKind, ...] = ("regex", "choices", "schema", "grammar")
SCHEMA_OPTIONS = tuple(DEFAULTS)


@dataclass(frozen=True, slots=True)
class Constraint:
    """What the text must look like: hashable, the key under which a compiled grammar is shared."""

    kind: ConstraintKind
    source: str | tuple[str, ...] | SchemaSource

    @property
    def num_characters(self) -> int:
        """The length of its text."""
        return sum(map(len, self.source)) if isinstance(self.source, tuple) else len(self.source)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How one request is sampled.

    Penalties: `repetition_penalty` looks at prompt and output, `presence_penalty` and
    `frequency_penalty` at the output only. Order: penalties, `logit_bias`, hard masks (constraint,
    `min_tokens`), temperature, top-k, top-p, min-p. Hard masks hold last: no bias lifts one. When the
    constraint leaves only the end of the text, it wins over `min_tokens` and `ignore_eos`. `ignore_eos`
    takes an end token for one that has no text and goes on; under a constraint, none is drawn.

    `temperature=0` is greedy, whatever `top_p` and `top_k` say. `top_k=0` means no limit, `top_p=0`
    keeps the likeliest token only. `logprobs=k` returns each token's log-probability with its `k`
    likeliest alternatives (`0`: the token's alone), taken from the model's own distribution before
    penalties, masks and temperature. `prompt_logprobs=k` returns the same of the prompt's tokens, the first
    of which has none; for that the prompt is computed anew, whatever is cached. It excludes `heal`.

    At most one of `regex`, `choices`, `schema` (a JSON Schema: a mapping, a boolean or its JSON text, and
    kept as text) and `grammar` (a Lark grammar) says what the text must look like. How a schema's value is
    written: `whitespace` ("flexible", "compact", "any", or an object with `separators` and `indent`, as
    json.dumps has them), `property_order` ("schema" or "any"), `number_style` ("json" or "plain": one
    spelling a number), `formats` ("assert" or "annotation": not enforced), and `escapes` ("minimal": a
    character is escaped only where it must be, or "any").
    What it leaves no choice about becomes tokens without being sampled (see `forced.py`), except where
    `logprobs` asks for the model's opinion of each token; tokens that `stop_token_ids` or `logit_bias`
    name are never added so.

    `heal` takes the prompt's last tokens back if a longer token may begin among them, and writes them anew:
    the text is as it would be, and a prompt may end in the middle of a token. Tokens that only write what
    was taken back count as output tokens; they are not in the text.

    Raises `InvalidRequest`, naming the field, for every value out of range.
    """

    max_tokens: int = 128
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_regex: str | None = None
    stop_token_ids: tuple[int, ...] = ()
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    n: int = 1
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    ignore_eos: bool = False
    regex: str | None = None
    choices: tuple[str, ...] | None = None
    schema: Mapping[str, Any] | bool | str | None = None
    whitespace: str | Mapping[str, Any] | Spacing | None = None
    property_order: str | None = None
    number_style: str | None = None
    formats: str | None = None
    escapes: str | None = None
    grammar: str | None = None
    heal: bool = False

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "stop", (self.stop,) if isinstance(self.stop, str) else _listed("stop", self.stop))
        put(self, "stop_token_ids", _listed("stop_token_ids", self.stop_token_ids))
        if not isinstance(self.logit_bias, Mapping):
            raise InvalidRequest(
                f"logit_bias must map token ids to numbers, not be {self.logit_bias!r}", field="logit_bias"
            )
        put(self, "logit_bias", dict(self.logit_bias))
        if self.choices is not None:
            if isinstance(self.choices, str):
                raise InvalidRequest("choices must be a list of strings, not one string", field="choices")
            put(self, "choices", _listed("choices", self.choices))
        if self.schema is not None:
            put(self, "schema", schema_text(self.schema))
        if self.whitespace is not None:
            put(self, "whitespace", read_whitespace(self.whitespace))
        self._check_counts()
        self._check_numbers()
        self._check_texts()

    @property
    def constraint(self) -> Constraint | None:
        """The constraint in its hashable form, or None for free text."""
        if self.regex is not None:
            return Constraint("regex", self.regex)
        if self.choices is not None:
            return Constraint("choices", self.choices)
        if self.schema is not None:
            options = {name: value for name in SCHEMA_OPTIONS if (value := getattr(self, name)) is not None}
            return Constraint("schema", SchemaSource(str(self.schema), **options))
        if self.grammar is not None:
            return Constraint("grammar", self.grammar)
        return None

    def _check_counts(self) -> None:
        _integer("max_tokens", self.max_tokens, 0, MAX_TOKENS)
        _integer("min_tokens", self.min_tokens, 0, MAX_TOKENS)
        if self.min_tokens > self.max_tokens:
            raise InvalidRequest(
                f"min_tokens is {self.min_tokens} and max_tokens {self.max_tokens}: it must not be larger",
                field="min_tokens",
            )
        _integer("top_k", self.top_k, 0, 2**31 - 1)
        _integer("n", self.n, 1, MAX_SAMPLES)
        if self.seed is not None:
            _integer("seed", self.seed, -(2**63), 2**63 - 1)
        for name in ("logprobs", "prompt_logprobs"):
            if getattr(self, name) is not None:
                _integer(name, getattr(self, name), 0, MAX_TOP_LOGPROBS)
        for name in ("ignore_eos", "heal"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidRequest(f"{name} must be true or false, not {getattr(self, name)!r}", field=name)
        if self.heal and self.prompt_logprobs is not None:
            raise InvalidRequest(
                "heal writes the prompt's last tokens anew: they have no prompt_logprobs",
                field="prompt_logprobs",
            )

    def _check_numbers(self) -> None:
        _number("temperature", self.temperature, 0.0, 100.0)
        _number("top_p", self.top_p, 0.0, 1.0)
        _number("min_p", self.min_p, 0.0, 1.0)
        _number("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        _number("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _number("repetition_penalty", self.repetition_penalty, 0.01, 100.0)
        if len(self.logit_bias) > MAX_BIASES:
            raise InvalidRequest(f"logit_bias may name at most {MAX_BIASES} tokens", field="logit_bias")
        for token_id, bias in self.logit_bias.items():
            _integer("logit_bias", token_id, 0, 2**31 - 1)
            _number("logit_bias", bias, -100.0, 100.0)

    def _check_texts(self) -> None:
        _strings("stop", self.stop, MAX_STOPS, MAX_STOP_LENGTH)
        if "" in self.stop:
            raise InvalidRequest("stop must not hold an empty string: it would stop at once", field="stop")
        if len(self.stop_token_ids) > MAX_STOP_TOKENS:
            raise InvalidRequest(
                f"stop_token_ids may hold at most {MAX_STOP_TOKENS} ids", field="stop_token_ids"
            )
        for token_id in self.stop_token_ids:
            _integer("stop_token_ids", token_id, 0, 2**31 - 1)
        for name in ("stop_regex", "regex", "grammar"):
            pattern = getattr(self, name)
            if pattern is not None:
                _strings(name, (pattern,), 1, MAX_PATTERN)
        if self.choices is not None:
            if not self.choices:
                raise InvalidRequest("choices must hold at least one string", field="choices")
            _strings("choices", self.choices, MAX_CHOICES, MAX_PATTERN)
        given = [name for name in CONSTRAINTS if getattr(self, name) is not None]
        if len(given) > 1:
            raise InvalidRequest(
                f"{given[0]} and {given[1]} exclude each other: give one of them", field=given[0]
            )
        for name in SCHEMA_OPTIONS:
            value = getattr(self, name)
            if value is not None and name in CHOICES:
                read_choice(name, value)
            if value is not None and self.schema is None:
                raise InvalidRequest(
                    f"{name} says how a schema's value is written: give schema too", field=name
                )


def _listed(name: str, values: object) -> tuple[Any, ...]:
    if not isinstance(values, Iterable):
        raise InvalidRequest(f"{name} must be a list, not {values!r}", field=name)
    return tuple(values)


def _integer(name: str, value: object, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidRequest(f"{name} must be a whole number from {low} to {high}, not {value!r}", field=name)


def _number(name: str, value: object, low: float, high: float) -> None:
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not good or not low <= value <= high:  # type: ignore[operator]
        raise InvalidRequest(f"{name} must be a number from {low} to {high}, not {value!r}", field=name)


def _strings(name: str, values: Sequence[object], count: int, length: int) -> None:
    if len(values) > count:
        raise InvalidRequest(f"{name} may hold at most {count} strings, not {len(values)}", field=name)
    for value in values:
        if not isinstance(value, str):
            raise InvalidRequest(f"{name} must hold strings, not {value!r}", field=name)
        if len(value) > length:
            raise InvalidRequest(
                f"{name} may be at most {length} characters long, not {len(value)}", field=name
            )
