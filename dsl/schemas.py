"""`gen(schema=...)`: the JSON Schema of a Python type, and the way back from JSON text to its instance.

A type is whatever pydantic's `TypeAdapter` takes: a pydantic model, a dataclass, a TypedDict, `list[int]`, a
Union... Its schema is the one that `TypeAdapter(...).json_schema()` gives, but for three things: objects that
would ignore members which they do not know have none (what nobody reads need not be written), a `Decimal` is
a number, and defaults that are not JSON are left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, is_dataclass
from functools import lru_cache
from typing import Any, get_origin

from pydantic import BaseModel, TypeAdapter
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema, from_json

from treille.dsl.partial import partial_instance

MAX_SCHEMA = 4_000_000  # characters
_MAX_TYPES = 256
_TAKEN = "must be a class or another type, a dict, True, False or JSON text"


@dataclass(frozen=True, slots=True)
class JsonType:
    """How a JSON text becomes a value: an instance of a Python type, or without one plain JSON data.

    `schema` is the JSON text of the schema, `name` that of the type.
    """

    name: str
    schema: str
    annotation: Any = field(default=None, compare=False, repr=False)
    adapter: TypeAdapter[Any] | None = field(default=None, compare=False, repr=False)

    @property
    def title(self) -> str:
        """What errors call it."""
        return "the schema" if self.adapter is None else f"type {self.name}"

    def parse(self, text: str) -> object:
        """The value of a whole text. Raises ValueError (for a type pydantic's `ValidationError`)."""
        if self.adapter is not None:
            return self.adapter.validate_json(text)
        try:
            return json.loads(text)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None

    def is_whole(self, text: str, stop: str | int | None) -> bool:
        """Whether a text of this type that was cut off, at a stop or by `max_tokens` (`stop` is None), had
        come to its end: every JSON text but a number shows its own end."""
        if not text or text[-1] not in "0123456789":
            return True
        return isinstance(stop, str) and stop[:1] in (" ", "\n", "\r", "\t")

    def partial(self, text: str) -> object:
        """The JSON data in the beginning of a text; None while there is nothing. A string that goes on is as
        long as it is so far; a number that goes on shows its digits so far, or is not there."""
        try:
            return from_json(text, allow_partial="trailing-strings")
        except ValueError:
            return None

    def instance(self, text: str) -> object:
        """`partial`, for a pydantic model as an instance with the fields that are there so far."""
        data = self.partial(text)
        if self.adapter is None or data is None:
            return data
        return partial_instance(self.annotation, self.adapter, data)


def json_type(schema: object) -> JsonType:
    """Read a `schema=`: a JSON Schema (a mapping, a boolean or JSON text), or a Python type.

    Raises ValueError, in words that follow the option's name.
    """
    if isinstance(schema, (Mapping, bool, str)):
        return JsonType("JSON", schema_text(schema))
    if isinstance(schema, BaseModel) or is_dataclass(type(schema)):
        raise ValueError(f"{_TAKEN}, not an instance of {type(schema).__name__}: give the class itself")
    try:
        return _type_of(schema)
    except TypeError:  # cannot be hashed
        return _type_of.__wrapped__(schema)


def schema_text(schema: object) -> str:
    """The JSON text of a JSON Schema, numbers exact. Raises ValueError, in words that follow the option's
    name."""
    text = schema if isinstance(schema, str) else _dumped(schema)
    if len(text) > MAX_SCHEMA:
        raise ValueError(f"may be at most {MAX_SCHEMA} characters of JSON, not {len(text)}")
    if isinstance(schema, str):
        # Whole numbers stay text: Python reads none of more than a few thousand digits.
        read = _checked(lambda: json.loads(text, parse_int=str, parse_constant=_refuse), text)
        if not isinstance(read, (dict, bool)):
            raise ValueError(f"must be a JSON object, true or false, not {text:.80}")
    return text


def _dumped(schema: object) -> str:
    if not isinstance(schema, (Mapping, bool)):
        raise ValueError(f"{_TAKEN}, not {_given(schema)}")
    text: str = _checked(lambda: json.dumps(schema, allow_nan=False, default=_mapping))
    waiting: list[object] = [schema]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Mapping):
            for key in one:
                if not isinstance(key, str):
                    raise ValueError(f"is not JSON: the key {key!r:.80} is no string")
            waiting.extend(one.values())
        elif isinstance(one, (list, tuple)):
            waiting.extend(one)
    return text


def _checked(work: Any, text: str = "") -> Any:
    try:
        return work()
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}"
        is_name = re.fullmatch(r"[^{}\n]+\.json", text) is not None
        mend = "; give the text of the file, not its name" if is_name else ""
        raise ValueError(f"is not JSON: {error.msg} at {place}{mend}") from None
    except (TypeError, ValueError) as error:
        raise ValueError(f"is not JSON: {error}") from None
    except RecursionError:
        raise ValueError("is nested too deeply") from None


def _given(value: object) -> str:
    return f"{value!r:.80} of type {type(value).__name__}"


def _mapping(value: object) -> dict[object, object]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(_given(value))


def _refuse(constant: str) -> None:
    raise ValueError(f"it has no {constant}")


@lru_cache(_MAX_TYPES)
def _type_of(annotation: Any) -> JsonType:
    name = getattr(annotation, "__name__", None) if isinstance(annotation, type) else None
    try:
        adapter = TypeAdapter(annotation)
        schema = adapter.json_schema(schema_generator=_Schemas)
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        if not isinstance(annotation, type) and get_origin(annotation) is None:
            raise ValueError(f"{_TAKEN}, not {_given(annotation)}") from None
        words = str(error).splitlines()[0]
        raise ValueError(f"has no JSON Schema for {annotation!r:.80}: {words}") from error
    return JsonType(name or str(annotation).removeprefix("typing."), schema_text(schema), annotation, adapter)


class _Schemas(GenerateJsonSchema):
    """pydantic's schemas, with the differences that the module names."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - as it is there

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """A model's."""
        return _closed(super().model_schema(schema))

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        """A dataclass's."""
        return _closed(super().dataclass_schema(schema))

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        """A TypedDict's."""
        return _closed(super().typed_dict_schema(schema))

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        """A number: pydantic takes strings too, and its schema does not say which."""
        either = super().decimal_schema(schema)
        numbers = [one for one in either.get("anyOf", ()) if one.get("type") == "number"]
        return numbers[0] if numbers else either

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """One with a default, which says nothing about what is allowed."""
        found = super().default_schema(schema)
        try:
            json.dumps(found.get("default"), allow_nan=False)
        except ValueError:
            return {key: value for key, value in found.items() if key != "default"}
        return found


def _closed(schema: JsonSchemaValue) -> JsonSchemaValue:
    if schema.get("type") == "object" and "properties" in schema:
        schema.setdefault("additionalProperties", False)
    return schema
