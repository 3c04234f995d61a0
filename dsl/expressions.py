"""The words of the language: `gen`, `select`, `system`, `user`, `assistant`.

Each checks its arguments when it is called, so that an error points at the line that is wrong, and
returns frozen data that can be added to a state, to text and to other expressions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from treille.dsl.choosing import METHODS, Method
from treille.dsl.errors import InvalidExpression
from treille.dsl.location import caller
from treille.dsl.nodes import Expression, Generate, Select, Turn, as_expression
from treille.dsl.options import CONSTRAINTS, BadOption, check_choices, make_options
from treille.dsl.protocol import GenOptions, Role
from treille.dsl.schemas import JsonType, json_type
from treille.dsl.values import TEXT, ValueType, choices_type, value_type


def gen(
    name: str | None = None,
    *,
    max_tokens: int | None = None,
    min_tokens: int | None = None,
    stop: str | Sequence[str] | None = None,
    stop_regex: str | None = None,
    stop_token_ids: Sequence[int] | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    min_p: float | None = None,
    frequency_penalty: float | None = None,
    presence_penalty: float | None = None,
    repetition_penalty: float | None = None,
    logit_bias: Mapping[int, float] | None = None,
    seed: int | None = None,
    n: int | None = None,
    logprobs: int | None = None,
    ignore_eos: bool | None = None,
    type: object = None,
    regex: str | None = None,
    choices: Sequence[str] | None = None,
    schema: object = None,
    whitespace: str | Mapping[str, object] | None = None,
    property_order: str | None = None,
    number_style: str | None = None,
    formats: str | None = None,
    escapes: str | None = None,
    grammar: str | None = None,
    heal: bool | None = None,
) -> Expression:
    """Text that the model writes, kept in the variable `name` if one is given.

    At most one of `type` (int, float, bool, str, a Literal or an Enum: the variable holds the value),
    `regex` (the whole text matches; Python's dialect), `choices` (the text is one of these, exactly;
    decoded token by token, so that a choice with a likely beginning can win: `select` compares whole
    choices), `schema` (the text is JSON) and `grammar` (a Lark grammar; the whole text is parsed by it).
    `choices` must differ from each other.

    `schema` is a pydantic model, a dataclass, a TypedDict or any other type that pydantic's `TypeAdapter`
    takes: the variable holds the instance (see `dsl/schemas.py`). Or it is a JSON Schema, a dict or text: the
    variable holds what `json.loads` makes of the text. None, as for every option, is to ask for nothing (the
    text `null` is `type(None)`). How the value is written: `whitespace`
    ("flexible", "compact", "any", or a dict with json.dumps' `indent` and `separators`), `property_order`
    ("schema", or "any"), `number_style` ("json", or "plain": one spelling a number, 3 and 0.5),
    `formats` ("assert", or "annotation": not enforced) and `escapes` ("minimal": a character is escaped only
    where it must be; or "any"). A text that `max_tokens` or a stop ends too soon is an error, `CutOff`, which
    holds the text.

    `heal=True` lets the model finish a token that the text before was cut in the middle of: after "http:"
    it may write "//" as it has learnt to. The variable and the state's text are the same as ever.

    With `n > 1` the variable is a list of `n` values and the state's text does not grow: it could not go
    on with several texts. Options that are not given take the run's defaults, then the backend's.

    Raises `InvalidExpression` (a ValueError) that names the option and the program's line.
    """
    given: dict[str, object] = {
        "max_tokens": max_tokens,
        "min_tokens": min_tokens,
        "stop": stop,
        "stop_regex": stop_regex,
        "stop_token_ids": stop_token_ids,
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "min_p": min_p,
        "frequency_penalty": frequency_penalty,
        "presence_penalty": presence_penalty,
        "repetition_penalty": repetition_penalty,
        "logit_bias": logit_bias,
        "seed": seed,
        "n": n,
        "logprobs": logprobs,
        "ignore_eos": ignore_eos,
        "regex": regex,
        "choices": choices,
        "whitespace": whitespace,
        "property_order": property_order,
        "number_style": number_style,
        "formats": formats,
        "escapes": escapes,
        "grammar": grammar,
        "heal": heal,
    }
    try:
        _check_name(name)
        json_kind = None if schema is None else _read_schema(schema)
        given["schema"] = None if json_kind is None else json_kind.schema
        options, kind = _constrain(make_options(given), type)
    except BadOption as error:
        raise InvalidExpression(f"gen: {error}", where=caller(), field=error.field) from None
    return Generate(name, options, json_kind or kind)


def select(
    name: str | None, choices: Sequence[str], method: Method = "token_length_normalized"
) -> Expression:
    """One of `choices`, taken by the model's log-probabilities of all of them, scored in one extend.

    The choice stands in the text and in the variable `name` exactly as it was given. `State.scores(name)`
    has each choice's token log-probabilities, so that any other rule can be applied to them. The methods
    are described in `treille.dsl.choosing`; the default is the highest mean per token. Choices must be
    different, non-empty strings (an empty text has no token that could be scored).

    Raises `InvalidExpression` (a ValueError) that names the argument and the program's line.
    """
    try:
        _check_name(name)
        checked = check_choices("choices", choices)
        if "" in checked:
            raise BadOption("choices", "of a select must not be empty: there is nothing to score")
        if method not in METHODS:
            raise BadOption("method", f"must be one of {', '.join(METHODS)}, not {method!r}")
    except BadOption as error:
        raise InvalidExpression(f"select: {error}", where=caller(), field=error.field) from None
    return Select(name, checked, method)


def system(content: str | Expression) -> Expression:
    """The system's turn. It holds no generation."""
    return _turn("system", content)


def user(content: str | Expression) -> Expression:
    """The user's turn. It holds no generation."""
    return _turn("user", content)


def assistant(content: str | Expression) -> Expression:
    """The assistant's turn: the one in which the model writes."""
    return _turn("assistant", content)


def _turn(role: Role, content: object) -> Expression:
    return Turn(role, as_expression(content, caller()))


def _check_name(name: object) -> None:
    if name is not None and (not isinstance(name, str) or not name):
        raise BadOption("name", f"must be a non-empty string or None, not {name!r}")


def _read_schema(schema: object) -> JsonType:
    try:
        return json_type(schema)
    except ValueError as error:
        raise BadOption("schema", str(error)) from error


def _constrain(options: GenOptions, annotation: object) -> tuple[GenOptions, ValueType]:
    """Turn `type` into a constraint, and find how the text becomes a value."""
    if annotation is None:
        kind = TEXT if options.choices is None else choices_type(options.choices)
        return options, kind
    given = [name for name in CONSTRAINTS if getattr(options, name) is not None]
    if given:
        other = given[0]
        raise BadOption("type", f"and {other} exclude each other: give one of them")
    try:
        kind = value_type(annotation)
    except ValueError as error:
        raise BadOption("type", str(error).removeprefix("type ")) from None
    return replace(options, regex=kind.regex, choices=kind.choices), kind
