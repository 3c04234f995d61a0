"""The sampling fields: their ranges, checked where the program writes them.

The ranges are those of the runtime's `SamplingParams`; a test holds the two together. They are written
out here because the language also runs where there is no runtime.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields

from treille.dsl.protocol import GenOptions
from treille.dsl.schemas import schema_text

SAMPLING_FIELDS: tuple[str, ...] = tuple(field.name for field in fields(GenOptions))
CONSTRAINTS = ("regex", "choices", "schema", "grammar")
SCHEMA_OPTIONS = ("whitespace", "property_order", "number_style", "formats", "escapes")
NOT_DEFAULTS = frozenset({"n", *CONSTRAINTS, *SCHEMA_OPTIONS})
DEFAULT_FIELDS: tuple[str, ...] = tuple(name for name in SAMPLING_FIELDS if name not in NOT_DEFAULTS)

MAX_SAMPLES = 128
MAX_CHOICES = 4096
_MAX_TOKENS = 1_000_000
_MAX_STOPS = 64
_MAX_STOP_LENGTH = 1024
_MAX_STOP_TOKENS = 1024
_MAX_BIASES = 4096
_MAX_PATTERN = 65_536

Check = Callable[[str, object], object]


class BadOption(ValueError):
    """A value is wrong; `field` names the option. The caller adds the program's line."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field} {message}")
        self.field = field


def make_options(given: Mapping[str, object]) -> GenOptions:
    """Check and freeze sampling fields; None means not given. Raises `BadOption`."""
    values = {name: _CHECKS[name](name, value) for name, value in given.items() if value is not None}
    options = GenOptions(**values)  # type: ignore[arg-type]
    kinds = [name for name in CONSTRAINTS if getattr(options, name) is not None]
    if len(kinds) > 1:
        raise BadOption(kinds[0], f"and {kinds[1]} exclude each other: give one of them")
    for name in SCHEMA_OPTIONS:
        if getattr(options, name) is not None and options.schema is None:
            raise BadOption(name, "says how a schema's value is written: give schema too")
    low, high = options.min_tokens, options.max_tokens
    if low is not None and high is not None and low > high:
        raise BadOption("min_tokens", f"is {low} and max_tokens {high}: it must not be larger")
    return options


def check_choices(name: str, value: object) -> tuple[str, ...]:
    """A list of different strings, at least one. Raises `BadOption`."""
    choices = _strings(name, value, MAX_CHOICES, _MAX_PATTERN)
    if not choices:
        raise BadOption(name, "must hold at least one string")
    if len(set(choices)) < len(choices):
        twice = next(choice for i, choice in enumerate(choices) if choice in choices[:i])
        raise BadOption(name, f"must differ from each other; {twice!r} comes twice")
    return choices


def _integer(low: int, high: int) -> Check:
    def check(name: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise BadOption(name, f"must be a whole number from {low} to {high}, not {value!r}")
        return value

    return check


def _number(low: float, high: float) -> Check:
    def check(name: str, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise BadOption(name, f"must be a number from {low} to {high}, not {value!r}")
        if not low <= value <= high:
            raise BadOption(name, f"must be a number from {low} to {high}, not {value!r}")
        return value

    return check


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise BadOption(name, f"must be True or False, not {value!r}")
    return value


def _pattern(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise BadOption(name, f"must be a string, not {value!r}")
    if len(value) > _MAX_PATTERN:
        raise BadOption(name, f"may be at most {_MAX_PATTERN} characters long, not {len(value)}")
    return value


def _strings(name: str, value: object, count: int, length: int) -> tuple[str, ...]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise BadOption(name, f"must be a list of strings, not {value!r}")
    strings = tuple(value)
    if len(strings) > count:
        raise BadOption(name, f"may hold at most {count} strings, not {len(strings)}")
    for string in strings:
        if not isinstance(string, str):
            raise BadOption(name, f"must hold strings, not {string!r}")
        if len(string) > length:
            raise BadOption(name, f"may hold at most {length} characters a string, not {len(string)}")
    return strings


def _stop(name: str, value: object) -> tuple[str, ...]:
    strings = _strings(name, (value,) if isinstance(value, str) else value, _MAX_STOPS, _MAX_STOP_LENGTH)
    if "" in strings:
        raise BadOption(name, "must not hold an empty string: it would stop at once")
    return strings


def _stop_token_ids(name: str, value: object) -> tuple[int, ...]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise BadOption(name, f"must be a list of token ids, not {value!r}")
    token_ids = tuple(value)
    if len(token_ids) > _MAX_STOP_TOKENS:
        raise BadOption(name, f"may hold at most {_MAX_STOP_TOKENS} ids, not {len(token_ids)}")
    for token_id in token_ids:
        _TOKEN_ID(name, token_id)
    return token_ids


def _logit_bias(name: str, value: object) -> tuple[tuple[int, float], ...]:
    if not isinstance(value, Mapping):
        raise BadOption(name, f"must map token ids to numbers, not {value!r}")
    if len(value) > _MAX_BIASES:
        raise BadOption(name, f"may name at most {_MAX_BIASES} tokens, not {len(value)}")
    for token_id, bias in value.items():
        _TOKEN_ID(name, token_id)
        _BIAS(name, bias)
    return tuple(value.items())


def _schema(name: str, value: object) -> str:
    try:
        return schema_text(value)
    except ValueError as error:
        raise BadOption(name, str(error)) from None


def _one_of(*words: str) -> Check:
    def check(name: str, value: object) -> str:
        if not isinstance(value, str) or value not in words:
            raise BadOption(name, f"must be {' or '.join(words)}, not {value!r:.80}")
        return value

    return check


def _whitespace(name: str, value: object) -> object:
    """A name; or the pairs of an object with `indent` and `separators`, as json.dumps has them."""
    if not isinstance(value, Mapping):
        return _WHITESPACE(name, value)
    if not value.keys() <= {"indent", "separators"}:
        raise BadOption(name, f"has only indent and separators, not {value!r:.80}")
    indent, separators = value.get("indent"), value.get("separators")
    if indent is not None:
        _INDENT(name, indent)
    pairs: list[tuple[str, object]] = [("indent", indent)]
    if separators is not None:
        fits = isinstance(separators, (list, tuple)) and len(separators) == 2
        if not fits or not all(map(_is_separator, ",:", separators)):
            raise BadOption(name, f'separators must be like [", ", ": "], not {separators!r:.80}')
        pairs.append(("separators", tuple(separators)))
    return tuple(pairs)


def _is_separator(mark: str, value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(mark + r"[ \t\n\r]{0,15}", value) is not None


_TOKEN_ID = _integer(0, 2**31 - 1)
_BIAS = _number(-100.0, 100.0)
_INDENT = _integer(0, 16)
_WHITESPACE = _one_of("flexible", "compact", "any")
_CHECKS: dict[str, Check] = {
    "max_tokens": _integer(0, _MAX_TOKENS),
    "min_tokens": _integer(0, _MAX_TOKENS),
    "stop": _stop,
    "stop_regex": _pattern,
    "stop_token_ids": _stop_token_ids,
    "temperature": _number(0.0, 100.0),
    "top_p": _number(0.0, 1.0),
    "top_k": _integer(0, 2**31 - 1),
    "min_p": _number(0.0, 1.0),
    "frequency_penalty": _number(-2.0, 2.0),
    "presence_penalty": _number(-2.0, 2.0),
    "repetition_penalty": _number(0.01, 100.0),
    "logit_bias": _logit_bias,
    "seed": _integer(-(2**63), 2**63 - 1),
    "n": _integer(1, MAX_SAMPLES),
    "logprobs": _integer(0, 20),
    "ignore_eos": _flag,
    "regex": _pattern,
    "choices": check_choices,
    "schema": _schema,
    "whitespace": _whitespace,
    "property_order": _one_of("schema", "any"),
    "number_style": _one_of("json", "plain"),
    "formats": _one_of("assert", "annotation"),
    "escapes": _one_of("minimal", "any"),
    "grammar": _pattern,
    "heal": _flag,
}
