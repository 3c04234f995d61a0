"""`EventStream`: a request's events, from the engine's thread to whoever reads them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from threading import Condition

from treille.runtime.types import Event, Failed, Finished, Scored


class EventStream(Iterator[Event], AsyncIterator[Event]):
    """The events of one request, in order; ends after its Finished, Scored or Failed event.

    Read it with `for` from a thread or with `async for` from any event loop, one reader at a time.
    Leaving early does not stop the request: call `abort()`, which is harmless at any time.
    """

    def __init__(self, request_id: str, abort: Callable[[str], None]) -> None:
        self.request_id = request_id
        self._abort = abort
        self._events: deque[Event] = deque()
        self._ready = Condition()
        self._waiter: tuple[asyncio.AbstractEventLoop, asyncio.Future[None]] | None = None
        self._over = False

    def abort(self) -> None:
        """Stop the request; its last event still comes."""
        self._abort(self.request_id)

    def put(self, event: Event) -> None:
        """Add an event. Called by the engine, from any thread."""
        with self._ready:
            self._events.append(event)
            self._ready.notify_all()
            waiter, self._waiter = self._waiter, None
        if waiter is not None:
            loop, future = waiter
            try:
                loop.call_soon_threadsafe(_wake, future)
            except RuntimeError:  # the reader's loop is closed: nobody is left to wake
                return

    def __iter__(self) -> EventStream:
        return self

    def __next__(self) -> Event:
        if self._over:
            raise StopIteration
        with self._ready:
            self._ready.wait_for(lambda: self._events)
            return self._take()

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> Event:
        if self._over:
            raise StopAsyncIteration
        while True:
            with self._ready:
                if self._events:
                    return self._take()
                loop = asyncio.get_running_loop()
                future: asyncio.Future[None] = loop.create_future()
                self._waiter = (loop, future)
            await future

    def _take(self) -> Event:
        event = self._events.popleft()
        self._over = isinstance(event, (Finished, Scored, Failed))
        return event


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
