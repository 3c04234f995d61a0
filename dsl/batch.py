"""Many calls of a program at once: a bounded number of threads, one event loop, one shared prefix."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Literal

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from treille.dsl.call import Call, execute
from treille.dsl.errors import InvalidExpression, ProgramCancelled
from treille.dsl.location import caller
from treille.dsl.loop import LoopThread
from treille.dsl.prompts import common_prefix
from treille.dsl.protocol import Backend, Prompt
from treille.dsl.run import Run
from treille.dsl.state import State

OnError = Literal["raise", "return"]
DEFAULT_WORKERS = 64
# How long the first program waits for a second one, whose prompt shows what they have in common.
PATIENCE_S = 1.0


class PrefixGate:
    """Holds back the programs of a batch until the prefix that they share is in the cache.

    Two prompts are enough: whatever all have in common is part of what the first two have in common,
    and these two need all of it. The gate opens once that is computed, when no second program can come,
    or after `PATIENCE_S`. Its methods are called on the batch's loop.
    """

    def __init__(self, backend: Backend, num_programs: int) -> None:
        self._backend = backend
        self._num_coming = num_programs
        self._first: Prompt | None = None
        self._is_priming = False
        self._opened = asyncio.Event()

    async def arrive(self, prompt: Prompt) -> None:
        """A program is about to use the backend for the first time, with this prompt."""
        self._num_coming -= 1
        if self._first is None:
            self._first = prompt
            if self._num_coming > 0:
                asyncio.get_running_loop().call_later(PATIENCE_S, self._give_up)
            else:
                self._opened.set()
        elif not self._opened.is_set() and not self._is_priming:
            self._is_priming = True
            try:
                shared = common_prefix(self._first, prompt)
                if shared.text:
                    await self._backend.prime(shared)
            finally:
                self._opened.set()
        await self._opened.wait()

    def leave(self) -> None:
        """A program ended without having used the backend."""
        self._num_coming -= 1
        if self._num_coming == 0 and not self._is_priming:
            self._opened.set()

    def _give_up(self) -> None:
        if not self._is_priming:
            self._opened.set()


def run_batch(
    calls: Sequence[Call], backend: Backend, *, progress: bool, max_workers: int | None, on_error: OnError
) -> list[State | Exception]:
    """Run all calls; see `Program.batch`."""
    if max_workers is not None and (isinstance(max_workers, bool) or not isinstance(max_workers, int)):
        raise InvalidExpression(f"max_workers must be a whole number, not {max_workers!r}", where=caller())
    if max_workers is not None and max_workers < 1:
        raise InvalidExpression(f"max_workers must be at least 1, not {max_workers}", where=caller())
    if on_error not in ("raise", "return"):
        raise InvalidExpression(f"on_error must be 'raise' or 'return', not {on_error!r}", where=caller())
    if not calls:
        return []
    num_workers = min(len(calls), max_workers or DEFAULT_WORKERS)
    with LoopThread() as loop:
        batch = _Batch(calls, backend, loop, has_gate=num_workers > 1)
        with ThreadPoolExecutor(num_workers, thread_name_prefix="treille-program") as pool:
            futures = [pool.submit(batch.run_item, index) for index in range(len(calls))]
            try:
                with _bar(len(calls), shown=progress) as bar:
                    return _gather(futures, bar, on_error)
            except BaseException:
                batch.cancel()
                pool.shutdown(wait=False, cancel_futures=True)
                raise


class _Batch:
    """The runs of one batch, so that they can be cancelled together."""

    def __init__(self, calls: Sequence[Call], backend: Backend, loop: LoopThread, *, has_gate: bool) -> None:
        self._calls = calls
        self._backend = backend
        self._loop = loop
        self._gate = PrefixGate(backend, len(calls)) if has_gate else None
        self._runs: set[Run] = set()
        self._is_cancelled = False

    def run_item(self, index: int) -> State:
        """Run one call in this thread."""
        call, gate = self._calls[index], self._gate
        run = Run(
            self._backend,
            self._loop,
            defaults=call.defaults,
            gate=None if gate is None else gate.arrive,
        )
        self._runs.add(run)
        try:
            if self._is_cancelled:
                raise ProgramCancelled
            return execute(call, run)
        except Exception as error:
            error.add_note(f"in item {index} of the batch")
            raise
        finally:
            self._runs.discard(run)
            if gate is not None and not run.is_admitted:
                self._loop.post(gate.leave)

    def cancel(self) -> None:
        """Abort what runs."""
        self._is_cancelled = True
        for run in list(self._runs):
            run.cancel()


def _gather(futures: Sequence[Future[State]], bar: _Bar, on_error: OnError) -> list[State | Exception]:
    pending = set(futures)
    while pending:
        done, pending = wait(pending, return_when=FIRST_COMPLETED)
        bar.advance(len(done))
        if on_error == "raise":
            for future in futures:
                if future in done and (error := future.exception()) is not None:
                    raise error
    return [_outcome(future) for future in futures]


def _outcome(future: Future[State]) -> State | Exception:
    error = future.exception()
    if error is None:
        return future.result()
    if isinstance(error, Exception):
        return error
    raise error


class _Bar:
    """A progress bar, or nothing."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress = progress
        self._task = None if progress is None else progress.add_task("programs", total=total)

    def advance(self, amount: int) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.advance(self._task, amount)


@contextmanager
def _bar(total: int, *, shown: bool) -> Iterator[_Bar]:
    if not shown:
        yield _Bar(None, total)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield _Bar(progress, total)
