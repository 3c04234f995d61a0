"""Every failure as OpenAI's error body: `{"error": {"message", "type", "param", "code"}}`."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from treille.runtime.errors import (
    EngineClosed,
    EngineOverloaded,
    InvalidConstraint,
    RequestAborted,
    RequestError,
    UnsupportedConstraint,
)
from treille.runtime.schema_source import CHOICES
from treille.server.response_format import NAMED_SCHEMA

logger = logging.getLogger("treille.server")

MAX_MESSAGE = 2000
RETRY_AFTER_SECONDS = "1"

# Names under which other servers know a field of ours.
OTHER_NAMES = {
    "guided_regex": "regex",
    "guided_choice": "choices",
    "guided_grammar": "grammar",
    "guided_json": "schema",
    "guided_whitespace_pattern": "whitespace",
    "json_schema": "schema",
    "choice": "choices",
    "structured_outputs": "regex, choices, schema or grammar",
    "stop_sequences": "stop",
    "max_new_tokens": "max_tokens",
    "input_ids": "prompt",
}


class ApiError(Exception):
    """An answer other than 200. `kind` is the body's `type`."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param
        self.code = code
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        """The JSON body."""
        message = self.message if len(self.message) <= MAX_MESSAGE else self.message[:MAX_MESSAGE] + "..."
        return {"error": {"message": message, "type": self.kind, "param": self.param, "code": self.code}}

    def json(self) -> bytes:
        """The body in ASCII: what a client sent and we quote may hold lone surrogates."""
        return json.dumps(self.body()).encode("ascii")

    def response(self) -> Response:
        """The whole answer."""
        return Response(self.json(), self.status, headers=self.headers, media_type="application/json")


# What routes may raise; `HTTPException` is how Starlette says 404, 405 and the like.
DECLARED: tuple[type[Exception], ...] = (
    ApiError,
    RequestError,
    EngineOverloaded,
    EngineClosed,
    RequestAborted,
    RequestValidationError,
    HTTPException,
)


def classify(error: Exception) -> ApiError:
    """The answer for an exception. One that is nobody's declared fault becomes a bare 500: its text
    may hold what is not the client's business."""
    match error:
        case ApiError():
            return error
        case UnsupportedConstraint():
            return ApiError(400, str(error), param=error.field, code="unsupported_constraint")
        case InvalidConstraint():
            return ApiError(400, str(error), param=error.field, code="invalid_constraint")
        case RequestError():
            return ApiError(400, str(error), param=error.field)
        case EngineOverloaded():
            headers = {"retry-after": RETRY_AFTER_SECONDS}
            return ApiError(503, str(error), kind="server_error", code="engine_overloaded", headers=headers)
        case EngineClosed():
            # Its text may quote the fault that stopped the loop.
            return ApiError(503, "the engine is closed", kind="server_error", code="engine_closed")
        case RequestAborted():
            message = "the server stopped this request; send it again"
            return ApiError(503, message, kind="server_error", code="request_aborted")
        case RequestValidationError():
            return _validation(error.errors(), error.body)
        case HTTPException():
            return ApiError(error.status_code, str(error.detail), headers=error.headers)
        case _:
            return ApiError(500, "internal server error", kind="server_error", code="internal_error")


@contextmanager
def told_as(names: Mapping[str, str]) -> Iterator[None]:
    """Errors name a field by the name that the client has for it."""
    try:
        yield
    except RequestError as error:
        name = names.get(error.field or "")
        if name is None:
            raise
        answer = classify(error)
        answer.param = name
        raise answer from error


def report(error: Exception) -> ApiError:
    """`classify`, and a log entry with the traceback for what is our own fault."""
    answer = classify(error)
    if answer.status == 500:
        logger.error("a request failed", exc_info=error)
    return answer


def install(app: FastAPI) -> None:
    """Make `app` answer every declared failure in OpenAI's shape; `guard.Guard` sees to the rest."""

    async def answer(_: Request, error: Exception) -> Response:
        return report(error).response()

    for kind in DECLARED:
        app.add_exception_handler(kind, answer)


def _validation(errors: Sequence[Any], body: Any) -> ApiError:
    """The first thing wrong with a body, in one sentence that names the field."""
    first = errors[0]
    place = [str(part) for part in first["loc"] if part != "body"]
    if first["type"] == "json_invalid":
        fault = json.JSONDecodeError(first["ctx"]["error"], str(body), int(place[-1]))
        where = f"line {fault.lineno} column {fault.colno}"
        return ApiError(400, f"the body is not JSON: {fault.msg} at {where}")
    if not place and first["type"] in ("missing", "model_attributes_type", "model_type"):
        return ApiError(400, "the body must be a JSON object sent as application/json")
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, RequestError):
        param = ".".join([*place, cause.field] if cause.field else place)
        # A check of a field's own type does not know the field's name.
        says_it = cause.field or not param
        return ApiError(400, str(cause) if says_it else f"{param}: {cause}", param=param or None)
    param = _printable(".".join(place))
    reason = first["msg"][0].lower() + first["msg"][1:]
    if first["type"] == "extra_forbidden":
        return ApiError(400, f"unknown field {param}{_mend(place)}", param=param, code="unknown_field")
    if first["type"] == "missing":
        return ApiError(400, f"{param} is missing", param=param)
    return ApiError(400, f"{param or 'the body'}: {reason}", param=param or None)


def _mend(place: Sequence[str]) -> str:
    """What is likely to be meant by an unknown field."""
    name = place[-1]
    if place[0] == "response_format" and name in ("whitespace", *CHOICES):
        return "; it goes beside response_format, not inside of it"
    if place[:-1] == ["response_format"] and name == "schema":
        return f"; a schema goes into json_schema: {NAMED_SCHEMA}"
    known = OTHER_NAMES.get(name)
    return f"; it is called {known} here" if known else ""


def _printable(name: str) -> str:
    return name if name.isprintable() and len(name) <= 100 else ascii(name)[1:-1][:100]
