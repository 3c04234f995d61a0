"""`Run`: what all states of one run of a program share."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

from treille.dsl.errors import GenerationFailed, ProgramCancelled, ProgramError
from treille.dsl.events import ProgramEvent
from treille.dsl.interpreter import Interpreter, Step
from treille.dsl.location import Location
from treille.dsl.loop import LoopThread
from treille.dsl.nodes import Sync
from treille.dsl.protocol import Backend, GenOptions, Prompt, UsageCounts

T = TypeVar("T")

Sink = Callable[[ProgramEvent], None]
Gate = Callable[[Prompt], Awaitable[None]]


class Run:
    """One execution: backend, defaults, usage, and the interpreters of its states.

    The program's thread calls `post`, `wait`, `finish` and `close`; `cancel` may be called from anywhere.
    The interpreters run on `loop` and call `emit`, `admit`, `count` and `hold`. `gate` is awaited before the
    first use of the backend with the prompt of that use.
    """

    def __init__(
        self,
        backend: Backend,
        loop: LoopThread,
        *,
        defaults: GenOptions,
        sink: Sink | None = None,
        gate: Gate | None = None,
    ) -> None:
        self.backend = backend
        self.defaults = defaults
        self.usage = UsageCounts()
        self._loop = loop
        self._sink = sink
        self._gate = gate
        # Reentrant: a collected stream cancels its run from wherever the collector happens to run.
        self._lock = threading.RLock()
        self._is_over = False
        self._is_cancelled = False
        self._interpreters: list[Interpreter] = []
        self._delivered: set[GenerationFailed] = set()
        self._releases: list[Callable[[], None]] = []

    # The program's thread.

    @property
    def is_over(self) -> bool:
        """Nothing can be added any more."""
        return self._is_over

    @property
    def is_admitted(self) -> bool:
        """Whether the gate, if there was one, has been reached."""
        return self._gate is None

    def add(self, interpreter: Interpreter) -> None:
        """Make a state's interpreter part of this run."""
        with self._lock:
            self._interpreters.append(interpreter)

    def post(self, interpreter: Interpreter, steps: Sequence[Step], where: Location) -> None:
        """Queue steps of a state. Raises ProgramError when the run is over."""
        with self._lock:
            if self._is_cancelled:
                raise ProgramCancelled
            if self._is_over:
                raise ProgramError("the program is over: nothing can be added to its state", where=where)
            self._loop.post(interpreter.push, steps)

    def wait(self, future: Future[T]) -> T:
        """Block until the future has its result; raises the failure that keeps it from having one."""
        try:
            return future.result()
        except GenerationFailed as error:
            self._delivered.add(error)
            raise error.with_traceback(None) from error.__cause__

    def finish(self, where: Location) -> None:
        """Wait until every state has done all of its steps.

        Raises the failure of the program's own state, or one of a branch that the program has not seen.
        """
        with self._lock:
            interpreters = list(self._interpreters)
        ends: list[Future[Prompt]] = []
        for interpreter in interpreters:
            end: Future[Prompt] = Future()
            ends.append(end)
            self.post(interpreter, [Step(Sync(), where, synced=end)], where)
        failures = [error for end in ends if (error := end.exception()) is not None]
        root = ends[0].exception() if ends else None
        for error in [root] if root is not None else failures:
            if error is root or error not in self._delivered:
                raise error.with_traceback(None) from error.__cause__

    def close(self) -> None:
        """End whatever still runs, wait for that, and let go of what was held. After this the states can only
        be read."""
        with self._lock:
            self._is_over = True
            interpreters = list(self._interpreters)
        try:
            self._loop.wait_for(_stop_all(interpreters))
        finally:
            while self._releases:
                self._releases.pop()()

    def cancel(self) -> None:
        """The caller left: abort what runs; the program is unwound at its next read or addition."""
        with self._lock:
            if self._is_over or self._is_cancelled:
                return
            self._is_cancelled = True
            for interpreter in self._interpreters:
                self._loop.post(interpreter.stop)

    # The loop's thread.

    async def admit(self, prompt: Prompt) -> None:
        """Called before each use of the backend: the first one passes the gate."""
        gate, self._gate = self._gate, None
        if gate is not None:
            await gate(prompt)

    def emit(self, event: ProgramEvent) -> None:
        """Hand an event to whoever listens."""
        if self._sink is not None:
            self._sink(event)

    def count(self, usage: UsageCounts) -> None:
        """Add a request's tokens to the run's."""
        self.usage += usage

    def hold(self, release: Callable[[], None]) -> None:
        """Something is held for as long as the run lasts."""
        self._releases.append(release)


async def _stop_all(interpreters: Sequence[Interpreter]) -> None:
    busy = [interpreter for interpreter in interpreters if not interpreter.is_idle]
    tasks = [task for interpreter in busy if (task := interpreter.stop()) is not None]
    await asyncio.gather(*tasks, return_exceptions=True)
