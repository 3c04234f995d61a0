"""Waiting for the engine while watching the client, and server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

from pydantic import BaseModel
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from treille.server.errors import ApiError, report
from treille.server.job import Job

T = TypeVar("T")

DONE = b"data: [DONE]\n\n"
Frames = AsyncGenerator[bytes, None]


class ClientGone(ApiError):
    """The client closed its connection; nobody reads this answer."""

    def __init__(self) -> None:
        super().__init__(499, "the client closed the connection")


def frame(body: BaseModel) -> bytes:
    """One event."""
    return b"data: " + body.model_dump_json(exclude_unset=True).encode() + b"\n\n"


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, or `ClientGone` as soon as the client is; `work` is cancelled then, and
    over when this returns. The request's body must have been read."""
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(_disconnect(receive))
    try:
        await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientGone
    finally:
        task.cancel()
        watch.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)


async def collect(receive: Receive, job: Job, work: Coroutine[Any, Any, T]) -> T:
    """`while_connected` for an answer in one piece; the job is over afterwards, come what may."""
    try:
        return await while_connected(receive, work)
    finally:
        job.abort()


async def start_stream(receive: Receive, job: Job, frames: Frames) -> Response:
    """The streamed answer, once its first event is there: what fails before that is a plain error
    answer, with its own status. The response ends the job."""
    try:
        first = await while_connected(receive, _next(frames))
    except BaseException:
        job.abort()
        raise
    return EventStream(first, frames, job)


class EventStream(Response):
    """Sends `first` and then `frames` as server-sent events, and aborts `job` at the end: at the last
    frame, when the client goes away, or when the server stops."""

    media_type = "text/event-stream"

    def __init__(self, first: bytes, frames: Frames, job: Job) -> None:
        self.status_code = 200
        self.background = None
        # Proxies must pass on every event at once.
        self.init_headers({"cache-control": "no-cache", "x-accel-buffering": "no"})
        self._first = first
        self._frames = frames
        self._job = job

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the ASGI response."""
        try:
            await while_connected(receive, self._send(send))
        except ClientGone:
            pass
        finally:
            self._job.abort()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self._first, "more_body": True})
        async with aclosing(self._frames):
            try:
                async for piece in self._frames:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
            except Exception as error:
                # The status line is out already: clients take an event that holds an error for one.
                piece = b"data: " + report(error).json() + b"\n\n"
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _next(frames: Frames) -> bytes:
    return await anext(frames)


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
