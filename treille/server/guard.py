"""The ASGI layer around the routes: who may come in, how much they may bring, and what went wrong."""

from __future__ import annotations

import hmac
import uuid

from fastapi import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from treille.server.errors import ApiError, report

MAX_HEADER_BYTES = 32 * 1024
MAX_HEADERS = 100
OPEN_PATHS = frozenset({"/health"})


class Guard:
    """Answers 401, 413 and 431 before a route sees the request, and 500 for what no route declared.

    `api_key=None` lets everybody in. With a key every path but `/health` wants
    `Authorization: Bearer KEY`. Each answer carries an `x-request-id`.
    """

    def __init__(self, app: ASGIApp, *, api_key: str | None, max_body_bytes: int) -> None:
        self._app = app
        self._key = None if api_key is None else api_key.encode()
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = f"req_{uuid.uuid4().hex}"
        started = False

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
            await send(message)

        try:
            self._check(scope)
            await self._app(scope, _limited(receive, self._max_body_bytes), send_with_id)
        except Exception as error:
            if started:
                raise
            await report(error).response()(scope, receive, send_with_id)

    def _check(self, scope: Scope) -> None:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        if len(headers) > MAX_HEADERS or sum(len(k) + len(v) for k, v in headers) > MAX_HEADER_BYTES:
            raise ApiError(431, f"more than {MAX_HEADERS} headers or {MAX_HEADER_BYTES} bytes of them")
        given = dict(headers)
        if self._key is not None and scope["path"] not in OPEN_PATHS:
            self._authenticate(given.get(b"authorization", b""))
        length = given.get(b"content-length", b"0")
        if length.isdigit() and int(length[:20]) > self._max_body_bytes:
            raise ApiError(413, f"the body is larger than {self._max_body_bytes} bytes")

    def _authenticate(self, authorization: bytes) -> None:
        scheme, _, key = authorization.partition(b" ")
        # compare_digest takes as long for a wrong key as for a right one.
        if scheme.lower() != b"bearer" or not hmac.compare_digest(key.strip(), self._key or b""):
            raise ApiError(
                401,
                "wrong or missing API key: send it as 'Authorization: Bearer KEY'",
                code="invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )


def _limited(receive: Receive, limit: int) -> Receive:
    """`receive`, counting body bytes: a chunked body does not announce its length."""
    total = 0

    async def counted() -> Message:
        nonlocal total
        message = await receive()
        total += len(message.get("body", b""))
        if total > limit:
            # FastAPI passes its own HTTPException on and turns any other into a 400.
            raise HTTPException(413, f"the body is larger than {limit} bytes")
        return message

    return counted
