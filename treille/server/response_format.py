"""`response_format` and `schema`: what a client may say of the JSON that it wants."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Literal

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, model_validator

from treille.runtime.errors import InvalidRequest
from treille.runtime.schema_source import CHOICES, WHITESPACE, Number

ANY_OBJECT: dict[str, Any] = {"type": "object"}
NAMED_SCHEMA = '{"name": "...", "schema": {...}}'
"""How a schema is wrapped, for messages."""

# These are looked at where the engine's parameters are made.
Schema = Annotated[
    Any, WithJsonSchema({"anyOf": [{"type": "object"}, {"type": "boolean"}, {"type": "string"}]})
]
Whitespace = Annotated[
    Any,
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": list(WHITESPACE)},
                {
                    "type": "object",
                    "properties": {
                        "indent": {"type": ["integer", "null"]},
                        "separators": {"type": "array", "items": {"type": "string"}},
                    },
                    "additionalProperties": False,
                },
            ]
        }
    ),
]
PropertyOrder = Annotated[Any, WithJsonSchema({"enum": list(CHOICES["property_order"])})]
NumberStyle = Annotated[Any, WithJsonSchema({"enum": list(CHOICES["number_style"])})]
Formats = Annotated[Any, WithJsonSchema({"enum": list(CHOICES["formats"])})]
Escapes = Annotated[Any, WithJsonSchema({"enum": list(CHOICES["escapes"])})]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class NamedSchema(_Strict):
    """OpenAI's wrapping of a schema. `name` and `description` are labels. The schema is enforced whatever
    `strict` says: with `false` a client asks for less."""

    name: str
    json_schema: Schema = Field(alias="schema")
    description: str | None = None
    strict: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _is_wrapped(cls, raw: Any) -> Any:
        known = {"name", "schema", "description", "strict", "whitespace", *CHOICES}
        if isinstance(raw, dict) and "schema" not in raw and not raw.keys() <= known:
            raise InvalidRequest(f"give {NAMED_SCHEMA}, with the schema as the field schema", field="schema")
        return raw

    @model_validator(mode="after")
    def _check(self) -> NamedSchema:
        if self.json_schema is None:
            raise InvalidRequest("schema is null: give a schema", field="schema")
        return self


class ResponseFormat(_Strict):
    """`{"type": "text"}`, `{"type": "json_object"}` or `{"type": "json_schema", "json_schema": {...}}`."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: NamedSchema | None = None

    @model_validator(mode="before")
    @classmethod
    def _is_object(cls, raw: Any) -> Any:
        if not isinstance(raw, (dict, ResponseFormat)):
            raise InvalidRequest(
                'give an object: {"type": "text"}, {"type": "json_object"} or '
                f'{{"type": "json_schema", "json_schema": {NAMED_SCHEMA}}}'
            )
        return raw

    @model_validator(mode="after")
    def _check(self) -> ResponseFormat:
        if (self.json_schema is not None) != (self.type == "json_schema"):
            raise InvalidRequest(
                "type json_schema and the field json_schema need each other", field="json_schema"
            )
        return self

    @property
    def wanted(self) -> Any:
        """The schema; None for free text."""
        if self.json_schema is not None:
            return self.json_schema.json_schema
        return ANY_OBJECT if self.type == "json_object" else None

    @property
    def place(self) -> str:
        """Where a client finds the schema in its request."""
        return "response_format" if self.json_schema is None else "response_format.json_schema.schema"


class ExactRequest(Request):
    """A request whose body keeps the spelling of its numbers: `0.1` in a schema is no binary fraction."""

    async def json(self) -> Any:
        """The body. Raises `json.JSONDecodeError`."""
        return json.loads(await self.body(), parse_float=Number)


class ExactRoute(APIRoute):
    """A route that reads its body so."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler."""
        handle = super().get_route_handler()

        async def exactly(request: Request) -> Response:
            return await handle(ExactRequest(request.scope, request.receive))

        return exactly
