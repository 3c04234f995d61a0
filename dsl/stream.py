"""`ProgramStream`: a run whose events can be read while it goes on."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from types import TracebackType

from treille.dsl.call import Call, execute
from treille.dsl.errors import ProgramCancelled, ProgramError
from treille.dsl.events import FinishedEvent, ProgramEvent
from treille.dsl.location import caller
from treille.dsl.loop import LoopThread
from treille.dsl.protocol import Backend
from treille.dsl.run import Run
from treille.dsl.state import State


@dataclass(frozen=True, slots=True)
class _End:
    """The last item of the channel: the state, or why there is none (both None: the reader had left)."""

    state: State | None
    error: BaseException | None


Item = ProgramEvent | _End


class ProgramStream:
    """One run's events, for one `for` or one `async for`; the run starts with the loop.

    Leaving the loop early aborts the run: its requests at once, the program's own Python code at its next
    use of the state. `with stream:` / `async with stream:` also wait until that is over. Errors are raised
    after the events that came before them. `state` is there once the stream has ended.
    """

    def __init__(self, call: Call, backend: Backend) -> None:
        self._call = call
        self._backend = backend
        self._worker: _Worker | None = None

    @property
    def state(self) -> State:
        """The program's state. Raises ProgramError as long as the stream has not ended."""
        end = None if self._worker is None else self._worker.end
        if end is None or end.state is None:
            raise ProgramError("the stream has not ended: there is no state yet", where=caller())
        return end.state

    def __iter__(self) -> Iterator[ProgramEvent]:
        items: queue.SimpleQueue[Item] = queue.SimpleQueue()
        return _Events(self._start(items.put), items)

    def __aiter__(self) -> AsyncIterator[ProgramEvent]:
        items: asyncio.Queue[Item] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def put(item: Item) -> None:
            loop.call_soon_threadsafe(items.put_nowait, item)

        return _AsyncEvents(self._start(put), items)

    def close(self) -> None:
        """Abort the run if it still goes on, and wait for its end."""
        if self._worker is not None:
            self._worker.cancel()
            self._worker.join()

    async def aclose(self) -> None:
        """Abort the run if it still goes on, and wait for its end without blocking the event loop."""
        if self._worker is not None:
            self._worker.cancel()
            while not self._worker.is_over:
                await asyncio.sleep(0.001)
            self._worker.join()

    def __enter__(self) -> ProgramStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> ProgramStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def _start(self, put: Callable[[Item], None]) -> _Worker:
        if self._worker is not None:
            raise ProgramError("a stream can be read once", where=caller())
        self._worker = _Worker(self._call, self._backend, put)
        return self._worker


class _Worker:
    """The program's thread, with an event loop beside it."""

    def __init__(self, call: Call, backend: Backend, put: Callable[[Item], None]) -> None:
        self.end: _End | None = None
        self._call = call
        self._put = put
        self._loop = LoopThread()
        self._run = Run(backend, self._loop, defaults=call.defaults, sink=self._send)
        self._thread = threading.Thread(target=self._work, name="treille-program", daemon=True)
        self._loop.__enter__()
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """The program has ended, well or not, and its loop with it."""
        return self.end is not None

    def cancel(self) -> None:
        """The reader left. Does not wait."""
        self._run.cancel()

    def join(self) -> None:
        """Wait for the end."""
        self._thread.join()

    def _work(self) -> None:
        try:
            state = execute(self._call, self._run)
            end = _End(state, None)
        except ProgramCancelled:
            end = _End(None, None)
        except BaseException as error:
            end = _End(None, error)
        self._loop.__exit__(None, None, None)
        self.end = end
        if end.state is not None:
            self._send(FinishedEvent(usage=end.state.usage))
        self._send(end)

    def _send(self, item: Item) -> None:
        try:
            self._put(item)
        except RuntimeError:  # the reader's event loop is closed: nobody is left to read
            self._run.cancel()


class _Events(Iterator[ProgramEvent]):
    """The reader's end for `for`. Dropping it is leaving."""

    def __init__(self, worker: _Worker, items: queue.SimpleQueue[Item]) -> None:
        self._worker = worker
        self._items = items
        self._ended = False

    def __next__(self) -> ProgramEvent:
        if self._ended:
            raise StopIteration
        item = self._items.get()
        if not isinstance(item, _End):
            return item
        self._ended = True
        self._worker.join()
        if item.error is not None:
            raise item.error
        raise StopIteration

    def __del__(self) -> None:
        self._worker.cancel()


class _AsyncEvents(AsyncIterator[ProgramEvent]):
    """The reader's end for `async for`. Dropping it is leaving."""

    def __init__(self, worker: _Worker, items: asyncio.Queue[Item]) -> None:
        self._worker = worker
        self._items = items
        self._ended = False

    async def __anext__(self) -> ProgramEvent:
        if self._ended:
            raise StopAsyncIteration
        item = await self._items.get()
        if not isinstance(item, _End):
            return item
        self._ended = True
        self._worker.join()
        if item.error is not None:
            raise item.error
        raise StopAsyncIteration

    def __del__(self) -> None:
        self._worker.cancel()
