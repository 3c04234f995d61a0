"""Compiling off the engine's thread: a few workers, one queue, and one compile for all who want the same.

Bounds: at most MAX_WORKERS compiles run at once, in the order in which they were first asked for. How many
requests may wait is the engine's `max_queued`; what one compile may cost is the grammar's own limits.
"""

from __future__ import annotations

import logging
import os
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from threading import Condition, Lock, Thread
from typing import Generic, Protocol, TypeVar
from weakref import WeakValueDictionary

from treille.runtime.constraints import compile_constraint
from treille.runtime.errors import CompileCancelled, ConstraintError
from treille.runtime.grammar import Grammar, Vocabulary
from treille.runtime.matching import TokenIndex
from treille.runtime.params import Constraint, SamplingParams
from treille.runtime.patience import said_if_slow
from treille.runtime.schema.number_texts import prepare_numbers
from treille.runtime.stops import check_stop_regex
from treille.runtime.tokenizer import Tokenizer

logger = logging.getLogger("treille")

MAX_WORKERS = 4
# A compile may be told of somebody else's cancellation, through the cache that both fill: so often, it is
# tried again.
MAX_TRIES = 8
# Refused constraints that are remembered, and the characters that one may have.
MAX_REFUSED = 64
MAX_REFUSED_LENGTH = 65_536

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Cancelled = Callable[[], bool]


class Compile(Protocol):
    """Makes a constraint's grammar; ends with `CompileCancelled` soon after `cancelled()` is true."""

    def __call__(
        self, constraint: Constraint, vocab: Vocabulary, *, cancelled: Cancelled | None = None
    ) -> Grammar: ...


class _Waiter(Generic[K, V]):
    """One request, what it has and what it still waits for."""

    def __init__(self, keys: Sequence[K], done: Callable[[Mapping[K, V] | Exception], None]) -> None:
        self.left = set(keys)
        self.found: dict[K, V] = {}
        self.done = done


class _Job(Generic[K]):
    """One compile. It is cancelled once nobody waits for it."""

    def __init__(self, key: K) -> None:
        self.key = key
        self.waiters: dict[str, None] = {}
        self.cancelled = False


class CompilePool(Generic[K, V]):
    """Worker threads, started as they are needed. Safe from any thread.

    `compile(key, cancelled)` makes a value, on a worker; `find(key)` gives one that is there already, or
    None, or raises what is known to be wrong with it, at once.
    """

    def __init__(
        self,
        compile: Callable[[K, Cancelled], V],
        *,
        find: Callable[[K], V | None] = lambda key: None,
        num_workers: int | None = None,
    ) -> None:
        self._compile = compile
        self._find = find
        self._max_workers = num_workers or min(MAX_WORKERS, os.cpu_count() or 1)
        self._changed = Condition()  # guards everything below
        self._workers: list[Thread] = []
        self._num_idle = 0
        self._queue: OrderedDict[_Job[K], None] = OrderedDict()
        self._jobs: dict[K, _Job[K]] = {}  # queued or running, and wanted
        self._waiters: dict[str, _Waiter[K, V]] = {}
        self._closed = False

    @property
    def num_waiting(self) -> int:
        """Requests that wait for a compile."""
        return len(self._waiters)

    @property
    def num_queued(self) -> int:
        """Compiles that no worker has begun."""
        return len(self._queue)

    def submit(self, name: str, keys: Sequence[K], done: Callable[[Mapping[K, V] | Exception], None]) -> None:
        """Compile what is not there yet, then call `done` with every key's value, or with the first error.

        `done` is called exactly once, on a worker or before this returns, unless the pool is closed or
        `cancel(name)` comes first: then never. It must not raise.
        """
        waiter = _Waiter(keys, done)
        with self._changed:
            if self._closed:
                return
            failure = self._look_up(waiter)
            if failure is None and waiter.left:
                self._waiters[name] = waiter
                for key in keys:
                    if key in waiter.left:
                        self._want(name, key)
                return
        done(waiter.found if failure is None else failure)

    def cancel(self, name: str) -> None:
        """`name` waits no longer. What nobody else waits for is dropped, or told to stop if it runs."""
        with self._changed:
            waiter = self._waiters.pop(name, None)
            for key in waiter.left if waiter is not None else ():
                self._unwant(name, key)

    def close(self, *, wait: bool = True) -> None:
        """Cancel everything and stop the workers. Twice is harmless."""
        with self._changed:
            self._closed = True
            for job in self._jobs.values():
                job.cancelled = True
            self._queue.clear()
            self._jobs.clear()
            self._waiters.clear()
            self._changed.notify_all()
        for worker in self._workers if wait else ():
            worker.join()

    def _look_up(self, waiter: _Waiter[K, V]) -> Exception | None:
        """Give a waiter what is there already."""
        for key in list(waiter.left):
            try:
                value = self._find(key)
            except Exception as error:
                return error
            if value is not None:
                waiter.found[key] = value
                waiter.left.discard(key)
        return None

    def _want(self, name: str, key: K) -> None:
        job = self._jobs.get(key)
        if job is None:
            job = self._jobs[key] = _Job(key)
            self._queue[job] = None
            if self._num_idle < len(self._queue) and len(self._workers) < self._max_workers:
                worker = Thread(target=self._work, name="treille-compile", daemon=True)
                self._workers.append(worker)
                worker.start()
            self._changed.notify()
        job.waiters[name] = None

    def _unwant(self, name: str, key: K) -> None:
        job = self._jobs.get(key)
        if job is None:
            return
        job.waiters.pop(name, None)
        if not job.waiters:
            job.cancelled = True
            self._queue.pop(job, None)
            del self._jobs[key]

    def _work(self) -> None:
        while (job := self._next()) is not None:
            value, error = self._run(job)
            with self._changed:
                ready = self._settle(job, value, error)
            for waiter, failure in ready:
                waiter.done(waiter.found if failure is None else failure)

    def _next(self) -> _Job[K] | None:
        with self._changed:
            self._num_idle += 1
            self._changed.wait_for(lambda: self._queue or self._closed)
            self._num_idle -= 1
            return None if self._closed else self._queue.popitem(last=False)[0]

    def _run(self, job: _Job[K]) -> tuple[V | None, Exception | None]:
        """The value, or the error; whatever a compile raises stays in here."""
        failure: Exception = CompileCancelled("the compile was cancelled again and again")
        for _ in range(MAX_TRIES):
            try:
                return self._compile(job.key, lambda: job.cancelled), None
            except CompileCancelled as error:
                failure = error
                if job.cancelled:
                    break
            except Exception as error:
                return None, error
            except BaseException as error:  # not even an exit ends a worker: its queue would stand still
                failure = RuntimeError(f"the compile ended with {error!r}")
                failure.__cause__ = error
                break
        return None, failure

    def _settle(
        self, job: _Job[K], value: V | None, error: Exception | None
    ) -> list[tuple[_Waiter[K, V], Exception | None]]:
        """Hand a job's end to those who wait for it; returns the waiters that are ready."""
        if self._jobs.get(job.key) is not job:
            return []  # cancelled: nobody waits, or they wait for a newer one
        del self._jobs[job.key]
        ready: list[tuple[_Waiter[K, V], Exception | None]] = []
        for name in job.waiters:
            waiter = self._waiters[name]
            waiter.left.discard(job.key)
            if error is None:
                waiter.found[job.key] = value  # type: ignore[assignment]
            else:
                for key in waiter.left:
                    self._unwant(name, key)
            if error is not None or not waiter.left:
                del self._waiters[name]
                ready.append((waiter, error))
        return ready


@dataclass(frozen=True, slots=True)
class StopPattern:
    """A stop pattern that must be compiled before the request runs."""

    source: str


@dataclass(frozen=True, slots=True)
class Tokens:
    """The index of the vocabulary, without a constraint."""


CompileKey = Constraint | StopPattern | Tokens


def compile_keys(params: SamplingParams) -> tuple[CompileKey, ...]:
    """What must be compiled before a request with these parameters runs."""
    keys: list[CompileKey] = []
    if params.stop_regex is not None:
        keys.append(StopPattern(params.stop_regex))
    if params.constraint is not None:
        keys.append(params.constraint)
    if params.constraint is not None or params.heal:
        keys.append(Tokens())
    return tuple(keys)


class ConstraintCompiler:
    """Compiles requests' constraints and patterns for one tokenizer. Safe from any thread.

    The vocabulary and the index of its tokens are made once, when the first request needs them. The last
    constraints that were refused are known, so that asking again costs no compile. The first constraint of
    each kind may have to wait until the loops for it are compiled: if that takes long, the log says so.
    """

    def __init__(self, tokenizer: Tokenizer, compile: Compile | None = None) -> None:
        self._tokenizer = tokenizer
        self._make: Compile = compile or compile_constraint
        self._lock = Lock()
        self._vocab: Vocabulary | None = None
        self._index: TokenIndex | None = None
        # A grammar lives as long as a request or the vocabulary's cache, which is bounded, holds it.
        self._grammars: WeakValueDictionary[Constraint, Grammar] = WeakValueDictionary()
        self._refused: OrderedDict[Constraint, ConstraintError] = OrderedDict()
        self._kinds: set[str] = set()  # of the constraints that were asked for

    @property
    def index(self) -> TokenIndex:
        """The tokens by their bytes."""
        with self._lock:
            if self._index is None:
                self._index = TokenIndex(self._tokenizer.token_bytes)
            return self._index

    def find(self, key: CompileKey) -> Grammar | TokenIndex | None:
        """What is compiled already. Raises the error of what was refused."""
        if isinstance(key, Tokens):
            return self._index
        if not isinstance(key, Constraint):
            return None
        error = self._refused.get(key)
        if error is not None:
            raise error.with_traceback(None)  # else it would grow with each time that it is raised
        return self._grammars.get(key)

    def __call__(self, key: CompileKey, cancelled: Cancelled) -> Grammar | TokenIndex | None:
        """Compile now. Raises the constraint's error, or `CompileCancelled`."""
        if isinstance(key, StopPattern):
            check_stop_regex(key.source)
            return None
        if isinstance(key, Tokens):
            return self.index
        try:
            with self._explained(key.kind):
                grammar = self._make(key, self._vocabulary(), cancelled=cancelled)
        except ConstraintError as error:
            self._refuse(key, error)
            raise
        self._grammars[key] = grammar
        return grammar

    def _explained(self, kind: str) -> AbstractContextManager[None]:
        with self._lock:
            is_first = kind not in self._kinds
            self._kinds.add(kind)
        return said_if_slow(logger.warning) if is_first else nullcontext()

    def _refuse(self, key: Constraint, error: ConstraintError) -> None:
        if key.num_characters > MAX_REFUSED_LENGTH:
            return
        with self._lock:
            self._refused[key] = error
            if len(self._refused) > MAX_REFUSED:
                self._refused.popitem(last=False)

    def _vocabulary(self) -> Vocabulary:
        with self._lock:
            if self._vocab is None:
                vocab = Vocabulary.from_tokenizer(self._tokenizer)
                vocab.prepare()
                prepare_numbers()
                self._vocab = vocab
            return self._vocab
