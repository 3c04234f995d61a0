"""An event loop on a thread of its own, owned by whoever opens it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class LoopThread:
    """A context manager: the loop runs inside it. Leaving cancels what is left and ends the thread."""

    def __init__(self) -> None:
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="treille-loop", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    def __enter__(self) -> LoopThread:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._stop is not None:
            self.post(self._stop.set)
        self._thread.join()

    def post(self, function: Callable[[*Ts], object], *args: *Ts) -> None:
        """Call a function on the loop soon; from any thread. Raises RuntimeError once the loop is closed."""
        if self._loop is None:
            raise RuntimeError("the loop is not running")
        self._loop.call_soon_threadsafe(function, *args)

    def wait_for(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for its end; from any other thread."""
        if self._loop is None:
            raise RuntimeError("the loop is not running")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _serve(self) -> None:
        asyncio.run(self._until_stopped())

    async def _until_stopped(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._ready.set()
        await self._stop.wait()
